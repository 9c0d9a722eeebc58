"""`audit probe` as text: what was sent and came back, the times, and how well they are known. 80 columns."""

from collections.abc import Iterable, Mapping
from typing import Any

from auditor.instruments.probe import Probed, document
from auditor.report.harmless import clean
from auditor.report.lines import wrap
from auditor.units import count, percent, plain, quantity

__all__ = ["render"]

_ROWS = {
    "TTFT": "ttft_ms",
    "first answer": "first_answer_ms",
    "TPOT": "tpot_ms",
    "whole reply": "e2e_ms",
    "sent late": "late_ms",
}
_COLUMNS = ("p50", "p90", "p95", "p99", "max")
_CLOCKS = {"kernel": "by the kernel", "loop": "by this program", "virtual": "in virtual time"}


def render(probed: Probed) -> str:
    """The answer as plain text of at most 80 columns."""
    said = document(probed)
    blocks = [_head(said), _times(said), _amounts(said), _trust(said), _notes(said)]
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in map(list, blocks) if block) + "\n"


def _head(said: Mapping[str, Any]) -> Iterable[str]:
    requests, rate = said["requests"], said["rate"]
    load = f"{count(said['concurrency'], 'stream')} at once" if rate is None else f"{plain(rate)} requests/s sent"
    good = f"{requests['ok']:,} of {count(requests['asked'], 'request')} good"
    yield from wrap(f"{good}: {clean(said['model'], 60)}, {said['api']}, {load}")
    for word, number in said["errors"].items():
        detail = said["error_details"].get(word)
        yield from wrap(f"failed  {number:,} {word}{f': {clean(detail, 200)}' if detail else ''}", "  ", 10)
    if requests["short"]:
        yield from wrap(f"short   {requests['short']:,} ended before the length that was asked for", "  ", 10)
    if said["stopped"]:
        left = f"{requests['cancelled']:,} given up, {requests['not_sent']:,} not sent"
        yield from wrap(f"ended   {clean(said['stopped'], 200)} ({left})", "  ", 10)


def _times(said: Mapping[str, Any]) -> Iterable[str]:
    """A failed request never got its time."""
    rows = [(name, said[key]) for name, key in _ROWS.items() if _is_told(said, key)]
    if rows:
        yield f"{'':<14}" + "".join(f"{name:>12}" for name in _COLUMNS)
    for name, values in rows:
        yield f"{name:<14}" + "".join(f"{_time(values[column]):>12}" for column in _COLUMNS)


def _is_told(said: Mapping[str, Any], key: str) -> bool:
    """The first answer is the first token unless the model reasons first."""
    if key == "first_answer_ms" and said[key] == said["ttft_ms"]:
        return False
    return any(value is not None for value in said[key].values())


def _time(value: float | str | None) -> str:
    if value is None:
        return "-"
    return "never" if value == "inf" else quantity(float(value) / 1e3, "s")


def _amounts(said: Mapping[str, Any]) -> Iterable[str]:
    rates = f"{quantity(said['output_tokens_per_s'], 'tok/s')}, {quantity(said['requests_per_s'], '/s')} good"
    yield f"{'together':<14}{rates} while all were busy; {quantity(said['duration_s'], 's')} in all"
    amounts = {"prompt": said["prompt_tokens"], "cached": said["cached_tokens"], "output": said["output_tokens"]}
    told = [f"{number:,} {name}" for name, number in amounts.items() if number is not None]
    yield f"{'tokens':<14}{', '.join(told) or 'not told'}{_estimated(said)}"
    if (size := said["tokens_per_event"]) is not None and size > 1:
        yield f"{'an event':<14}{plain(size)} tokens"


def _estimated(said: Mapping[str, Any]) -> str:
    number = said["tokens_estimated"]
    return f"; of {count(number, 'request')} estimated, the server did not count them" if number else ""


def _trust(said: Mapping[str, Any]) -> Iterable[str]:
    """How the client did, and how exactly it can measure here."""
    client = said["client"]
    parts = [f"at most {said['peak_concurrency']:,} in flight", f"reads timed {_CLOCKS[client['clock']]}"]
    if client["workers"] > 1:
        parts.append(f"{client['workers']} processes")
    if client["cpu_share"] is not None:
        parts.append(f"{percent(client['cpu_share'])} of a core")
    if client["late_reads"]:
        parts.append(f"{percent(client['late_reads'])} of reads late")
    if client["floor"] is not None:
        error = client["floor"]["ttft_ms"]
        parts.append(f"TTFT off by {_time(error['p50'])} (p99 {_time(error['p99'])}) in its self-check")
    yield from wrap(", ".join(parts), f"{'client':<14}", 14)


def _notes(said: Mapping[str, Any]) -> Iterable[str]:
    for note in said["notes"]:
        yield from wrap(f"note    {clean(note, 300)}", "  ", 10)
