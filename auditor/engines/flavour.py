"""What the program must know about one engine: a table of facts and a few pure functions, one instance a file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry

__all__ = ["NOTHING", "Defaults", "Flag", "Flavour", "Reply"]

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Flag:
    """One launch flag: its spellings, the field it sets, and how its value is written.

    `field` is a profile field of `deployment` or, where the profile has none, a field of `Settings` or `Served`;
    "speculative.method" is the key `method` of the mapping `speculative`.
    `value` takes an argument, `maybe` one that may be left out and is then "on"; `many` takes one or more; `on` and
    `off` are switches that set the field to true or false. `human` says that the engine takes 32k and 4G here.
    """

    names: tuple[str, ...]
    field: str
    kind: Literal["value", "maybe", "many", "on", "off"] = "value"
    human: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one GET: status, headers (lower-case names) and body; `json` is None where the body is no JSON."""

    status: int
    headers: Mapping[str, str]
    text: str
    json: Any = None


class Defaults(Protocol):
    """The explicit values of fields of `Settings` that a version of an engine (None: the newest) uses where no flag
    says otherwise, on a device, for a model. `said` are the fields that something else fixes, for defaults that follow
    from them (tensor_parallel, kv_cache_dtype, prefix_caching ...). Without device or model: what most of them get.
    """

    def __call__(
        self,
        version: str | None,
        device: Device | None,
        geometry: Geometry | None = None,
        said: Mapping[str, Any] = NOTHING,
        /,
    ) -> dict[str, Any]: ...


def _unchanged(fields: Mapping[str, Any]) -> dict[str, Any]:
    return dict(fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavour:
    """One engine.

    `commands` are the words that a launch line of this engine contains ("vllm serve"); `info_paths` the GETs that
    discovery sends (relative to the server root); `recognise` says whether their replies come from this engine;
    `read_served` turns them into fields of `Served` and the path that told each; `defaults` is told by its protocol;
    `metrics_paths` are tried in order for the metrics page; `prefix` starts its metric names; `seen_running` is False
    where flags, defaults and replies come from the engine's source alone.

    For launch lines: `images` are container images whose arguments are the engine's; `positional_model` says that the
    first bare word names the model; `switches` and `values` are known flags without and with an argument that set
    nothing the audit uses; `env` maps environment variables to the flags they stand for; `derive` completes the parsed
    fields (expert parallelism from a switch, the context of one slot) and `derived_from` says from which field each of
    those follows; `forks` are parts of a command's path or image that name a fork, with the fields that it sets.
    """

    name: str
    title: str
    commands: tuple[str, ...]
    flags: tuple[Flag, ...]
    info_paths: tuple[str, ...]
    metrics_paths: tuple[str, ...]
    prefix: str
    recognise: Callable[[Mapping[str, Reply]], bool]
    read_served: Callable[[Mapping[str, Reply]], tuple[dict[str, Any], dict[str, str]]]
    defaults: Defaults
    seen_running: bool = True
    images: tuple[str, ...] = ()
    positional_model: bool = False
    switches: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    env: Mapping[str, str] = field(default_factory=dict)
    derive: Callable[[Mapping[str, Any]], dict[str, Any]] = _unchanged
    derived_from: Mapping[str, str] = field(default_factory=dict)
    forks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
