"""Where the time of a prompt and of a decode step goes, as the ladders told it: a bar for each part. Shared by formats.

Drawn from the findings of the rule that names the bottleneck, so that it shows what was judged.
"""

import math
import textwrap
from collections.abc import Iterator

from auditor.evidence import Finding, Number, Report
from auditor.report.harmless import clean
from auditor.report.words import quantity

__all__ = ["LEGEND", "blocks", "label", "phases", "title", "words"]

_RULE = "H202"
_MEASURED = ", measured"
_NAMES = {"kv": "KV cache"}
_WIDTH, _LABEL, _TIME, _BAR = 78, 12, 22, 40
LEGEND = "# for certain, = likely, . at most; reading weights and multiplying overlap, so that parts may not add up"
_TITLES = {"prefill": "a prompt of the target", "decode": "a decode step at the target"}


def blocks(report: Report) -> list[list[str]]:
    """One block of lines of at most 78 columns a phase whose parts a ladder told; none where no ladder did."""
    found = [[*_block(finding, parts)] for finding, parts in phases(report)]
    return [*found[:-1], [*found[-1], *_legend()]] if found else []


def phases(report: Report) -> list[tuple[Finding, list[Number]]]:
    """The findings that say where a phase's time goes, each with its measured parts, the largest first."""
    told = [(finding, _parts(finding)) for finding in report.findings if finding.rule == _RULE]
    return [(finding, parts) for finding, parts in told if parts and finding.status != "inconclusive"]


def title(finding: Finding) -> str:
    """What the parts are of: `a decode step at the target`."""
    return _TITLES.get(finding.subject or "", clean(finding.subject, 40))


def label(part: Number) -> str:
    """A part's name."""
    name = part.name.removesuffix(_MEASURED)
    return _NAMES.get(name, clean(name, 20))


def _parts(finding: Finding) -> list[Number]:
    """The largest first."""
    parts = [n for n in finding.numbers if n.name.endswith(_MEASURED) and n.unit == "s" and n.value is not None]
    return sorted(parts, key=lambda part: -(part.value or 0.0))


def _block(finding: Finding, parts: list[Number]) -> Iterator[str]:
    yield f"where the time of {title(finding)} goes, measured"
    whole = max(part.high or part.value or 0.0 for part in parts)
    first = max(_LABEL, *(len(label(part)) + 2 for part in parts))
    second = max(_TIME, *(len(words(part)) + 2 for part in parts))
    columns = min(_BAR, _WIDTH - 2 - first - second)
    for part in parts:
        yield f"  {label(part):<{first}}{words(part):<{second}}{_bar(part, whole, columns)}".rstrip()


def words(part: Number) -> str:
    """How long it takes, as an interval where it has one."""
    if part.low is None or part.high is None:
        return quantity(part.value, "s")
    return f"{quantity(part.low, 's')} to {quantity(part.high, 's')}"


def _bar(part: Number, whole: float, columns: int) -> str:
    """What it takes for certain, what it is likely to take, and what it may take at most."""
    value = part.value or 0.0
    ends = [
        math.ceil(columns * end / whole) if whole > 0 else 0 for end in (part.low or value, value, part.high or value)
    ]
    return "#" * ends[0] + "=" * (ends[1] - ends[0]) + "." * (ends[2] - ends[1])


def _legend() -> list[str]:
    return textwrap.wrap(LEGEND, _WIDTH, initial_indent="  ", subsequent_indent="  ")
