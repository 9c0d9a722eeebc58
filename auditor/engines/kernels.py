"""What engines do with formats of weights that an NVIDIA GPU is too old for: refuse them, or multiply in 16 bit."""

import re
from collections.abc import Mapping

from auditor.engines.flavours import FLAVOURS
from auditor.theory.device import Device
from auditor.theory.settings import Settings

__all__ = ["too_old"]

# The least compute capability that an engine's loader of a format asks for, else it refuses to start: what
# get_min_capability says in vllm/model_executor/layers/quantization (0.22 to 0.32; fp8 asked for 8.0 before) and in
# sglang/srt/layers/quantization (0.5). The first pattern that fits the format's word.
_Least = tuple[tuple[str, tuple[int, int]], ...]
_LEAST: Mapping[str, _Least] = {
    "vllm": ((r"mxfp4", (8, 0)), (r"fp8|fp4|awq|int8|w8a8", (7, 5)), (r"bitsandbytes|bnb|nf4", (7, 0))),
    "sglang": ((r"modelopt$|w8a8_fp8", (8, 9)), (r"fp8|fp4", (8, 0)), (r"awq|int8|w8a8", (7, 5))),
}
# The units that a format's products run on where there are such, the first that fits. Without them Marlin's kernels
# unpack the weights (docs.vllm.ai, features/quantization: "weight-only W8A16, utilizing FP8 Marlin").
_UNITS = ((r"nvfp4|mxfp4|fp4", "fp4"), (r"fp8", "fp8"))


def too_old(settings: Settings, device: Device | None) -> tuple[str, ...]:
    """Notes on what the engine does with weights in a format that this device has no units for; none where it has."""
    word, has, least = (settings.quantization or "").lower(), settings.capability, _LEAST.get(settings.engine, ())
    if device is None or has is None or not word:
        return ()
    needs = next((capability for pattern, capability in least if re.search(pattern, word)), None)
    title = FLAVOURS[settings.engine].title if needs else ""
    if needs and has < needs:
        wants, here = (".".join(map(str, capability)) for capability in (needs, has))
        return (
            f"the engine may not start: {title} takes {word} weights from compute capability {wants} on, "
            f"and {device.name} has {here}",
        )
    units = next((name for pattern, name in _UNITS if re.search(pattern, word)), None)
    if not needs or units is None or units in device.flops or not device.flops:
        return ()
    plain = settings.plain_dtype
    return (f"{device.name} has no {units} units: {title} unpacks such weights and multiplies in {plain} (Marlin)",)
