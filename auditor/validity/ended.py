"""What never ran, or ended before its time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from auditor import slo
from auditor.evidence import Evidence, Finding
from auditor.measurement import Measurement
from auditor.theory.deciding import GONE
from auditor.units import count
from auditor.validity.findings import LATENCY, LOADED, doubt, finding, fine, voids

__all__ = ["t512_stopped"]

NEEDED_BY = {  # what each purpose is called, and the rules that look at it
    "cold": ("the first request kept apart", ("H204",)),
    "slo": ("the load at the target", (*LATENCY, "W102", "W113", "W120", "K304", "K305", "K306", "K307", "H207")),
    "unshared": ("the traffic without its shared prefixes", ()),
    "prefill": ("the prefill ladder", ("H202", "H203", "H204", "H207", "W103")),
    "decode": ("the decode ladder", ("H202", "H203", "W103")),
}


def t512_stopped(evidence: Evidence) -> Iterable[Finding]:
    stopped = [m for m in evidence.measurements if m.stopped]
    silent = [m for m in evidence.loads("slo") if not m.stopped and m.silence >= GONE]
    found = [*map(_ended, stopped), *map(_fell_silent, silent), *_never_ran(evidence, stopped)]
    found += _known_before(evidence)
    for each in found or [fine("T512", "Every planned load ran to its end.")]:
        yield replace(each, where=evidence.where("probe.budget"))


def _ended(m: Measurement) -> Finding:
    sent, planned = len(m.judged), len(m.load.shapes)
    why = f"Load {m.load.id} ended after {sent} of {count(planned, 'request')}: {m.stopped}."
    rest: dict[str, Any] = {"subject": m.load.id, "remedies": _budget(m.stopped)}
    if m.load.purpose == "slo":
        missing = f"the rest of load {m.load.id}, {count(planned - sent, 'request')}"
        return doubt("T512", why, voids(LOADED, "pass"), missing, **rest)
    return finding("T512", "warn", why, severity="low", **rest)


def _fell_silent(m: Measurement) -> Finding:
    """A load that was sent to its end although nobody answered any more."""
    why = f"In load {m.load.id} the last {m.silence} of {count(len(m.judged), 'request')} all failed: what they would "
    why += "have shown is not known."
    missing = "a service that answers to the end"
    return doubt("T512", why, voids(LOADED, "pass"), missing, subject=m.load.id)


def _budget(ended: str | None) -> tuple[str, ...]:
    return ("raise probe.budget",) if ended and "budget" in ended else ()


def _never_ran(evidence: Evidence, stopped: Sequence[Measurement]) -> Iterator[Finding]:
    """The loads of the plan that were left out, and the rules that would have looked at them.

    An SLO load that is missing is one that might have failed: users who arrive as they please, most often.
    """
    ran = {m.load.id for m in evidence.measurements}
    left = [load for load in (evidence.plan.loads if evidence.plan else ()) if load.id not in ran]
    at_target = [load.id for load in left if load.purpose == "slo"] if evidence.loads("slo") else []
    if at_target and (failed := slo.failed(evidence)):
        why = f"Load {', '.join(at_target)} was left out: {failed} fails whatever it brings."
        yield finding("T512", "warn", why, subject="left out", severity="low")
    elif at_target:
        why = f"Load {', '.join(at_target)} never ran{_ended_before(stopped)}: what it would have shown is not known."
        rest: dict[str, Any] = {"subject": "never run at the target", "remedies": _budget(_why(stopped))}
        yield doubt("T512", why, voids((*LATENCY, "W113"), "pass"), f"load {', '.join(at_target)}", **rest)
    others = Counter(load.purpose for load in left if load.id not in at_target)
    if others:
        names = " and ".join(f"{NEEDED_BY[purpose][0]} ({count(n, 'load')})" for purpose, n in others.items())
        rules = ", ".join(sorted({rule for purpose in others for rule in NEEDED_BY[purpose][1]}))
        ended = _why(stopped)
        why = f"Planned and never run: {names}. {f'The probe had ended before: {ended}. ' if ended else ''}"
        why += f"{rules} are judged without."
        yield finding("T512", "warn", why, subject="never run", severity="low", remedies=_budget(ended))


def _why(stopped: Sequence[Measurement]) -> str | None:
    return stopped[-1].stopped if stopped else None


def _ended_before(stopped: Sequence[Measurement]) -> str:
    return f" ({_why(stopped)})" if stopped else ""


def _known_before(evidence: Evidence) -> Iterator[Finding]:
    """What the plan knew that the budget cannot decide, one finding for the same rules."""
    messages: dict[tuple[str, ...], list[str]] = {}
    for note in evidence.plan.notes if evidence.plan else ():
        messages.setdefault(note.rules, []).append(note.message)
    for rules, texts in messages.items():
        why, fix = f"Known before the load: {'; '.join(texts)}.", ("raise probe.budget",)
        yield finding("T512", "warn", why, subject=", ".join(rules) or None, severity="low", remedies=fix)
