"""Many questions in one process: JSON lines in, JSON lines out, one answer a line in the same order."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, TextIO

from auditor.errors import UsageError, unread
from auditor.loading.problems import one_line
from auditor.redact import without_userinfo

__all__ = ["MOST", "answered", "bounded"]

MOST = 16 << 20
"""Characters of a line that are read; no description of a deployment is as long."""

_GIVEN_UP = 16 * MOST  # a line that has not ended by then is none: /dev/zero
_LONGEST_ID = 500
_LARGEST_ID = 1 << 63

_Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def bounded(stream: TextIO) -> Iterator[str]:
    """The lines of a stream; of one longer than `MOST` the beginning, one character more than that.

    Ends with a line that has no end.
    """
    while line := stream.readline(MOST + 1):
        yield line
        skipped, rest = len(line), line
        while len(rest) > MOST and not rest.endswith("\n"):
            if skipped > _GIVEN_UP:
                return
            rest = stream.readline(MOST + 1)
            skipped += len(rest)


def answered(lines: Iterable[str], answer: _Answer) -> Iterator[str]:
    """The answer to each line that is not blank, as a line; it starts with the row's id, or else its line number.

    What a row gets wrong, or what goes wrong with it, is its answer (`error`) and stops no other.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield json.dumps(_one(number, line, answer), allow_nan=False) + "\n"


def _one(number: int, line: str, answer: _Answer) -> dict[str, Any]:
    if len(line) > MOST:
        return {"id": number, "error": f"line {number}: longer than {MOST >> 20} MiB"}
    try:
        row = _READ(line.removeprefix("\ufeff") if number == 1 else line)
    except (ValueError, RecursionError) as error:
        return {"id": number, "error": f"line {number}: no JSON ({one_line(unread(error))})"}
    if not isinstance(row, dict):
        return {"id": number, "error": f"line {number}: a JSON object is needed"}
    identity = {"id": _identity(row.get("id"), number)}
    try:
        return {**identity, **_finite(number, answer(row))}
    except UsageError as error:
        return {**identity, "error": one_line(without_userinfo(str(error)))}
    except Exception as error:  # a defect of the program: the rows that follow are still answered
        what = one_line(without_userinfo(f"{type(error).__name__}: {error}"))
        return {**identity, "error": f"line {number}: internal error: {what} (please report it)"}


def _identity(given: Any, number: int) -> Any:
    """The row's own id where it is a text or a number that JSON holds, else the number of its line."""
    if isinstance(given, str):
        return given if len(given) <= _LONGEST_ID else number
    if isinstance(given, bool) or not isinstance(given, int | float):
        return number
    return given if abs(given) < _LARGEST_ID else number


def _finite(number: int, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    wrong = [key for key, value in answer.items() if not _holds(value)]
    if wrong:
        keys = ", ".join(wrong)
        raise UsageError(f"line {number}: {keys}: no finite number comes of this row: check the sizes of its values")
    return answer


def _holds(value: Any) -> bool:
    """Whether JSON holds this value: not NaN, not infinite, nor anything in it."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_holds, value.values()))
    return all(map(_holds, value)) if isinstance(value, list | tuple) else True


# ------------------------------------------------------------------------------------------------------------- reading


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"the key '{twice}' stands in it twice")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


_READ = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_number).decode
