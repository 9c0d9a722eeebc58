"""How vLLM keeps the states of recurrent layers: by release, device, and what was asked for."""

from auditor.engines.formats import dtype
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry, Recurrent

__all__ = ["assumes_units", "mode", "widens"]

_Release = tuple[int, int, int]

# First releases of rules.
_EVERY_STATE = (0, 11, 1)  # prefixes of hybrids are cached at all: every block's state ("all")
_LAST_STATES = (0, 15, 0)  # ... or a step's last ("align"), by models whose layers cannot keep all
_BY_DEFAULT = (0, 28, 0)  # on unless switched off, as "align" (pull request 50991)
_LAST_ALONE = (0, 32, 0)  # "all" is gone
_AMX = (0, 26, 0)
_AVX512_BF16 = (0, 29, 0)

# Classes that say SupportsMambaPrefixCaching (vllm/model_executor/models).
_CAN_KEEP_ALL = frozenset(
    f"{name}ForCausalLM"
    for name in (
        *("Bamba", "FalconH1", "FalconMamba", "GraniteMoeHybrid", "Jamba", "Mamba", "Mamba2", "NemotronH"),
        *("NemotronHPuzzle", "Zamba2"),
    )
)


def mode(number: _Release, geometry: Geometry, caching: bool | None, asked: str | None) -> str:
    """Which states are kept for prefixes: "none", those of each step's end ("align"), or of every block ("all").

    MambaModelConfig in vllm/model_executor/models/config.py; is_prefix_caching_supported in vllm/config/model.py, which
    leaves models without attention out. `caching` and `asked` are what flags say; None: nothing.
    """
    on = caching if caching is not None else number >= _BY_DEFAULT and bool(geometry.layers)
    if not on or number < _EVERY_STATE:
        return "none"
    every = number < _LAST_ALONE and geometry.architecture in _CAN_KEEP_ALL
    if number < _LAST_STATES:
        return "all" if every else "none"
    if asked in ("all", "align"):
        return asked if every else "align"
    return "all" if every and number < _BY_DEFAULT else "align"


def widens(number: _Release, geometry: Geometry, device: Device | None, asked: str | None) -> bool:
    """Whether the CPU backend keeps matrices in fp32 whatever the flag `asked` for.

    check_and_update_config in vllm/platforms/cpu.py: with AMX from 0.26 on, with AVX512-BF16 from 0.29 on, where gated
    delta nets may ask for 16 bits.
    """
    if number < _AMX or not all(map(_follows, geometry.recurrent)):
        return False
    ratio = 3.0 if assumes_units(device) else _ratio(device)
    if number < _AVX512_BF16:
        return ratio > 2
    narrow = dtype(asked) in ("fp16", "bf16") and all(layer.kind == "linear" for layer in geometry.recurrent)
    return ratio > 1 and not narrow


def assumes_units(device: Device | None) -> bool:
    """Whether nothing is known of what this CPU multiplies."""
    return device is None or not device.flops


def _ratio(device: Device | None) -> float:
    """How much faster bf16 is than fp32: twice with AVX512-BF16, more with AMX; Arm's units are no matter here."""
    if device is None or device.vendor == "arm":
        return 1.0
    return device.flops.get("bf16", 0.0) / device.flops.get("fp32", float("inf"))


def _follows(layer: Recurrent) -> bool:
    """Whether a layer's matrix has the format of the flag: that of plain linear attention, which has no window, is the
    cache's (linear_attention_state_dtype in vllm/model_executor/layers/mamba/mamba_utils.py).
    """
    return layer.state_size > 0 and layer.conv_kernel > 1
