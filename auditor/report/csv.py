"""Every request of every load as comma-separated values, for spreadsheets and notebooks.

A line a request, failed and warm-up ones included, in the order of the loads; an empty cell is "not observed". Numbers
come in full, seconds from the request's own start. After RFC 4180, lines end as on Unix. No text of a server begins a
formula (owasp.org, "CSV Injection").
"""

import csv
import io
from collections.abc import Iterator

from auditor.evidence import Report
from auditor.measurement import Measurement, Sample
from auditor.report import words

__all__ = ["COLUMNS", "render"]

COLUMNS = (
    *("load", "purpose", "phase", "index", "class", "start_s", "late_s", "connect_s"),
    *("ttft_s", "first_answer_s", "e2e_s", "closed_s", "tpot_s", "tps"),
    *("asked_prompt_tokens", "asked_output_tokens", "prompt_tokens", "output_tokens", "cached_tokens", "estimated"),
    *("events", "status", "error", "detail", "rate_limited", "retry_after_s", "finish_reason", "server_id", "via"),
    "worker",
)
"""The columns; further ones come at the end."""

_FORMULA = ("=", "+", "-", "@")


def render(report: Report) -> str:
    """The requests of all loads, under a line of column names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for measurement in report.evidence.measurements:
        writer.writerows(_rows(measurement))
    return text.getvalue()


def _rows(measurement: Measurement) -> Iterator[list[str]]:
    for phase, samples in (("warmup", measurement.warmup), ("measured", measurement.samples)):
        for sample in samples:
            own = [measurement.load.id, measurement.load.purpose, phase]
            yield [_cell(value) for value in (*own, *_facts(sample))]


def _facts(sample: Sample) -> tuple[object, ...]:
    return (
        *(sample.index, sample.cls, sample.start, sample.late, sample.connect),
        *(sample.ttft, sample.first_answer, sample.e2e, sample.closed, sample.tpot, sample.tps),
        *(sample.asked_prompt_tokens, sample.asked_output_tokens),
        *(sample.prompt_tokens, sample.output_tokens, sample.cached_tokens, sample.estimated),
        *(len(sample.arrivals), sample.status, sample.error, sample.detail, sample.rate_limited, sample.retry_after),
        *(sample.finish_reason, sample.server_id, sample.via, sample.worker),
    )


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = words.clean(value)
        return f"'{text}" if text.startswith(_FORMULA) else text
    return repr(value)
