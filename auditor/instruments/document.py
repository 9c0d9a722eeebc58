"""`audit fit --json`: the answer as a document with stable keys (`schema_version`), each number with its origin."""

import math
from typing import Any

from auditor.instruments.fit import Count, Fit
from auditor.instruments.ruling import Ruling
from auditor.theory.answers import LONGEST
from auditor.theory.changes import Change
from auditor.theory.levers import name
from auditor.theory.statistics import Interval

__all__ = ["document"]

_SETTINGS = {  # those that move what fits, in the order of the document, with the units of those that are numbers
    "engine": None,
    "engine_version": None,
    "devices": "devices",
    "tensor_parallel": "devices",
    "pipeline_parallel": "stages",
    "data_parallel": "ranks",
    "expert_parallel": "devices",
    "decode_context_parallel": "devices",
    "quantization": None,
    "weight_bits": "bits",
    "compute_dtype": None,
    "kv_cache_dtype": None,
    "kv_bytes": "bytes an element",
    "block_size": "tokens",
    "max_model_len": "tokens",
    "max_num_seqs": "requests",
    "max_num_batched_tokens": "tokens",
    "memory_fraction": "share",
    "kv_pool_bytes": "bytes",
    "kv_pool_tokens": "tokens",
    "enforce_eager": None,
    "hybrid_kv_manager": None,
    "speculative_tokens": "tokens",
    "slots": "requests",
}


def document(fit: Fit, ruling: Ruling) -> dict[str, Any]:
    """The answer as plain data. A number is {value, unit, from} with low and high where it has a band."""
    geometry, device = fit.inputs.geometry, fit.inputs.device
    model = fit.inputs.sources.get("geometry") or "declared"
    return {
        "schema_version": 1,
        "verdict": {"status": ruling.status, "why": ruling.why, "exit_code": ruling.exit_code},
        "model": {
            "name": geometry.name,
            "architecture": geometry.architecture,
            "parameters": _number(geometry.parameters or None, "parameters", model),
            "layers": _number(geometry.layer_count, "layers", model),
            "from": model,
        },
        "accelerator": None if device is None else {"key": device.key, "name": device.name},
        "replicas": _number(fit.question.replicas, "replicas", "declared"),
        "target_per_replica": _number(fit.question.target, "requests", "declared"),
        "settings": _settings(fit),
        "memory": _memory(fit),
        "pool": _pool(fit),
        "requests": [_count(count, fit) for count in fit.counts],
        "context": {
            "limit": _number(fit.limit, "tokens", fit.inputs.sources.get("max_model_len", "the model's own")),
            "alone": _number(fit.context[0], "tokens", "computed", capped=fit.context[0] >= LONGEST),
            "at_target": _number(fit.context[1], "tokens", "computed", capped=(fit.context[1] or 0) >= LONGEST),
        },
        "growth": [
            {
                "stage": stage.name,
                "tokens": _number(stage.tokens, "tokens", "declared"),
                "share_of_pool": _number(stage.share, "share", "computed"),
            }
            for stage in fit.stages
        ],
        "attention": _attention(fit),
        "changes": [_change(change, fit) for change in fit.changes],
        "notes": list(fit.notes),
    }


def _number(value: float | Interval | None, unit: str, origin: str, *, capped: bool = False) -> dict[str, Any] | None:
    """One number with where it comes from; None where there is none. `capped`: it is at least that."""
    if value is None:
        return None
    if isinstance(value, Interval):
        band = {} if value.low == value.high else {"low": _finite(value.low), "high": _finite(value.high)}
        return {"value": _finite(value.point), **band, "unit": unit, "from": origin}
    return {"value": _finite(value), "unit": unit, "from": origin, **({"at_least": True} if capped else {})}


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _settings(fit: Fit) -> dict[str, Any]:
    settings, sources = fit.inputs.settings, fit.inputs.sources
    values = {key: getattr(settings, key) for key in _SETTINGS}
    return {
        key: {"value": value, **({"unit": unit} if unit else {}), "from": sources.get(key, "default")}
        for key, unit in _SETTINGS.items()
        if (value := values[key]) is not None
    }


def _memory(fit: Fit) -> dict[str, Any] | None:
    found, parts = fit.memory, fit.split
    weights = _number(fit.weights, "bytes", fit.inputs.sources.get("weights", "computed"))
    if found is None or parts is None:
        return None if weights is None else {"weights": weights}
    overhead = Interval(found.overhead_low, found.overhead, found.overhead_high)
    return {
        "usable": _number(found.usable, "bytes", fit.inputs.sources.get("device", "catalogue")),
        "budget": _number(found.budget, "bytes", "computed"),
        "weights": weights,
        "overhead": _number(overhead, "bytes", "computed"),
        "pool": _number(Interval(found.pool_low, found.pool, found.pool_high), "bytes", "computed"),
        "kv_by_class": [
            {
                "class": held.name,
                "requests": _number(held.requests, "requests", "declared") if held.requests else None,
                "bytes": _number(held.bytes, "bytes", "computed"),
            }
            for held in parts.classes
        ],
        "free": _number(parts.free, "bytes", "computed"),
        "beyond_budget": _number(parts.beyond, "bytes", "computed"),
        "idle": _number(parts.idle, "bytes", "computed"),
    }


def _pool(fit: Fit) -> dict[str, Any]:
    kv, low, high = fit.pool.kv, fit.pool.low, fit.pool.high
    blocks = None if kv.blocks is None else Interval(low.blocks or 0, kv.blocks, high.blocks or 0)
    return {
        "tokens": _number(Interval(low.tokens, kv.tokens, high.tokens), "tokens", "computed"),
        "blocks": _number(blocks, "blocks", "computed"),
        "block_size": _number(kv.block_size, "tokens", "computed"),
        "bytes": _number(Interval(low.bytes, kv.bytes, high.bytes), "bytes", "computed"),
        "bytes_per_token": _number(kv.bytes_per_token, "bytes", "computed"),
        "max_concurrency": _number(fit.max_concurrency, "requests", "computed"),
        "batch_limit": _number(fit.batch_limit, "requests", fit.inputs.sources.get("max_num_seqs", "default")),
        "rule": kv.rule,
    }


def _count(count: Count, fit: Fit) -> dict[str, Any]:
    wasted = count.waste
    return {
        "class": count.name or None,
        "at": count.at or None,
        "tokens": _number(count.tokens, "tokens", "declared" if fit.question.classes else "computed"),
        "requests": _number(count.requests, "requests", "computed"),
        "waste": None
        if wasted is None
        else {
            "needed": _number(wasted.needed, "bytes", "computed"),
            "taken": _number(wasted.taken, "bytes", "computed"),
            "block_rounding": _number(wasted.rounding, "share", "computed"),
            "slack": _number(wasted.slack, "share", "computed"),
        },
    }


def _attention(fit: Fit) -> dict[str, Any] | None:
    found = fit.saving
    if found is None:
        return None
    return {
        "kind": found.kind,
        "bytes_per_token": _number(found.now, "bytes", "computed"),
        "bytes_per_token_of_mha": _number(found.every_head, "bytes", "computed"),
        "saved": _number(found.share, "share", "computed"),
    }


def _change(change: Change, fit: Fit) -> dict[str, Any]:
    return {
        "field": change.field,
        "flag": name(fit.flags, change.field),
        "value": change.value,
        "also": [{"field": field, "flag": name(fit.flags, field), "value": value} for field, value in change.also],
        "devices": _number(change.devices, "devices", "computed"),
        "requests": _number(change.requests, "requests", "computed"),
        "pool_tokens": _number(change.pool_tokens, "tokens", "computed"),
        "pool_bytes": _number(change.pool_bytes, "bytes", "computed"),
        "weights": _number(change.weights, "bytes", "computed"),
        "starts": change.starts,
        "verdict": change.verdict,
    }
