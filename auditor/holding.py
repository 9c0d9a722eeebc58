"""What the requests in flight hold of the KV cache, and what a replica carries of them: from evidence, for checks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor.evidence import Evidence, Number, Provenance, Status
from auditor.profile import TrafficClass
from auditor.theory import shape
from auditor.theory.agreement import Told
from auditor.theory.answers import longest_alone, starts
from auditor.theory.carrying import Mix, PoolRange, computed_pool
from auditor.theory.kv.cells import KvPool
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.sglang_state import slots_per_request
from auditor.theory.room import ways
from auditor.theory.settings import Settings

__all__ = [
    "Refusal",
    "batch_limits",
    "carried",
    "carries",
    "mix",
    "mixed",
    "refusal",
    "surely_roomy",
    "told",
    "ways_to_carry",
]

SHARE_PREFIXES = ("vllm", "sglang")  # engines that keep a shared prefix once


def mix(evidence: Evidence, quantile: float | None) -> Mix:
    """The requests in flight at the target, each class holding its part of them, at a quantile of their lengths.

    None is the mean over their lives. Classes weigh by how long their requests stay (Little's law).
    """
    cached = evidence.served is None or evidence.served.prefix_caching is not False
    once = cached and evidence.engine in SHARE_PREFIXES
    stays = [_stay(evidence, c) for c in evidence.profile.traffic.classes]
    return mixed(evidence.profile.traffic.classes, quantile, once=once, context=evidence.context, stays=stays)


def mixed(
    classes: Sequence[TrafficClass],
    quantile: float | None,
    *,
    once: bool,
    context: int | None,
    stays: Sequence[float] | None = None,
) -> Mix:
    """The mix of these classes; no request holds more than `context`, and `once` counts shared prefixes once.

    `stays` are the seconds that the requests of each class stay; without them the replies' mean tokens stand for these.
    """
    weights = stays or [max(1.0, shape.mean(c.output_tokens.curve)) for c in classes]
    parts, prefixes = [], 0
    for c, stay in zip(classes, weights, strict=True):
        held = c.held(quantile, prefix_once=once)
        parts.append((c.share * stay, min(held, context or held)))
        prefixes += c.shared_prefix.tokens * c.shared_prefix.distinct if once and c.shared_prefix else 0
    return Mix(tuple(parts), prefixes)


def _stay(evidence: Evidence, cls: TrafficClass) -> float:
    """How long a request of a class stays: measured, else in proportion to its reply's tokens."""
    times = [s.e2e for s in evidence.requests(cls=cls.name) if s.good and s.e2e is not None]
    return sum(times) / len(times) if times else max(1.0, shape.mean(cls.output_tokens.curve))


def carried(evidence: Evidence, kv: KvPool, quantile: float | None) -> float:
    """Requests in flight that a replica with this pool carries."""
    return mix(evidence, quantile).carried(evidence.geometry, evidence.settings, kv)


def carries(
    evidence: Evidence, pool: PoolRange, source: Provenance, target: int, quantile: float | None
) -> tuple[Number, Status]:
    """Requests at once at these lengths, and whether that is the target: inconclusive within the pool's band."""
    at, low, high = (carried(evidence, kv, quantile) for kv in (pool.kv, pool.low, pool.high))
    status: Status = "pass" if low >= target else "fail" if high < target else "inconclusive"
    band = (None, None) if pool.exact else (low, high)
    return Number(
        name="requests at once", value=at, unit="requests", provenance=source, low=band[0], high=band[1]
    ), status


def ways_to_carry(evidence: Evidence, kv: KvPool, target: int) -> Iterator[str]:
    """Levers for capacity, with the figure that they would give."""
    theory = evidence.geometry, evidence.settings, evidence.device
    return ways(*theory, kv, mix(evidence, 0.95), target, evidence.target or target, evidence.flags)


def told(evidence: Evidence) -> Told | None:
    """What the engine tells of its pool; None where it tells nothing that does not follow from its other answers.

    A token count that is blocks x block size is none of the engine's own: of several kinds of layers it says nothing.
    """
    served, settings = evidence.served, evidence.settings
    if served is None:
        return None
    if evidence.engine == "llamacpp":
        cells = _cells(evidence)
        return Told(tokens=cells) if cells else None
    counted = served.kv_blocks is not None and "x block_size" in served.sources.get("kv_tokens", "")
    if not served.kv_blocks and not served.kv_tokens:
        return None
    return Told(
        tokens=None if counted else served.kv_tokens,
        blocks=served.kv_blocks,
        block_size=served.block_size,
        bytes=served.kv_pool_bytes,
        requests=served.kv_max_concurrency,
        length=served.max_model_len or (settings.max_model_len if settings else None),
    )


def _cells(evidence: Evidence) -> int | None:
    """llama.cpp's cells by the slots and the context that it tells; None where the settings rest on the same answer."""
    served, settings = evidence.served, evidence.settings
    if served is None or settings is None or not served.max_model_len or not served.max_num_seqs:
        return None
    if evidence.setting_sources.get("max_model_len", "served").startswith("served"):
        return None
    return served.max_model_len * (1 if settings.kv_unified else served.max_num_seqs)


def surely_roomy(evidence: Evidence) -> bool:
    """Whether a pool that needs no guess carries the target: slots of a fixed context, or the engine's own figure."""
    found, share = evidence.pool(), evidence.share_of_target
    if found is None or not found[0].exact or share is None or not evidence.profile.traffic.classes:
        return False
    return carried(evidence, found[0].kv, 1.0) >= share


def batch_limits(evidence: Evidence) -> Iterator[tuple[int, str, Provenance]]:
    """What bounds the requests that one replica runs at once: (requests, field, where it comes from)."""
    settings, engine = evidence.settings, evidence.engine
    for field in ("max_num_seqs", "slots", *(("max_num_batched_tokens",) if engine == "vllm" else ())):
        told = getattr(evidence.served, field, None)
        value = told or getattr(settings, field, None)
        if value:  # of one data-parallel rank, in settings as in what engines tell
            yield (
                value * (settings.data_parallel if settings else 1),
                field,
                "served" if told else evidence.origin(field),
            )
    if engine == "sglang" and not getattr(evidence.served, "max_num_seqs", None):  # which counts the states already
        yield from _state_limit(evidence)


def _state_limit(evidence: Evidence) -> Iterator[tuple[int, str, Provenance]]:
    """The requests that SGLang's slots for recurrent states let run."""
    found, geometry, settings = evidence.pool(), evidence.geometry, evidence.settings
    if found is None or geometry is None or settings is None or found[0].kv.state_slots is None:
        return
    running = found[0].kv.state_slots // slots_per_request(geometry, settings)
    source = evidence.origin("mamba_slots") if settings.mamba_slots else "computed"
    yield running * settings.data_parallel, "mamba_slots", source


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the engine would not start with the pool that is computed, surely or perhaps; `of_states`: because of the
    states that requests need.
    """

    why: str
    sure: bool
    of_states: bool


def refusal(evidence: Evidence) -> Refusal | None:
    """Why the engine would not start; None where it runs, or nothing speaks against it.

    Sure where it holds of the largest plausible pool too.
    """
    geometry, settings = evidence.geometry, evidence.settings
    found = computed_pool(geometry, settings, evidence.device) if evidence.served is None else None
    if found is None or geometry is None or settings is None:
        return None
    pools = found.kv, found.low, found.high
    reasons = [_refused(geometry, settings, kv) for kv in pools]
    why, kv = next(((reason, kv) for reason, kv in zip(reasons, pools, strict=True) if reason), (None, found.kv))
    if why is None:
        return None
    return Refusal(why, sure=all(reasons), of_states=bool(geometry.recurrent) and kv.refusal is not None)


def _refused(geometry: Geometry, settings: Settings, kv: KvPool) -> str | None:
    if kv.refusal is not None or starts(geometry, settings, kv):
        return kv.refusal
    size = f"{kv.blocks} blocks" if kv.blocks is not None else f"{kv.tokens} tokens"
    longest = longest_alone(geometry, settings, kv)
    return f"a request of max_model_len {settings.max_model_len} does not fit in {size}: {longest} tokens are the most"
