"""The engines that are known, by name, and the one that a launch line starts."""

import re
import shlex

from auditor.engines import generic, llamacpp, lmdeploy, sglang, trtllm, vllm
from auditor.engines.flavour import Flavour
from auditor.errors import UsageError

__all__ = ["FLAVOURS", "command_end", "flag_names", "flavour_of_launch", "tokens"]

FLAVOURS: dict[str, Flavour] = {
    flavour.name: flavour
    for flavour in (
        *(vllm.FLAVOUR, sglang.FLAVOUR, llamacpp.FLAVOUR, trtllm.FLAVOUR, lmdeploy.FLAVOUR),
        generic.FLAVOUR,
    )
}


def tokens(launch: str) -> list[str]:
    """The words of a launch line: continued lines joined, comment lines dropped, quotes resolved.

    Raises UsageError for an unclosed quote.
    """
    text = re.sub(r"(?m)^\s*#.*$", "", launch)
    text = re.sub(r"\\[ \t]*\r?\n", " ", text)
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"deployment.launch: {str(error).lower()}; close the quote") from None


def command_end(flavour: Flavour, words: list[str]) -> int | None:
    """Index of the first word after the engine's own command, else after its container image; None if neither is
    there.
    """
    for command in (*flavour.commands, *flavour.images):
        parts = command.split()
        for i in range(len(words) - len(parts) + 1):
            if _names(words[i], parts[0]) and words[i + 1 : i + len(parts)] == parts[1:]:
                return i + len(parts)
    return None


def _names(word: str, command: str) -> bool:
    """Whether a word is the command, with or without its folder, or the image, with or without registry and tag."""
    bare = word.removesuffix(".exe")
    image = re.sub(r"(:[\w.-]+)?(@sha256:\w+)?$", "", bare)
    return any(w == command or w.endswith("/" + command) for w in (bare, image))


def flavour_of_launch(launch: str) -> Flavour | None:
    """The engine that a launch line starts, or None."""
    words = tokens(launch)
    return next((f for f in FLAVOURS.values() if command_end(f, words) is not None), None)


def flag_names(flavour: Flavour) -> dict[str, str]:
    """The engine's flag for each field it can set, for remedies: the long spelling, llama.cpp's short one.

    Where the only flag turns the field off, "without" that flag.
    """
    names: dict[str, str] = {}
    for flag in sorted(flavour.flags, key=lambda f: f.kind == "off"):
        long = next((n for n in flag.names if n.startswith("--")), flag.names[0])
        name = flag.names[0] if flavour.name == "llamacpp" else long
        names.setdefault(flag.field, f"without {name}" if flag.kind == "off" else name)
    for field, source in flavour.derived_from.items():
        names.setdefault(field, names[source])
    return names
