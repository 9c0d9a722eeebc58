"""Any other server that speaks the OpenAI protocol: nothing is known of its flags, defaults or facts."""

from collections.abc import Mapping
from typing import Any

from auditor.engines.flavour import NOTHING, Flavour, Reply
from auditor.engines.replies import Facts, models
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry

__all__ = ["FLAVOUR"]

_LENGTH_KEYS = ("max_model_len", "context_length", "context_window")


def _recognise(_replies: Mapping[str, Reply]) -> bool:
    return True


def _read_served(replies: Mapping[str, Reply]) -> tuple[dict[str, Any], dict[str, str]]:
    facts = Facts()
    for entry in models(replies):
        for key in _LENGTH_KEYS:
            value = entry.get(key)
            facts.add("max_model_len", value if isinstance(value, int) else None, "/v1/models")
    return facts.result()


def _defaults(
    _release: str | None, _device: Device | None, _geometry: Geometry | None = None, _said: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    return {}


FLAVOUR = Flavour(
    name="generic",
    title="an OpenAI-compatible server",
    commands=(),
    flags=(),
    info_paths=(),
    metrics_paths=("/metrics", "/v1/metrics", "/prometheus/metrics"),  # NIM's and TensorRT-LLM's are the others
    prefix="",
    recognise=_recognise,
    read_served=_read_served,
    defaults=_defaults,
)
