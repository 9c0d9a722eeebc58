"""A launch line, as a person would type it, read into the fields it sets.

parse_launch("vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2 --max-model-len 32k")
-> Launch(engine="vllm", fields={"model": ..., "tensor_parallel": 2, "max_model_len": 32000}, ...)
"""

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from auditor.engines.flavour import Flag, Flavour
from auditor.engines.flavours import FLAVOURS, command_end, flavour_of_launch, tokens
from auditor.errors import UsageError
from auditor.redact import Redactor

__all__ = ["Launch", "parse_launch", "until_redirection"]

T = TypeVar("T")

_INTS = frozenset(
    [
        *("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel", "decode_context_parallel"),
        *("max_model_len", "max_num_seqs", "max_num_batched_tokens", "context", "slots", "ubatch", "queue_limit"),
        *("block_size", "kv_pool_bytes", "kv_pool_tokens", "kv_blocks", "captured_batch", "port"),
        *("speculative.num_speculative_tokens", "speculative.num_steps", "speculative.topk"),
        *("cpu_cache_gib", "mamba_slots", "quant_policy", "latent_mode"),
    ]
)
_FLOATS = frozenset(
    [
        *("gpu_memory_utilization", "mem_fraction_static", "memory_fraction", "swa_full_tokens_ratio"),
        "mamba_full_ratio",
    ]
)
_MAPPINGS = frozenset(["speculative", "kv_transfer", "kv_cache_config"])
_DEGREES = frozenset(["tensor_parallel", "pipeline_parallel", "data_parallel", "decode_context_parallel"])
_MOST = 10**15  # bytes of a pool; any other number that an engine takes is smaller
_SECRET_FIELDS = frozenset(["api_key", "secret"])
_SECRET_NAME = re.compile(r"(?i)(api_?key|token|secret|passw(or)?d)s?$")
_HUMAN = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SHELL_VARIABLE = re.compile(r"\$(\w+|\{[^}]*\}|\()")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a launch line says.

    `fields` maps profile fields of `deployment` (or, where the profile has none, fields of Settings and Served, and
    port, host, served_model_name) to values; `flag_of` gives the flag that set each. `unknown` are flags that are not
    read here, with the known flag that was probably meant; `secrets` the keys and tokens found, to be redacted by
    value wherever else they stand, as they are here; `problems` are values that the engine would refuse, one line each.
    """

    engine: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    flag_of: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class _Found:
    """What is being collected while a line is read."""

    fields: dict[str, Any] = field(default_factory=dict)
    flag_of: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def parse_launch(launch: str, engine: str | None = None) -> Launch:
    """Read a launch line. `engine` (a flavour's name) is needed only where the line itself does not tell.

    Raises UsageError where the line cannot be split into words or no engine is recognised.
    """
    words = tokens(launch)
    flavour = flavour_of_launch(launch) or FLAVOURS.get(engine or "")
    if flavour is None or (not flavour.flags and engine is None):
        raise UsageError(
            "deployment.launch: no known engine in this line; it needs the command itself "
            "(vllm serve ..., python -m sglang.launch_server ..., llama-server ..., trtllm-serve ...)"
        )
    found = _Found(secrets=re.findall(r"://[^/\s:@]*:([^/\s@]+)@", launch))
    start = command_end(flavour, words) or 0
    _read_fork(flavour, words[:start], found)
    _read_env(flavour, words[:start], found)
    _read_flags(flavour, until_redirection(words[start:]), found)
    if "engine_version" not in found.fields and (tag := _image_version(flavour, words)):
        _store("engine_version", tag, tag, found)
    secrets = tuple(dict.fromkeys(s for s in found.secrets if s))
    hide = Redactor(secrets).data if secrets or "@" in launch else _as_it_is
    fields = hide(flavour.derive(found.fields))
    return Launch(
        engine=flavour.name,
        fields=fields,
        flag_of={name: _origin(flavour, name, found) for name in fields},
        unknown=hide(tuple(found.unknown)),
        secrets=secrets,
        problems=hide(tuple(found.problems)),
    )


def _as_it_is(value: T) -> T:
    return value


def _origin(flavour: Flavour, name: str, found: _Found) -> str:
    """The flag that set a field, or that set the field from which it follows."""
    return found.flag_of.get(name) or found.flag_of.get(flavour.derived_from.get(name, ""), "the launch line")


def _image_version(flavour: Flavour, words: Sequence[str]) -> str | None:
    """The version that the tag of the engine's own container image names."""
    for word in words:
        match = re.search(r"([\w./-]+):v?(\d+\.\d+\.\d+)\S*$", word)
        if match and any(match[1] == image or match[1].endswith("/" + image) for image in flavour.images):
            return match[2]
    return None


# ------------------------------------------------------------------------------------------------- where the flags are


def until_redirection(words: Sequence[str]) -> list[str]:
    """The words of a command up to where the shell takes over: a redirection, a pipe, the next command."""
    kept: list[str] = []
    for word in words:
        if re.match(r"^(\d?>|&>|\||&&?$|;$|<)", word):
            break
        if word.endswith(";"):
            kept.append(word[:-1])
            break
        kept.append(word)
    return kept


# ------------------------------------------------------------------------------------------------------- reading flags


def _read_fork(flavour: Flavour, words: Sequence[str], found: _Found) -> None:
    """What a fork, known by the path of its command or its image, does otherwise than the engine itself."""
    for fork, fields in flavour.forks.items():
        if any(fork in word.lower() for word in words):
            for name, value in fields.items():
                _store(name, fork, value, found)


def _read_env(flavour: Flavour, words: Sequence[str], found: _Found) -> None:
    """Environment assignments before the command: secrets, and variables that stand for flags."""
    names = _flags_by_name(flavour)
    for word in words:
        name, equals, value = word.removeprefix("--env=").partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
            continue
        if _SECRET_NAME.search(name) and not _SHELL_VARIABLE.search(value):
            found.secrets.append(value)
        flag = names.get(flavour.env.get(name, ""))
        if flag is not None:
            switched = flag.kind in ("on", "off") and value.lower() in ("0", "false", "off")
            _set(flag, name, [value], found, negated=switched)


def _read_flags(flavour: Flavour, words: Sequence[str], found: _Found) -> None:
    names = _flags_by_name(flavour)
    rest = _Words(words)
    for word in rest:
        if not word.startswith("-") or re.fullmatch(r"-?\d+(\.\d+)?", word):
            _positional(flavour, word, found)
            continue
        typed, equals, value = word.partition("=")
        name, _, key = typed.partition(".")
        flag, negated = _find(flavour, names, _dashes(name))
        if flag is None:
            _unread(flavour, _dashes(name), value if equals else None, rest, found)
        elif key:
            _set_key(flag, name, key, value if equals else rest.value(), found)
        elif flag.kind in ("on", "off"):
            _set(flag, name, [value] if equals else [], found, negated=negated)
        else:
            given = [value] if equals else (rest.values() if flag.kind == "many" else [rest.value()])
            values = [g for g in given if g is not None]
            _set(flag, name, values or (["on"] if flag.kind == "maybe" else []), found)


class _Words(Iterator[str]):
    """The words of a line with a look ahead."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words, self._at = list(words), 0

    def __next__(self) -> str:
        if self._at >= len(self._words):
            raise StopIteration
        self._at += 1
        return self._words[self._at - 1]

    def value(self) -> str | None:
        """The next word if it can be a value; negative numbers can."""
        word = self._words[self._at] if self._at < len(self._words) else None
        if word is None or (word.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", word)):
            return None
        self._at += 1
        return word

    def values(self) -> list[str | None]:
        """All words up to the next flag."""
        found: list[str | None] = []
        while (value := self.value()) is not None:
            found.append(value)
        return found


def _dashes(name: str) -> str:
    """Long flags may be written with underscores; every engine here takes both."""
    return "--" + name[2:].replace("_", "-") if name.startswith("--") else name


def _flags_by_name(flavour: Flavour) -> dict[str, Flag]:
    return {_dashes(name): flag for flag in flavour.flags for name in flag.names}


def _find(flavour: Flavour, names: Mapping[str, Flag], name: str) -> tuple[Flag | None, bool]:
    """The flag of a name, and whether it was negated (`--no-x`); an unambiguous prefix counts, as in argparse."""
    if name in names:
        return names[name], False
    positive = "--" + name.removeprefix("--no-")
    if name.startswith("--no-") and positive in names and names[positive].kind in ("on", "off"):
        return names[positive], True
    if name.startswith("--") and len(name) > 6 and not _known(flavour, name):
        every = [*names, *map(_dashes, flavour.switches | flavour.values)]
        longer = [n for n in every if n.startswith(name)]
        fields = {names[n].field if n in names else n for n in longer}
        if len(fields) == 1 and longer[0] in names:
            return names[longer[0]], False
    return None, False


def _known(flavour: Flavour, name: str) -> bool:
    positive = "--" + name.removeprefix("--no-").removeprefix("--")
    return bool({name, positive} & {_dashes(n) for n in flavour.switches | flavour.values})


def _unread(flavour: Flavour, name: str, value: str | None, rest: _Words, found: _Found) -> None:
    """A flag that sets nothing here: skip its value; list it if it is not known at all."""
    positive = "--" + name.removeprefix("--no-").removeprefix("--")
    if {name, positive} & {_dashes(n) for n in flavour.switches}:
        return
    value = rest.value() if value is None else value
    if name in {_dashes(n) for n in flavour.values}:
        return
    if _SECRET_NAME.search(name) and value:
        found.secrets.append(value)
    near = difflib.get_close_matches(name, _flags_by_name(flavour), 1, 0.9)
    found.unknown.append(f"{name} (did you mean {near[0]}?)" if near else name)


def _positional(flavour: Flavour, word: str, found: _Found) -> None:
    if flavour.positional_model and "model" not in found.fields:
        if word != "serve":
            _set(Flag(("MODEL",), "model"), "MODEL", [word], found)
        return
    found.unknown.append(word)


# ------------------------------------------------------------------------------------------------------ setting values


def _set(flag: Flag, name: str, values: Sequence[str], found: _Found, *, negated: bool = False) -> None:
    if flag.kind in ("on", "off"):
        said = not (values and values[0].lower() in ("0", "false", "off", "no"))
        _store(flag.field, name, (flag.kind == "on") == (said != negated), found)
        return
    if flag.field in _SECRET_FIELDS:
        for value in values:
            if not _SHELL_VARIABLE.search(value):
                found.secrets += [value, *value.split(",")] if "," in value else [value]
        return
    if not values:
        found.problems.append(f"{name} has no value; give one or leave the flag out")
        return
    if _SHELL_VARIABLE.search(values[0]) and flag.field not in _MAPPINGS:
        found.problems.append(f"{name} is {values[0]}, a shell variable that is not known here; write the value itself")
        return
    try:
        _store(flag.field, name, _convert(flag, values[0]), found)
    except ValueError as error:
        found.problems.append(f"{name} {values[0]}: {error}")


def _set_key(flag: Flag, name: str, key: str, value: str | None, found: _Found) -> None:
    """`--speculative-config.num_speculative_tokens 3` sets one key of a mapping."""
    if value is None:
        found.problems.append(f"{name}.{key} has no value; give one or leave the flag out")
        return
    try:
        read = json.loads(value)
    except ValueError:
        read = value
    for part in reversed(key.split(".")):
        read = {part: read}
    before = found.fields.get(flag.field)
    try:
        read = _counted(flag.field, read)
    except ValueError as error:
        found.problems.append(f"{name}.{key} {value}: {error}")
        return
    _store(flag.field, name, {**before, **read} if isinstance(before, dict) else read, found)


def _store(path: str, name: str, value: Any, found: _Found) -> None:
    """Set a field; "speculative.method" sets the key of a mapping. The last flag wins, as in argparse."""
    if value is None:
        return
    top, _, key = path.partition(".")
    if key:
        mapping = found.fields.get(top)
        found.fields[top] = {**(mapping if isinstance(mapping, dict) else {}), key: value}
        found.flag_of.setdefault(top, name)
    else:
        found.fields[top] = value
        found.flag_of[top] = name


def _convert(flag: Flag, text: str) -> Any:
    """The value of a flag. Raises ValueError with a reason."""
    if flag.field in _INTS:
        return _bounded(flag.field, _integer(text, human=flag.human))
    if flag.field in _FLOATS:
        return _fraction(text)
    if flag.field in _MAPPINGS:
        return _counted(flag.field, _mapping(text))
    return text


def _bounded(field: str, number: int | None) -> int | None:
    if number is None:
        return None
    if abs(number) > _MOST:
        raise ValueError("is larger than anything an engine takes")
    if number < 1 and field in _DEGREES:
        raise ValueError("needs at least 1")
    return number


def _fraction(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= _MOST:
        raise ValueError("needs a number")
    return number


def _counted(field: str, mapping: dict[str, Any]) -> dict[str, Any]:
    """The mapping with the counts that are read from it as whole numbers. Raises ValueError for one that is none."""
    counts = {key: value for key, value in mapping.items() if f"{field}.{key}" in _INTS and value is not None}
    try:
        return mapping | {key: _bounded(field, _integer(str(value), human=False)) for key, value in counts.items()}
    except ValueError as error:
        raise ValueError(f"{' and '.join(counts)}: {error}") from None


def _integer(text: str, *, human: bool) -> int | None:
    """A whole number; with `human` also 32k (thousands), 32K (times 1024) and auto (None), as vLLM and SGLang read
    them.
    """
    if human and text.lower() in ("auto", "-1"):
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", text)
    if match and human:
        number, suffix = match.groups()
        if suffix.isupper() and "." in number:
            raise ValueError(f"decimals are not allowed with {suffix}; did you mean {number}{suffix.lower()}")
        return int(min(float(number) * _HUMAN[suffix], 2.0 * _MOST))  # no integer holds what 400 digits are as a float
    try:
        return int(text)
    except ValueError:
        raise ValueError("needs a whole number" + (" without a suffix" if match else "")) from None


def _mapping(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise ValueError("needs a JSON object, in quotes") from None
    if not isinstance(value, dict):
        raise ValueError("needs a JSON object")
    return value
