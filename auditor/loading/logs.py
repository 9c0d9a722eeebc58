"""Traffic logs of several tools: what each request asked for, when it came, and what it shares with others."""

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from auditor.errors import Problem
from auditor.loads import Logged

__all__ = ["MAX_PROBLEMS", "busiest_rate", "json_rows", "read_log"]

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

_TIME = (
    "timestamp",
    "starttime",
    "starttimestamp",
    "arrivaltime",
    "requesttime",
    "receivedat",
    "createdat",
    "created",
    "time",
    "ts",
)
_BLOCKS = ("hashids",)  # Mooncake: a number for each 512 tokens of the prompt, the same for the same beginning
_MILLISECONDS = ("hashids", "inputlength")  # columns beside which a bare timestamp counts milliseconds (Mooncake)
_EPOCHS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))  # numbers this large count ns, us, ms since 1970
BUSY = 300.0  # seconds of a log whose mean rate stands for the load to carry


def read_log(text: str, name: str) -> tuple[tuple[Logged, ...], list[Problem]]:
    """Every request that ended with a prompt and a reply, in the order of their times, and problems by line of the log.

    JSON lines and CSV are told apart by their first character. Requests without a reply (0 tokens) are left out. Times
    are seconds from the first request; where a request has none, no request has.
    """
    rows = json_rows(text) if text.lstrip().startswith("{") else _csv_rows(text)
    found: list[Logged] = []
    problems: list[Problem] = []
    known = False
    for line, row in rows:
        prompt, output = (_tokens(row, names) if isinstance(row, Mapping) else row for names in (_PROMPT, _OUTPUT))
        if isinstance(prompt, str) or isinstance(output, str):
            problems.append(Problem(name, line, 1, prompt if isinstance(prompt, str) else str(output)))
        known = known or (prompt is not None and output is not None)
        if isinstance(prompt, int) and isinstance(output, int) and prompt > 0 and output > 0:
            found.append(Logged(_moment(row), prompt, output, _blocks(row)))
        if len(problems) >= MAX_PROBLEMS:
            break
    if not known and not problems:
        wanted = "prompt_tokens and completion_tokens (or input_length and output_length, ContextTokens ...)"
        problems.append(Problem(name, 1, 1, f"no columns for the lengths; needs {wanted}"))
    return tuple(_ordered(found)), problems


def busiest_rate(log: Sequence[Logged]) -> float | None:
    """Requests a second over the busiest five minutes of a log, or over all of a shorter one; None without times."""
    times = [row.at for row in log if row.at is not None]
    if len(times) < 2 or times[-1] <= times[0]:
        return None
    if times[-1] - times[0] <= BUSY:
        return (len(times) - 1) / (times[-1] - times[0])
    most, begin = 0, 0
    for end, at in enumerate(times):
        while at - times[begin] > BUSY:
            begin += 1
        most = max(most, end - begin + 1)
    return most / BUSY


def _ordered(rows: list[Logged]) -> Iterator[Logged]:
    """In the order of their times, which begin at 0; without any where one is missing."""
    if any(row.at is None for row in rows):
        yield from (Logged(None, row.prompt, row.output, row.blocks) for row in rows)
        return
    first = min((row.at or 0.0 for row in rows), default=0.0)
    for row in sorted(rows, key=lambda row: row.at or 0.0):
        yield Logged((row.at or 0.0) - first, row.prompt, row.output, row.blocks)


# -------------------------------------------------------------------------------------------------------------- rows


def json_rows(text: str) -> Iterator[tuple[int, Any]]:
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


def _moment(row: Mapping[str, Any]) -> float | None:
    """When a request came, in seconds; None where no column tells."""
    plain = _plain(row)
    value: Any = next((plain[name] for name in _TIME if plain.get(name) not in (None, "")), None)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return _from_text(value)
    if isinstance(value, bool) or not math.isfinite(number):
        return None
    scale = next((scale for least, scale in _EPOCHS if number >= least), 1.0)
    return number / (1e3 if scale == 1.0 and any(name in plain for name in _MILLISECONDS) else scale)


def _from_text(value: Any) -> float | None:
    """ISO dates, with more digits of a second than Python reads (Azure's traces have seven)."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", value.strip())).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _blocks(row: Mapping[str, Any]) -> tuple[int, ...]:
    plain = _plain(row)
    value = next((plain[name] for name in _BLOCKS if name in plain), None)
    if not isinstance(value, list) or not all(isinstance(n, int) and 0 <= n < 1 << 31 for n in value):
        return ()
    return tuple(value)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Columns by their names without case and punctuation."""
    return {re.sub(r"[^a-z0-9]", "", key.lower()): value for key, value in row.items()}


def _tokens(row: Mapping[str, Any], names: Iterable[str], depth: int = 0) -> int | str | None:
    """The first of the named columns that is filled; None where there is none, a text where it holds no count."""
    plain = _plain(row)
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
