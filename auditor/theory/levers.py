"""Levers in words: each names the flags of the engine in use, and is left out where that engine has none for it.

A lever is a sentence with profile fields in braces: "larger steps ({max_num_batched_tokens})".
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping

from auditor.theory.device import Device
from auditor.theory.settings import Settings

__all__ = ["by_bound", "flag", "levers", "name", "spell", "spent"]

_MORE, _FEWER = "more devices ({tensor_parallel})", "fewer devices ({tensor_parallel})"
_APART = "prompts read by instances of their own"
_GRAPHS = "captured graphs (without {enforce_eager})"
_BUILD = "more cores, and a build of the engine that uses all of their instructions"
_BY_BOUND: Mapping[str, tuple[str, ...]] = {
    "compute": ("8-bit weights and activations ({quantization})", _MORE, _BUILD),
    "weights": ("fewer bytes of weights ({quantization})", "larger batches cost little here ({max_num_seqs})"),
    "kv": ("an 8-bit KV cache ({kv_cache_dtype})", "shorter contexts or fewer streams a step ({max_num_seqs})"),
    "overhead": (_GRAPHS, _FEWER, "larger steps"),
    "prompts": ("less prompt to read: shared text first and the prefix cache on ({prefix_caching})", _APART),
    "busy": (_APART,),
}
_ONLY: Mapping[str, Callable[[Settings, Device], bool]] = {  # where such a lever is one
    _MORE: lambda _, device: not device.here,
    _FEWER: lambda settings, _: settings.tensor_parallel > 1,
    _GRAPHS: lambda settings, device: settings.enforce_eager and device.kind != "cpu",
    _BUILD: lambda _, device: device.kind == "cpu",
}

# What an engine without a flag for the first field sets instead (llama.cpp: slots and their common context).
_ALSO = {
    "max_num_seqs": ("slots",),
    "max_model_len": ("context",),
    "gpu_memory_utilization": ("mem_fraction_static", "memory_fraction"),
    "speculative": ("speculative.method", "speculative.model"),
}
_PLAIN = {  # where no flag is known
    "attention_backend": "the attention backend",
    "captured_batch": "the largest captured batch",
    "checkpoint": "a checkpoint in",
    "data_parallel": "data parallelism",
    "enforce_eager": "eager mode",
    "gpu_memory_utilization": "the engine's share of the memory",
    "kv_cache_dtype": "the KV cache's data type",
    "max_model_len": "the context limit",
    "max_num_batched_tokens": "the tokens of a step",
    "max_num_seqs": "the batch limit",
    "prefix_caching": "the prefix cache",
    "quantization": "the weights' precision",
    "slots": "the number of slots",
    "speculative": "speculative decoding",
    "tensor_parallel": "tensor parallelism",
}
_FIELD = re.compile(r"\{(\w+)\}")
_ASIDE = re.compile(r" \((?:without )?\{(\w+)\}\)")


def by_bound(bound: str, settings: Settings | None, device: Device | None) -> tuple[str, ...]:
    """What shortens a phase, by what bounds it: all that these leave; without them all but what is a CPU's."""
    texts = _BY_BOUND.get(bound, ())
    if settings is None or device is None:
        return tuple(text for text in texts if text != _BUILD)
    return tuple(text for text in texts if text not in _ONLY or _ONLY[text](settings, device))


def flag(flags: Mapping[str, str], field: str) -> str | None:
    """The engine's flag for a profile field, by field; None where it has none."""
    return next((flags[name] for name in (field, *_ALSO.get(field, ())) if name in flags), None)


def name(flags: Mapping[str, str], field: str) -> str | None:
    """What a lever on this field is called: the engine's flag, or plain words for an unknown engine; None without."""
    return flag(flags, field) if flags else _PLAIN.get(field, field)


def spell(flags: Mapping[str, str], text: str) -> str:
    """`text` with each {field} as the engine's flag for it, else in plain words; an aside without a flag goes."""
    text = _ASIDE.sub(lambda match: match[0] if flag(flags, match[1]) else "", text)
    return _FIELD.sub(lambda match: flag(flags, match[1]) or _PLAIN.get(match[1], match[1]), text)


def levers(flags: Mapping[str, str], texts: Iterable[str], spent: Container[str] = ()) -> tuple[str, ...]:
    """The levers that the engine has and that are not `spent` (fields), spelled out.

    Where the engine is not known all are taken to be there, and named in plain words.
    """
    named = ((text, _FIELD.findall(text)) for text in texts)
    return tuple(
        spell(flags, text)
        for text, fields in named
        if not any(field in spent for field in fields)
        and (not flags or all(flag(flags, field) is not None for field in fields))
    )


def spent(settings: Settings | None, *, speculates: bool) -> list[str]:
    """The fields whose lever is pulled already: tokens are drafted, weights or cache are of 8 bits or fewer."""
    done = ["speculative"] if speculates else []
    done += ["quantization"] if settings is not None and settings.weight_bits < 9 else []
    return done + (["kv_cache_dtype"] if settings is not None and settings.kv_bytes <= 1.1 else [])
