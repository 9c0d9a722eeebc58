"""Bottleneck, what is declared: does what is served or measured contradict it, is the hardware known?

Rules H208 and H209 of question H, which `bottleneck` asks.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from auditor.evidence import Check, Evidence, Finding, Number, Rule, Status
from auditor.theory import physics, reach
from auditor.theory.alternatives import alternatives
from auditor.theory.device import Device
from auditor.theory.physics import Beaten
from auditor.units import quantity

__all__ = ["RULES"]

TOLD = {"engine": "its engine", "engine_version": "version", "model": "model", "quantization": "quantisation"}
TOLD |= {"tensor_parallel": "parallelism", "speculative": "speculation", "disaggregated": "disaggregation"}
MOST = 3  # other accelerators that are named
FIGURES = {"memory": "memory", "bandwidth": "bandwidth", "flops": "peak FLOP/s"}


# ------------------------------------------------------------------------------------------------------------- declared


def h208_inputs(evidence: Evidence) -> Iterable[Finding]:
    """What is declared against what is served and against physics; the other rules believe the declaration."""
    found = [c for c in evidence.conflicts if c.with_served and not c.on_capacity]
    for c in found:
        hard = c.on_identity
        rest: dict[str, Any] = {"subject": c.field, "deciding": hard, "where": evidence.where(c.field)}
        fix = ("correct the profile if the endpoint is right, the deployment if the profile is",)
        status: Status = "fail" if hard else "warn"
        yield _PART.finding("H208", status, f"{c}.", severity="high" if hard else "low", remedies=fix, **rest)
    points = evidence.prefill_points, evidence.decode_points
    faster = physics.contradicted(evidence.theory, *points, evidence.accept_length)
    yield from (_impossible(evidence, b) for b in _worst(faster))
    unusual = () if faster else reach.surprising(evidence.theory, *points, evidence.accept_length)
    yield from (_unusual(evidence, b) for b in unusual)
    if faster or any(c.on_identity for c in found):
        return
    if evidence.served is None:
        yield _PART.skip("H208", "what the endpoint serves", deciding=True)
    else:
        told = [word for name, word in TOLD.items() if getattr(evidence.served, name) is not None]
        served = f"Nothing served contradicts the declaration (the endpoint tells {', '.join(told)})"
        device = evidence.device if evidence.theory else None
        prefill, decode = map(bool, points)
        unheld = physics.unheld(device, prefill, decode, evidence.accept_length, evidence.lacking)
        doubt = "what was measured is faster than usual, though not than physics" if unusual else unheld
        why = f"{served}, nor does anything measured." if doubt is None else f"{served}; {doubt}."
        yield _PART.finding("H208", "pass", why, deciding=True, confidence="medium" if doubt else "high")


def _worst(found: Iterable[Beaten]) -> Iterable[Beaten]:
    """Of each phase what beats its limit by most."""
    by_phase = {b.phase: b for b in sorted(found, key=lambda b: b.limit / b.seconds)}
    return by_phase.values()


def _impossible(evidence: Evidence, b: Beaten) -> Finding:
    why = f"{b.what.capitalize()} took {quantity(b.seconds, 's')}; the declared hardware needs "
    why += f"{quantity(b.limit, 's')} at least."
    missing, rest = "inputs that the measurement does not contradict", _beside(evidence, b, "physical limit")
    rest |= {"deciding": True, "severity": "high", "remedies": tuple(_explanations(evidence, b))}
    return _PART.finding("H208", "inconclusive", why, missing=missing, **rest)


def _unusual(evidence: Evidence, b: Beaten) -> Finding:
    why = f"{b.what.capitalize()} took {quantity(b.seconds, 's')} where such hardware usually needs "
    why += f"{quantity(b.limit, 's')} at least: physics allows it, the declaration makes it unlikely."
    rest = _beside(evidence, b, "usual, at least") | {"remedies": tuple(_explanations(evidence, b))}
    return _PART.finding("H208", "warn", why, confidence="medium", **rest)


def _beside(evidence: Evidence, b: Beaten, name: str) -> dict[str, Any]:
    return {
        "subject": b.phase,
        "where": evidence.where("deployment"),
        "measured": Number.of(b.phase, b.seconds, "s", "measured"),
        "required": Number.of(name, b.limit, "s", "computed"),
    }


def _explanations(evidence: Evidence, beaten: Beaten) -> Iterator[str]:
    """What would explain it, were it declared: one other setting, another accelerator; else what hides such things."""
    theory = evidence.theory
    if theory is not None:
        geometry, settings, device = theory
        for lever in alternatives(settings, device):
            if not _contradicted(evidence, beaten, (geometry, lever.settings, device)):
                yield f"{lever.field} {lever.value} would explain it: declare it if that is what serves"
        others = (d for d in evidence.candidates if not _contradicted(evidence, beaten, (geometry, settings, d)))
        for other, _ in zip(others, range(MOST), strict=False):
            yield f"{other.name} would explain it: declare it if that is what serves"
    hidden = "a prefix cache that answers for repeated prompts" if beaten.phase == "prefill" else "speculation"
    yield f"look for another model or precision behind the name, and for {hidden} (see T506)"


def _contradicted(evidence: Evidence, beaten: Beaten, theory: Any) -> bool:
    points = evidence.prefill_points, evidence.decode_points
    found = physics.contradicted(theory, *points, evidence.accept_length)
    if not beaten.sure:
        found = reach.surprising(theory, *points, evidence.accept_length)
    return any(b.phase == beaten.phase for b in found)


# ------------------------------------------------------------------------------------------------------------- hardware


def h209_hardware(evidence: Evidence) -> Iterable[Finding]:
    device, where = evidence.device, evidence.where("deployment.accelerator")
    if device is None:
        why = evidence.device_error or "No accelerator is declared, so no limit can be computed."
        fix = ("set deployment.accelerator to a catalogue name (audit catalog accelerators)",)
        yield _PART.finding("H209", "warn", why, where=where, remedies=fix)
    elif doubted := [name for figure, name in FIGURES.items() if device.certainty(figure) == "C"]:
        fix = ("declare a device whose figures are confirmed, or add a source to the catalogue",)
        rest: dict[str, Any] = {"where": where, "severity": "low", "remedies": () if device.here else fix}
        yield _PART.finding("H209", "warn", _provisional(device, doubted), numbers=_figures(device), **rest)
    else:
        yield _PART.finding("H209", "pass", f"{device.name} is known.", where=where, numbers=_figures(device))


def _provisional(device: Device, doubted: list[str]) -> str:
    names = " and ".join(doubted)
    if device.here:
        how = f"{names} computed from its instruction set, an upper bound"
        notes = "; ".join(device.notes)
        return f"Of {device.name}, bandwidth was measured here, {how}: what rests on that is provisional ({notes})."
    return f"Recalled or in dispute of {device.name}: {names}. What rests on that is shown, not judged on."


def _figures(device: Device) -> tuple[Number, ...]:
    """What limits rest on, each with its confidence."""
    sure = {figure: f"confidence {device.certainty(figure)}" for figure in FIGURES}
    bandwidth = Number(
        name="bandwidth",
        value=device.bandwidth,
        unit="bytes/s",
        provenance="measured" if device.here else "catalogue",
        note=sure["bandwidth"],
    )
    caches = tuple(
        Number.of(f"bandwidth of caches, up to {quantity(size, 'bytes')}", speed, "bytes/s", "measured")
        for size, speed in device.caches
    )
    peaks = tuple(
        Number(
            name=f"peak of {dtype}",
            value=rate,
            unit="FLOP/s",
            provenance="computed" if device.here else "catalogue",
            note=sure["flops"],
        )
        for dtype, rate in sorted(device.flops.items())
    )
    return (bandwidth, *caches, *peaks)


RULES = (
    Rule("H208", "Declared inputs", h208_inputs),
    Rule("H209", "Hardware known", h209_hardware),
)
"""The rules of question H that hold declarations against what is there."""

_PART = Check(question="H", title="Bottleneck", rules=RULES)
