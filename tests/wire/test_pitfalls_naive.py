"""The naive reader works on a well-behaved server, and falls into the pitfalls that the product avoids.

What it survives says why it stays: other readers fall into it, or it survives by another mistake.
"""

import pytest

from tests.wire import test_pitfalls_bases as bases
from tests.wire import test_pitfalls_connections as connections
from tests.wire import test_pitfalls_errors as errors
from tests.wire import test_pitfalls_events as events
from tests.wire import test_pitfalls_lengths as lengths
from tests.wire import test_pitfalls_program as program
from tests.wire import test_pitfalls_tokens as tokens
from tests.wire import test_pitfalls_usage as usage
from tests.wire.pitfalls import Row, misled, plain, reply_row

ROWS: list[Row] = [
    row for theme in (tokens, usage, events, errors, lengths, connections, bases, program) for row in theme.ROWS
]
FAIR = reply_row(
    "a well-behaved server", "", plain(0.5, 0.02, 10), good=True, ttft=0.5, e2e=0.68, tpot=0.02, tokens=10, events=10
)


def test_it_is_right_about_a_well_behaved_server() -> None:
    assert misled(FAIR) == ""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_it_is_misled_by_all_but_those_that_say_why_they_stay(row: Row) -> None:
    assert bool(misled(row)) == (not row.stays)


def test_it_is_misled_by_forty_reports_at_least() -> None:
    assert len({row.source for row in ROWS if not row.stays}) >= 40


def test_every_row_has_a_name_of_its_own_and_a_public_source() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))
    assert all(row.source.startswith("https://") for row in ROWS)
