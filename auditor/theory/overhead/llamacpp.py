"""llama.cpp's memory beside weights and cache: the backend's context and one compute buffer."""

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.llamacpp import UBATCH, cells_at_once
from auditor.theory.kv.releases import build
from auditor.theory.overhead import activations
from auditor.theory.overhead.share import NOTHING, Band, Share, gib
from auditor.theory.settings import Settings
from auditor.units import GIB

__all__ = ["share"]

_FEW_OUTPUTS = 9400  # a server reserves rows of logits for its slots, not for every token of a step (#23861)

# What a context costs before anything is loaded, by who drives the device: round figures.
_CONTEXT = {"nvidia": gib(0.2, 0.4, 0.8), "amd": gib(0.2, 0.4, 0.9), "apple": gib(0.0, 0.05, 0.3)}


def share(geometry: Geometry, settings: Settings, device: Device, usable: float) -> Share:
    """All usable memory; there is no fraction, and what does not fit fails to load.

    The compute buffer (graph_reserve in src/llama-context.cpp) holds a step of n_ubatch tokens in fp32: 3 widths of the
    MLP and 7 of the hidden state each. Gemma-3-270M at 512 and 2,048 tokens: 21.3 and 89.1 MiB logged by build 11434,
    20.8 and 83.0 by this. Logits came on top for every token of the step (512 x 128,256 x 4 bytes, 250.5 MiB, for
    Llama-3) before a server reserved only one row a slot. Without flash attention scores, their mask and 4 widths of
    the hidden state are there at once.
    """
    tokens = settings.ubatch or UBATCH
    width = geometry.intermediate_size or activations.USUAL_RATIO * geometry.hidden_size
    step = 4.0 * tokens * (3 * width + 7 * geometry.hidden_size)
    logits = 4.0 * tokens * geometry.vocab_size
    few, scores = build(settings.engine_version) >= _FEW_OUTPUTS, _scores(geometry, settings, tokens)
    likely = max(step, scores, 0.0 if few else logits)
    buffer = Band(max(0.7 * step, scores), likely, max(1.5 * step, scores) + logits)
    if settings.pipeline_parallel > 1:
        buffer = Band(buffer.low, buffer.likely, 4 * buffer.high)  # GGML_SCHED_MAX_COPIES steps in flight
    context = NOTHING if device.kind == "cpu" else _CONTEXT.get(device.vendor, gib(0.1, 0.3, 1.0))
    notes: tuple[str, ...] = ()
    if geometry.vision:
        context += gib(0.0, 0.3, 1.5)
        notes += ("a projector of images (--mmproj) takes up to 1.5 GiB more for itself and its buffers",)
    return Share(budget=usable, activations=buffer, other=context + Band(0.0, 0.0, 0.5 * GIB), notes=notes)


def _scores(geometry: Geometry, settings: Settings, tokens: int) -> float:
    """What attention holds where it writes its scores: cells x (heads + 1) + 4 x hidden values in fp32 for each token.

    Mistral-7B at n_ubatch 512: compute buffers of 164.00 and 2,144.00 MiB for contexts of 2,048 and 32,768
    (github.com/fedora-copr/logdetective pull request 106), which this gives exactly.
    """
    if settings.fused_attention:
        return 0.0
    cells = cells_at_once(geometry, settings)
    return 4.0 * tokens * (cells * (geometry.attention_heads + 1) + 4 * geometry.hidden_size)
