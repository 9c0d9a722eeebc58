"""What users sent and got, off histograms: the lengths of a profile's traffic, and what was reached of its SLOs."""

from collections.abc import Mapping

from auditor.init.draft import LENGTHS_MISSING, Draft, Said
from auditor.init.lengths import ENOUGH, lengths, quantile
from auditor.measurement import Histogram
from auditor.report.words import quantity

__all__ = ["users"]


def users(histograms: Mapping[str, Histogram], context: int | None, who: str, when: str) -> Draft:
    """Lengths and times by concept; `who` counted them, `when` says over what time. None is beyond `context`."""
    prompt, output = (histograms.get(concept) for concept in ("prompt_len", "output_len"))
    if prompt is None or output is None:
        missing = f"{LENGTHS_MISSING}{who} has no histogram of lengths, so they are assumed"
        return Draft(notes=(missing,), goals=_goals(histograms, who, when))
    first, second = (lengths(histogram, context) for histogram in (prompt, output))
    if first is None or second is None:
        return Draft(notes=(_too_few(min(prompt.count, output.count), who, when),), goals=_goals(histograms, who, when))
    return Draft(
        prompt=Said(first, f"off a histogram of {prompt.count:,.0f} requests"),
        output=Said(second, f"off a histogram of {output.count:,.0f} requests"),
        goals=_goals(histograms, who, when),
    )


def _too_few(count: float, who: str, when: str) -> str:
    seen = "1 request" if count == 1 else f"{count:,.0f} requests"
    return (
        f"{LENGTHS_MISSING}{who} saw {seen} {when}, {ENOUGH} are needed to read their lengths off histograms, so they "
        "are assumed"
    )


def _goals(histograms: Mapping[str, Histogram], who: str, when: str) -> dict[str, str]:
    """By SLO metric what was reached, interpolated within a bucket. Requests that failed are in no histogram."""
    found = {}
    for metric, concept in (("ttft", "ttft"), ("tps", "tpot"), ("e2e", "e2e")):
        histogram = histograms.get(concept)
        value = quantile(histogram, 0.95) if histogram is not None and histogram.count >= ENOUGH else None
        if value is None or value[0] <= 0:
            continue
        shown = f"p05 {1 / value[0]:.3g}/s" if metric == "tps" else f"p95 {quantity(value[0], 's')}"
        found[metric] = f"{who} saw about {shown} {when}"
    return found
