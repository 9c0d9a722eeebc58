"""The two phases as matrix products: prefill multiplies matrices by matrices, decode vectors by matrices."""

from dataclasses import dataclass
from typing import Literal

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.settings import Settings
from auditor.theory.weights import streamed_bytes
from auditor.theory.work import (
    decode_attention_flops,
    decode_kv_bytes,
    decode_linear_flops,
    linear_devices,
    prefill_attention_flops,
    prefill_linear_flops,
    rate,
)

__all__ = ["Phase", "Work", "critical_tokens", "decode_phase", "prefill_phase", "ridge"]


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs and bytes of one device."""

    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """FLOPs for each byte."""
        return self.flops / self.bytes if self.bytes else 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One step of a phase. Q of one sequence has `n` rows of `q_width`, its K and V each `m` rows of `kv_width`.

    `sequences` share the step; `linear` is the work of all layers' weights and the head, `attention` that of scores,
    values and recurrent states. Widths are of the whole model, work is of one device; widths are 0 without attention.
    """

    name: Literal["prefill", "decode"]
    sequences: float
    n: float
    m: float
    q_width: int
    kv_width: int
    linear: Work
    attention: Work

    @property
    def total(self) -> Work:
        """All of the step's work on one device."""
        return self.linear + self.attention

    def binds(self, ridge: float) -> Literal["compute", "kv", "weights"]:
        """What would bind if all ran at its peak: compute above the ridge, else whatever moves more bytes."""
        if self.total.intensity >= ridge > 0:
            return "compute"
        return "kv" if self.attention.bytes > self.linear.bytes else "weights"


def prefill_phase(geometry: Geometry, settings: Settings, prompt_tokens: float) -> Phase:
    """A whole prompt alone: every weight is read once for N tokens, keys and values are written once."""
    devices = settings.tensor_parallel * settings.pipeline_parallel
    weights = streamed_bytes(geometry, settings, prompt_tokens, limit=False)
    linear = Work(prefill_linear_flops(geometry, prompt_tokens) / devices, weights)
    cache = decode_kv_bytes(geometry, settings, settings.data_parallel, prompt_tokens)
    attention = Work(prefill_attention_flops(geometry, prompt_tokens) / devices, cache)
    return _phase("prefill", geometry, 1, (prompt_tokens, prompt_tokens), linear, attention)


def decode_phase(geometry: Geometry, settings: Settings, batch: float, context: float) -> Phase:
    """One token of each sequence: every weight is read for `batch` tokens, every sequence's own cache for one."""
    devices = linear_devices(settings)
    weights = streamed_bytes(geometry, settings, batch, limit=False)
    linear = Work(decode_linear_flops(geometry, batch) / devices, weights)
    cache = decode_kv_bytes(geometry, settings, batch, context)
    attention = Work(decode_attention_flops(geometry, batch, context) / devices, cache)
    return _phase("decode", geometry, batch, (1, context), linear, attention)


def _phase(  # noqa: PLR0917
    name: Literal["prefill", "decode"],
    geometry: Geometry,
    sequences: float,
    rows: tuple[float, float],
    linear: Work,
    attention: Work,
) -> Phase:
    group = max(geometry.layers, key=lambda layers: layers.count, default=None)
    return Phase(
        name=name,
        sequences=sequences,
        n=rows[0],
        m=rows[1],
        q_width=geometry.attention_heads * group.qk_head_dim if group is not None else 0,
        kv_width=_kv_width(group) if group is not None else 0,
        linear=linear,
        attention=attention,
    )


def _kv_width(group: Layers) -> int:
    """What one token's keys hold: all KV heads, or the latent that stands for keys and values."""
    return group.latent_dim if group.latent_dim is not None else group.kv_heads * group.qk_head_dim


def ridge(device: Device, settings: Settings) -> float:
    """FLOPs a byte at which the device's compute and bandwidth are level, for the dtype it multiplies in."""
    return rate(device, settings.compute_dtype) / device.bandwidth


def critical_tokens(geometry: Geometry, settings: Settings, device: Device) -> float:
    """Tokens of a step from which its linear layers are bound by compute: ridge x bytes a weight / 2.

    A step does 2 FLOPs for each weight and token. Experts see k / E of the tokens, so theirs take E / k times as many.
    """
    tokens = ridge(device, settings) * settings.weight_bits / 8 / 2
    experts = geometry.experts
    return tokens * experts.count / experts.per_token if experts is not None else tokens
