"""Text from anywhere as harmless text: engine replies, dashboards and model names end up in reports and terminals."""

import re
import unicodedata

__all__ = ["clean", "clip"]

_AT_THE_START = re.compile(r"(?<!\S):(?=:\w)")  # ::error:: begins a command where a line of a pipeline's log begins
_ANYWHERE = re.compile(r"##(?=\w*\[)")  # ##[error] and ##vso[task.complete] are commands anywhere in a line
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def clean(text: object, limit: int = 600) -> str:
    """`text` as one printable line of at most `limit` characters.

    Terminal escape sequences, control and format characters (bidirectional overrides, zero-width marks), lone
    surrogates and line breaks become spaces; what a pipeline's runner would take for a command is broken up; what is
    cut off is counted.
    """
    flat = _ESCAPES.sub(" ", str(text)[: 8 * limit])
    flat = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in flat)
    flat = _ANYWHERE.sub("## ", _AT_THE_START.sub("", " ".join(flat.split())))
    rest = len(str(text)) - limit
    return flat if len(flat) <= limit else f"{flat[:limit].rstrip()} ... ({max(rest, 1)} more characters)"


def clip(text: object, width: int) -> str:
    """`text` cleaned and cut to `width` characters for a table cell."""
    flat = clean(text, limit=max(4 * width, 80))
    return flat if len(flat) <= width else flat[: max(width - 3, 1)].rstrip() + "..."
