"""How many bits a number takes, by the words that engines and model files use for a format."""

import re

from auditor.theory.widths import bits_of

__all__ = ["compute_dtype", "dtype", "element_bytes", "kv_bytes", "loads_several", "weight_bits"]

_DTYPES = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp16": "fp16",
    "f16": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "fp32": "fp32",
    "f32": "fp32",
}
_DTYPE_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp32": 4.0}

# ggml-common.h: blocks of 32 values with a 2-byte scale (and, _1, a 2-byte minimum).
_GGML = {
    "q8_0": 8 * 34 / 32,
    "q4_0": 8 * 18 / 32,
    "q4_1": 8 * 20 / 32,
    "q5_0": 8 * 22 / 32,
    "q5_1": 8 * 24 / 32,
    "iq4_nl": 8 * 18 / 32,
}
# Bits per weight of whole llama.cpp files: tools/quantize/README.md, Llama-3.1-8B (mixed tensor types, embeddings
# included); _K without a size letter is the medium mix, as is a number alone. Ternary ones: ggml-common.h. MLC's:
# a 16-bit scale for 32 values.
_GGUF = {
    "iq1_s": 2.00,
    "iq1_m": 2.15,
    "iq2_xxs": 2.38,
    "iq2_xs": 2.59,
    "iq2_s": 2.74,
    "iq2_m": 2.93,
    "iq3_xxs": 3.25,
    "iq3_xs": 3.50,
    "iq3_s": 3.66,
    "iq3_m": 3.76,
    "iq4_xs": 4.46,
    "q2_k_s": 2.97,
    "q2_k": 3.16,
    "q3_k_s": 3.64,
    "q3_k_m": 4.00,
    "q3_k": 4.00,
    "q3_k_l": 4.30,
    "q4_k_s": 4.67,
    "q4_k_m": 4.89,
    "q4_k": 4.89,
    "q5_k_s": 5.57,
    "q5_k_m": 5.70,
    "q5_k": 5.70,
    "q6_k": 6.56,
    "tq1_0": 54 * 8 / 256,
    "tq2_0": 66 * 8 / 256,
    "q2": 3.16,
    "q3": 4.00,
    "q4": 4.89,
    "q4f16": 4.5,
    "q5": 5.70,
    "q6": 6.56,
    "q8": 8.5,
}
# Loaders that take weights of several widths, and the one that most of their checkpoints have.
_LOADERS = (
    (
        r"8[-_ ]?bit|modelopt|deepspeedfp|compressed[-_]tensors|quark|torchao|modelslim|neuron_quant"
        r"|^(online|humming|rtn)$",
        "fp8",
    ),
    (r"bitsandbytes|bnb", "nf4"),
    (r"^gguf$", "q4_k_m"),
)
_RECIPE = re.compile(r"^(?:ud|i1)-(?=i?q\d)")  # how publishers weigh a GGUF file's tensors: UD-Q4_K_XL, i1-Q4_K_M
_ANY_WIDTH = re.compile(
    r"^(modelopt(_mixed)?|compressed[-_]tensors|quark|torchao|modelslim|online|humming|gguf|bitsandbytes)$"
)


def dtype(word: str | None) -> str | None:
    """An engine's word for a plain number format as "bf16", "fp16" or "fp32"; None for "auto" and unknown words."""
    return _DTYPES.get((word or "").lower().removeprefix("torch."))


def weight_bits(quantization: str | None, plain: str) -> float | None:
    """Bits a quantised weight takes, scales included; those of `plain` (a dtype) where nothing is quantised.

    None for a word that is not known. Embeddings and norms stay at 16 bits in most formats; `theory.weights` knows
    which, and `theory.widths` how wide formats are.
    """
    word = _RECIPE.sub("", (quantization or "none").lower())
    if word in ("none", "auto", "unquantized"):
        return 8 * _DTYPE_BYTES[plain]
    if plain_word := dtype(word):
        return 8 * _DTYPE_BYTES[plain_word]
    if word in _GGML or word in _GGUF:
        return _GGML.get(word) or _GGUF[word]
    if re.match(r"iq|t?q\d", word):
        near = [name for name in _GGUF if word.startswith(name)]
        return _GGUF[max(near, key=len)] if near else None
    loader = next((format for pattern, format in _LOADERS if re.search(pattern, word)), word)
    return bits_of(word) or _GGUF.get(loader) or bits_of(loader)


def loads_several(quantization: str | None) -> bool:
    """Whether a word names a loader whose checkpoints have weights of several widths, of which `weight_bits` takes the
    usual one.
    """
    return _ANY_WIDTH.search((quantization or "").lower()) is not None


def kv_bytes(word: str | None, plain: str) -> float | None:
    """Bytes of one element of the KV cache; "auto" is the model's own dtype. None for a word that is not known."""
    name = (word or "auto").lower()
    if name in ("auto", "model", "none"):
        return _DTYPE_BYTES[plain]
    if plain_word := dtype(name):
        return _DTYPE_BYTES[plain_word]
    if name in _GGML:
        return _GGML[name] / 8
    if re.search(r"fp4|e2m1", name):
        return 0.5 + 1 / 16  # SGLang: half a byte and one scale byte for 16 values
    if name.startswith("int4"):
        return 0.5  # LMDeploy's, whose scales theory.kv.lmdeploy adds; vLLM's, for each token and head
    return 1.0 if re.search(r"fp8|int8|e4m3|e5m2", name) else None


def element_bytes(word: str | None) -> float | None:
    """Bytes of one number of a plain format; None for "auto" and words that name none."""
    plain = dtype(word)
    return _DTYPE_BYTES[plain] if plain else None


def compute_dtype(quantization: str | None, plain: str, supported: frozenset[str]) -> str:
    """The format in which matrix products run: that of activations, so weight-only formats compute in `plain`.

    fp8 and fp4 weights run on their own units only where the device has them (`supported`); elsewhere they are
    unpacked first.
    """
    word = (quantization or "").lower()
    for pattern, name in ((r"nvfp4|modelopt_fp4", "fp4"), (r"w8a8_int8|w8a8$|smoothquant", "int8")):
        if re.search(pattern, word) and name in supported:
            return name
    return "fp8" if re.search(r"fp8|w4a8|modelopt$", word) and "fp8" in supported else plain
