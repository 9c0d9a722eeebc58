"""KV capacity: do the KV cache and the batch settings carry the target concurrency, on paper and under load?

On paper a pool of tokens divided by what a request holds; under load no preemption, no queue, no jitter. Engines show a
full cache differently: vLLM admits, then preempts (TTFT looks healthy, gaps open); SGLang holds requests back (TTFT
explodes, TPOT looks normal); llama.cpp gives each slot its context and lets the rest wait.

| rule | looks at | decides |
|---|---|---|
| K301 | do the weights fit? | yes |
| K302 | the pool against the target at p50, p95, max lengths and the mix | at p95 |
| K303 | batch limits against the target | yes |
| K304 | preemption, retraction | where the server counts them |
| K305 | queueing and held-back admissions | yes |
| K306 | KV usage near full | no |
| K307 | stalls in the token stream that are the KV cache's | without server counters |
| K308 | the computed pool against the served one | no |
| K309 | tensor parallelism beyond the KV heads | no |
| K310 | KV and batch settings served otherwise than declared | yes |
| K311 | launch flags that contradict the profile | yes |
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from auditor.evidence import Check, Conflict, Evidence, Finding, Number, Provenance, Rule, Status
from auditor.measurement import Measurement
from auditor.profile import TrafficClass
from auditor.theory import judging, shape
from auditor.theory.alternatives import alternatives
from auditor.theory.carrying import at_once, carried, computed_pool
from auditor.theory.kv.cells import KvPool, attention_parallel
from auditor.theory.memory import memory
from auditor.theory.settings import Settings

__all__ = ["CHECK"]

GIB = 2**30
AGREES = 0.02  # computed and served pool
NEAR_FULL = 0.95
PREEMPTED = 0.01  # of the requests
QUEUED = 0.05  # of the target, in the mean
REACHED = 0.9  # of the target that must run at once
STALLS = 0.05  # of the requests
SHARE_ROOM = ("vllm", "sglang")  # engines that keep a shared prefix once


# ---------------------------------------------------------------------------------------------------------------- pool


def _carried(evidence: Evidence, settings: Settings | None, kv: KvPool, quantile: float | None) -> float:
    """Requests in flight that one replica carries, each class holding its part of them."""
    cached = evidence.served is None or evidence.served.prefix_caching is not False
    once, parts, prefixes = cached and evidence.engine in SHARE_ROOM, [], 0
    for c in evidence.profile.traffic.classes:
        held = c.held(quantile, prefix_once=once)
        alone = at_once(evidence.geometry, settings, kv, min(held, evidence.context or held))
        parts.append((c.share * _stay(evidence, c), alone))
        prefixes += c.shared_prefix.tokens * c.shared_prefix.distinct if once and c.shared_prefix else 0
    return carried(parts, prefixes / max(1, kv.tokens))


def _stay(evidence: Evidence, cls: TrafficClass) -> float:
    """How long a request of a class stays: measured, else in proportion to its reply's tokens."""
    times = [s.e2e for s in evidence.requests(cls=cls.name) if s.good and s.e2e is not None]
    return sum(times) / len(times) if times else max(1.0, shape.mean(cls.output_tokens.curve))


def k301_weights(evidence: Evidence) -> Iterable[Finding]:
    where = evidence.where("deployment.accelerator")
    rest: dict[str, Any] = {"deciding": True, "where": where, "severity": "high"}
    if evidence.served_pool:
        yield CHECK.finding("K301", "pass", "The engine serves with a KV pool, so its weights fit.", **rest)
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
    rooms = [(a, memory(geometry, a.settings, device).pool) for a in alternatives(settings, device)]
    gains = [(a, room) for a, room in rooms if room > max(0.0, found.pool)]
    rest["remedies"] = tuple(f"{evidence.flag(a.field)} {a.value} leaves {room / GIB:.1f} GiB" for a, room in gains)
    if found.pool_high <= 0:
        yield CHECK.finding("K301", "fail", f"The weights do not fit: {left}.", **rest)
        return
    why, missing = f"The weights may not fit: {left}, give or take.", "the pool that the engine reports at start-up"
    yield CHECK.finding("K301", "inconclusive", " ".join((why, *found.notes)), missing=missing, **rest)


def k302_concurrency(evidence: Evidence) -> Iterable[Finding]:
    found, target, classes = evidence.pool(), evidence.share_of_target, evidence.profile.traffic.classes
    rest: dict[str, Any] = {"where": evidence.where("traffic.target_concurrency"), "severity": "high"}
    if found is None or target is None or not classes:
        missing = f"the KV pool: no page tells it, and to compute it lacks {evidence.lacking or 'a memory fraction'}"
        if target is None or not classes:
            missing = "traffic.classes and traffic.target_concurrency"
        yield CHECK.skip("K302", missing, deciding=True, subject="p95", **rest)
        return
    pool, source = found
    rest["required"] = Number.of("target a replica", target, "requests", "declared")
    for name, quantile in (("p95", 0.95), ("p50", 0.5), ("max", 1.0), ("mix", None)):
        fit_at_once, low, high = (
            _carried(evidence, evidence.settings, kv, quantile) for kv in (pool.kv, pool.low, pool.high)
        )
        status: Status = "pass" if low >= target else "fail" if high < target else "inconclusive"
        decides = name == "p95"
        band: dict[str, Any] = {} if pool.exact else {"low": low, "high": high}
        number = Number(name="requests at once", value=fit_at_once, unit="requests", provenance=source, **band)
        lengths = "in the mean over the mix" if quantile is None else f"at {name} lengths"
        why = f"A pool of {pool.kv.tokens} tokens ({source}) carries {fit_at_once:.1f} requests at once {lengths}; "
        why += f"the target is {target} a replica."
        rest["missing"] = "the pool that the engine reports" if status == "inconclusive" else None
        rest["remedies"] = tuple(_room(evidence, fit_at_once, target)) if decides and status != "pass" else ()
        status = status if decides or status == "pass" else "warn"
        yield CHECK.finding("K302", status, why, subject=name, deciding=decides, measured=number, **rest)


def _room(evidence: Evidence, fit_at_once: float, target: int) -> Iterator[str]:
    """Levers for capacity, with the figure that they would give."""
    settings = evidence.settings
    for lever in alternatives(settings, evidence.device) if settings else ():
        now, then = evidence.pool(settings), evidence.pool(lever.settings)
        if now and then:
            before = _carried(evidence, settings, now[0].kv, 0.95)
            after = _carried(evidence, lever.settings, then[0].kv, 0.95)
            gain = f"{then[0].kv.tokens} tokens, {after:.0f} requests at p95 ({after / target:.2g}x the target)"
            if after > 1.05 * before:
                yield f"{evidence.flag(lever.field)} {lever.value} makes a pool of {gain}"
    if fit_at_once >= 1:
        replicas = math.ceil((evidence.target or target) / math.floor(fit_at_once))
        yield f"{replicas} such replicas carry the target; one carries {math.floor(fit_at_once)}"
    yield evidence.spell("shorten what a request holds: cap prompts and max_tokens ({max_model_len})")


def _limits(evidence: Evidence) -> Iterator[tuple[int, str, Provenance]]:
    """What bounds the requests that one replica runs at once: (requests, field, where it comes from)."""
    settings, engine = evidence.settings, evidence.engine
    for field in ("max_num_seqs", "slots", *(("max_num_batched_tokens",) if engine == "vllm" else ())):
        told = getattr(evidence.served, field, None)
        value = told or getattr(settings, field, None)
        if value:  # vLLM counts them for each data-parallel rank, SGLang in all
            ranks = settings.data_parallel if settings and engine == "vllm" else 1
            yield value * ranks, field, "served" if told else "declared"


def k303_batch_limits(evidence: Evidence) -> Iterable[Finding]:
    limits, target = list(_limits(evidence)), evidence.share_of_target
    rest: dict[str, Any] = {"deciding": True, "where": evidence.where("deployment.max_num_seqs"), "severity": "high"}
    running = max((v for m in _loads(evidence) for _, v in m.gauge("running")), default=0.0)
    if target is None or not (limits or running):
        yield CHECK.skip("K303", "the engine's batch limits and traffic.target_concurrency", **rest)
        return
    rest["required"] = Number.of("target a replica", target, "requests", "declared")
    if not limits:
        rest["measured"] = Number.of("most running at once", running, "requests", "measured")
        enough = running >= (evidence.target or target)
        missing = None if enough else "max_num_seqs, or a load in which the whole target runs at once"
        why = f"The engine's limits are unknown; under load it ran {running:.0f} requests at once."
        yield CHECK.finding("K303", "pass" if enough else "inconclusive", why, missing=missing, **rest)
        return
    limit, field, source = min(limits)
    flag, queue = evidence.flag(field), evidence.served.queue_limit if evidence.served else None
    rest["measured"] = Number.of(flag, limit, "requests", source)
    if limit >= target:
        yield CHECK.finding("K303", "pass", f"{limit} requests may run at once ({flag}), {target} are asked.", **rest)
        return
    refused = f", and beyond {limit + queue} they are refused" if queue is not None and limit + queue < target else ""
    why = f"At most {limit} of {target} requests run at once ({flag}): the others wait{refused}."
    fix = (f"raise {flag} to {target} or more (K302 says whether the pool carries it)", "add replicas")
    yield CHECK.finding("K303", "fail", why, remedies=fix, **rest)


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
    why = f"{requests} requests lost their cache {moved:.0f} times: the pool ran out, and tokens were computed twice."
    status: Status = "fail" if moved >= max(2, PREEMPTED * requests) else "warn"
    yield CHECK.finding("K304", status, why, remedies=tuple(_relief(evidence)), **rest)


def _relief(evidence: Evidence) -> Iterator[str]:
    found, target = evidence.pool(), evidence.share_of_target
    if found is None or target is None or not evidence.profile.traffic.classes:
        yield evidence.spell("an 8-bit KV cache ({kv_cache_dtype}), fewer requests at once ({max_num_seqs}), replicas")
        return
    fit_at_once = _carried(evidence, evidence.settings, found[0].kv, 0.95)
    if 1 <= fit_at_once < target:
        yield f"{evidence.flag('max_num_seqs')} {math.floor(fit_at_once)}: wait at the door instead of losing work"
    yield from (next(_room(evidence, fit_at_once, target)), "K302 lists what else would make room")


def k305_queue(evidence: Evidence) -> Iterable[Finding]:
    where = evidence.where("traffic.target_concurrency")
    rest: dict[str, Any] = {"deciding": True, "where": where, "severity": "high"}
    if not _loads(evidence):
        yield CHECK.skip("K305", "a measured load at the target", **rest)
    for m in _loads(evidence):
        yield _queue_seen(evidence, m, rest) if m.gauge("waiting") else _queue_felt(evidence, m, rest)


def _queue_seen(evidence: Evidence, m: Measurement, rest: dict[str, Any]) -> Finding:
    """The server counts who waits: for cache, for a place in the batch, or for compute."""
    queue, target = [waiting for _, waiting in m.gauge("waiting")], m.load.concurrency
    mean, often = sum(queue) / len(queue), sum(w > 0 for w in queue) / len(queue)
    full = max((v for _, v in m.gauge("kv_usage")), default=0.0)
    rest = rest | {
        "measured": Number.of("waiting, mean", mean, "requests", "measured", len(queue)),
        "numbers": (Number.of("time with a queue", often, "share", "measured", len(queue)),),
    }
    standing = f"{mean:.1f} of {target} requests wait in the mean"
    if mean < max(1.0, QUEUED * target) or often < 0.25:
        return CHECK.finding("K305", "pass", f"{standing}: no standing queue.", **rest)
    pool, share = evidence.pool(), evidence.share_of_target or 0
    busy = [run for (_, run), (_, wait) in zip(m.gauge("running"), m.gauge("waiting"), strict=False) if wait > 0]
    if full >= 0.85 or (pool and _carried(evidence, evidence.settings, pool[0].kv, 0.95) < share):
        why = f"{standing} because the KV cache has no room for them: TTFT grows while replies run normally."
        return CHECK.finding("K305", "fail", why, remedies=tuple(_relief(evidence)), **rest)
    if judging.held_below(busy, REACHED * target):
        why = f"{standing} for a place in the batch: {max(busy):.0f} run at once and never more, the cache has room."
        fix = (evidence.spell("raise {max_num_seqs} (as served: see K303, K310), or add replicas"),)
        return CHECK.finding("K305", "fail", why, remedies=fix, **rest)
    fix = ("the queue is for compute, not for cache: H202 says where the time goes, W110 how to prefill faster",)
    return CHECK.finding("K305", "warn", f"{standing} although cache and batch have room.", remedies=fix, **rest)


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
        why = f"TTFT reaches {ttft:.3g} s where an idle prompt takes {idle:.3g} s: requests wait for others to end."
        return CHECK.finding("K305", "fail", why, remedies=tuple(_relief(evidence)), **rest)
    return CHECK.finding("K305", "pass", "First tokens come too soon for a queue (no counters to confirm it).", **rest)


def k306_usage(evidence: Evidence) -> Iterable[Finding]:
    usage = [v for m in _loads(evidence) for _, v in m.gauge("kv_usage")]
    if not usage:
        yield CHECK.skip("K306", "KV usage on the metrics page during the load")
        return
    number = Number.of("KV usage, highest", max(usage), "share", "measured", len(usage))
    rest: dict[str, Any] = {"measured": number, "where": evidence.where("traffic.target_concurrency")}
    if max(usage) < NEAR_FULL:
        yield CHECK.finding("K306", "pass", f"The cache is {max(usage):.0%} full at most.", **rest)
        return
    why = f"The cache reaches {max(usage):.0%} at the target: the next longer request preempts or waits."
    yield CHECK.finding("K306", "warn", why, remedies=tuple(_relief(evidence))[-2:], **rest)


def k307_jitter(evidence: Evidence) -> Iterable[Finding]:
    prompt = max((shape.at(c.prompt_tokens.curve, 1) for c in evidence.profile.traffic.classes), default=0)
    of_others = 3 * (evidence.idle_ttft(prompt) or 0.0)  # what other users' prompts may cost a stream
    if not _loads(evidence):
        yield CHECK.skip("K307", "a measured load at the target")
    for m in _loads(evidence):
        blind = m.kv_pressed is None and not _surely_roomy(evidence)
        found = judging.jitter([s.arrivals for s in m.judged], 20, max(0.5, of_others))
        if found is None:
            yield CHECK.skip("K307", "streams of three events or more", deciding=blind)
            continue
        rest: dict[str, Any] = {"deciding": blind, "confidence": "medium" if blind else "high"}
        rest["measured"] = Number.of("largest gap, p95", found.largest_gap, "s", "measured", found.n)
        rest["numbers"] = (Number.of("gap, median", found.median_gap, "s", "measured", found.n),)
        why = f"{found.stalls:.0%} of the streams stall for over {found.limit:.3g} s"
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


def _surely_roomy(evidence: Evidence) -> bool:
    """Whether a pool that needs no guess carries the target: slots of a fixed context, or the engine's own figure."""
    found, share = evidence.pool(), evidence.share_of_target
    known = found is not None and found[0].exact and share is not None and bool(evidence.profile.traffic.classes)
    return known and found is not None and _carried(evidence, evidence.settings, found[0].kv, 1.0) >= (share or 0)


# ---------------------------------------------------------------------------------------------------- what is declared


def k308_pools(evidence: Evidence) -> Iterable[Finding]:
    served, found = evidence.served_pool, computed_pool(evidence.geometry, evidence.settings, evidence.device)
    if served is None or found is None:
        yield CHECK.skip("K308", "both pools: served by the engine, and computed from model, hardware and settings")
        return
    told, ours = served.kv.tokens, found.kv.tokens
    off = ours / told - 1
    inside = found.low.tokens <= told <= found.high.tokens
    ruled = Number(name="KV pool", value=ours, unit="tokens", provenance="computed", note=found.kv.rule)
    rest: dict[str, Any] = {"measured": Number.of("KV pool", told, "tokens", "served"), "required": ruled}
    rest["where"] = evidence.where("deployment")
    why = f"Computed {ours} tokens, served {told} ({off:+.1%})"
    if abs(off) <= AGREES:
        yield CHECK.finding("K308", "pass", f"{why}: they agree.", **rest)
        return
    why += ", within what engines differ in memory overhead." if inside and not found.exact else "."
    fix = (evidence.spell("compare {gpu_memory_utilization}, {kv_cache_dtype}, {quantization} and the accelerator"),)
    yield CHECK.finding("K308", "warn", why, severity="low" if inside else "medium", remedies=fix, **rest)


def k309_heads(evidence: Evidence) -> Iterable[Finding]:
    geometry, settings = evidence.geometry, evidence.settings
    if geometry is None or settings is None:
        yield CHECK.skip("K309", evidence.lacking or "the model's geometry")
        return
    heads, devices = min(1 if g.kind == "mla" else g.kv_heads for g in geometry.layers), attention_parallel(settings)
    rest: dict[str, Any] = {"where": evidence.where("deployment.tensor_parallel"), "severity": "low"}
    if devices <= heads:
        yield CHECK.finding("K309", "pass", f"{devices} devices share {heads} KV heads: none is stored twice.", **rest)
        return
    what = "latent cache" if any(g.kind == "mla" for g in geometry.layers) else f"{heads} KV heads"
    why = f"{devices} devices for one {what}: it is stored {devices // heads} times, and more devices add no room."
    fix = (evidence.spell("spend devices on {data_parallel} (data-parallel attention) or replicas instead"),)
    yield CHECK.finding("K309", "warn", why, remedies=fix, **rest)


def k310_served(evidence: Evidence) -> Iterable[Finding]:
    if evidence.served is None:
        return [CHECK.skip("K310", "what the endpoint serves")]
    return _differences(evidence, "K310", [c for c in evidence.conflicts if c.with_served and c.on_capacity])


def k311_launch(evidence: Evidence) -> Iterable[Finding]:
    if evidence.profile.deployment.launch is None:
        return [CHECK.skip("K311", "deployment.launch")]
    return _differences(evidence, "K311", [c for c in evidence.conflicts if not c.with_served])


def _differences(evidence: Evidence, rule: str, found: list[Conflict]) -> Iterator[Finding]:
    fix = ("make both places say the same, then audit again",)
    for c in found:
        where = evidence.where(c.field)
        yield CHECK.finding(rule, "warn", f"{c}.", subject=c.field, deciding=True, where=where, remedies=fix)
    if not found:
        yield CHECK.finding(rule, "pass", "Nothing is said twice and differently.", deciding=True)


CHECK = Check(
    question="K",
    title="KV capacity",
    answers=("K302 mix", "K306"),
    rules=(
        Rule("K301", "Weights fit", k301_weights),
        Rule("K302", "Target concurrency against the pool", k302_concurrency),
        Rule("K303", "Batch limits against the target", k303_batch_limits),
        Rule("K304", "Preemption or retraction", k304_preemption),
        Rule("K305", "Queueing and held-back admissions", k305_queue),
        Rule("K306", "KV usage", k306_usage),
        Rule("K307", "Jitter of the KV cache", k307_jitter),
        Rule("K308", "Computed pool against the served one", k308_pools),
        Rule("K309", "Tensor parallelism and KV heads", k309_heads),
        Rule("K310", "KV settings as served", k310_served),
        Rule("K311", "Launch flags against the profile", k311_launch),
    ),
)
