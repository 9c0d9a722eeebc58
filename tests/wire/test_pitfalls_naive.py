"""The naive reader: it works on a well-behaved server, and falls into the pitfalls."""

import pytest

from tests.wire import test_pitfalls_bases as bases
from tests.wire import test_pitfalls_connections as connections
from tests.wire import test_pitfalls_errors as errors
from tests.wire import test_pitfalls_events as events
from tests.wire import test_pitfalls_lengths as lengths
from tests.wire import test_pitfalls_tokens as tokens
from tests.wire.pitfalls import Row, misled, plain, reply_row

ROWS: list[Row] = [*tokens.ROWS, *events.ROWS, *errors.ROWS, *bases.ROWS, *lengths.ROWS, *connections.ROWS]
FAIR = reply_row(
    "a well-behaved server", "", plain(0.5, 0.02, 10), good=True, ttft=0.5, e2e=0.68, tpot=0.02, tokens=10, events=10
)


def test_the_naive_reader_is_right_about_a_well_behaved_server() -> None:
    assert misled(FAIR) == ""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_naive(row: Row) -> None:
    wrong = misled(row)
    print("WRONG", wrong)
    assert bool(wrong) != bool(row.stays), wrong
