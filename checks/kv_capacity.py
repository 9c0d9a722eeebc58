"""KV capacity: do the KV cache and the batch settings carry the target concurrency, on paper and under load?

On paper a pool of tokens divided by what a request holds; under load no preemption, no queue, no jitter. Engines show a
full cache differently: vLLM admits, then preempts (TTFT looks healthy, gaps open); SGLang holds requests back (TTFT
explodes, TPOT looks normal); llama.cpp gives each slot its context and lets the rest wait.

| rule | looks at | decides |
|---|---|---|
| K301 | do the weights fit? | yes |
| K302 | the pool against the target at p50, p95, max lengths and the mix | at p95 |
| K303 | batch limits, states included, against the target | yes |
| K304 | preemption, retraction | where the server counts them |
| K305 | queueing and held-back admissions | yes |
| K306 | KV usage near full | no |
| K307 | stalls in the token stream that are the KV cache's | without server counters |
| K308 | the computed pool and its requests against the served ones | no |
| K309 | tensor parallelism beyond the KV heads | no |
| K310 | KV and batch settings served otherwise than declared | yes |
| K311 | launch flags that contradict the profile | yes |
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from auditor import holding
from auditor.evidence import Check, Evidence, Finding, Number, Rule, Status
from auditor.measurement import Measurement
from auditor.theory import judging, queueing, room
from auditor.theory.alternatives import alternatives
from auditor.theory.memory import memory
from auditor.units import count, percent, quantity
from checks import kv_declared

__all__ = ["CHECK"]

GIB = 2**30
NEAR_FULL = 0.95
PREEMPTED = 0.01  # of the requests
LASTS = 0.1  # of the load, on end
REACHED = 0.9  # of the target, or of a limit, that must run at once
STALLS = 0.05  # of the requests


# ---------------------------------------------------------------------------------------------------------------- pool


def k301_weights(evidence: Evidence) -> Iterable[Finding]:
    where = evidence.where("deployment.accelerator")
    rest: dict[str, Any] = {"deciding": True, "where": where, "severity": "high"}
    if evidence.served_pool:
        yield CHECK.finding("K301", "pass", "The engine serves with a KV pool, so its weights fit.", **rest)
        return
    if any(s.good for s in evidence.requests()):
        yield CHECK.finding("K301", "pass", "The engine answers requests, so its weights fit.", **rest)
        return
    if evidence.theory is None:
        yield CHECK.skip("K301", evidence.lacking or "", **rest)
        return
    geometry, settings, device = evidence.theory
    found = memory(geometry, settings, device)
    rest["measured"] = Number.of("weights a device", found.weights, "bytes", "computed")
    rest["required"] = Number.of("memory budget a device", found.budget, "bytes", "computed")
    left = f"{found.budget / GIB:.1f} GiB of memory less {found.weights / GIB:.1f} GiB of weights and "
    left += f"{found.overhead / GIB:.1f} GiB for the engine leave {found.pool / GIB:.1f} GiB for the KV cache"
    if found.pool_low > 0:
        yield CHECK.finding("K301", "pass", f"{left}.", **rest)
        return
    known = [a for a in alternatives(settings, device) if evidence.has(a.field)]
    rooms = [(a, memory(geometry, a.settings, device).pool) for a in known]
    gains = [(a, room) for a, room in rooms if room > max(0.0, found.pool)]
    rest["remedies"] = tuple(f"{evidence.flag(a.field)} {a.value} leaves {room / GIB:.1f} GiB" for a, room in gains)
    if found.pool_high <= 0:
        yield CHECK.finding("K301", "fail", f"The weights do not fit: {left}.", **rest)
        return
    why, missing = f"The weights may not fit: {left}, give or take.", "the pool that the engine reports at start-up"
    yield CHECK.finding("K301", "inconclusive", " ".join((why, *found.notes)), missing=missing, **rest)


_AT = {"p95": "at p95 lengths", "p50": "at p50 lengths", "max": "at max lengths", "mix": "in the mean over the mix"}


def k302_concurrency(evidence: Evidence) -> Iterable[Finding]:
    found, target, classes = evidence.pool(), evidence.share_of_target, evidence.profile.traffic.classes
    rest: dict[str, Any] = {"where": evidence.where("traffic.target_concurrency"), "severity": "high"}
    if found is None or target is None or not classes:
        missing = f"the KV pool: no page tells it, and to compute it lacks {evidence.lacking or 'a memory fraction'}"
        if target is None or not classes:
            missing = "traffic.classes and traffic.target_concurrency"
        yield CHECK.skip("K302", missing, deciding=True, subject="p95", **rest)
        return
    bounded = any(x.max for c in classes for x in (c.prompt_tokens, c.output_tokens))
    quantiles = {"p95": 0.95, "p50": 0.5, **({"max": 1.0} if bounded else {}), "mix": None}
    fits = {name: holding.carries(evidence, *found, target, quantile) for name, quantile in quantiles.items()}
    refused = holding.refusal(evidence)
    if refused is not None and not refused.of_states:
        yield _not_started("K302", evidence, refused, rest | {"subject": "p95"})
        return
    (number, status), (pool, source) = fits["p95"], found
    size = room.size(evidence.geometry, evidence.engine, pool.kv)
    agreeing = {name: kv for name, (kv, outcome) in fits.items() if outcome == status and name != "p95"}
    rest["required"] = Number.of("target a replica", target, "requests", "declared")
    mix = f" and {_requests(agreeing['mix'])} in the mean over the mix" if "mix" in agreeing else ""
    why = f"A pool of {size} ({source}) carries {_requests(number)} at once at p95 lengths{mix}; "
    why += f"the target is {target} a replica."
    rest |= {
        "missing": "the pool that the engine reports" if status == "inconclusive" else None,
        "remedies": tuple(holding.ways_to_carry(evidence, pool.kv, target)) if status != "pass" else (),
        "numbers": tuple(replace(kv, name=_AT[name]) for name, kv in agreeing.items()),
    }
    yield CHECK.finding("K302", status, why, subject="p95", deciding=True, measured=number, **rest)
    for name, (kv, outcome) in fits.items():
        if outcome != status:
            why = f"A pool of {size} ({source}) carries {_requests(kv)} at once {_AT[name]}; "
            why += f"the target is {target} a replica."
            rest |= {"missing": None, "remedies": (), "numbers": (), "deciding": False, "severity": "medium"}
            shown: Status = "pass" if outcome == "pass" else "warn"
            yield CHECK.finding("K302", shown, why, subject=name, measured=kv, **rest)


def _not_started(rule: str, evidence: Evidence, refused: holding.Refusal, rest: dict[str, Any]) -> Finding:
    """The engine's own refusal, before anything is served."""
    fix = (
        *evidence.levers("lower {max_num_seqs}" if refused.of_states else "lower {max_model_len}"),
        *evidence.levers("more of the memory ({gpu_memory_utilization})", "an 8-bit KV cache ({kv_cache_dtype})"),
    )
    rest = rest | {"deciding": True, "remedies": fix}
    if refused.sure:
        return CHECK.finding(rule, "fail", f"The engine does not start: {refused.why}.", **rest)
    rest["missing"] = "the pool that the engine reports at start-up"
    return CHECK.finding(rule, "inconclusive", f"The engine may not start: {refused.why}.", **rest)


def _requests(number: Number) -> str:
    return count(round(number.value or 0.0, 1), "request")


def k303_batch_limits(evidence: Evidence) -> Iterable[Finding]:
    limits, target = list(holding.batch_limits(evidence)), evidence.share_of_target
    rest: dict[str, Any] = {"deciding": True, "where": evidence.where("deployment.max_num_seqs"), "severity": "high"}
    refused = holding.refusal(evidence)
    if refused is not None and refused.of_states:
        yield _not_started("K303", evidence, refused, rest)
        return
    running = max((v for m in _loads(evidence) for _, v in m.gauge("running")), default=0.0)
    if target is None or not (limits or running):
        yield CHECK.skip("K303", "the engine's batch limits and traffic.target_concurrency", **rest)
        return
    rest["required"] = Number.of("target a replica", target, "requests", "declared")
    if not limits:
        rest["measured"] = Number.of("most running at once", running, "requests", "measured")
        enough = running >= (evidence.target or target)
        missing = None if enough else "max_num_seqs, or a load in which the whole target runs at once"
        why = f"The engine's limits are unknown; under load it ran {count(running, 'request')} at once."
        yield CHECK.finding("K303", "pass" if enough else "inconclusive", why, missing=missing, **rest)
        return
    limit, field, source = min(limits)
    flag, queue = evidence.flag(field), evidence.served.queue_limit if evidence.served else None
    rest["measured"] = Number.of(flag, limit, "requests", source)
    if limit >= target:
        yield CHECK.finding("K303", "pass", f"{limit} requests may run at once ({flag}), {target} are asked.", **rest)
        return
    beyond = f", and beyond {limit + queue} they are refused" if queue is not None and limit + queue < target else ""
    why = f"At most {limit} of {target} requests run at once ({flag}): the others wait{beyond}."
    yield CHECK.finding("K303", "fail", why, remedies=(*_raised(evidence, field, target), "add replicas"), **rest)


def _raised(evidence: Evidence, field: str, target: int) -> Iterator[str]:
    """What raises a batch limit. Slots for recurrent states share the memory with the tokens' cache."""
    if field != "mamba_slots":
        yield f"raise {evidence.flag(field)} to {target} or more (K302 says whether the pool carries it)"
        return
    yield from evidence.levers(
        "more slots for recurrent states ({mamba_slots}), or more of the memory for them ({mamba_full_ratio})",
        "smaller states (bfloat16 by {mamba_ssm_cache_dtype})",
    )


# ---------------------------------------------------------------------------------------------------------- under load


def _loads(evidence: Evidence) -> tuple[Measurement, ...]:
    return tuple(m for m in evidence.loads("slo") if m.judged)


def k304_preemption(evidence: Evidence) -> Iterable[Finding]:
    counted = [(m, m.moved("preemptions")) for m in _loads(evidence)]
    known = [(m, moved) for m, moved in counted if moved is not None]
    if not known:
        yield CHECK.skip("K304", "a preemption counter on the metrics page, before and after the load")
        return
    moved, requests = sum(x for _, x in known), sum(len(m.judged) for m, _ in known)
    rest: dict[str, Any] = {"deciding": True, "where": evidence.where("traffic.target_concurrency")}
    rest |= {"severity": "high", "measured": Number.of("preemptions", moved, "", "measured", requests)}
    if not moved:
        yield CHECK.finding("K304", "pass", f"No request of {requests} lost its KV cache.", **rest)
        return
    why = f"{count(moved, 'preemption')} among {count(requests, 'request')}: the pool ran out, and tokens were "
    why += "computed twice."
    status: Status = "fail" if moved >= max(2, PREEMPTED * requests) else "warn"
    yield CHECK.finding("K304", status, why, remedies=tuple(_relief(evidence, at_the_door=True)), **rest)


def _relief(evidence: Evidence, *, at_the_door: bool = False) -> Iterator[str]:
    """What to do about a full cache; `at_the_door`: requests that wait there lose no work."""
    found, target = evidence.pool(), evidence.share_of_target
    if found is None or target is None or not evidence.profile.traffic.classes:
        yield from evidence.levers(
            "an 8-bit KV cache ({kv_cache_dtype})", "fewer requests at once ({max_num_seqs}), more replicas"
        )
        return
    fit_at_once = holding.carried(evidence, found[0].kv, 0.95)
    first = next(holding.ways_to_carry(evidence, found[0].kv, target))
    door = f"{evidence.flag('max_num_seqs')} {math.floor(fit_at_once)}: wait at the door instead of losing work"
    doors = [door] if at_the_door and 1 <= fit_at_once < target else []
    pins = evidence.settings is not None and evidence.settings.pins_pool
    yield from (first, *doors) if pins else (*doors, first)
    yield "K302 lists what else would make room"


def _read(name: str, value: float, unit: str, readings: int, note: str = "") -> Number:
    """What was read on the metrics page so many times."""
    return Number(name=name, value=value, unit=unit, provenance="measured", note=count(readings, "reading") + note)


def k305_queue(evidence: Evidence) -> Iterable[Finding]:
    where = evidence.where("traffic.target_concurrency")
    rest: dict[str, Any] = {"deciding": True, "where": where, "severity": "high"}
    if not _loads(evidence):
        yield CHECK.skip("K305", "a measured load at the target", **rest)
    for m in _loads(evidence):
        judge = _queue_seen if m.gauge("waiting") else _queue_felt
        yield judge(evidence, m, rest | {"subject": m.load.id})


def _queue_seen(evidence: Evidence, m: Measurement, rest: dict[str, Any]) -> Finding:
    """The server counts who waits: for cache, for a place in the batch, or for compute."""
    target, sent = m.load.concurrency, [s.start for s in m.judged]
    q = queueing.seen(m.gauge("waiting"), m.gauge("running"), min(sent), max(sent))
    full = max((v for _, v in m.gauge("kv_usage")), default=0.0)
    rest = rest | {
        "measured": _read("waiting, mean", q.mean, "requests", q.readings, ", warm-up and drain left out"),
        "numbers": (
            Number.of("time with a queue", q.often, "share", "measured"),
            Number.of("most waiting", q.most, "", "measured"),
            Number.of("longest time with a queue on end, warm-up included", q.lasts, "s", "measured"),
        ),
    }
    standing, stands = q.words(target, bounded=not m.load.arrivals), q.stands(target)
    usual = judging.rank([s.e2e for s in m.judged if s.good and s.e2e is not None] or [math.inf], 0.5)
    if not stands and q.lasts < min(LASTS * m.duration, 0.5 * usual):
        return CHECK.finding("K305", "pass", f"{standing}: no standing queue.", **rest)
    pool, share = evidence.pool(), evidence.share_of_target or 0
    carried = holding.carried(evidence, pool[0].kv, 0.95) if pool else math.inf
    if full >= 0.85 or carried < share:
        return _held_back(evidence, standing, stands, q.lasts, rest)
    if _batch_full(evidence, m, q.busy):
        why = f"{standing}, for a place in the batch: {max(q.busy):.0f} run at once and never more, the cache has room."
        fix = (*evidence.levers("raise {max_num_seqs}: K303 tells the limits that were found"), "add replicas")
        return CHECK.finding("K305", "fail" if stands else "warn", why, remedies=fix, **rest)
    if not stands:
        return CHECK.finding("K305", "pass", f"{standing}: no standing queue, and cache and batch have room.", **rest)
    fix = ("the queue is for compute, not for cache: H202 says where the time goes, W110 how to prefill faster",)
    why = f"{standing}, although the cache has room and no limit of the batch is seen."
    return CHECK.finding("K305", "warn", why, remedies=fix, **rest)


def _batch_full(evidence: Evidence, m: Measurement, busy: Sequence[float]) -> bool:
    """Whether what ran on all replicas while others waited stood at their limit, or at one that nothing tells.

    In a closed loop what runs and what waits add up to the users: near the target, a few that wait for compute hold
    what runs still as well.
    """
    limit = min((limit for limit, _, _ in holding.batch_limits(evidence)), default=math.inf)
    if busy and median(busy) >= REACHED * limit * evidence.profile.deployment.replicas:
        return True
    return judging.held(busy) and (bool(m.load.arrivals) or max(busy) < REACHED * m.load.concurrency)


def _held_back(evidence: Evidence, standing: str, stands: bool, lasts: float, rest: dict[str, Any]) -> Finding:
    """A queue for cache. Engines hold back by the tokens that they expect replies to take: usage may look low."""
    if stands:
        why = f"{standing}: the KV cache has no room for them, so TTFT grows while replies run normally."
        return CHECK.finding("K305", "fail", why, remedies=tuple(_relief(evidence)), **rest)
    why = f"{standing}: no standing queue, but one for {quantity(lasts, 's')} on end, for want of KV cache."
    return CHECK.finding("K305", "warn", why, remedies=tuple(_relief(evidence)), **rest)


def _queue_felt(evidence: Evidence, m: Measurement, rest: dict[str, Any]) -> Finding:
    """No counters: requests that are held back wait about as long as others reply, far beyond an idle prefill."""
    good = [(s, s.ttft, s.e2e - s.ttft) for s in m.judged if s.good and s.ttft is not None and s.e2e is not None]
    if not good:
        return CHECK.skip("K305", "good requests, or a metrics page with the queue", **rest)
    ttft, reply = judging.rank([t for _, t, _ in good], 0.95), judging.rank([r for _, _, r in good], 0.5)
    prompt = judging.rank([s.prompt_tokens or s.asked_prompt_tokens for s, _, _ in good], 0.95)
    idle = evidence.idle_ttft(prompt) or min(t for _, t, _ in good)
    rest = rest | {
        "confidence": "medium",
        "measured": Number.of("TTFT p95", ttft, "s", "measured", len(good)),
        "required": Number.of("TTFT of such a prompt, idle", idle, "s", "measured"),
        "numbers": (Number.of("rest of the reply, median", reply, "s", "measured", len(good)),),
    }
    if ttft > 5 * idle and ttft > 0.5 * reply:
        why = f"TTFT reaches {quantity(ttft, 's')} where an idle prompt takes {quantity(idle, 's')}: requests wait for "
        why += "others to end."
        return CHECK.finding("K305", "fail", why, remedies=tuple(_relief(evidence)), **rest)
    return CHECK.finding("K305", "pass", "First tokens come too soon for a queue (no counters to confirm it).", **rest)


def k306_usage(evidence: Evidence) -> Iterable[Finding]:
    usage = [v for m in _loads(evidence) for _, v in m.gauge("kv_usage")]
    if not usage:
        yield CHECK.skip("K306", "KV usage on the metrics page during the load")
        return
    number = _read("KV usage, highest", max(usage), "share", len(usage))
    rest: dict[str, Any] = {"measured": number, "where": evidence.where("traffic.target_concurrency")}
    if max(usage) < NEAR_FULL:
        yield CHECK.finding("K306", "pass", f"The cache is {percent(max(usage))} full at most.", **rest)
        return
    why = f"The cache reaches {percent(max(usage))} at the target: the next longer request preempts or waits."
    yield CHECK.finding("K306", "warn", why, remedies=tuple(_relief(evidence)), **rest)


def k307_jitter(evidence: Evidence) -> Iterable[Finding]:
    of_others = evidence.of_others or 0.0
    if not _loads(evidence):
        yield CHECK.skip("K307", "a measured load at the target")
    for m in _loads(evidence):
        blind = m.kv_pressed is None and not holding.surely_roomy(evidence)
        found = judging.jitter([s.arrivals for s in m.judged], 20, max(0.5, of_others))
        if found is None:
            yield CHECK.skip("K307", "streams of three events or more", deciding=blind, subject=m.load.id)
            continue
        rest: dict[str, Any] = {"deciding": blind, "confidence": "medium" if blind else "high", "subject": m.load.id}
        rest["measured"] = Number.of("largest gap, p95", found.largest_gap, "s", "measured", found.n)
        rest["numbers"] = (Number.of("gap, median", found.median_gap, "s", "measured", found.n),)
        why = f"{percent(found.stalls)} of the streams stall for over {quantity(found.limit, 's')}"
        if found.stalls < STALLS:
            yield CHECK.finding("K307", "pass", f"{why}: no sign of preemption.", **rest)
        elif m.kv_pressed:
            yield CHECK.finding("K307", "warn", f"{why} while the cache is short (K304, K305): it is why.", **rest)
        elif blind:
            rest |= {"severity": "high", "remedies": tuple(_relief(evidence))}
            why += ", longer than prompts of others explain: replies lose their cache and are computed again."
            missing = None if of_others else "the prefill ladder, to tell what prompts of others cost"
            yield CHECK.finding("K307", "inconclusive" if missing else "fail", why, missing=missing, **rest)
        else:
            yield CHECK.finding("K307", "pass", f"{why}, but the cache was not short: see H207.", **rest)


CHECK = Check(
    question="K",
    title="KV capacity",
    answers=("K302 p95", "K306"),
    rules=(
        Rule("K301", "Weights fit", k301_weights),
        Rule("K302", "Target concurrency against the pool", k302_concurrency),
        Rule("K303", "Batch limits against the target", k303_batch_limits),
        Rule("K304", "Preemption or retraction", k304_preemption),
        Rule("K305", "Queueing and held-back admissions", k305_queue),
        Rule("K306", "KV usage", k306_usage),
        Rule("K307", "Jitter of the KV cache", k307_jitter),
        *kv_declared.RULES,
    ),
)
