"""`audit probe` as text: what was sent, what came back, how well it was measured. 80 columns."""

from collections.abc import Iterable, Mapping
from typing import Any

from auditor.instruments.probe import Probed, document
from auditor.report.words import clean, quantity
from auditor.units import count, plain

__all__ = ["render"]

_ROWS = {"TTFT": "ttft_ms", "TPOT": "tpot_ms", "whole reply": "e2e_ms", "sent late": "late_ms"}
_COLUMNS = ("p50", "p90", "p95", "p99", "max")


def render(probed: Probed) -> str:
    """The answer as plain text of at most 80 columns."""
    said = document(probed)
    blocks = [_head(said), _table(said), _client(said), map(str, said["notes"])]
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in map(list, blocks) if block) + "\n"


def _head(said: Mapping[str, Any]) -> Iterable[str]:
    requests = said["requests"]
    load = f"{said['concurrency']} at once" if said["rate"] is None else f"{plain(said['rate'])} requests/s"
    how_many = f"{requests['ok']} of {count(requests['asked'], 'request')} good"
    yield f"{clean(said['model'], 50)}, {said['api']}, {load}: {how_many}"
    if errors := ", ".join(f"{n} {word}" for word, n in said["errors"].items()):
        yield f"  failed: {errors}"
    if requests["short"]:
        yield f"  shorter than asked for: {requests['short']}"
    if said["stopped"]:
        yield f"  ended early: {clean(said['stopped'], 120)} ({requests['not_sent']} not sent)"


def _table(said: Mapping[str, Any]) -> Iterable[str]:
    yield f"{'':<14}" + "".join(f"{name:>12}" for name in _COLUMNS)
    for name, key in _ROWS.items():
        values = said[key]
        if any(value is not None for value in values.values()):
            yield f"{name:<14}" + "".join(f"{_time(values[column]):>12}" for column in _COLUMNS)


def _time(value: float | str | None) -> str:
    if value is None:
        return "-"
    return "never" if value == "inf" else quantity(float(value) / 1e3, "s")


def _client(said: Mapping[str, Any]) -> Iterable[str]:
    client = said["client"]
    yield (
        f"{plain(said['output_tokens'] or 0)} output tokens in {quantity(said['duration_s'], 's')}: "
        f"{quantity(said['output_tokens_per_s'], 'tok/s')}, {quantity(said['requests_per_s'], '/s')}"
    )
    yield f"at most {said['peak_concurrency']} in flight; reads timed by the {client['clock']}"
