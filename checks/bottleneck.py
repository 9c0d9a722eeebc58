"""Bottleneck: what limits this hardware, compute or bandwidth, how far from the limit does it run, can it meet the SLO?

Prefill multiplies matrices (compute, shows as TTFT); decode reads weights and KV cache a token (bandwidth, TPS).

| rule | looks at | decides |
|---|---|---|
| H201 | can the SLOs be met on this hardware at all? | yes |
| H202 | what bounds prefill and decode at the target load, predicted and measured | no |
| H203 | is the efficiency what such hardware usually gives? | no (warns) |
| H204 | the first request after start-up | no |
| H205 | are kernels captured for the batches that run? | no |
| H206 | does attention run on a fast backend? | no |
| H207 | do streams pause, and do other users' prompts explain it? | no |
| H208 | are the declared inputs contradicted, by what is served or by physics? | yes |
| H209 | is the hardware known, and are its figures certain? | no |
| H210 | is each SLO within reach of such hardware, met with how much headroom, or missed? | no |
| H211 | what does this traffic need most, and which accelerators give it? | no |
| H212 | how many replicas does the rate take, and what do tokens cost? | no |
"""

from collections.abc import Iterable
from typing import Any, Literal

from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.theory import fit, judging, parts, roofline
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.levers import BY_BOUND
from auditor.theory.settings import Settings
from auditor.theory.work import rate
from auditor.units import percent
from checks import hardware_choice, hardware_declared, hardware_limits, hardware_reach, hardware_use

__all__ = ["CHECK"]

SATURATES = 512  # prompt tokens from which a GEMM fills a device
_Theory = tuple[Geometry, Settings, Device]


def h202_bottleneck(evidence: Evidence) -> Iterable[Finding]:
    theory, batch, (prompt, output) = evidence.theory, evidence.batch, evidence.profile.traffic.mean_lengths
    found, context = fit.fit_prefill(evidence.prefill_points), prompt + output / 2
    told = parts.predicted_prefill(theory, prompt), parts.measured_prefill(found, prompt)
    yield _bound(evidence, "prefill", *told, parts.unreadable(found))
    steps = fit.fit_decode(evidence.decode_points)
    told = parts.predicted_decode(theory, batch, context), parts.measured_decode(steps, theory, batch, context)
    yield _bound(evidence, "decode", *told, parts.unreadable(steps))


def _bound(
    evidence: Evidence, phase: str, predicted: dict[str, float], measured: dict[str, float], blind: str | None
) -> Finding:
    """One phase's parts of the time, predicted and measured; evidence that conflicts is inconclusive.

    `blind` says why a ladder that ran does not tell them.
    """
    if not predicted and not measured:
        ladder = f"{phase} measured, {blind}" if blind else f"a {phase} ladder"
        lacks = f"{ladder}; and for a prediction: {evidence.lacking}" if evidence.lacking else ladder
        return CHECK.skip("H202", lacks if evidence.target else "traffic and target", subject=phase)
    expected, seen = judging.leading(predicted), judging.leading(measured)
    rest: dict[str, Any] = {
        "subject": phase,
        "where": evidence.where("deployment.accelerator"),
        "confidence": "high" if predicted and measured else "medium",
        "numbers": tuple(
            Number.of(f"{part}, {how}", seconds, "s", "computed" if how == "predicted" else "measured")
            for how, times in (("predicted", predicted), ("measured", measured))
            for part, seconds in times.items()
        ),
    }
    provisional = measured and evidence.device is not None and _rests_on(phase, evidence.device)
    contradict = {"mixed", "unknown"}.isdisjoint({expected, seen}) and expected not in seen.split(" or ")
    if contradict and not provisional:
        why = f"Arithmetic says {expected}, the ladder says {seen}: the inputs or the measurement are wrong."
        missing = "hardware, quantisation and batch as they really are (H208), or a longer ladder"
        return CHECK.finding("H202", "inconclusive", why, missing=missing, **rest)
    name = expected if seen == "unknown" else seen
    rest["remedies"] = evidence.levers(*BY_BOUND.get(name.split(" or ", maxsplit=1)[0], ()))
    source = "measured and predicted" if predicted and measured else "measured" if measured else "predicted"
    if contradict:
        source, rest["confidence"] = f"measured; arithmetic on provisional figures says {expected}", "medium"
    source += f"; {blind}" if blind and not measured else ""
    bound = "has no single bound" if name == "mixed" else f"is bound by {name}"
    return CHECK.finding("H202", "pass", f"{phase.capitalize()} {bound} ({source}).", **rest)


def _rests_on(phase: str, device: Device) -> bool:
    """Whether a prediction of this phase rests on figures that are recalled or in dispute."""
    figures = ("bandwidth", "flops") if phase == "prefill" else ("bandwidth",)
    return any(device.certainty(figure) == "C" for figure in figures)


def h203_efficiency(evidence: Evidence) -> Iterable[Finding]:
    """Prefill by what a further token of a long prompt costs, decode by the ladder's smallest batch."""
    theory, law = evidence.theory, fit.fit_prefill(evidence.prefill_points)
    longest = max((n for n, _ in evidence.prefill_points), default=0)
    long_enough = law is not None and law.per_token > 0 and longest >= SATURATES
    steps = fit.fit_decode(evidence.decode_points)
    if theory is None or not (long_enough or evidence.decode_points):
        yield CHECK.skip("H203", evidence.lacking or "ladders with prompts of 512 tokens or more")
        return
    for phase, found in (("prefill", law if longest >= SATURATES else None), ("decode", steps)):
        if found is not None and found.noisy:
            yield CHECK.skip("H203", f"{phase} measured, {parts.unreadable(found)}", subject=phase)
    noisy = law is not None and law.noisy
    if long_enough and not noisy and theory[2].here and theory[2].certainty("flops") == "C":
        missing = f"peak FLOP/s of {theory[2].name} that are more than an upper bound"
        yield CHECK.skip("H203", missing, subject="prefill")
    elif law is not None and long_enough and not noisy:
        ideal = roofline.prefill_limit(*theory, longest).flops / max(1.0, rate(theory[2], theory[1].compute_dtype))
        seconds = law.per_token * longest + law.per_token_squared * longest**2
        yield _efficiency(evidence, theory, "prefill", 1, ideal / seconds)
    if evidence.decode_points and not (steps is not None and steps.noisy):
        batch, context, seconds = min(evidence.decode_points)
        least = roofline.decode_limit(*theory, batch, context)
        yield _efficiency(evidence, theory, "decode", batch, (least.weights_s + least.kv_s) / seconds)


def _efficiency(
    evidence: Evidence, theory: _Theory, phase: Literal["prefill", "decode"], batch: int, ratio: float
) -> Finding:
    geometry, settings, device = theory
    low, high, source = fit.band(phase, device, settings, batch, geometry)
    doubted = device.certainty("flops" if phase == "prefill" else "bandwidth") == "C"
    rest: dict[str, Any] = {
        "subject": phase,
        "where": evidence.where("deployment.accelerator"),
        "confidence": "low" if doubted else "medium",
        "measured": Number.of("share of the peak reached", ratio, "share", "measured"),
        "required": Number(
            name="usual", value=(low + high) / 2, unit="share", provenance="catalogue", low=low, high=high, note=source
        ),
    }
    peak = f"the {'' if not doubted else 'provisional '}peak"
    why = f"{phase.capitalize()} reaches {percent(ratio)} of {peak} where {percent(low)} to {percent(high)} are usual"
    if ratio >= low:
        return CHECK.finding("H203", "pass", f"{why}.", **rest)
    fix = ("look for clocks, thermals, other tenants of the device", "capture kernels, fuse attention (H205, H206)")
    return CHECK.finding("H203", "warn", f"{why}: time is lost beside the work itself.", remedies=fix, **rest)


CHECK = Check(
    question="H",
    title="Bottleneck",
    answers=("H202 prefill", "H202 decode", "H211"),
    rules=(
        *hardware_limits.RULES,
        Rule("H202", "Bottleneck of each phase", h202_bottleneck),
        Rule("H203", "Efficiency", h203_efficiency),
        *hardware_use.RULES,
        *hardware_declared.RULES,
        *hardware_reach.RULES,
        *hardware_choice.RULES,
    ),
)
