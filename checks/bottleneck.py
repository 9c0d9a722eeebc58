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

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from auditor import bounds
from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.theory import efficiency, judging, parts, roofline
from auditor.theory.classify import Classification, Efficiency, PhaseBound
from auditor.theory.device import Device
from auditor.theory.idle import idle
from auditor.theory.kv.geometry import Geometry
from auditor.theory.ladders import Ladders
from auditor.theory.levers import by_bound
from auditor.theory.physics import BEATS, sure_seconds
from auditor.theory.settings import Settings
from auditor.theory.statistics import Interval
from auditor.theory.step_costs import plain_costs
from auditor.units import percent, plain, quantity
from checks import hardware_choice, hardware_declared, hardware_limits, hardware_reach, hardware_use

__all__ = ["CHECK"]

FAR = 2.0  # times the part that the ladder names, from which priors cannot be what makes arithmetic name another
SATURATES = 512  # prompt tokens from which a GEMM fills a device
_Theory = tuple[Geometry, Settings, Device]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a ladder says of a phase: its bound by name, its seconds at the target, the parts with their intervals, what
    else it allows, what speaks against it, and why it says nothing.
    """

    bound: str = "unknown"
    seconds: float | None = None
    parts: Mapping[str, Interval] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    conflict: str | None = None
    blind: str | None = None
    numbers: tuple[Number, ...] = ()
    notes: tuple[str, ...] = ()


def h202_bottleneck(evidence: Evidence) -> Iterable[Finding]:
    theory, batch, (prompt, output) = evidence.theory, evidence.batch, evidence.profile.traffic.mean_lengths
    told, context = bounds.measured(evidence), prompt + output / 2
    if told is not None:
        prefill, decode = _read(told.prefill) if told.prefill else _short(evidence, prompt), _read(told.decode)
    else:
        prefill, decode = _prompts_alone(evidence, prompt), _steps_alone(evidence, batch, context)
    if theory is not None and batch is not None and prompt > 0:
        tokens = max(1, round(min(prompt, theory[1].max_num_batched_tokens or prompt)))
        prefill = _beside_limit("a prompt", prefill, roofline.prefill_limit(*theory, tokens), theory[2])
        decode = _beside_limit("a step", decode, roofline.decode_limit(*theory, batch, context), theory[2])
    yield _bound(evidence, "prefill", parts.predicted_prefill(theory, prompt), _with_prompts(prefill, told))
    yield _bound(evidence, "decode", parts.predicted_decode(theory, batch, context), _with_steps(decode, told))


def _read(told: PhaseBound | None) -> _Seen:
    """A ladder read against what is known of model and device."""
    if told is None:
        return _Seen()
    if told.noise is not None:
        return _Seen(blind=parts.scattered(told.noise))
    others = tuple(bound for bound in told.possible if bound != told.bound)
    return _Seen(bound=told.bound, seconds=told.seconds, parts=told.parts, others=others, conflict=told.conflict)


def _beside_limit(what: str, seen: _Seen, limit: roofline.Limit, device: Device) -> _Seen:
    """How far from the physical limit it runs, as a note."""
    if seen.seconds is None or limit.seconds <= 0:
        return seen
    doubt = "" if sure_seconds(device, limit) >= limit.seconds else "provisional "
    times = f"{plain(seen.seconds / limit.seconds)} times the {doubt}physical limit of {quantity(limit.seconds, 's')}"
    numbers = (
        Number.of(f"{what} at the target", seen.seconds, "s", "measured"),
        Number.of(f"physical limit of {what}", limit.seconds, "s", "computed"),
    )
    note = f"{what} takes {quantity(seen.seconds, 's')}, {times}"
    return replace(seen, numbers=(*numbers, *seen.numbers), notes=(note, *seen.notes))


def _short(evidence: Evidence, prompt: float) -> _Seen:
    """An idle ladder that says nothing of the target's prompts."""
    longest = max((n for n, _ in evidence.prefill_points), default=0)
    if not longest:
        return _Seen()
    why = "it has one length" if longest >= prompt else f"it ends at {longest} tokens, below the target's prompts"
    return _Seen(blind=f"not identifiable from this ladder: {why}")


def _prompts_alone(evidence: Evidence, prompt: float) -> _Seen:
    """The idle ladder by itself."""
    found = idle(evidence.prefill_points)
    if found is not None and found.noise is not None:
        return _Seen(blind=parts.scattered(found.noise))
    return _plain(parts.measured_prefill(found, prompt))


def _steps_alone(evidence: Evidence, batch: int | None, context: float) -> _Seen:
    """The ladder over batch and context by itself."""
    found = bounds.ladders(evidence)
    costs = plain_costs(found.steps) if found is not None else None
    return replace(_plain(parts.measured_decode(costs, batch, context)), blind=parts.unreadable(costs))


def _plain(times: Mapping[str, float]) -> _Seen:
    return _Seen(bound=judging.leading(times), parts={name: Interval(x, x, x) for name, x in times.items()})


def _with_prompts(seen: _Seen, told: Classification | None) -> _Seen:
    if told is None or seen.bound == "unknown":
        return seen
    notes = ("attention costs far more than fused kernels need (H206)",) if told.fused is False else ()
    numbers = _reached("share of the compute peak, longest prompt", told.flops)
    return replace(seen, numbers=(*seen.numbers, *numbers), notes=(*seen.notes, *notes))


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
    return replace(seen, numbers=(*seen.numbers, *numbers), notes=(*seen.notes, *told.notes))


def _reached(name: str, found: Efficiency | None) -> tuple[Number, ...]:
    """A share of a peak that the ladders identify."""
    if found is None or not found.identified:
        return ()
    return (_share(name, found.share),)


def _share(name: str, share: Interval) -> Number:
    return Number(name=name, value=share.point, unit="share", provenance="measured", low=share.low, high=share.high)


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
        "numbers": (*seen.numbers, *_times(predicted, seen.parts)),
    }
    provisional = evidence.device is not None and bool(seen.parts) and _rests_on(phase, evidence.device)
    guessed = evidence.device is not None and evidence.device.kind == "cpu" and not seen.parts
    if guessed and seen.blind:
        why = f"{phase.capitalize()} cannot be told: arithmetic says {expected}, but what engines reach of a CPU "
        why += "differs too widely to rest on that alone."
        missing = f"a {phase} ladder that can be read, with nothing else running; this one is {seen.blind}"
        return CHECK.finding("H202", "inconclusive", why, missing=missing, **(rest | {"confidence": "low"}))
    rest["confidence"] = "low" if guessed else rest["confidence"]
    against = _against(phase, predicted, seen)
    if against and (seen.conflict or not provisional):
        missing = "hardware, quantisation and batch as they really are (H208), or a longer ladder"
        return CHECK.finding("H202", "inconclusive", against, missing=missing, **rest)
    name = expected if seen.bound == "unknown" else seen.bound
    rest["remedies"] = evidence.levers(*by_bound(name.split(" or ", maxsplit=1)[0], evidence.settings, evidence.device))
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
    """Whether a prediction of this phase rests on figures that are recalled or in dispute, or on those of a CPU: there
    the peak is an upper bound, so that products may take longer than all that arithmetic names.
    """
    if device.kind == "cpu":
        return True
    figures = ("bandwidth", "flops") if phase == "prefill" else ("bandwidth",)
    return any(device.certainty(figure) == "C" for figure in figures)


def h203_efficiency(evidence: Evidence) -> Iterable[Finding]:
    """Prefill by the FLOPs of the longest prompt, decode by the bytes of the ladder's smallest batch."""
    theory, told, found = evidence.theory, bounds.measured(evidence), bounds.ladders(evidence)
    if theory is None or told is None or found is None:
        yield CHECK.skip("H203", evidence.lacking or "ladders with prompts of 512 tokens or more")
    elif theory[2].kind == "cpu":
        yield CHECK.skip("H203", "published efficiencies of CPUs: builds and instruction sets differ too widely")
    else:
        yield from _prefill_efficiency(evidence, theory, told, max((n for n, _ in found.prompts), default=0))
        yield from _decode_efficiency(evidence, theory, told, found)


def _prefill_efficiency(evidence: Evidence, theory: _Theory, told: Classification, longest: float) -> Iterable[Finding]:
    if told.prefill is not None and told.prefill.noise is not None:
        yield CHECK.skip("H203", f"prefill measured, {parts.scattered(told.prefill.noise)}", subject="prefill")
    elif told.flops is not None and longest >= SATURATES:
        yield _efficiency(evidence, "prefill", "flops", told.flops.share, efficiency.prefill_band(*theory[1:]))


def _decode_efficiency(evidence: Evidence, theory: _Theory, told: Classification, found: Ladders) -> Iterable[Finding]:
    if told.decode is not None and told.decode.noise is not None:
        yield CHECK.skip("H203", f"decode measured, {parts.scattered(told.decode.noise)}", subject="decode")
    elif found.steps:
        step = min(found.steps, key=lambda step: (step.batch, step.context))
        band = efficiency.decode_band(*theory, step.batch)
        if band is None:
            what = f"a decode ladder of fewer streams than {plain(step.batch, 3)}, for which efficiencies are published"
            yield CHECK.skip("H203", what, subject="decode")
            return
        least = roofline.decode_limit(*theory, step.batch, step.context)
        moved, reach = least.weights_s + least.kv_s, 2 * step.error
        fastest = step.seconds - reach
        most = moved / fastest if fastest > 0 else math.inf
        share = Interval(moved / (step.seconds + reach), moved / step.seconds, most)
        yield _efficiency(evidence, "decode", "bandwidth", share, band)


def _efficiency(
    evidence: Evidence, phase: str, figure: str, share: Interval, band: tuple[float, float, str]
) -> Finding:
    low, high, source = band
    doubted = evidence.device is not None and evidence.device.certainty(figure) == "C"
    rest: dict[str, Any] = {
        "subject": phase,
        "where": evidence.where("deployment.accelerator"),
        "confidence": "low" if doubted else "medium",
        "measured": _share("share of the peak reached", share),
        "required": Number(
            name="usual", value=(low + high) / 2, unit="share", provenance="catalogue", low=low, high=high, note=source
        ),
    }
    peak = f"the {'provisional ' if doubted else ''}peak"
    why = f"{phase.capitalize()} reaches {percent(share.point)} of {peak} where {percent(low)} to {percent(high)} are"
    if share.point > BEATS:
        missing = "figures of the hardware that are certain" if doubted else "inputs that no ladder contradicts (H208)"
        return CHECK.finding("H203", "inconclusive", f"{why} usual: nothing does that.", missing=missing, **rest)
    if share.point >= low:
        more = ", more than most" if share.point > high else ""
        return CHECK.finding("H203", "pass", f"{why} usual{more}.", **rest)
    fix = ("look for clocks, thermals, other tenants of the device", "capture kernels, fuse attention (H205, H206)")
    return CHECK.finding("H203", "warn", f"{why} usual: time is lost beside the work itself.", remedies=fix, **rest)


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
