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
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from auditor.evidence import Check, Evidence, Finding, Number, Rule, Status
from auditor.profile import Objective
from auditor.theory import backends, fit, judging, parts, physics, roofline
from auditor.theory.alternatives import alternatives
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.limits import least_seconds
from auditor.theory.settings import Settings
from auditor.theory.work import rate
from auditor.units import percent, quantity

__all__ = ["CHECK"]

WIDE = 2.0  # the margin with which an SLO passes on provisional hardware figures
STALLS = 0.05  # of the requests
SATURATES = 512  # prompt tokens from which a GEMM fills a device
PAUSE, BLINK = 10, 0.2  # a pause is longer than so many median gaps and so many seconds
COLD = 3.0  # times the warm TTFT
TOLD = {"engine": "its engine", "engine_version": "version", "model": "model", "quantization": "quantisation"}
TOLD |= {"tensor_parallel": "parallelism", "speculative": "speculation", "disaggregated": "disaggregation"}
LEVERS = {
    "compute": ("8-bit weights and activations ({quantization})", "more devices ({tensor_parallel})"),
    "weights": ("fewer bytes of weights ({quantization})", "larger batches cost little here ({max_num_seqs})"),
    "kv": ("an 8-bit KV cache ({kv_cache_dtype})", "shorter contexts or fewer streams a step ({max_num_seqs})"),
    "overhead": ("captured graphs (without {enforce_eager})", "fewer devices ({tensor_parallel})", "larger steps"),
}
_Theory = tuple[Geometry, Settings, Device]


# -------------------------------------------------------------------------------------------------------------- limits


def h201_physical_limit(evidence: Evidence) -> Iterable[Finding]:
    profile, batch = evidence.profile, evidence.batch
    objectives = (*profile.objectives("ttft"), *profile.objectives("tps"), *profile.objectives("e2e"))
    rest: dict[str, Any] = {"deciding": True, "where": evidence.where("slo"), "severity": "high"}
    if not objectives:
        yield CHECK.skip("H201", "an SLO on TTFT, TPS or E2E to hold against the limit", **rest)
    elif evidence.theory is None or batch is None or not profile.traffic.classes:
        yield CHECK.skip("H201", evidence.lacking or "traffic.classes and traffic.target_concurrency", **rest)
    else:
        yield from (_against_limit(evidence, evidence.theory, batch, o) for o in objectives)


def _against_limit(evidence: Evidence, theory: _Theory, batch: int, o: Objective) -> Finding:
    """Whether the physical limit alone breaks an SLO; floors are compared as seconds a token."""
    floor, device = o.metric == "tps", theory[2]
    limit, allowed = _limit(evidence, theory, batch, o), o.seconds
    unit, shown = ("tok/s", 1 / limit if limit else None) if floor else ("s", limit)
    rest: dict[str, Any] = {
        "subject": f"{o.metric} {o.subject}",
        "deciding": True,
        "severity": "high",
        "where": evidence.where(o.path),
        "measured": Number.of("physical limit", shown, unit, "computed"),
        "required": Number.of(f"{o.metric} {o.percentile}", o.limit, unit, "declared"),
        "numbers": tuple(_arithmetic(evidence, theory, batch, o)),
    }
    provisional, least = device.confidence == "C", quantity(limit, "s")
    if limit * (WIDE if provisional else 1.0) <= allowed:
        return CHECK.finding("H201", "pass", f"{_HOW[o.metric]} {least} at least: the SLO leaves room.", **rest)
    rest["remedies"] = tuple(_ways_under(evidence, theory, batch, o))
    why = f"{_HOW[o.metric]} {least} at least on this hardware, the SLO allows {quantity(allowed, 's')}"
    if provisional:
        missing = f"figures of {device.name} that two sources confirm"
        why += ", and the hardware's figures are provisional."
        return CHECK.finding("H201", "inconclusive", why, missing=missing, confidence="low", **rest)
    if floor and _limit(evidence, theory, 1, o) <= allowed:
        why += f" with {batch} streams decoding at once: only fewer at once can meet it."
        return CHECK.finding("H201", "warn", why, **rest)
    return CHECK.finding("H201", "fail", f"{why}: no tuning meets it.", **rest)


_HOW = {
    "ttft": "Reading the prompt at this percentile takes",
    "tps": "A decode step at the target takes",
    "e2e": "Prompt and reply at this percentile take",
}


def _limit(evidence: Evidence, theory: _Theory, batch: int, o: Objective) -> float:
    """The physical limit that an SLO meets, in seconds; every drafted token counts as accepted, no prefix as read."""
    prompt, output = evidence.profile.traffic.mean_lengths
    drafted = theory[1].speculative_tokens or (8 if evidence.served and evidence.served.speculative else 0)
    step = roofline.decode_limit(*theory, batch, round(prompt + output / 2)).seconds / (1 + drafted)
    if o.metric == "tps":
        return step
    classes = [c for c in evidence.profile.traffic.classes if o.cls in (None, c.name)]
    mix = [(1.0 if o.cls else c.share, c.fresh, c.output_tokens.curve) for c in classes]
    return least_seconds(*theory, mix, o.share, step if o.metric == "e2e" else None)


def _arithmetic(evidence: Evidence, theory: _Theory, batch: int, o: Objective) -> Iterator[Number]:
    prompt, output = evidence.profile.traffic.mean_lengths
    found = roofline.prefill_limit(*theory, max(1.0, prompt))
    if o.metric != "ttft":
        found = roofline.decode_limit(*theory, batch, prompt + output / 2)
    yield Number.of("work at the mean length", found.flops, "FLOP", "computed")
    yield Number.of("bytes moved at the mean length", found.bytes, "bytes", "computed")
    yield Number.of("bandwidth", theory[2].bandwidth, "bytes/s", "catalogue")


def _ways_under(evidence: Evidence, theory: _Theory, batch: int, o: Objective) -> Iterator[str]:
    (geometry, settings, device), allowed = theory, o.seconds
    for lever in (a for a in alternatives(settings, device) if evidence.has(a.field)):
        limit = _limit(evidence, (geometry, lever.settings, device), batch, o)
        if limit <= allowed:
            yield f"{evidence.flag(lever.field)} {lever.value} brings the limit to {quantity(limit, 's')}"
    for other in evidence.candidates:
        if other.confidence != "C" and (limit := _limit(evidence, (geometry, settings, other), batch, o)) <= allowed:
            yield f"{other.name} instead: the limit is {quantity(limit, 's')}"
    if o.metric == "tps":
        yield "fewer streams on each replica (more replicas), or a lower floor"
    else:
        yield "shorter prompts, a shared prefix that the cache holds, or a higher ceiling"


# ---------------------------------------------------------------------------------------------- bottleneck, efficiency


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
    if {"mixed", "unknown"}.isdisjoint({expected, seen}) and expected not in seen.split(" or "):
        why = f"Arithmetic says {expected}, the ladder says {seen}: the inputs or the measurement are wrong."
        missing = "hardware, quantisation and batch as they really are (H208), or a longer ladder"
        return CHECK.finding("H202", "inconclusive", why, missing=missing, **rest)
    name = expected if seen == "unknown" else seen
    rest["remedies"] = evidence.levers(*LEVERS.get(name.split(" or ", maxsplit=1)[0], ()))
    source = "measured and predicted" if predicted and measured else "measured" if measured else "predicted"
    source += f"; {blind}" if blind and not measured else ""
    bound = "has no single bound" if name == "mixed" else f"is bound by {name}"
    return CHECK.finding("H202", "pass", f"{phase.capitalize()} {bound} ({source}).", **rest)


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
    if law is not None and long_enough and not law.noisy:
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
    rest: dict[str, Any] = {
        "subject": phase,
        "where": evidence.where("deployment.accelerator"),
        "confidence": "low" if device.confidence == "C" else "medium",
        "measured": Number.of("share of the peak reached", ratio, "share", "measured"),
        "required": Number(
            name="usual", value=(low + high) / 2, unit="share", provenance="catalogue", low=low, high=high, note=source
        ),
    }
    why = f"{phase.capitalize()} reaches {percent(ratio)} of the peak where {percent(low)} to {percent(high)} are usual"
    if ratio >= low:
        return CHECK.finding("H203", "pass", f"{why}.", **rest)
    fix = ("look for clocks, thermals, other tenants of the device", "capture kernels, fuse attention (H205, H206)")
    return CHECK.finding("H203", "warn", f"{why}: time is lost beside the work itself.", remedies=fix, **rest)


# ------------------------------------------------------------------------------------------------- start-up and kernels


def h204_cold_start(evidence: Evidence) -> Iterable[Finding]:
    """The first request of all was discovery's own, the first of the load comes after it: the slower one was cold."""
    cold = next((s for s in evidence.requests("cold") if s.good and s.ttft is not None), None)
    warm = evidence.idle_ttft(cold.prompt_tokens or cold.asked_prompt_tokens) if cold else None
    if cold is None or cold.ttft is None or not warm:
        yield CHECK.skip("H204", "a first request kept apart, and the idle ladder to compare it with")
        return
    first = max(cold.ttft, (evidence.served.first_ttft if evidence.served else None) or 0.0)
    rest: dict[str, Any] = {"where": evidence.where("endpoint"), "severity": "low"}
    rest["measured"] = Number.of("first TTFT", first, "s", "measured", 1)
    rest["required"] = Number.of("TTFT once warm", warm, "s", "measured")
    if first < COLD * warm or first - warm < 0.5:
        yield CHECK.finding("H204", "pass", "The first request was about as fast as later ones.", **rest)
        return
    why = f"The first request waited {quantity(first, 's')} for what takes {quantity(warm, 's')} once warm: "
    why += "its user pays the start."
    fix = ("send warm-up requests of the traffic's sizes before the readiness probe lets users in",)
    yield CHECK.finding("H204", "warn", why, remedies=fix, **rest)


def h205_capture(evidence: Evidence) -> Iterable[Finding]:
    settings = evidence.settings
    eager = evidence.served.enforce_eager if evidence.served else None
    eager = settings.enforce_eager if eager is None and settings else eager
    rest: dict[str, Any] = {"where": evidence.where("deployment.enforce_eager")}
    captured, target = settings.captured_batch if settings else None, evidence.batch or 0
    if eager is None or not _on_gpu(evidence):
        yield CHECK.skip("H205", "a GPU, and whether the engine captures kernels (served or deployment.enforce_eager)")
    elif eager:
        why = "Kernels are launched one by one (eager): every decode step waits for the CPU."
        yield CHECK.finding("H205", "warn", why, remedies=(f"remove {evidence.flag('enforce_eager')}",), **rest)
    elif captured is not None and captured < target:
        why = f"Graphs are captured up to {captured} streams, the target is {target}: larger steps run without."
        fix = (f"capture up to {target} ({evidence.flag('captured_batch')})",)
        yield CHECK.finding("H205", "warn", why, remedies=fix, **rest)
    else:
        yield CHECK.finding("H205", "pass", "Kernels are captured for the batches that run.", **rest)


def _on_gpu(evidence: Evidence) -> bool:
    return evidence.device is not None and evidence.device.kind != "cpu" and evidence.engine != "llamacpp"


def h206_backend(evidence: Evidence) -> Iterable[Finding]:
    name = (evidence.served.attention_backend if evidence.served else None) or ""
    fused = backends.fused(name)
    rest: dict[str, Any] = {"where": evidence.where("deployment"), "severity": "low"}
    fix = evidence.levers("choose a fused backend ({attention_backend}) and read the start-up log for why it fell back")
    if not name or not _on_gpu(evidence):
        yield CHECK.skip("H206", "a GPU, and the attention backend as served")
    elif fused is False:
        why = f"Attention runs on {name}, which is not fused: long contexts cost far more than they need."
        yield CHECK.finding("H206", "warn", why, remedies=fix, **(rest | {"severity": "medium"}))
    elif fused:
        yield CHECK.finding("H206", "pass", f"Attention runs on {name}.", **rest)
    else:
        yield CHECK.finding("H206", "warn", f"Attention runs on {name}, which this program does not know.", **rest)


def h207_interference(evidence: Evidence) -> Iterable[Finding]:
    """Gaps that other users' prompts explain are interference; longer ones come from something not to be seen here."""
    loads = [m for m in evidence.loads("slo") if m.judged]
    if not loads:
        yield CHECK.skip("H207", "a measured load at the target")
    for m in loads:
        streams = [s.arrivals for s in m.judged]
        found = judging.jitter(streams, PAUSE, BLINK)
        if found is None or m.kv_pressed:
            yield CHECK.skip("H207", "streams of three events or more, with the KV cache not short (K304, K305)")
            continue
        rest: dict[str, Any] = {"measured": Number.of("largest gap, p95", found.largest_gap, "s", "measured", found.n)}
        rest["numbers"] = (Number.of("gap, median", found.median_gap, "s", "measured", found.n),)
        why = f"{percent(found.stalls)} of the streams pause for over {quantity(found.limit, 's')} between tokens"
        if found.stalls < STALLS:
            yield CHECK.finding("H207", "pass", f"{why}.", **rest)
        elif evidence.of_others is None:
            why += ". No ladder says how long other users' prompts take: the cause cannot be told."
            fix = ("run the prefill ladder too (probe.budget): it tells prompts from other causes",)
            yield CHECK.finding("H207", "warn", why, remedies=fix, **(rest | {"confidence": "low"}))
        else:
            longer = judging.jitter(streams, PAUSE, max(BLINK, evidence.of_others)) or found
            yield _interrupted(evidence, why, longer, evidence.of_others, rest)


def _interrupted(
    evidence: Evidence, why: str, longer: judging.Jitter, explained: float, rest: dict[str, Any]
) -> Finding:
    """Whose pauses they are: `longer` are the streams with a gap beyond what other users' prompts explain."""
    rest["required"] = Number.of("gap that other users' prompts explain", explained, "s", "measured")
    if longer.stalls < STALLS:
        why += ", with room in the cache and no longer than prompts of other users take: these run in between."
        fix = evidence.levers("shorter prompt chunks a step ({max_num_batched_tokens})")
        return CHECK.finding("H207", "warn", why, remedies=(*fix, "prefill served apart from decode"), **rest)
    which = "which is" if explained < longer.limit else f"{percent(longer.stalls)} for"
    why += f", {which} longer than other users' prompts explain ({quantity(explained, 's')}): the cause is not visible."
    fix = (
        "look for other tenants of the device or its CPUs, throttling by heat, power or a CPU quota",
        "probe from beside the engine: if the gaps stay, the network is not their cause",
    )
    return CHECK.finding("H207", "warn", why, remedies=fix, **(rest | {"confidence": "medium"}))


# ------------------------------------------------------------------------------------------------------------- inputs


def h208_inputs(evidence: Evidence) -> Iterable[Finding]:
    """What is declared against what is served and against physics; the other rules believe the declaration."""
    if evidence.served is None:
        yield CHECK.skip("H208", "what the endpoint serves", deciding=True)
        return
    found = [c for c in evidence.conflicts if c.with_served and not c.on_capacity]
    for c in found:
        hard = c.on_identity
        rest: dict[str, Any] = {"subject": c.field, "deciding": hard, "where": evidence.where(c.field)}
        fix = ("correct the profile if the endpoint is right, the deployment if the profile is",)
        status: Status = "fail" if hard else "warn"
        yield CHECK.finding("H208", status, f"{c}.", severity="high" if hard else "low", remedies=fix, **rest)
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
        yield CHECK.finding("H208", "inconclusive", why, missing=missing, remedies=fix, **rest)
    if not any(c.on_identity for c in found) and not faster:
        told = [word for name, word in TOLD.items() if getattr(evidence.served, name) is not None]
        served = f"Nothing served contradicts the declaration (the endpoint tells {', '.join(told)})"
        device = evidence.device if evidence.theory else None
        prefill, decode = map(bool, points)
        unheld = physics.unheld(device, prefill, decode, evidence.accept_length, evidence.lacking)
        why = f"{served}, nor does anything measured." if unheld is None else f"{served}; {unheld}."
        yield CHECK.finding("H208", "pass", why, deciding=True, confidence="medium" if unheld else "high")


def h209_hardware(evidence: Evidence) -> Iterable[Finding]:
    device, where = evidence.device, evidence.where("deployment.accelerator")
    if device is None:
        why = evidence.device_error or "No accelerator is declared, so no limit can be computed."
        fix = ("set deployment.accelerator to a catalogue name (audit catalog accelerators)",)
        yield CHECK.finding("H209", "warn", why, where=where, remedies=fix)
    elif device.confidence == "C":
        why = f"The figures of {device.name} are recalled or in dispute: limits from them are shown, not judged on."
        fix = ("declare a device whose figures are confirmed, or add a source to the catalogue",)
        yield CHECK.finding("H209", "warn", why, where=where, severity="low", remedies=fix)
    else:
        yield CHECK.finding("H209", "pass", f"{device.name} is known.", where=where)


CHECK = Check(
    question="H",
    title="Bottleneck",
    answers=("H202 prefill", "H202 decode"),
    rules=(
        Rule("H201", "SLO against the physical limit", h201_physical_limit),
        Rule("H202", "Bottleneck of each phase", h202_bottleneck),
        Rule("H203", "Efficiency", h203_efficiency),
        Rule("H204", "Cold start", h204_cold_start),
        Rule("H205", "Kernel capture", h205_capture),
        Rule("H206", "Attention backend", h206_backend),
        Rule("H207", "Pauses in the stream", h207_interference),
        Rule("H208", "Declared inputs", h208_inputs),
        Rule("H209", "Hardware known", h209_hardware),
    ),
)
