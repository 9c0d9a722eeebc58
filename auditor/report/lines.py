"""Text in lines of a terminal's width."""

import textwrap

__all__ = ["WIDTH", "wrap"]

WIDTH = 80


def wrap(text: str, first: str = "", indent: int = 2, *, whole_words: bool = False) -> list[str]:
    """`text` in lines of at most WIDTH characters, at least one: after `first`, further ones indented.

    Words are never broken at their hyphens; where they are too long for a line only with `whole_words` not at all.
    """
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=not whole_words,
        break_on_hyphens=False,
    ) or [first.rstrip()]
