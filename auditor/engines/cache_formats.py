"""The formats of keys and values: as flags say, as the checkpoint brings them, or as the kernel keeps them."""

import re

from auditor.engines import formats
from auditor.engines.places import Places
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.releases import release
from auditor.theory.settings import Settings

__all__ = ["of_sparse_latents", "own", "settle"]

# First releases that take the format of the cache from the checkpoint where no flag names one, by engine and format,
# and their word for it: resolve_kv_cache_dtype_string in vllm/utils/torch_utils.py (ModelOpt's checkpoints; those of
# compressed-tensors one release later), configure_kv_cache_dtype in sglang's srt/mem_cache/kv_cache_dtype.py, and
# ModelLoader in tensorrt_llm/llmapi/llm_utils.py.
_OWN = {
    ("vllm", "fp8"): ((0, 14, 0), "fp8_e4m3"),
    ("vllm", "nvfp4"): ((0, 20, 0), "nvfp4"),
    ("sglang", "fp8"): ((0, 5, 3), "fp8_e4m3"),
    ("trtllm", "fp8"): ((0, 0, 0), "fp8_e4m3"),
    ("trtllm", "nvfp4"): ((0, 0, 0), "nvfp4"),
}

_PACKED, _PLAIN = "fp8_ds_mla", "fp8_e4m3"
# First releases of vLLM's rules for sparse MLA.
_BY_KERNEL = (0, 18, 0)  # before, all devices packed
_FLASHINFER_FIRST = (0, 19, 0)  # ... on Blackwell, for 8 bits; before, for few heads
_FEW_HEADS = 16


def own(places: Places, geometry: Geometry | None) -> tuple[str | None, str]:
    """The format that this engine takes from the checkpoint where none is asked for."""
    brought = geometry.kv_format if geometry is not None else None
    since, word = _OWN.get((places.flavour.name, brought or ""), ((0, 0, 0), None))
    return (word if release(places.version) >= since else None), "the checkpoint's own"


def settle(places: Places, geometry: Geometry | None, plain: str) -> None:
    """Choose the cache's format and the bytes of one element of keys and values; `plain` is the model's own format."""
    name = "kv_cache_dtype"
    word = places.take(name, *places.said(name), own(places, geometry), places.default(name)) or "auto"
    source = places.sources.setdefault(name, "the model's own")
    chosen = Settings(
        engine=places.flavour.name,
        engine_version=places.version,
        tensor_parallel=places.chosen.get("tensor_parallel", 1),
        vendor=places.chosen.get("vendor"),
        capability=places.chosen.get("capability"),
    )
    word = of_sparse_latents(word, chosen, geometry)
    places.chosen[name] = word
    other, its_source = _of_values(places, word)
    key, value = formats.kv_bytes(word, plain), formats.kv_bytes(other, plain)
    known = (key + value) / 2 if key is not None and value is not None else None
    places.take("kv_bytes", (known, source), (formats.kv_bytes("auto", plain), f"assumed, {word} is not known"))
    if key != value:
        places.take("key_bytes", (key, source))
        places.take("value_bytes", (value, its_source))


def _of_values(places: Places, word: str) -> tuple[str, str]:
    """The format of values: that of keys, but in llama.cpp, whose flag for keys leaves values alone."""
    own_word, source = places.launched("kv_cache_dtype_v")
    if own_word is not None:
        return own_word, source
    if places.flavour.name == "llamacpp" and places.sources["kv_cache_dtype"].startswith("launch"):
        return places.default("kv_cache_dtype")
    return word, places.sources["kv_cache_dtype"]


def of_sparse_latents(word: str, settings: Settings, geometry: Geometry | None) -> str:
    """The format that vLLM's kernel for sparse MLA keeps (_canonicalize_sparse_mla_kv_cache_dtype in vllm
    model_executor/layers/attention/mla_attention.py): FlashMLA packs 8-bit values with their scales, FlashInfer keeps
    them plain on Blackwell's data-centre GPUs and always packs on its others; ROCm's kernel keeps them plain. Other
    engines and models keep `word`.
    """
    if settings.engine != "vllm" or geometry is None or geometry.indexer is None:
        return word
    number, major = release(settings.engine_version), (settings.capability or (9, 0))[0]
    if number >= _BY_KERNEL and major == 12 and word == "auto":
        return _PACKED
    if not re.fullmatch(r"fp8(_e4m3)?", word):
        return word
    if number < _BY_KERNEL:
        return _PACKED
    heads = geometry.attention_heads // settings.tensor_parallel
    flashinfer = major == 10 and (number >= _FLASHINFER_FIRST or heads <= _FEW_HEADS)
    return _PLAIN if flashinfer or settings.vendor == "amd" else _PACKED
