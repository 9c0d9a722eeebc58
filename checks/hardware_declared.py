"""Bottleneck, what is declared: does what is served or measured contradict it, is the hardware known?

Rules H208 and H209 of question H, which `bottleneck` asks.
"""

from collections.abc import Iterable
from typing import Any

from auditor.evidence import Check, Evidence, Finding, Number, Rule, Status
from auditor.theory import physics
from auditor.units import quantity

__all__ = ["RULES"]

TOLD = {"engine": "its engine", "engine_version": "version", "model": "model", "quantization": "quantisation"}
TOLD |= {"tensor_parallel": "parallelism", "speculative": "speculation", "disaggregated": "disaggregation"}


def h208_inputs(evidence: Evidence) -> Iterable[Finding]:
    """What is declared against what is served and against physics; the other rules believe the declaration."""
    if evidence.served is None:
        yield _PART.skip("H208", "what the endpoint serves", deciding=True)
        return
    found = [c for c in evidence.conflicts if c.with_served and not c.on_capacity]
    for c in found:
        hard = c.on_identity
        rest: dict[str, Any] = {"subject": c.field, "deciding": hard, "where": evidence.where(c.field)}
        fix = ("correct the profile if the endpoint is right, the deployment if the profile is",)
        status: Status = "fail" if hard else "warn"
        yield _PART.finding("H208", status, f"{c}.", severity="high" if hard else "low", remedies=fix, **rest)
    points = evidence.prefill_points, evidence.decode_points
    faster = physics.contradicted(evidence.theory, *points, evidence.accept_length)
    for b in faster:
        why = f"{b.what.capitalize()} took {quantity(b.seconds, 's')}; the declared hardware needs "
        why += f"{quantity(b.limit, 's')} at least."
        fix = ("declare the hardware, quantisation and speculation that really serve (see T506)",)
        rest = {"subject": b.phase, "deciding": True, "severity": "high", "where": evidence.where("deployment")}
        rest["measured"] = Number.of(b.phase, b.seconds, "s", "measured")
        rest["required"] = Number.of("physical limit", b.limit, "s", "computed")
        missing = "inputs that the measurement does not contradict"
        yield _PART.finding("H208", "inconclusive", why, missing=missing, remedies=fix, **rest)
    if not any(c.on_identity for c in found) and not faster:
        told = [word for name, word in TOLD.items() if getattr(evidence.served, name) is not None]
        served = f"Nothing served contradicts the declaration (the endpoint tells {', '.join(told)})"
        device = evidence.device if evidence.theory else None
        prefill, decode = map(bool, points)
        unheld = physics.unheld(device, prefill, decode, evidence.accept_length, evidence.lacking)
        why = f"{served}, nor does anything measured." if unheld is None else f"{served}; {unheld}."
        yield _PART.finding("H208", "pass", why, deciding=True, confidence="medium" if unheld else "high")


def h209_hardware(evidence: Evidence) -> Iterable[Finding]:
    device, where = evidence.device, evidence.where("deployment.accelerator")
    if device is None:
        why = evidence.device_error or "No accelerator is declared, so no limit can be computed."
        fix = ("set deployment.accelerator to a catalogue name (audit catalog accelerators)",)
        yield _PART.finding("H209", "warn", why, where=where, remedies=fix)
    elif device.confidence == "C":
        why = f"The figures of {device.name} are recalled or in dispute: limits from them are shown, not judged on."
        fix = ("declare a device whose figures are confirmed, or add a source to the catalogue",)
        yield _PART.finding("H209", "warn", why, where=where, severity="low", remedies=fix)
    else:
        yield _PART.finding("H209", "pass", f"{device.name} is known.", where=where)


RULES = (
    Rule("H208", "Declared inputs", h208_inputs),
    Rule("H209", "Hardware known", h209_hardware),
)
"""The rules of question H that hold declarations against what is there."""

_PART = Check(question="H", title="Bottleneck", rules=RULES)
