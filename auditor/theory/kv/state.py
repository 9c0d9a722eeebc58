"""Bytes of the state that recurrent layers keep for each sequence, whatever its length."""

from auditor.theory.kv.cells import attention_parallel
from auditor.theory.kv.geometry import Geometry, Recurrent
from auditor.theory.settings import Settings

__all__ = ["all_state_bytes", "conv_bytes", "matrix_bytes", "state_bytes"]


def conv_bytes(layer: Recurrent, settings: Settings) -> float:
    """Bytes of one layer's convolution window for one sequence, on one device.

    (heads x head_dim + 2 x groups x state_size) / TP channels, conv_kernel - 1 columns and one more for each drafted
    token; Mamba-1 has none for drafts (MambaStateShapeCalculator in vllm/model_executor/layers/mamba/mamba_utils.py,
    which SGLang copies). A layer without a kernel keeps no window.
    """
    if layer.conv_kernel <= 1:
        return 0.0
    parallel = attention_parallel(settings)
    channels = layer.heads * layer.head_dim + 2 * _groups(layer, parallel) * layer.state_size
    drafted = 0 if layer.kind == "mamba1" else settings.speculative_tokens
    return channels / parallel * (layer.conv_kernel - 1 + drafted) * (settings.conv_bytes or settings.plain_bytes)


def matrix_bytes(layer: Recurrent, settings: Settings) -> float:
    """Bytes of one layer's state matrix for one sequence, on one device: heads / TP x head_dim x state_size."""
    element = settings.state_bytes or layer.state_bytes or settings.plain_bytes
    return layer.heads / attention_parallel(settings) * layer.head_dim * layer.state_size * element


def state_bytes(layer: Recurrent, settings: Settings) -> float:
    """Bytes of one layer's whole state for one sequence, on one device."""
    return conv_bytes(layer, settings) + matrix_bytes(layer, settings)


def all_state_bytes(geometry: Geometry, settings: Settings) -> float:
    """Bytes of one sequence's state over the recurrent layers that one device holds (its share of the stages)."""
    stages = settings.pipeline_parallel
    return sum(-(-layer.count // stages) * state_bytes(layer, settings) for layer in geometry.recurrent)


def _groups(layer: Recurrent, parallel: int) -> int:
    """Mamba-2 groups; where TP does not divide them each device has one of its own (extra_groups_for_head_shards)."""
    return layer.groups if layer.kind != "mamba2" or layer.groups % parallel == 0 else parallel
