"""The engine of a row and its version, as people write them, and its launch line."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from auditor.engines.conflicts import conflicts
from auditor.engines.dated import release_before
from auditor.engines.flavours import FLAVOURS
from auditor.engines.launch import Launch, parse_launch
from auditor.errors import UsageError
from auditor.loading.problems import one_line
from auditor.profile import Endpoint, Profile
from auditor.theory.device import Device
from auditor.theory.kv.releases import NEWEST, build, releases

__all__ = ["endpoint", "engine", "launched", "noted", "version"]

_ENGINES = (  # how people write engines, and what is computed for them
    (r"vllm|aphrodite", "vllm"),
    (r"sglang", "sglang"),
    (r"llama\.?[ _-]?cpp|llama-?file|llama-(?:server|bench|cli)|ollama|lm ?studio|koboldcpp", "llamacpp"),
    (r"tensorrt|trt-?_?llm|\btrt\b|\bnim\b", "trtllm"),
    (r"lmdeploy|turbomind", "lmdeploy"),
)
_ASSUMED = ("vllm", ("no engine is named: vLLM is assumed",))
_GGUF = re.compile(r"(?i)(?:ud-|i1-)?i?q[1-8]_\w+")  # q4_k_m, iq4_xs, UD-Q4_K_XL
_IDLE = re.compile(r"(?:-m|-hf|-a|--model|--model-path|MODEL|--host|--port|--alias|--served-model-name)\b")
_RELEASE = re.compile(r"(?<![\d.-])v?(\d{1,2}\.\d+x?(?:\.(?:\d+|x))?)(?![\dx])")


def launched(values: Mapping[str, Any]) -> Launch | None:
    """The launch line of a row, read. Raises UsageError where no engine can be told from it."""
    if "launch" not in values:
        return None
    named = _flavour(values["engine"]) if "engine" in values else None
    try:
        return parse_launch(values["launch"], named if named in FLAVOURS else None)
    except UsageError as error:
        raise UsageError(f"launch: {str(error).removeprefix('deployment.launch: ')}") from None


def noted(launch: Launch, profile: Profile) -> tuple[str, ...]:
    """What is not taken of a launch line: flags that are not known, and those that the row says otherwise.

    Raises UsageError for a value that the engine would not take, of a flag that moves what is computed.
    """
    wrong = next((said for said in launch.problems if not _IDLE.match(said)), None)
    if wrong is not None:
        raise UsageError(f"launch: {one_line(wrong)}")
    ignored = tuple(f"launch: {said} is not known and ignored" for said in launch.unknown)
    found = (one for one in conflicts(profile, launch, None, {}) if one.second_where.startswith("launch"))
    return ignored + tuple(
        f"launch: {one.second_where.removeprefix('launch ')} {one_line(one.second)} is not taken: "
        f"{one.field.rpartition('.')[2]} says {one_line(one.first)}"
        for one in found
    )


def engine(values: Mapping[str, Any], launch: Launch | None, device: Device | None) -> tuple[str, tuple[str, ...]]:
    """The engine's flavour, and what was assumed: without a word of it llama.cpp for what vLLM does not serve, a GGUF
    file or Apple's devices.
    """
    written = values.get("engine")
    if written is None:
        if launch is not None:
            return launch.engine, ()
        why = _for_llamacpp(values, device)
        return ("llamacpp", (f"no engine is named: llama.cpp is assumed for {why}",)) if why else _ASSUMED
    found = _flavour(written)
    if found is None:
        return "generic", (f"the engine {one_line(written)} is not known: plain paging is assumed",)
    return found, ()


def _for_llamacpp(values: Mapping[str, Any], device: Device | None) -> str:
    if values.get("model", "").casefold().endswith(".gguf"):
        return "a GGUF file"
    if _GGUF.fullmatch(values.get("quantization", "")):
        return "a format of GGUF files"
    return "an Apple device" if device is not None and device.vendor == "apple" else ""


@cache
def _flavour(written: str) -> str | None:
    """The engine that people mean, by the words they use for it and its forks."""
    word = written.casefold()
    if word in FLAVOURS:
        return word
    return next((name for pattern, name in _ENGINES if re.search(pattern, word)), None)


def version(values: Mapping[str, Any], launch: Launch | None, engine: str) -> tuple[str | None, tuple[str, ...]]:
    """The version as numbers ("v0.11.2+rhai5" -> "0.11.2"), from its own key or the engine's ("vllm 0.18.0")."""
    if engine == "llamacpp":
        return _build(values.get("engine_version", "")) or _build(values.get("engine", "")), ()
    written = values.get("engine_version")
    if written is None:
        told = launch.fields.get("engine_version") if launch is not None else None
        found = _numbers(values.get("engine", ""))
        return found or (str(told) if told else None), ()
    span = releases(written)
    if span is not None:
        return "-".join(span), (
            f"engine_version {one_line(written)} is a range: its first release's rules are assumed",
        )
    found = _numbers(written)
    if found is not None:
        return found, ()
    found = release_before(engine, written)
    if found is not None:
        return found, (f"engine_version {one_line(written)} is taken as {found}, the newest release before that month",)
    return None, (f"engine_version {one_line(written)} names no release: the newest rules are assumed",)


@cache
def _numbers(written: str) -> str | None:
    """The first release of a text, with an x for what it leaves open: "0.8.x", "0.1x"."""
    match = _RELEASE.search(written)
    return None if match is None else match[1]


def _build(written: str) -> str | None:
    """llama.cpp's build, which no date is."""
    number = build(written)
    return None if number == NEWEST else f"b{number}"


def endpoint(engine: str) -> Endpoint:
    """What a profile says of an engine of this flavour."""
    known: Any = engine if engine in FLAVOURS else "generic"
    return Endpoint(url="", engine=known)
