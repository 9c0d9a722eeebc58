"""Bits that one stored value takes, scales and zeros of its group included, by a format's word."""

import re

__all__ = ["bits_of", "same_format"]

_GROUP = 128  # values that share a scale where the word does not tell

# A pattern, bits of a value, bits that a group of values shares, and its size (0: the word's own, "int4-g32").
# fp8: a 4-byte scale for each 128 x 128 block (DeepSeek-V3, arXiv 2412.19437, section 3.3) or, smaller, each output
# (compressed-tensors). NVFP4: an fp8 scale for 16 values; MXFP4 and MXFP8: an 8-bit
# exponent for 32 (OCP Microscaling Formats v1.0, table 1). AWQ and GPTQ: a 16-bit scale and a 4-bit zero for a group;
# compressed-tensors' symmetric int4: the scale alone. bitsandbytes: 4 bytes for 64 values (NF4), or for each output.
# HQQ and MLX: a 16-bit scale and zero for 64 (mlx.core.quantize). AQLM: two codebooks of 8 bits for 8 values (arXiv
# 2401.06118).
_FORMATS: tuple[tuple[str, float, float, int], ...] = (
    (r"nvfp4|modelopt_fp4", 4, 8, 16),
    (r"mxfp4|^fp4|fp_quant|mxfp_w4a8", 4, 8, 32),
    (r"mxfp8", 8, 8, 32),
    (r"^q8_0$", 8, 16, 32),
    (r"(gptq|awq|auto[-_]?round)[-_](int8|8bit)", 8, 32, _GROUP * _GROUP),
    (r"awq|gptq|auto[-_]?round|marlin|wna16|^inc$|bitblas|squeezellm|^ipex$", 4, 20, 0),
    (r"int4|w4a16|w4a8|w4a4|w4afp8|qqq|qoq", 4, 16, 0),
    (r"mlx[-_ ]?q?3|^3[-_ ]?bit", 3, 32, 64),
    (r"bnb-4bit|nf4|hqq|mlx[-_ ]?q?4|^4[-_ ]?bit", 4, 32, 64),
    (r"mlx[-_ ]?q?5|^5[-_ ]?bit", 5, 32, 64),
    (r"mlx[-_ ]?q?6|^6[-_ ]?bit", 6, 32, 64),
    (r"mlx[-_ ]?q?8", 8, 32, 64),
    (r"aqlm", 2, 16, 0),
    (r"exl[23]", 4, 0, 1),
    (r"int8|w8a8|w8a16|bnb-8bit|fp8|float8|smoothquant", 8, 32, _GROUP * _GROUP),
)
_INTEGERS = re.compile(r"awq|gptq|auto[-_]?round|int[48]|w[48]a16|marlin|wna16|^inc$")
_ANY_WIDTH = re.compile(r"gptq|auto[-_]?round|marlin|wna16|^inc$")  # loaders of integers, whatever their width
_SIZE = re.compile(r"-g(\d+)$")
_PER_WEIGHT = re.compile(r"(\d{1,2}(?:\.\d{1,3})?) ?bpw")


def bits_of(word: str) -> float | None:
    """Bits of one value in this format; None for a word that is not known ("none" and plain dtypes are not). Bits a
    weight may be said outright ("exl3 3.5bpw").
    """
    said = _PER_WEIGHT.search(word.lower())
    if said is not None:
        return float(said[1])
    found = _row(word)
    if found is None:
        return None
    _, bits, shared, size = found
    told = _SIZE.search(word)
    return bits + shared / (size or (int(told[1]) if told else _GROUP))


def same_format(one: str | None, other: str | None) -> bool:
    """Whether two words mean one format; words that are not known (loaders' names) mean what they stand beside, and
    loaders of integers any width of them.
    """
    words = (one or "").lower(), (other or "").lower()
    if any(_ANY_WIDTH.search(word) for word in words) and all(_INTEGERS.search(word) for word in words):
        return True
    first, second = _row(words[0]), _row(words[1])
    return first is None or second is None or first[0] == second[0]


def _row(word: str) -> tuple[str, float, float, int] | None:
    return next((row for row in _FORMATS if re.search(row[0], word.lower())), None)
