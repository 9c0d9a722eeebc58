"""Text in lines of a terminal's width."""

import re
import textwrap

__all__ = ["WIDTH", "wrap"]

WIDTH = 80


def wrap(text: str, first: str = "", indent: int = 2, *, whole_words: bool = False) -> list[str]:
    """`text` in lines of at most WIDTH characters, at least one: after `first`, further ones indented.

    Words are never broken at their hyphens; where they are too long for a line only with `whole_words` not at all. No
    line begins as a command to a pipeline's runner (`::error::`) does.
    """
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=not whole_words,
        break_on_hyphens=False,
    )
    return [re.sub(r"^( *):(?=:\w)", r"\1", line) for line in lines] or [first.rstrip()]
