"""All pictures of a report, in the order of the four questions."""

from collections.abc import Callable

from auditor.evidence import Report
from auditor.report.picture import Picture
from auditor.report.pictures import cache, ladder, latency, memory, observed, parts, roofline, tps, ttft

__all__ = ["gallery"]

_DRAWERS: tuple[Callable[[Report], Picture | None], ...] = (
    ttft.picture,
    tps.picture,
    roofline.picture,
    memory.picture,
    cache.picture,
    ladder.picture,
)


def gallery(report: Report) -> list[Picture]:
    """Those that the evidence has something to show for."""
    drawn = [picture for draw in _DRAWERS if (picture := draw(report)) is not None]
    return sorted(
        [*drawn, *latency.pictures(report), *observed.pictures(report), *parts.pictures(report)],
        key=lambda picture: "WHKM".find(picture.question),
    )
