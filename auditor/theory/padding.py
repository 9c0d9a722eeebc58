"""What vLLM and SGLang load beyond a checkpoint's own values: padded experts, tables and copies.

Sources are files of vllm-project/vllm under vllm/model_executor/, by release, where nothing else is said.
"""

from collections.abc import Mapping

from auditor.theory.fragments import fragments
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.releases import release
from auditor.theory.settings import Settings
from auditor.theory.sharding import local
from auditor.theory.tensors import Tensor

__all__ = ["beside", "padded"]

_PLAIN_LAYERS_PADDED = (0, 17, 0)  # layers/quantization/utils/flashinfer_utils.py, prepare_fp8_moe_layer_for_fi
_SMALLEST_STEP = 2048  # tokens, where the settings leave it open (vllm/config/scheduler.py)
_POSITIONS_ONCE = (0, 21, 0)  # layers/rotary_embedding/mrope.py held four times the positions before


def padded(tensor: Tensor, settings: Settings, word: str | None, *, gated: bool) -> tuple[float, float, float]:
    """Count, outputs and inputs of routed experts' matrices on one device, as their kernels want them.

    `word` is their format (None: not quantised), `gated` whether an expert has three matrices.
    """
    count, outputs, inputs = local(tensor, settings)
    if settings.engine != "vllm" or tensor.split == "none" or tensor.inputs == 1:
        return count, outputs, inputs
    up = tensor.split == "outputs"
    inner, hidden = (outputs, inputs) if up else (inputs, outputs)
    if word == "mxfp4":
        inner, hidden = _mxfp4(inner, hidden, settings)
    elif word is not None and not gated and _on_flashinfer(settings):
        inner = _up_to(inner, 128)
    outputs, inputs = (inner, hidden) if up else (hidden, inner)
    if word == "mxfp4" and settings.capability is not None and settings.capability[0] == 9:
        inputs = _up_to(inputs, 256)  # Triton's layout on Hopper (triton_kernels, hopper_value.py)
    return count, outputs, inputs


def _mxfp4(inner: float, hidden: float, settings: Settings) -> tuple[float, float]:
    """layers/quantization/mxfp4.py, create_weights; since 0.20 layers/fused_moe/oracle/mxfp4.py,
    mxfp4_round_up_hidden_size_and_intermediate_size.
    """
    version = release(settings.engine_version)
    if settings.vendor == "amd":
        step = 256 if version >= (0, 20, 0) else 128
        return _up_to(inner, step), _up_to(hidden, step)
    if settings.capability is None:
        return inner, hidden
    if settings.capability[0] == 9:
        return _up_to(inner, 64), hidden
    if settings.capability[0] == 10:
        return _up_to(inner, 256 if version < (0, 22, 0) else 128), _up_to(hidden, 256)
    return _up_to(inner, 128), _up_to(hidden, 256)  # Marlin


def _on_flashinfer(settings: Settings) -> bool:
    return (settings.capability or (0, 0)) >= (9, 0) and release(settings.engine_version) >= _PLAIN_LAYERS_PADDED


def _up_to(size: float, step: int) -> float:
    return -(-size // step) * step


def beside(geometry: Geometry, settings: Settings, words: Mapping[str, str | None]) -> float:
    """Bytes on one device that are no weights of the checkpoint, by the words of its parts' formats."""
    if settings.engine == "vllm":
        again = _absorbed(geometry, settings) if words.get("attention") else 0.0
        found = _rotary(geometry, settings) + _step_buffers(geometry, settings) + again
        return found + fragments(geometry, settings, words)
    if settings.engine == "sglang":
        return 4.0 * geometry.extra.get("rotary_values", 0) + _absorbed(geometry, settings)
    return 0.0


def _rotary(geometry: Geometry, settings: Settings) -> float:
    """Tables of cosines and sines for every position that the model knows (layers/rotary_embedding/base.py); SGLang
    keeps them in fp32 (python/sglang/srt/layers/rotary_embedding/base.py).
    """
    often = 4 if release(settings.engine_version) < _POSITIONS_ONCE else 1
    return 2.0 * geometry.extra.get("rotary_values", 0) * (often if geometry.extra.get("rotary_sections") else 1)


def _step_buffers(geometry: Geometry, settings: Settings) -> float:
    """For each token of a step: what images and layers feed (models/qwen3_vl.py, gemma4_mm.py), and the keys that
    sparse attention chose, four bytes each (topk_indices_buffer in models/deepseek_v2.py).
    """
    chosen = (geometry.indexer.topk or 0) if geometry.indexer is not None else 0
    token = geometry.extra.get("step_values", 0) * settings.plain_bytes + 4.0 * chosen
    return token * (settings.max_num_batched_tokens or _SMALLEST_STEP)


def _absorbed(geometry: Geometry, settings: Settings) -> float:
    """MLA's up projection again in 16 bit, for decode: in vLLM where the checkpoint has it quantised
    (layers/attention/mla_attention.py, W_UK_T and W_UV), in SGLang always
    (python/sglang/srt/models/deepseek_common/deepseek_weight_loader.py, w_kc and w_vc).
    """
    rank = geometry.extra.get("kv_lora_rank")
    shapes = [
        local(tensor, settings)
        for tensor in geometry.tensors
        if rank and tensor.part == "attention" and tensor.inputs == rank and tensor.split == "outputs"
        if not tensor.draft
    ]
    return sum(2.0 * count * outputs * inputs for count, outputs, inputs in shapes) / settings.pipeline_parallel
