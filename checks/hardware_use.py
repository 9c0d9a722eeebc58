"""Bottleneck, time lost beside the work itself: start-up, kernels launched one by one, slow attention, pauses.

Rules H204 to H207 of question H, which `bottleneck` asks.
"""

from collections.abc import Iterable
from typing import Any

from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.theory import backends, judging
from auditor.units import percent, quantity

__all__ = ["RULES"]

STALLS = 0.05  # of the requests
PAUSE, BLINK = 10, 0.2  # a pause is longer than so many median gaps and so many seconds
COLD, LATE = 3.0, 0.5  # a first request was cold from so many times the warm TTFT and so many seconds more


def h204_cold_start(evidence: Evidence) -> Iterable[Finding]:
    """The first request of all was discovery's own, the first of the load comes after it: the slower one was cold."""
    cold = next((s for s in evidence.requests("cold") if s.good and s.ttft is not None), None)
    warm = evidence.idle_ttft(cold.prompt_tokens or cold.asked_prompt_tokens) if cold else None
    if cold is None or cold.ttft is None or not warm:
        yield _PART.skip("H204", "a first request kept apart, and the idle ladder to compare it with")
        return
    first = max(cold.ttft, (evidence.served.first_ttft if evidence.served else None) or 0.0)
    rest: dict[str, Any] = {"where": evidence.where("endpoint"), "severity": "low"}
    rest["measured"] = Number.of("first TTFT", first, "s", "measured", 1)
    rest["required"] = Number.of("TTFT once warm", warm, "s", "measured")
    if first < COLD * warm or first - warm < LATE:
        yield _PART.finding("H204", "pass", "The first request was about as fast as later ones.", **rest)
        return
    why = f"The first request waited {quantity(first, 's')} for what takes {quantity(warm, 's')} once warm: "
    why += "its user pays the start."
    fix = ("send warm-up requests of the traffic's sizes before the readiness probe lets users in",)
    yield _PART.finding("H204", "warn", why, remedies=fix, **rest)


def h205_capture(evidence: Evidence) -> Iterable[Finding]:
    settings = evidence.settings
    eager = evidence.served.enforce_eager if evidence.served else None
    eager = settings.enforce_eager if eager is None and settings else eager
    rest: dict[str, Any] = {"where": evidence.where("deployment.enforce_eager")}
    captured, target = settings.captured_batch if settings else None, evidence.batch
    if eager is None or not _on_gpu(evidence):
        yield _PART.skip("H205", "a GPU, and whether the engine captures kernels (served or deployment.enforce_eager)")
    elif eager:
        why = "Kernels are launched one by one (eager): every decode step waits for the CPU."
        yield _PART.finding("H205", "warn", why, remedies=(f"remove {evidence.flag('enforce_eager')}",), **rest)
    elif captured is None or target is None:
        lacks = "the target" if captured is not None else "the largest captured batch ({captured_batch})"
        yield _PART.skip("H205", evidence.spell(lacks), **rest)
    elif captured < target:
        why = f"Graphs are captured up to {captured} streams, the target is {target}: larger steps run without."
        fix = (f"capture up to {target} ({evidence.flag('captured_batch')})",)
        yield _PART.finding("H205", "warn", why, remedies=fix, **rest)
    else:
        why = f"Kernels are captured for the batches that run: up to {captured} streams."
        yield _PART.finding("H205", "pass", why, **rest)


def _on_gpu(evidence: Evidence) -> bool:
    return evidence.device is not None and evidence.device.kind != "cpu" and evidence.engine != "llamacpp"


def h206_backend(evidence: Evidence) -> Iterable[Finding]:
    name = (evidence.served.attention_backend if evidence.served else None) or ""
    fused = backends.fused(name)
    rest: dict[str, Any] = {"where": evidence.where("deployment"), "severity": "low"}
    fix = evidence.levers("choose a fused backend ({attention_backend}) and read the start-up log for why it fell back")
    if not name or not _on_gpu(evidence):
        yield _PART.skip("H206", "a GPU, and the attention backend as served")
    elif fused is False:
        why = f"Attention runs on {name}, which is not fused: long contexts cost far more than they need."
        yield _PART.finding("H206", "warn", why, remedies=fix, **(rest | {"severity": "medium"}))
    elif fused:
        yield _PART.finding("H206", "pass", f"Attention runs on {name}.", **rest)
    else:
        yield _PART.finding("H206", "warn", f"Attention runs on {name}, which this program does not know.", **rest)


def h207_interference(evidence: Evidence) -> Iterable[Finding]:
    """Gaps that other users' prompts explain are interference; longer ones come from something not to be seen here."""
    loads = [m for m in evidence.loads("slo") if m.judged]
    if not loads:
        yield _PART.skip("H207", "a measured load at the target")
    for m in loads:
        streams = [s.arrivals for s in m.judged]
        found = judging.jitter(streams, PAUSE, BLINK)
        if found is None or m.kv_pressed:
            lacks = "streams of three events or more, with the KV cache not short (K304, K305)"
            yield _PART.skip("H207", lacks, subject=m.load.id)
            continue
        rest: dict[str, Any] = {"measured": Number.of("largest gap, p95", found.largest_gap, "s", "measured", found.n)}
        rest["subject"] = m.load.id
        rest["numbers"] = (Number.of("gap, median", found.median_gap, "s", "measured", found.n),)
        why = f"{percent(found.stalls)} of the streams pause for over {quantity(found.limit, 's')} between tokens"
        if found.stalls < STALLS:
            yield _PART.finding("H207", "pass", f"{why}.", **rest)
        elif evidence.of_others is None:
            why += ". No ladder says how long other users' prompts take: the cause cannot be told."
            fix = ("run the prefill ladder too (probe.budget): it tells prompts from other causes",)
            yield _PART.finding("H207", "warn", why, remedies=fix, **(rest | {"confidence": "low"}))
        else:
            longer = judging.jitter(streams, PAUSE, max(BLINK, evidence.of_others)) or found
            yield _interrupted(evidence, why, longer, evidence.of_others, rest)


def _interrupted(
    evidence: Evidence, why: str, longer: judging.Jitter, explained: float, rest: dict[str, Any]
) -> Finding:
    """Whose pauses they are: `longer` are the streams with a gap beyond what other users' prompts explain."""
    rest["required"] = Number.of("gap that other users' prompts explain", explained, "s", "measured")
    if longer.stalls < STALLS:
        why += ", with room in the cache and no longer than prompts of other users take: these run in between"
        why += f"{_full_step(evidence)}."
        fix = evidence.levers("shorter prompt chunks a step ({max_num_batched_tokens})")
        return _PART.finding("H207", "warn", why, remedies=(*fix, "prefill served apart from decode"), **rest)
    which = "which is" if explained < longer.limit else f"{percent(longer.stalls)} for"
    why += f", {which} longer than other users' prompts explain ({quantity(explained, 's')}): the cause is not visible."
    fix = (
        "look for other tenants of the device or its CPUs, throttling by heat, power or a CPU quota",
        "probe from beside the engine: if the gaps stay, the network is not their cause",
    )
    return _PART.finding("H207", "warn", why, remedies=fix, **(rest | {"confidence": "medium"}))


def _full_step(evidence: Evidence) -> str:
    """How long a step takes that is full of prompts, where the ladder reaches so many tokens."""
    size = evidence.settings.max_num_batched_tokens if evidence.settings else None
    longest = max((n for n, _ in evidence.prefill_points), default=0)
    alone = evidence.idle_ttft(size) if size and size <= longest else None
    return f" (a step full of them, {size:,} tokens, takes {quantity(alone, 's')})" if size and alone else ""


RULES = (
    Rule("H204", "Cold start", h204_cold_start),
    Rule("H205", "Kernel capture", h205_capture),
    Rule("H206", "Attention backend", h206_backend),
    Rule("H207", "Pauses in the stream", h207_interference),
)
"""The rules of question H that look for time lost."""

_PART = Check(question="H", title="Bottleneck", rules=RULES)
