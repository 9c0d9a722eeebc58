"""What the traffic itself tells: observed lengths from a log, prompt texts from a file."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from auditor.errors import Problem
from auditor.loading.files import FileError, read_text
from auditor.loading.logs import MAX_PROBLEMS, busiest_rate, json_rows, read_log
from auditor.loading.problems import Problems
from auditor.loads import Logged
from auditor.profile import Lengths, Profile, Traffic, TrafficClass

__all__ = ["OBSERVED", "Read", "observed_class", "read", "read_prompts"]

OBSERVED = "observed"
"""The name of the class that a traffic log fills."""

MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Read:
    """The traffic as declared, its classes from the log where it declares none; the log itself, and prompt texts."""

    traffic: Traffic
    log: tuple[Logged, ...] = ()
    prompts: tuple[str, ...] = ()


def read(profile: Profile, folder: Path, problems: Problems) -> Read:
    """What the files of a profile's traffic tell; adds problems.

    A log that tells times also tells the rate, where the profile declares no target.
    """
    traffic = profile.traffic
    log, prompts = tuple[Logged, ...](), tuple[str, ...]()
    wanted = traffic.log is not None and not traffic.classes and not problems.is_blamed(("traffic", "classes"))
    if wanted and (text := _text(folder, str(traffic.log), ("traffic", "log"), problems)):
        log, bad = read_log(text, str(traffic.log))
        problems.found += bad
        if log:
            traffic = replace(traffic, classes=(observed_class(log),))
        elif not bad:
            problems.add(("traffic", "log"), f"{traffic.log} holds no request with prompt and output tokens")
    if log and traffic.target_concurrency is None and traffic.request_rate is None:
        traffic = replace(traffic, request_rate=busiest_rate(log))
    if traffic.prompts is not None and (text := _text(folder, traffic.prompts, ("traffic", "prompts"), problems)):
        prompts, bad = read_prompts(text, traffic.prompts)
        problems.found += bad
    return Read(traffic, log, prompts)


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


def observed_class(log: Sequence[Logged]) -> TrafficClass:
    """One class with the observed lengths."""
    prompts, outputs = (_lengths([getattr(row, name) for row in log]) for name in ("prompt", "output"))
    return TrafficClass(name=OBSERVED, prompt_tokens=prompts, output_tokens=outputs)


def _lengths(values: Sequence[int]) -> Lengths:
    """Percentiles by nearest rank: the smallest value that at least this share of the requests does not exceed."""
    ordered = sorted(values)
    p50, p95, p99 = (ordered[math.ceil(q * len(ordered) / 100) - 1] for q in (50, 95, 99))
    return Lengths(p50=p50, p95=p95, p99=p99, max=ordered[-1])


# ------------------------------------------------------------------------------------------------------------- prompts


def read_prompts(text: str, name: str) -> tuple[tuple[str, ...], list[Problem]]:
    """Prompt texts: JSON lines with `prompt` or `messages`, else one prompt a line. Problems by line."""
    if not text.lstrip().startswith("{"):
        return tuple(line.strip() for line in text.splitlines() if line.strip()), []
    prompts: list[str] = []
    problems: list[Problem] = []
    for number, row in json_rows(text):
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
