"""llama.cpp's memory beside weights and cache: the backend's context and one compute buffer."""

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.llamacpp import UBATCH
from auditor.theory.kv.releases import build
from auditor.theory.overhead import activations
from auditor.theory.overhead.share import NOTHING, Band, Share, gib
from auditor.theory.settings import Settings
from auditor.units import GIB

__all__ = ["share"]

_FEW_OUTPUTS = 9400  # a server reserves rows of logits for its slots, not for every token of a step (#23861)

# What a context costs before anything is loaded, by who drives the device.
_CONTEXT = {"nvidia": gib(0.2, 0.4, 0.8), "amd": gib(0.2, 0.4, 0.9), "apple": gib(0.0, 0.05, 0.3)}


def share(geometry: Geometry, settings: Settings, device: Device, usable: float) -> Share:
    """All usable memory; there is no fraction, and what does not fit fails to load.

    The compute buffer (graph_reserve in src/llama-context.cpp) holds a step of n_ubatch tokens in fp32: 3 widths of the
    MLP and 7 of the hidden state each. Gemma-3-270M at 512 and 2,048 tokens: 21.3 and 89.1 MiB logged by build 11434,
    20.8 and 83.0 by this. Logits came on top for every token of the step (512 x 128,256 x 4 bytes, 250.5 MiB, for
    Llama-3) before a server reserved only one row a slot. Without flash attention scores come on top, n_ubatch x
    context x heads x 4 bytes, which the range does not hold.
    """
    tokens = settings.ubatch or UBATCH
    width = geometry.intermediate_size or activations.USUAL_RATIO * geometry.hidden_size
    step = 4.0 * tokens * (3 * width + 7 * geometry.hidden_size)
    logits = 4.0 * tokens * geometry.vocab_size
    few = build(settings.engine_version) >= _FEW_OUTPUTS
    buffer = Band(0.7 * step, step if few else max(step, logits), 1.5 * step + logits)
    if settings.pipeline_parallel > 1:
        buffer = Band(buffer.low, buffer.likely, 4 * buffer.high)  # GGML_SCHED_MAX_COPIES steps in flight
    context = NOTHING if device.kind == "cpu" else _CONTEXT.get(device.vendor, gib(0.1, 0.3, 1.0))
    notes: tuple[str, ...] = ()
    if geometry.vision:
        context += gib(0.0, 0.3, 1.5)
        notes += ("a projector of images (--mmproj) takes up to 1.5 GiB more for itself and its buffers",)
    return Share(budget=usable, activations=buffer, other=context + Band(0.0, 0.0, 0.5 * GIB), notes=notes)
