"""The largest tensors that one step of a model holds at once: the peak that engines measure before they size the pool.

Engines run the largest step that they admit and keep room for its peak. Weights of a layer are resident; what comes and
goes are the hidden states, the layer's own intermediate results, and at the end the logits.
"""

from auditor.theory.kv.cells import attention_parallel
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.settings import Settings

__all__ = ["USUAL_RATIO", "encoder", "expert_workspace", "forward", "hidden"]

USUAL_RATIO = 3.5
"""Width of an MLP over the hidden size where the model does not tell: Llama's (14336 / 4096), which most dense models
keep within a factor of 1.5.
"""


def hidden(geometry: Geometry, settings: Settings, tokens: int) -> float:
    """Bytes of one hidden state for each of `tokens` tokens."""
    return tokens * geometry.hidden_size * settings.plain_bytes


def forward(geometry: Geometry, settings: Settings, tokens: int) -> float:
    """Peak bytes of the layers for a step of `tokens` tokens on one device.

    A gated MLP holds gate and up (2 x intermediate), their product (1 x), the residual, the normed input and the output
    (3 x hidden): 110,592 bytes a token for Llama-3.1-8B. vLLM's log of a step of 20,000 tokens says 2.07 GiB, of 29,000
    tokens 2.99 GiB (github.com/vllm-project/vllm/issues/10517), which this gives to 1 %. Attention holds its input,
    queries, keys, values and output.
    """
    states = 3 * hidden(geometry, settings, tokens)
    attention = max((_attention(group, geometry, settings) for group in geometry.layers), default=0.0)
    widest = max(3 * _mlp_width(geometry) / settings.tensor_parallel, attention)
    return states + widest * tokens * settings.plain_bytes


def _mlp_width(geometry: Geometry) -> float:
    """Width of a dense MLP; mixtures of experts need not have one."""
    if geometry.intermediate_size is not None:
        return geometry.intermediate_size
    return 0.0 if geometry.experts else USUAL_RATIO * geometry.hidden_size


def expert_workspace(geometry: Geometry, settings: Settings, tokens: int) -> float:
    """Bytes of the two buffers in which routed experts work: each token is there once for each expert that it visits.

    workspace1 = tokens x k x max(N / 2, K) and workspace2 = tokens x k x max(N, K), N the width of gate and up on one
    device and K the hidden size (TritonExperts.workspace_shapes in vllm/model_executor/layers/fused_moe; DeepGEMM's and
    CUTLASS's experts ask for much the same). Expert parallelism keeps an expert whole. 0 for a dense model.
    """
    experts = geometry.experts
    if experts is None or not geometry.hidden_size:
        return 0.0
    size = geometry.expert_size or experts.parameters / (3 * geometry.hidden_size)
    gate_and_up = 2 * size / (1 if settings.expert_parallel > 1 else settings.tensor_parallel)
    width = max(gate_and_up / 2, geometry.hidden_size) + max(gate_and_up, geometry.hidden_size)
    return tokens * experts.per_token * width * settings.plain_bytes


def encoder(geometry: Geometry, settings: Settings, tokens: int) -> tuple[float, float]:
    """Bytes of a vision encoder at its peak and of what it leaves, for as many of the largest images as a step of
    `tokens` holds, one at least (MultiModalBudget in vllm/multimodal/encoder_budget.py, profile_run in
    vllm/v1/worker/gpu_model_runner.py). Nothing where the encoder is not known.
    """
    images = geometry.images
    if images is None:
        return 0.0, 0.0
    context = settings.max_model_len or geometry.max_position or 0
    largest = max(1, min(images.videos, context // images.tokens))
    count = largest * max(1, tokens // (largest * images.tokens))
    at_once = largest if images.one_by_one else count
    peak = at_once * images.patches * (images.whole + images.split / settings.tensor_parallel)
    return peak * settings.plain_bytes, count * images.tokens * images.output * settings.plain_bytes


def _attention(group: Layers, geometry: Geometry, settings: Settings) -> float:
    """Values of one token in one attention layer on one device: queries and output, keys and values.

    MLA expands its latent to keys and values of every head for prompts (DeepSeek-V2, arXiv 2405.04434, section 2.1),
    and copies both into the shapes that kernels take.
    """
    parallel = attention_parallel(settings)
    heads = geometry.attention_heads / parallel
    both = group.qk_head_dim + group.v_head_dim
    if group.latent_dim is not None:
        return heads * both * 3
    return heads * both + 2 * max(1.0, group.kv_heads / parallel) * both
