"""An axis of shares of requests, stretched towards the slow end: each further nine of 99.9 % takes the same room."""

from auditor.report import svg
from auditor.units import plain

__all__ = ["SHARES", "axis", "odds", "percent", "ticks"]

SHARES = (0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999)


def odds(share: float) -> float:
    """Where a share stands on the axis: one in so many does worse."""
    return 1 / (1 - min(share, SHARES[-1]))


def percent(value: float) -> str:
    """A tick of the axis in words."""
    return f"{plain(100 * (1 - 1 / value), 5)} %"


def axis(last: float, ends: tuple[float, float]) -> svg.Axis:
    """From no request to a share of `last`."""
    return svg.Axis(1.0, odds(last), *ends, log=True)


def ticks(last: float) -> list[float]:
    """The usual percentiles up to `last`."""
    return [odds(share) for share in SHARES if share <= last]
