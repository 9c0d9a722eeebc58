"""Bottleneck, what hardware allows: can the SLOs be met on it at all?

Rule H201 of question H, which `bottleneck` asks.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from auditor import slo
from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.profile import Objective
from auditor.theory import roofline, shape
from auditor.theory.alternatives import alternatives
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.limits import Least, least
from auditor.theory.physics import sure_seconds
from auditor.theory.roofline import Limit
from auditor.theory.settings import Settings
from auditor.units import count, plain, quantity

__all__ = ["RULES"]

WIDE = 2.0  # the margin with which an SLO passes on provisional hardware figures
DRAFTS = 8  # tokens that a served draft of unknown length may yield
_Theory = tuple[Geometry, Settings, Device]


def h201_physical_limit(evidence: Evidence) -> Iterable[Finding]:
    profile, batch = evidence.profile, evidence.batch
    objectives = (*profile.objectives("ttft"), *profile.objectives("tps"), *profile.objectives("e2e"))
    rest: dict[str, Any] = {"deciding": True, "where": evidence.where("slo"), "severity": "high"}
    if not objectives:
        yield _PART.skip("H201", "an SLO on TTFT, TPS or E2E to hold against the limit", **rest)
    elif evidence.theory is None or batch is None or not profile.traffic.classes:
        yield _PART.skip("H201", evidence.lacking or "traffic.classes and traffic.target_concurrency", **rest)
    else:
        yield from (_against_limit(evidence, evidence.theory, batch, o) for o in objectives)


def _against_limit(evidence: Evidence, theory: _Theory, batch: int, o: Objective) -> Finding:
    """Whether the physical limit alone breaks an SLO; floors are compared as seconds a token."""
    rest: dict[str, Any] = {
        "subject": f"{o.metric} {o.subject}",
        "deciding": True,
        "severity": "high",
        "where": evidence.where(o.path),
        "required": Number.of(f"{o.metric} {o.percentile}", o.limit, "tok/s" if _is_floor(o) else "s", "declared"),
    }
    found = _least(evidence, theory, batch, o)
    if found is None:
        why = "No class of this traffic is common enough to break this percentile by its prompts alone."
        return _PART.finding("H201", "pass", why, **rest)
    shown = ("tok/s", 1 / found.seconds) if _is_floor(o) else ("s", found.seconds)
    rest["measured"] = Number.of("physical limit", shown[1], shown[0], "computed")
    rest["numbers"] = tuple(_arithmetic(theory, found))
    why = f"{_work(batch, found)} {quantity(found.seconds, 's')} at least {_sums(theory, found)}"
    provisional = found.sure < found.seconds
    if found.seconds * (WIDE if provisional else 1.0) <= o.seconds:
        return _PART.finding("H201", "pass", f"{why}: the SLO leaves room.", **rest)
    rest["remedies"] = tuple(_ways_under(evidence, theory, batch, o))
    why += f", the SLO allows {quantity(o.seconds, 's')}"
    if found.sure <= o.seconds:
        missing = f"figures of {theory[2].name} that two sources confirm"
        why += ", and the hardware's figures are provisional."
        return _PART.finding("H201", "inconclusive", why, missing=missing, confidence="low", **rest)
    alone = _least(evidence, theory, 1, o) if _is_floor(o) else None
    if alone is not None and alone.seconds <= o.seconds:
        why += f" with {batch} streams decoding at once: only fewer at once can meet it."
        outcome = slo.judged(evidence, o)
        if outcome is None or outcome.status == "inconclusive":
            missing = "requests at the target that decide this SLO"
            return _PART.finding("H201", "inconclusive", why, missing=missing, **rest)
        return _PART.finding("H201", "warn", why, **rest)
    return _PART.finding("H201", "fail", f"{why}: no tuning meets it.", **rest)


def _is_floor(o: Objective) -> bool:
    return o.metric == "tps"


def _least(evidence: Evidence, theory: _Theory, batch: int, o: Objective) -> Least | None:
    """The limit that an SLO meets; every drafted token counts as accepted, no shared prefix as read."""
    prompt, output = evidence.profile.traffic.mean_lengths
    served = DRAFTS if evidence.served and evidence.served.speculative else 0
    tokens = 1 + (theory[1].speculative_tokens or served)
    classes = evidence.profile.traffic.classes
    longest = max(shape.at(c.prompt_tokens.curve, 1) + shape.at(c.output_tokens.curve, 1) for c in classes)
    step = roofline.decode_limit(*theory, batch, round(prompt + output / 2), longest)
    if _is_floor(o):
        seconds, sure = step.seconds / tokens, sure_seconds(theory[2], step) / tokens
        return Least(seconds=seconds, sure=sure, prompt=0, output=0, prefill=None, step=step)
    mix = [(1.0 if o.cls else c.share, c.fresh, c.output_tokens.curve) for c in classes if o.cls in (None, c.name)]
    return least(*theory, mix, o.share, step if o.metric == "e2e" else None, tokens)


# ---------------------------------------------------------------------------------------------------------- arithmetic


def _work(batch: int, found: Least) -> str:
    """What takes the time: "Reading 8,000 prompt tokens and writing 100 takes"."""
    if found.prefill is None:
        tokens = round(found.step.seconds / found.seconds) if found.step is not None and found.seconds else 1
        shared = f", shared by the {tokens} tokens that it may yield," if tokens > 1 else ""
        return f"A decode step of {count(batch, 'stream')}{shared} takes"
    written = f" and writing {found.output:,}" if found.step is not None else ""
    return f"Reading {count(found.prompt, 'prompt token')}{written} takes"


def _sums(theory: _Theory, found: Least) -> str:
    """The arithmetic in brackets: "(129 TFLOP at 989 TFLOP/s)"."""
    each = " on each device" if theory[1].devices > 1 else ""
    parts = [_sum(found.prefill)] if found.prefill is not None else []
    if found.step is not None:
        parts.append(f"steps of {_sum(found.step)}" if parts else _sum(found.step))
    return f"({', then '.join(parts)}{each})"


def _sum(limit: Limit) -> str:
    if limit.bound == "compute":
        flops = quantity(limit.flops, "FLOP/s").removesuffix("/s")
        return f"{flops} at {quantity(limit.flops / limit.compute_s, 'FLOP/s')}"
    moved = limit.weights_s + limit.kv_s
    return f"{quantity(limit.bytes, 'bytes')} at {quantity(limit.bytes / moved if moved else None, 'bytes/s')}"


def _arithmetic(theory: _Theory, found: Least) -> Iterator[Number]:
    """FLOPs and bytes of one device, the rates that they are held against, and the seconds that follow."""
    here = theory[2].here
    for what, limit in (("the prompt", found.prefill), ("a step", found.step)):
        if limit is None:
            continue
        moved = limit.weights_s + limit.kv_s
        yield Number.of(f"work of {what}", limit.flops, "FLOP", "computed")
        if limit.compute_s:
            peak = limit.flops / limit.compute_s
            yield Number.of("peak", peak, "FLOP/s", "computed" if here else "catalogue")
        yield Number.of(f"time of {what}'s work", limit.compute_s, "s", "computed")
        yield Number.of(f"bytes that {what} reads", limit.bytes, "bytes", "computed")
        if moved:
            yield Number.of("bandwidth", limit.bytes / moved, "bytes/s", "measured" if here else "catalogue")
        yield Number.of(f"time of {what}'s bytes", moved, "s", "computed")


# ------------------------------------------------------------------------------------------------------------ ways out


def _ways_under(evidence: Evidence, theory: _Theory, batch: int, o: Objective) -> Iterator[str]:
    (geometry, settings, device), allowed = theory, o.seconds

    def limit(changed: Settings, on: Device) -> float:
        found = _least(evidence, (geometry, changed, on), batch, o)
        return found.seconds if found is not None else 0.0

    for lever in (a for a in alternatives(settings, device) if evidence.has(a.field)):
        if (seconds := limit(lever.settings, device)) <= allowed:
            yield f"{evidence.flag(lever.field)} {lever.value} brings the limit to {quantity(seconds, 's')}"
    for other in evidence.candidates:
        if other.confidence != "C" and (seconds := limit(settings, other)) <= allowed:
            yield f"{other.name} instead: the limit is {quantity(seconds, 's')}"
    if _is_floor(o):
        yield f"fewer streams on each replica (more replicas), or a floor below {plain(1 / limit(settings, device))}/s"
    else:
        yield "shorter prompts, a shared prefix that the cache holds, or a higher ceiling"


RULES = (Rule("H201", "SLO against the physical limit", h201_physical_limit),)
"""The rule of question H that holds SLOs against physics."""

_PART = Check(question="H", title="Bottleneck", rules=RULES)
