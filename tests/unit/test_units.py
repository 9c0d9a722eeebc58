"""Units as people write them, and what a bare number gets told."""

import math
import re

import pytest

from auditor.units import DURATION, RATE, SHARE, TOKENS, Unit, count, percent, quantity


@pytest.mark.parametrize(
    ("unit", "text", "value"),
    [
        (DURATION, "1500ms", 1.5),
        (DURATION, "35 ms", 0.035),
        (DURATION, "250us", 0.00025),
        (DURATION, "2s", 2.0),
        (DURATION, "1.1s", 1.1),
        (DURATION, "10m", 600.0),
        (DURATION, "10min", 600.0),
        (DURATION, "1.5h", 5400.0),
        (DURATION, "1d", 86400.0),
        (RATE, "25/s", 25.0),
        (RATE, "90/min", 1.5),
        (RATE, "90 / m", 1.5),
        (RATE, "36/h", 0.01),
        (RATE, "0.5/sec", 0.5),
        (SHARE, "1%", 0.01),
        (SHARE, "0.1 %", 0.001),
        (SHARE, "100%", 1.0),
        (SHARE, 0.25, 0.25),
        (SHARE, 1, 1.0),
        (SHARE, 0, 0.0),
        (TOKENS, 4096, 4096),
        (TOKENS, "4096", 4096),
        (TOKENS, "32k", 32_000),
        (TOKENS, "32Ki", 32_768),
        (TOKENS, "1.1k", 1_100),
        (TOKENS, "4M", 4_000_000),
        (TOKENS, "2Mi", 2_097_152),
        (TOKENS, "1G", 1_000_000_000),
        (TOKENS, 1e6, 1_000_000),
    ],
)
def test_what_people_write(unit: Unit, text: object, value: float) -> None:
    result = unit.parse(text)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("unit", "text", "message"),
    [
        (DURATION, 1500, "needs its unit: write 1500s for seconds or 1500ms for milliseconds"),
        (DURATION, 1.5, "needs its unit: write 1.5s for seconds or 1.5ms for milliseconds"),
        (DURATION, "20", "needs its unit: write 20s for seconds or 20ms for milliseconds"),
        (DURATION, "2 parsecs", "needs a duration with its unit, such as 1500ms, 2s or 10m"),
        (DURATION, "-2s", "needs a duration with its unit, such as 1500ms, 2s or 10m"),
        (DURATION, None, "needs a duration with its unit, such as 1500ms, 2s or 10m"),
        (DURATION, True, "needs a duration with its unit, such as 1500ms, 2s or 10m"),
        (DURATION, "12:30", "needs a duration with its unit, such as 1500ms, 2s or 10m"),
        (DURATION, "9" * 400 + "s", "needs a duration with its unit, such as 1500ms, 2s or 10m"),
        (RATE, 25, "needs its unit: write 25/s if it is per second"),
        (RATE, "25", "needs its unit: write 25/s if it is per second"),
        (RATE, "25 tokens", "needs a rate with its unit, such as 25/s or 90/min"),
        (SHARE, 5, "needs a share between 0 and 1; write 5% if it is per cent"),
        (SHARE, 1.5, "needs a share between 0 and 1; write 1.5% if it is per cent"),
        (SHARE, 500, "needs a share between 0 and 1 (0% and 100%)"),
        (SHARE, "120%", "needs a share between 0 and 1 (0% and 100%)"),
        (SHARE, -0.1, "needs a share between 0 and 1 (0% and 100%)"),
        (SHARE, math.nan, "needs a share between 0 and 1 (0% and 100%)"),
        (SHARE, "0.1", "needs a share such as 1% or 0.01"),
        (SHARE, False, "needs a share such as 1% or 0.01"),
        (TOKENS, "1.5", "needs a whole number of tokens, such as 4096, 32k or 4M"),
        (TOKENS, "1.0005k", "needs a whole number of tokens, such as 4096, 32k or 4M"),
        (TOKENS, -1, "needs a whole number of tokens, such as 4096, 32k or 4M"),
        (TOKENS, 1.5, "needs a whole number of tokens, such as 4096, 32k or 4M"),
        (TOKENS, math.inf, "needs a whole number of tokens, such as 4096, 32k or 4M"),
        (TOKENS, True, "needs a whole number of tokens, such as 4096, 32k or 4M"),
        (TOKENS, "auto", "needs a whole number of tokens, such as 4096, 32k or 4M"),
        (TOKENS, 10**20, "needs a whole number of tokens, such as 4096, 32k or 4M"),
    ],
)
def test_what_is_refused_says_what_to_write(unit: Unit, text: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        unit.parse(text)


@pytest.mark.parametrize("unit", [DURATION, RATE, SHARE, TOKENS])
def test_the_example_of_a_unit_is_valid_and_fits_its_pattern(unit: Unit) -> None:
    assert unit.parse(unit.example) > 0
    assert re.search(unit.pattern, unit.example)
    assert not re.search(unit.pattern, "x")


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (0.0607, "6.1 %"), (0.05, "5 %"), (0.294, "29 %"), (0.0049, "0.49 %"), (1.0, "100 %")],
)
def test_a_share_in_a_sentence_has_two_digits(share, text):
    assert percent(share) == text


def test_counts_and_quantities_read_as_people_write_them():
    assert [count(n, "device") for n in (0, 1, 2, 1500)] == ["0 devices", "1 device", "2 devices", "1,500 devices"]
    assert [quantity(x, "s") for x in (0.0432, 3.0, math.inf, None)] == ["43.2 ms", "3 s", "unbounded", "not observed"]
