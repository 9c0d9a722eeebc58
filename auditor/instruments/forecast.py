"""`audit predict` as JSON data: every number with its unit and where it comes from."""

from typing import Any

from auditor.instruments.predict import Predicted, Speed
from auditor.theory.phases import Phase, Work
from auditor.theory.ranking import Ranked

__all__ = ["forecast"]

_UNITS = {
    **dict.fromkeys(("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel"), "devices or ranks"),
    "kv_bytes": "bytes an element",
    "speculative_tokens": "tokens drafted a step",
}
_MEANING = {
    "alone": "the expected time without what others cost: a step without their prompts, a prompt in an idle engine",
    "bound": "the largest part of that time; mixed where none is 1.3 times the next",
    "largest": "the same with what others cost as a part of its own: prompts that are read between decode steps, or "
    "what an engine that is busy with other requests adds to a prompt",
    "limit_bound": "what sets the physical limit, in which only what must move or be multiplied counts, at the highest "
    "rate that the device has for these weights",
    "bound_at_peak": "what the products' FLOP/byte say against the ridge of the dtype that they run in",
    "answer": "tpot against the step: ruled_out by its limit, missed, open (within the band) or met",
    "of_which_links": "the part of overhead in which devices exchange data",
}


def forecast(found: Predicted) -> dict[str, Any]:
    """The answer as plain data of `schema_version` 1."""
    geometry, settings, device = found.inputs.geometry, found.inputs.settings, found.inputs.device
    told, here = found.inputs.sources, device is not None and device.here
    tells = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel", "quantization")
    own = ("engine", "engine_version", *tells, "compute_dtype", "kv_bytes", "speculative_tokens", "enforce_eager")
    return {
        "schema_version": 1,
        "model": geometry.name,
        "accelerator": device.key if device is not None else None,
        "count": settings.devices,
        "settings": {
            name: {"value": getattr(settings, name), **_unit(name), "from": told.get(name, "default")}
            for name in own
            if getattr(settings, name) is not None
        },
        "load": {
            "batch": _number(found.load.batch, "sequences", "default" if found.load.alone else "declared"),
            "prompt": _number(found.load.prompt, "tokens", "declared"),
            "output": _number(found.load.output, "tokens", "declared"),
            "context": _number(found.load.held, "tokens", "declared" if found.load.context is not None else "computed"),
        },
        "peak": _number(found.peak, "FLOP/s", "computed" if here else "catalogue"),
        "bandwidth": _number(device.bandwidth if device else None, "bytes/s", "measured" if here else "catalogue"),
        "ridge": _number(found.ridge, "FLOP/byte", "computed"),
        "compute_bound_from": _number(found.critical, "tokens a step", "computed"),
        "prefill": _speed(found.prefill),
        "decode": _speed(found.decode),
        "request": _number(found.request_seconds, "s", "computed"),
        "requests_per_second": _number(found.requests_per_second, "/s", "computed"),
        "replicas": _number(found.replicas, "replicas", "computed"),
        "cost": _cost(found),
        "holds": _number(found.holds, "sequences", "computed"),
        "target": _target(found),
        "ranking": [_ranked(row) for row in found.ranking],
        "meaning": dict(_MEANING),
        "provisional": list(found.provisional),
        "notes": list(dict.fromkeys(found.notes)),
    }


def _unit(name: str) -> dict[str, str]:
    return {"unit": _UNITS[name]} if name in _UNITS else {}


def _number(value: float | None, unit: str, origin: str) -> dict[str, Any] | None:
    return None if value is None else {"value": value, "unit": unit, "from": origin}


def _speed(speed: Speed | None) -> dict[str, Any] | None:
    if speed is None:
        return None
    expected, own, limit = speed.expected, speed.expected.own, speed.limit
    parts = {
        "weights": own.weights_s,
        "kv": own.kv_s,
        "compute": own.compute_s,
        "overhead": own.overhead_s,
        "others_prompts": expected.prompts_s,
        "busy_engine": expected.busy_s,
        "of_which_links": expected.links_s,
    }
    return {
        "seconds": {
            "value": expected.seconds,
            "low": expected.low,
            "high": expected.high,
            "unit": "s",
            "from": "computed",
        },
        "band": "80 %",
        "alone": _number(own.seconds, "s", "computed"),
        "bound": own.bound,
        "largest": expected.largest,
        "parts": {name: _number(seconds, "s", "computed") for name, seconds in parts.items()},
        "limit": _number(speed.least, "s", "computed"),
        "limit_bound": limit.bound,
        "bound_at_peak": speed.phase.binds(speed.ridge),
        "products": _phase(speed.phase),
        "source": expected.source,
    }


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "sequences": phase.sequences,
        "q": {"n": phase.n, "width": phase.q_width},
        "kv": {"m": phase.m, "width": phase.kv_width},
        "linear": _work(phase.linear),
        "attention": _work(phase.attention),
        "total": _work(phase.total),
    }


def _work(work: Work) -> dict[str, Any]:
    return {
        "flops": _number(work.flops, "FLOP", "computed"),
        "bytes": _number(work.bytes, "bytes", "computed"),
        "intensity": _number(work.intensity, "FLOP/byte", "computed"),
    }


def _target(found: Predicted) -> dict[str, Any] | None:
    if found.target is None:
        return None
    return {
        "tpot": _number(found.target.seconds, "s", "declared"),
        "answer": found.target.answer,
        "most": _number(found.target.most, "sequences", "computed"),
    }


def _cost(found: Predicted) -> dict[str, Any] | None:
    if found.cost is None:
        return None
    return {
        "per_million_input": _number(found.cost.per_million_input, "money", "computed"),
        "per_million_output": _number(found.cost.per_million_output, "money", "computed"),
    }


def _ranked(row: Ranked) -> dict[str, Any]:
    return {
        "accelerator": row.key,
        "confidence": row.confidence,
        "request": _number(row.request, "s", "computed"),
        "ttft": _number(row.ttft, "s", "computed"),
        "tpot": _number(row.tpot, "s", "computed"),
        "holds": row.holds,
        "cost_per_request": _number(row.cost, "money", "computed"),
        "asked": row.mine,
    }
