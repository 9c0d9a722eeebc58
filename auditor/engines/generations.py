"""Which generation of NVIDIA's GPUs a device is: engines choose attention kernels, and so block sizes, by it."""

import re

from auditor.theory.device import Device

__all__ = ["compute_capability"]

# CUDA GPU compute capability (developer.nvidia.com/cuda-gpus and cuda-legacy-gpus), by the words of a device's key, or
# as people write them; the first that fits.
_CAPABILITIES = (
    (r".*ada", (8, 9)),
    (r"g?b300", (10, 3)),
    (r"g?b[12]00", (10, 0)),
    (r"thor", (11, 0)),
    (r"gb10", (12, 1)),
    (r"(?:rtx-?)?50[5-9]0|pro-\d+-bw|rtx-pro", (12, 0)),
    (r"g?h(?:20|100|200|800)", (9, 0)),
    (r"l4|l40|l20y?|(?:rtx-?)?40[5-9]0", (8, 9)),
    (r"a100|a800|a30|cmp-170hx", (8, 0)),
    (r"orin", (8, 7)),
    (r"a(?:2|10g?|16|40)|(?:rtx-?)?30[5-9]0|(?:rtx-?)?a[2456][05]00", (8, 6)),
    (r"t4|(?:rtx-?)?20[678]0|titan-rtx|quadro-rtx-?\d+|rtx-?8000|gtx-?16[56]0", (7, 5)),
    (r"v100|titan-v", (7, 0)),
    (r"gtx-?10[5-8]0|p4|p40|titan-xp", (6, 1)),
    (r"p100", (6, 0)),
)
_VARIANT = r"(?:-?(?:ti|super|laptop|d|s|m))*"


def compute_capability(device: Device | None) -> tuple[int, int] | None:
    """CUDA's major and minor compute capability; None for other vendors and devices that are not known."""
    if device is None or device.vendor != "nvidia":
        return None
    key = device.key.lower().replace("_", "-").replace(" ", "-")
    return next(
        (pair for words, pair in _CAPABILITIES if re.search(rf"(?<![a-z0-9])(?:{words}){_VARIANT}(?![a-z0-9])", key)),
        None,
    )
