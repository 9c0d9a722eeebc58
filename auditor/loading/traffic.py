"""What the traffic itself tells: observed lengths from a log, prompt texts from a file."""

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from auditor.errors import Problem
from auditor.loading.files import FileError, read_text
from auditor.loading.problems import Problems
from auditor.profile import Lengths, Profile, TrafficClass

__all__ = ["OBSERVED", "observed_class", "read", "read_lengths", "read_prompts"]

OBSERVED = "observed"
"""The name of the class that a traffic log fills."""

MAX_BYTES = 256 << 20
MAX_PROBLEMS = 5

# Column names without case and punctuation. OpenAI usage and LiteLLM spend logs (prompt_tokens, completion_tokens), the
# Responses API and OpenTelemetry (input_tokens, output_tokens; gen_ai.usage.*), vLLM (num_prompt_tokens,
# num_generation_tokens; prompt_len, output_len of its benchmarks), Azure LLM inference traces (ContextTokens,
# GeneratedTokens), Mooncake traces (input_length, output_length), BurstGPT (Request tokens, Response tokens).
_PROMPT = (
    "prompttokens",
    "inputtokens",
    "genaiusageinputtokens",
    "genaiusageprompttokens",
    "numprompttokens",
    "promptlen",
    "inputlen",
    "promptlength",
    "inputlength",
    "contexttokens",
    "requesttokens",
)
_OUTPUT = (
    "completiontokens",
    "outputtokens",
    "genaiusageoutputtokens",
    "genaiusagecompletiontokens",
    "numgenerationtokens",
    "outputlen",
    "outputlength",
    "completionlength",
    "generatedtokens",
    "generationtokens",
    "responsetokens",
)
_NESTED = ("usage", "response", "body", "response_obj", "attributes", "metrics", "request_metrics")

Pair = tuple[int, int]


def read(profile: Profile, folder: Path, problems: Problems) -> tuple[tuple[TrafficClass, ...], tuple[str, ...]]:
    """The classes (from the log where the profile declares none) and the prompt texts; adds problems."""
    traffic = profile.traffic
    classes, prompts = traffic.classes, tuple[str, ...]()
    wanted = traffic.log is not None and not classes and not problems.is_blamed(("traffic", "classes"))
    if wanted and (text := _text(folder, str(traffic.log), ("traffic", "log"), problems)):
        pairs, bad = read_lengths(text, str(traffic.log))
        problems.found += bad
        if pairs:
            classes = (observed_class(pairs),)
        elif not bad:
            problems.add(("traffic", "log"), f"{traffic.log} holds no request with prompt and output tokens")
    if traffic.prompts is not None and (text := _text(folder, traffic.prompts, ("traffic", "prompts"), problems)):
        prompts, bad = read_prompts(text, traffic.prompts)
        problems.found += bad
    return classes, prompts


def _text(folder: Path, name: str, path: tuple[str, str], problems: Problems) -> str | None:
    try:
        text = read_text(folder / name, MAX_BYTES)
    except FileError as error:
        problems.add(path, f"{name}: {error}")
        return None
    if not text.strip():
        problems.add(path, f"{name} is empty")
        return None
    return text


# ------------------------------------------------------------------------------------------------------------- lengths


def observed_class(pairs: Sequence[Pair]) -> TrafficClass:
    """One class with the observed lengths."""
    prompts, outputs = zip(*pairs, strict=True)
    return TrafficClass(name=OBSERVED, prompt_tokens=_lengths(prompts), output_tokens=_lengths(outputs))


def _lengths(values: Sequence[int]) -> Lengths:
    """Percentiles by nearest rank: the smallest value that at least this share of the requests does not exceed."""
    ordered = sorted(values)
    p50, p95, p99 = (ordered[math.ceil(q * len(ordered) / 100) - 1] for q in (50, 95, 99))
    return Lengths(p50=p50, p95=p95, p99=p99, max=ordered[-1])


def read_lengths(text: str, name: str) -> tuple[tuple[Pair, ...], list[Problem]]:
    """(prompt, output) tokens of every request that ended with both, and problems by line of the log.

    JSON lines and CSV are told apart by their first character. Requests without a reply (0 tokens) are left out.
    """
    rows = _json_rows(text) if text.lstrip().startswith("{") else _csv_rows(text)
    pairs: list[Pair] = []
    problems: list[Problem] = []
    known = False
    for line, row in rows:
        prompt, output = (_tokens(row, names) if isinstance(row, Mapping) else row for names in (_PROMPT, _OUTPUT))
        if isinstance(prompt, str) or isinstance(output, str):
            problems.append(Problem(name, line, 1, prompt if isinstance(prompt, str) else str(output)))
        known = known or (prompt is not None and output is not None)
        if isinstance(prompt, int) and isinstance(output, int) and prompt > 0 and output > 0:
            pairs.append((prompt, output))
        if len(problems) >= MAX_PROBLEMS:
            break
    if not known and not problems:
        wanted = "prompt_tokens and completion_tokens (or input_length and output_length, ContextTokens ...)"
        problems.append(Problem(name, 1, 1, f"no columns for the lengths; needs {wanted}"))
    return tuple(pairs), problems


def _json_rows(text: str) -> Iterator[tuple[int, Any]]:
    """Line number and object of each line; a text says what is wrong with the line."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield number, _json_object(line)


def _json_object(line: str) -> Any:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return "this line is not JSON"
    return row if isinstance(row, dict) else "this line holds no JSON object"


def _csv_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    lines = text.splitlines()
    delimiter = max(",;\t", key=lines[0].count)
    reader = csv.DictReader(lines, delimiter=delimiter, restval="", quoting=csv.QUOTE_MINIMAL)
    for row in reader:
        yield reader.line_num, {key: value for key, value in row.items() if isinstance(key, str)}


def _tokens(row: Mapping[str, Any], names: Iterable[str], depth: int = 0) -> int | str | None:
    """The first of the named columns that is filled; None where there is none, a text where it holds no count."""
    plain = {re.sub(r"[^a-z0-9]", "", key.lower()): value for key, value in row.items()}
    for name in names:
        value = plain.get(name)
        if value not in (None, ""):
            return _count(value)
    for name in _NESTED if depth < 4 else ():
        inner = row.get(name)
        found = _tokens(inner, names, depth + 1) if isinstance(inner, Mapping) else None
        if found is not None:
            return found
    return None


def _count(value: Any) -> int | str:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not number.is_integer() or not 0 <= number < 1e12:
        return f"{str(value)[:40]!r} is no number of tokens"
    return int(number)


# ------------------------------------------------------------------------------------------------------------- prompts


def read_prompts(text: str, name: str) -> tuple[tuple[str, ...], list[Problem]]:
    """Prompt texts: JSON lines with `prompt` or `messages`, else one prompt a line. Problems by line."""
    if not text.lstrip().startswith("{"):
        return tuple(line.strip() for line in text.splitlines() if line.strip()), []
    prompts: list[str] = []
    problems: list[Problem] = []
    for number, row in _json_rows(text):
        prompt = _prompt(row) if isinstance(row, Mapping) else None
        if prompt:
            prompts.append(prompt)
        else:
            reason = row if isinstance(row, str) else "needs a text under 'prompt', or 'messages' with texts"
            problems.append(Problem(name, number, 1, reason))
        if len(problems) >= MAX_PROBLEMS:
            break
    return tuple(prompts), problems


def _prompt(row: Mapping[str, Any]) -> str | None:
    """The prompt of one line; the texts of a conversation are joined, as the server sees them all."""
    for name in ("prompt", "text", "input"):
        if isinstance(row.get(name), str):
            return str(row[name])
    body = row.get("body")
    messages = row.get("messages") or (body.get("messages") if isinstance(body, Mapping) else None)
    if not isinstance(messages, list):
        return None
    texts = [message.get("content") for message in messages if isinstance(message, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str)) or None
