"""Lengths off an engine's histograms, by hand."""

import math

import pytest

from auditor.init.lengths import lengths, quantile
from auditor.measurement import Histogram
from auditor.profile import Lengths

# 100 requests up to 100 tokens, 80 more up to 200, 20 more up to 500.
SEEN = Histogram(
    sum=30000.0, count=200.0, buckets=((50.0, 0.0), (100.0, 100.0), (200.0, 180.0), (500.0, 200.0), (math.inf, 200.0))
)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.5, (100.0, 50.0, 100.0)),  # the 100th of 200 is the last of its bucket
        (0.25, (75.0, 50.0, 100.0)),  # the 50th of the 100 between 50 and 100
        (0.7, (150.0, 100.0, 200.0)),  # the 40th of the 80 between 100 and 200
        (0.95, (350.0, 200.0, 500.0)),  # the 10th of the 20 between 200 and 500
        (1.0, (500.0, 200.0, 500.0)),
    ],
)
def test_a_quantile_is_interpolated_within_its_bucket(share, expected):
    assert quantile(SEEN, share) == pytest.approx(expected)


def test_beyond_the_last_bound_nothing_is_known_but_that_bound():
    tail = Histogram(sum=1.0, count=10.0, buckets=((100.0, 4.0), (math.inf, 10.0)))
    assert quantile(tail, 0.9) == (100.0, 100.0, math.inf)


def test_percentiles_and_the_longest():
    assert lengths(SEEN, None) == Lengths(p50=100, p95=350, max=500)


def test_no_length_is_beyond_the_context():
    assert lengths(SEEN, 300) == Lengths(p50=100, p95=300, max=300)


@pytest.mark.parametrize(
    "seen", [Histogram(sum=0.0, count=0.0), Histogram(sum=9.0, count=99.0, buckets=((10.0, 99.0),))]
)
def test_few_requests_describe_no_traffic(seen):
    assert lengths(seen, None) is None
    assert quantile(Histogram(sum=0.0, count=0.0), 0.5) is None
