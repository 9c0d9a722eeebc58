"""A command line that starts an engine, as people, scripts and manifests write it, made fit for a profile.

What stands around the command (docker run, sudo, a shell), secrets and variables that nobody knows here go; what is
left is read by `engines.launch` like the `deployment.launch` of any profile.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from auditor.engines.flavour import NOTHING, Flavour
from auditor.engines.flavours import FLAVOURS, command_end, flavour_of_launch, tokens
from auditor.engines.launch import Launch, parse_launch, until_redirection
from auditor.errors import UsageError
from auditor.redact import Redactor, find_secrets, is_secret_name

__all__ = ["KEY_VARIABLE", "Line", "filled", "read_line", "script_words"]

KEY_VARIABLE = "LLM_API_KEY"
"""The variable that a profile names for a key whose own variable is not known."""

_KEY_OF = {"vllm": "VLLM_API_KEY", "llamacpp": "LLAMA_API_KEY"}  # variables from which servers take their own key
_SECRET_FIELDS = ("api_key", "secret")
_VARIABLE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)(?::?-([^{}]*))?\}|(\w+))")
_UNKNOWN = re.compile(r"\$[\w{(]")
_SHELL = re.compile(r"(?:.*/)?(?:ba|da|a|z)?sh")
_ASSIGNMENT = re.compile(r"(?:--env=|Environment=)?([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A launch line fit for a profile: its text, and what it says.

    `version` is the engine's by its image; `key` the environment variable that holds the API key, where the server
    wants one; `left_out` says which flags are missing for a variable that is not known; `secrets` are the values that
    were found.
    """

    text: str
    launch: Launch
    version: str | None = None
    key: str | None = None
    left_out: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def read_line(words: Sequence[str], variables: Mapping[str, str] = NOTHING) -> Line:
    """Make a line of the words of a command. `variables` are environment variables with a known value.

    Raises UsageError where no engine is recognised.
    """
    words = list(_unwrapped(words))
    variables = {**variables, **dict(_assigned(words))}
    whole = [filled(word, variables) for word in words]
    flavour = flavour_of_launch(shlex.join(whole))
    if flavour is None:
        raise UsageError("no engine is started here that is known: " + ", ".join(_commands()))
    end = command_end(flavour, whole) or 0
    begin = _begin(flavour, whole, end)
    flags, key = _without_secrets(flavour, until_redirection(words[end:]))
    known, left_out = _known([filled(word, variables) for word in flags])
    told = {name: value for name, value in variables.items() if name in flavour.env and not is_secret_name(name)}
    before = [f"{name}={value}" for name, value in told.items() if not _UNKNOWN.search(value)]
    python = ["python", "-m"] if begin > 1 and whole[begin - 1] == "-m" else []
    secrets = _secrets(whole, variables)
    hide = Redactor(secrets)
    line = [_hidden(word, hide) for word in (*before, *python, *whole[begin:end], *known)]
    own = _KEY_OF.get(flavour.name, "")
    return Line(
        text=shlex.join(line),
        launch=parse_launch(shlex.join(line), flavour.name),
        version=parse_launch(shlex.join(whole)).fields.get("engine_version"),
        key=key or (own if own in variables else None),
        left_out=left_out,
        secrets=secrets,
    )


def _commands() -> Iterator[str]:
    return (command for flavour in FLAVOURS.values() for command in flavour.commands[:1])


def _secrets(words: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Every secret that the command, its flags or its environment spell out."""
    named = {value for name, value in variables.items() if is_secret_name(name)}
    return (*parse_launch(shlex.join(words)).secrets, *find_secrets([list(words), dict(variables)]), *sorted(named))


# --------------------------------------------------------------------------------------------------- around the command


def script_words(script: str) -> list[str]:
    """The words of a shell script, a `;` where a line ends. Raises UsageError for an unclosed quote."""
    text = re.sub(r"(?m)^\s*#.*$", "", script)
    text = re.sub(r"\\[ \t]*\r?\n", " ", text)
    text = re.sub(r"""('[^']*'|"(?:\\.|[^"\\])*")|\n""", lambda match: match[1] or " ; ", text)
    return tokens(text)


def _unwrapped(words: Sequence[str]) -> Sequence[str]:
    """The words of the script where a shell is given one: sh -c "exec vllm serve ..."."""
    for index, word in enumerate(words[:-1]):
        if re.fullmatch(r"-\w*c\w*", word) and index and _SHELL.fullmatch(words[index - 1]):
            return [*words[: index - 1], *script_words(words[index + 1])]
    return words


def _assigned(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Variables that the words set before anything is started with them."""
    for word in words:
        match = _ASSIGNMENT.fullmatch(word)
        if match:
            yield match[1], match[2].removesuffix(";")


def filled(word: str, variables: Mapping[str, str]) -> str:
    """A word with the variables that are known ($A, ${A}, ${A:-default}, $(A)) in place; others stay as they are."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[4]
        known = variables.get(name)
        if known is None or is_secret_name(name):
            return match[3] if match[3] is not None and not is_secret_name(name) else match[0]
        return known

    return _VARIABLE.sub(value, word)


def _begin(flavour: Flavour, words: Sequence[str], end: int) -> int:
    """Where the command (or image) begins that ends before `end`."""
    sizes = sorted({len(command.split()) for command in (*flavour.commands, *flavour.images)})
    return next((end - n for n in sizes if n <= end and command_end(flavour, list(words[end - n : end])) == n), 0)


# --------------------------------------------------------------------------------------------------- flags that must go


def _without_secrets(flavour: Flavour, words: Sequence[str]) -> tuple[list[str], str | None]:
    """The words without flags that hold a secret, and the variable that holds the API key where one is asked for."""
    kept: list[str] = []
    key, dropping = None, False
    for word in words:
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            dropping = _is_secret(flavour, name)
            if dropping and _is_api_key(name):
                key = _variable(value) if equals else KEY_VARIABLE
        elif dropping:
            key = (_variable(word) if key == KEY_VARIABLE else key) if key else None
        if not dropping:
            kept.append(word)
    return kept, key


def _is_secret(flavour: Flavour, name: str) -> bool:
    """Whether a flag holds a secret; a prefix of one counts where it is no other flag's name."""
    name = name.replace("_", "-")
    known = {alias: flag.field for flag in flavour.flags for alias in flag.names}
    if name in known:
        return known[name] in _SECRET_FIELDS
    secret = [alias for alias, field in known.items() if field in _SECRET_FIELDS]
    return is_secret_name(name) or (len(name) > 6 and any(alias.startswith(name) for alias in secret))


def _is_api_key(name: str) -> bool:
    return "--api-key".startswith(name.replace("_", "-")) and len(name) > 6


def _variable(value: str) -> str:
    """The variable that a value names, else the one that a profile gets for a key spelled out."""
    match = _VARIABLE.fullmatch(value)
    return (match[1] or match[2] or match[4]) if match else KEY_VARIABLE


def _known(words: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """The words without those that hang on a variable whose value nobody knows here, and what is missing."""
    kept: list[str] = []
    missing: list[str] = []
    for word in words:
        if not _UNKNOWN.search(word) or word.lstrip().startswith("{"):
            kept.append(word)
            continue
        flag = kept.pop() if kept and kept[-1].startswith("-") and "=" not in kept[-1] and word[0] != "-" else ""
        missing.append(f"{flag} {word}".strip())
    return kept, tuple(missing)


def _hidden(word: str, hide: Redactor) -> str:
    """A word without secrets, those inside JSON included."""
    if word.lstrip().startswith("{"):
        try:
            return json.dumps(hide.data(json.loads(word)))
        except ValueError:
            pass
    return hide.text(word)
