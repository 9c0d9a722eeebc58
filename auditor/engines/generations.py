"""Which generation of NVIDIA's GPUs a device is: engines choose attention kernels, and so block sizes, by it."""

import re

from auditor.theory.device import Device

__all__ = ["compute_capability"]

# CUDA GPU compute capability (developer.nvidia.com/cuda-gpus), by the words of a device's key; the first that fits.
_CAPABILITIES = (
    (r".*-ada", (8, 9)),
    (r"g?b[123]00", (10, 0)),
    (r"thor", (11, 0)),
    (r"gb10|rtx-?50\d\d|pro-\d+-bw|rtx-pro", (12, 0)),
    (r"g?h(?:20|100|200|800)", (9, 0)),
    (r"l4|l40s?|l20y?|rtx-?40\d\d", (8, 9)),
    (r"a100|a800|a30", (8, 0)),
    (r"orin", (8, 7)),
    (r"a(?:2|10g?|16|40)|rtx-?30\d\d|rtx-?a\d+", (8, 6)),
    (r"t4|rtx-?20\d\d", (7, 5)),
    (r"v100", (7, 0)),
)


def compute_capability(device: Device | None) -> tuple[int, int] | None:
    """CUDA's major and minor compute capability; None for other vendors and devices that are not known."""
    if device is None or device.vendor != "nvidia":
        return None
    key = device.key.lower().replace("_", "-").replace(" ", "-")
    return next(
        (pair for words, pair in _CAPABILITIES if re.search(rf"(?<![a-z0-9])(?:{words})(?![a-z0-9])", key)), None
    )
