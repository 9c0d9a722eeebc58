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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from auditor import bounds
from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.theory import fit, judging, parts, roofline
from auditor.theory.classify import Classification, Efficiency, PhaseBound
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.levers import BY_BOUND
from auditor.theory.settings import Settings
from auditor.theory.statistics import Interval
from auditor.theory.work import rate
from auditor.units import percent
from checks import hardware_choice, hardware_declared, hardware_limits, hardware_reach, hardware_use

__all__ = ["CHECK"]

FAR = 2.0  # times the part that the ladder names, from which priors cannot be what makes arithmetic name another
SATURATES = 512  # prompt tokens from which a GEMM fills a device
_Theory = tuple[Geometry, Settings, Device]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a ladder says of a phase: its bound by name, the parts with their intervals, what else it allows, what
    speaks against it, and why it says nothing.
    """

    bound: str = "unknown"
    parts: Mapping[str, Interval] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    conflict: str | None = None
    blind: str | None = None
    numbers: tuple[Number, ...] = ()
    notes: tuple[str, ...] = ()


def h202_bottleneck(evidence: Evidence) -> Iterable[Finding]:
    theory, batch, (prompt, output) = evidence.theory, evidence.batch, evidence.profile.traffic.mean_lengths
    ladders, told = fit.fit_prefill(evidence.prefill_points), bounds.measured(evidence)
    seen = _read(ladders, parts.measured_prefill(ladders, prompt), told.prefill if told else None, theory is not None)
    yield _bound(evidence, "prefill", parts.predicted_prefill(theory, prompt), _with_prompts(seen, told))
    steps, context = fit.fit_decode(evidence.decode_points), prompt + output / 2
    plain = parts.measured_decode(steps, theory, batch, context)
    seen = _read(steps, plain, told.decode if told else None, theory is not None)
    yield _bound(evidence, "decode", parts.predicted_decode(theory, batch, context), _with_steps(seen, told))


def _read(
    ladder: fit.PrefillFit | fit.DecodeFit | None, plain: Mapping[str, float], told: PhaseBound | None, known: bool
) -> _Seen:
    """A ladder read against what is `known` of model and device, else by its own law alone."""
    if ladder is not None and ladder.noisy:
        return _Seen(blind=parts.unreadable(ladder))
    if told is not None:
        others = tuple(bound for bound in told.possible if bound != told.bound)
        return _Seen(bound=told.bound, parts=told.parts, others=others, conflict=told.conflict)
    if known or not plain:
        return _Seen(blind=parts.unreadable(ladder))
    return _Seen(bound=judging.leading(plain), parts={name: Interval(x, x, x) for name, x in plain.items()})


def _with_prompts(seen: _Seen, told: Classification | None) -> _Seen:
    if told is None or seen.bound == "unknown":
        return seen
    notes = ("attention costs far more than fused kernels need (H206)",) if told.fused is False else ()
    return replace(seen, numbers=_reached("share of the compute peak, longest prompt", told.flops), notes=notes)


def _with_steps(seen: _Seen, told: Classification | None) -> _Seen:
    if told is None or seen.bound == "unknown":
        return seen
    numbers = _reached("share of the bandwidth, weights", told.weights)
    numbers += _reached("share of the bandwidth, KV cache", told.cache)
    if told.knee is not None:
        note = "" if told.knee.reached else "the largest measured"
        knee = Number(
            name="streams up to which tokens a second grow",
            value=told.knee.batch,
            unit="streams",
            provenance="measured",
            note=note,
        )
        numbers += (knee,)
    return replace(seen, numbers=numbers, notes=told.notes)


def _reached(name: str, found: Efficiency | None) -> tuple[Number, ...]:
    """A share of a peak that the ladders identify."""
    if found is None or not found.identified:
        return ()
    share = found.share
    return (Number(name=name, value=share.point, unit="share", provenance="measured", low=share.low, high=share.high),)


def _bound(evidence: Evidence, phase: str, predicted: Mapping[str, float], seen: _Seen) -> Finding:
    """One phase's parts of the time, predicted and measured; evidence that conflicts is inconclusive."""
    if not predicted and not seen.parts:
        ladder = f"{phase} measured, {seen.blind}" if seen.blind else f"a {phase} ladder"
        lacks = f"{ladder}; and for a prediction: {evidence.lacking}" if evidence.lacking else ladder
        return CHECK.skip("H202", lacks if evidence.target else "traffic and target", subject=phase)
    expected = judging.leading(predicted)
    rest: dict[str, Any] = {
        "subject": phase,
        "where": evidence.where("deployment.accelerator"),
        "confidence": "high" if predicted and seen.parts and not seen.others else "medium",
        "numbers": (*_times(predicted, seen.parts), *seen.numbers),
    }
    provisional = evidence.device is not None and bool(seen.parts) and _rests_on(phase, evidence.device)
    against = _against(phase, predicted, seen)
    if against and not provisional:
        missing = "hardware, quantisation and batch as they really are (H208), or a longer ladder"
        return CHECK.finding("H202", "inconclusive", against, missing=missing, **rest)
    name = expected if seen.bound == "unknown" else seen.bound
    rest["remedies"] = evidence.levers(*BY_BOUND.get(name.split(" or ", maxsplit=1)[0], ()))
    source = "measured and predicted" if predicted and seen.parts else "measured" if seen.parts else "predicted"
    if against:
        source, rest["confidence"] = f"measured; arithmetic on provisional figures says {expected}", "medium"
    elif seen.others:
        source += f"; the ladder allows {' or '.join(map(_words, seen.others))} too"
    source += f"; {seen.blind}" if seen.blind and not seen.parts else ""
    why = "; ".join((f"{phase.capitalize()} {_words(name, verb=True)} ({source})", *seen.notes))
    return CHECK.finding("H202", "pass", f"{why}.", **rest)


def _times(predicted: Mapping[str, float], measured: Mapping[str, Interval]) -> Iterator[Number]:
    for part, seconds in predicted.items():
        yield Number.of(f"{part}, predicted", seconds, "s", "computed")
    for part, found in measured.items():
        low, high = (found.low, found.high) if found.high > found.low else (None, None)
        yield Number(name=f"{part}, measured", value=found.point, unit="s", provenance="measured", low=low, high=high)


def _against(phase: str, predicted: Mapping[str, float], seen: _Seen) -> str | None:
    """What speaks against a ladder's bound: its own slopes, or arithmetic that neither it nor priors leave room for."""
    if seen.conflict:
        return f"The ladder says that {phase} {_words(seen.bound, verb=True)}, but {seen.conflict}."
    expected, named = judging.leading(predicted), seen.bound.split(" or ")
    allowed = {*named, *seen.others}
    if "unknown" in {expected, seen.bound} or "mixed" in {expected, *allowed} or expected in allowed:
        return None
    if predicted[expected] < FAR * max(predicted.get(name, 0.0) for name in named):
        return None
    return f"Arithmetic says {expected}, the ladder says {seen.bound}: the inputs or the measurement are wrong."


def _words(bound: str, *, verb: bool = False) -> str:
    if bound == "mixed":
        return "has no single bound" if verb else "no single bound"
    return f"is bound by {bound}" if verb else bound


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
