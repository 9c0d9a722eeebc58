"""What one device holds of a weight matrix."""

from auditor.theory.kv.cells import attention_parallel
from auditor.theory.settings import Settings
from auditor.theory.tensors import Tensor

__all__ = ["local"]

_VOCABULARY = 64  # vLLM, vocab_parallel_embedding.py: DEFAULT_VOCAB_PADDING_SIZE; SGLang has taken it over


def local(tensor: Tensor, settings: Settings) -> tuple[float, float, float]:
    """Count, outputs and inputs of a tensor on one device, as if it held every layer.

    Mixers divide over the devices that share a request's attention. Embedding and head divide by rows, rounded up to
    64; under SGLang's DP attention every rank embeds its own tokens (models/deepseek_v2.py, enable_tp).
    """
    part, outputs, inputs = tensor.part, tensor.outputs, tensor.inputs
    if part == "experts":
        return _experts(tensor, settings)
    if tensor.split == "none":
        return tensor.count, outputs, inputs
    ways = settings.tensor_parallel
    if part in ("attention", "recurrent", "norm", "embedding"):
        ways = attention_parallel(settings)
        if part == "embedding" and ways < settings.tensor_parallel:
            ways = 1
    if part in ("embedding", "head"):
        rows = -(-outputs // _VOCABULARY) * _VOCABULARY if ways > 1 else outputs
        return tensor.count, -(-rows // ways), inputs
    if tensor.split == "outputs":
        return tensor.count, _share(outputs, tensor.units, ways), inputs
    return tensor.count, outputs, _share(inputs, tensor.units, ways)


def _share(size: int, units: int, ways: int) -> float:
    """One device's part of a side: whole units, and at least one."""
    if not units:
        return size / ways
    return size / units * max(1, -(-units // ways))


def _experts(tensor: Tensor, settings: Settings) -> tuple[float, float, float]:
    """Routed experts divide over TP and, in vLLM, data-parallel ranks (layers/fused_moe/config.py,
    FusedMoEParallelConfig): whole ones with expert parallelism, else each of them.
    """
    shared = settings.tensor_parallel * (settings.data_parallel if settings.engine == "vllm" else 1)
    if settings.expert_parallel > 1:
        return tensor.count / max(shared, settings.expert_parallel), tensor.outputs, tensor.inputs
    if tensor.split == "outputs":
        return tensor.count, tensor.outputs / shared, tensor.inputs
    return tensor.count, tensor.outputs, tensor.inputs / (shared if tensor.split == "inputs" else 1)
