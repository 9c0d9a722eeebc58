"""Lengths of prompts and replies from an engine's own histograms."""

import math

from auditor.measurement import Histogram
from auditor.profile import Lengths
from auditor.theory import buckets

__all__ = ["ENOUGH", "lengths", "quantile"]

ENOUGH = 100
"""Requests from which on percentiles of a histogram describe traffic."""


def quantile(histogram: Histogram, share: float) -> tuple[float, float, float] | None:
    """The value below which `share` of what was observed lies, between the bounds of its bucket: (value, low, high).

    Interpolated within the bucket as Prometheus' histogram_quantile() does; beyond the last finite bound that bound.
    None where nothing was observed.
    """
    table = buckets.clean(histogram.buckets, histogram.count)
    value, bucket = buckets.interpolated(table, share), buckets.holding(table, share)
    return None if value is None or bucket is None else (value, *bucket)


def lengths(histogram: Histogram, most: int | None) -> Lengths | None:
    """Percentiles of the tokens that a histogram counts, none above `most`; None where fewer than ENOUGH were seen.

    The longest is the upper bound of the last bucket that holds any.
    """
    if histogram.count < ENOUGH:
        return None
    found = [quantile(histogram, share) for share in (0.5, 0.95, 1.0)]
    if any(value is None for value in found):
        return None
    p50, p95, last = (value for value in found if value is not None)
    ends = last[2] if math.isfinite(last[2]) else last[1]
    limit = most or math.inf
    low, high, longest = (max(1, math.ceil(min(value, limit))) for value in (p50[0], p95[0], ends))
    return Lengths(p50=low, p95=max(low, high), max=max(low, high, longest))
