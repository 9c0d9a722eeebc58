"""What a CPU's core can multiply in a cycle at most, by the instruction sets that it has: no core does more."""

from collections.abc import Set as AbstractSet

__all__ = ["per_cycle"]

# Two vector units that multiply and add: Intel 64 and IA-32 Architectures Optimization Reference Manual, appendix on
# microarchitectures; AMD Software Optimization Guides for Zen 2 to 5. Parts with one unit do half of it.
_X86_LANES = (("avx512f", 16), ("fma", 8))
_X86_PLAIN = (("avx", 16), ("sse2", 8))  # multiplies and additions side by side
_UNITS = 2
# TDPBF16PS and TDPBSSD multiply 16 x 16 tiles, 64 bytes deep, every 16 cycles (same manual, chapter on AMX).
_AMX = {"amx_bf16": ("bf16", 1024), "amx_fp16": ("fp16", 1024), "amx_int8": ("int8", 2048)}
# Four 128-bit pipes: Arm Neoverse V2 Core Software Optimization Guide (V1's two 256-bit ones come to the same). BFMMLA
# does 16 and SMMLA 32 multiplications and additions.
_ARM = 4
_ARM_LANES, _BFMMLA, _SMMLA = 4, 16, 32


def per_cycle(flags: AbstractSet[str]) -> dict[str, float]:
    """FLOPs (int8: operations) of one core and cycle by data type; empty where no known instruction set is among the
    `flags`, which are those of /proc/cpuinfo (x86 "flags", Arm "Features").
    """
    return _arm(flags) if "asimd" in flags else _x86(flags)


def _x86(flags: AbstractSet[str]) -> dict[str, float]:
    lanes = next((width for flag, width in _X86_LANES if flag in flags), 0)
    plain = next((rate for flag, rate in _X86_PLAIN if flag in flags), 0)
    single = float(2 * _UNITS * lanes or plain)
    if not single:
        return {}
    found = {"fp32": single, "bf16": single, "fp16": single, "int8": 4 * single}
    if "avx512_bf16" in flags:
        found["bf16"] = 2 * single
    if "avx512_fp16" in flags:
        found["fp16"] = 2 * single
    return found | {dtype: float(rate) for flag, (dtype, rate) in _AMX.items() if flag in flags}


def _arm(flags: AbstractSet[str]) -> dict[str, float]:
    single = 2.0 * _ARM * _ARM_LANES
    found = {"fp32": single, "bf16": single, "fp16": single, "int8": 4 * single}
    if "asimdhp" in flags:
        found["fp16"] = 2 * single
    if "bf16" in flags:
        found["bf16"] = 2.0 * _ARM * _BFMMLA
    if "i8mm" in flags:
        found["int8"] = 2.0 * _ARM * _SMMLA
    return found
