"""The report as metrics in Prometheus' text format, for node_exporter's textfile collector or a Pushgateway.

After prometheus.io/docs/instrumenting/exposition_formats and its naming advice: base units in the names, gauges only.
`audit` labels all series of one profile. A percentile that falls on failed requests is +Inf; what was not observed has
no series.
"""

import datetime
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from auditor.evidence import Number, Report
from auditor.report import words
from auditor.report.figures import Figures, figures
from auditor.report.issues import Issue, issues

__all__ = ["render"]

_VERDICTS = ("READY", "NOT READY", "INCONCLUSIVE")
_STATUSES = ("pass", "warn", "fail", "inconclusive", "skip")

Labels = Mapping[str, str]
Series = Iterator[tuple[Labels, float]]


@dataclass(frozen=True, slots=True)
class _Family:
    """One metric with all its series."""

    name: str
    help: str
    series: Series


def render(report: Report) -> str:
    """One page of metrics."""
    audit = words.clean(report.name, 160)
    return "".join(_page(family, audit) for family in _families(report))


def _page(family: _Family, audit: str) -> str:
    name = f"serving_audit_{family.name}"
    lines = [f"{name}{_labels({'audit': audit, **labels})} {_value(value)}\n" for labels, value in family.series]
    return "".join([f"# HELP {name} {family.help}\n# TYPE {name} gauge\n", *lines]) if lines else ""


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _value(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))


def _families(report: Report) -> Iterator[_Family]:
    found, loads = issues(report), [figures(m) for m in report.evidence.measurements]
    yield _Family("info", "What was audited; always 1.", iter([(_info(report), 1.0)]))
    yield _Family("date_seconds", "The date of the audit, midnight UTC.", _date(report))
    yield _Family("exit_code", "The exit code: 0 lets a pipeline go on.", iter([({}, float(report.exit_code))]))
    yield _Family("verdict", "1 for the verdict, 0 for the others.", _states("verdict", _VERDICTS, report.verdict))
    yield _Family("question_status", "1 for a question's status, 0 for the others.", _questions(report))
    yield _Family("finding", "A rule's outcome for one subject; always 1.", ((_finding(i), 1.0) for i in found))
    yield from _numbers(found)
    yield from _requests(loads)
    yield _Family(
        "change_ratio",
        "Change against the baseline, 0.1 is a tenth longer; of failures the difference of shares.",
        _changes(report),
    )


def _info(report: Report) -> Labels:
    served = report.evidence.served
    model = (served.model if served else None) or report.evidence.profile.deployment.model
    return {
        "version": words.clean(report.tool_version, 40),
        "engine": words.clean((served.engine if served else None) or "", 80),
        "engine_version": words.clean((served.engine_version if served else None) or "", 80),
        "model": words.clean(model or "", 160),
    }


def _date(report: Report) -> Series:
    try:
        day = datetime.datetime.fromisoformat(report.date).replace(tzinfo=datetime.UTC)
    except ValueError:
        return
    yield {}, day.timestamp()


def _states(label: str, states: tuple[str, ...], state: str) -> Series:
    return (({label: each}, float(each == state)) for each in states)


def _questions(report: Report) -> Series:
    for question in report.questions:
        if question.asked:
            for labels, value in _states("status", _STATUSES, question.status):
                yield {"question": words.clean(question.question, 8), **labels}, value


def _finding(issue: Issue) -> Labels:
    finding = issue.finding
    return {
        "rule": words.clean(finding.rule, 40),
        "subject": words.clean(finding.subject or "", 160),
        "status": finding.status,
        "level": issue.level,
        "waived": str(finding.waived is not None).lower(),
        "fingerprint": issue.fingerprint,
    }


def _numbers(found: tuple[Issue, ...]) -> Iterator[_Family]:
    measured = [(i, i.finding.measured) for i in found if i.finding.measured is not None]
    required = [(i, i.finding.required) for i in found if i.finding.required is not None]
    yield _Family("measured", "What a rule measured, in the unit named.", _of(measured, "value"))
    yield _Family("measured_low", "The lower end of its interval.", _of(measured, "low"))
    yield _Family("measured_high", "The upper end of its interval.", _of(measured, "high"))
    yield _Family("required", "What a rule held it against, in the unit named.", _of(required, "value"))


def _of(numbers: list[tuple[Issue, Number]], part: str) -> Series:
    for issue, number in numbers:
        if (value := getattr(number, part)) is not None:
            finding = issue.finding
            yield (
                {
                    "rule": words.clean(finding.rule, 40),
                    "subject": words.clean(finding.subject or "", 160),
                    "name": words.clean(number.name, 80),
                    "unit": words.clean(number.unit, 40),
                    "fingerprint": issue.fingerprint,
                },
                value,
            )


# ------------------------------------------------------------------------------------------------------------ requests


def _requests(loads: list[Figures]) -> Iterator[_Family]:
    yield _Family("requests", "Judged requests of a load.", ((_load(f), float(f.requests)) for f in loads))
    yield _Family(
        "failed_requests", "Judged requests of a load that failed.", ((_load(f), float(f.failed)) for f in loads)
    )
    yield _Family("ttft_seconds", "Time to first token, percentiles over all requests.", _quantiles(loads, "ttft"))
    yield _Family("e2e_seconds", "Time to the last token, percentiles over all requests.", _quantiles(loads, "e2e"))
    yield _Family(
        "stream_tokens_per_second",
        "Decode speed of one stream, percentiles over all requests.",
        _quantiles(loads, "tps"),
    )
    yield _Family(
        "output_tokens_per_second",
        "Output tokens of all streams while the load was steady.",
        ((_load(f), f.output_rate) for f in loads if f.output_rate is not None),
    )


def _load(found: Figures) -> Labels:
    return {"load": words.clean(found.load, 80), "purpose": found.purpose}


def _quantiles(loads: list[Figures], metric: str) -> Series:
    for found in loads:
        for name, value in getattr(found, metric).items():
            yield {**_load(found), "percentile": name}, value


def _changes(report: Report) -> Series:
    compared = report.evidence.compared
    for change in compared.changes if compared is not None else ():
        if change.change is not None:
            yield (
                {
                    "metric": change.metric,
                    "load": words.clean(change.load, 80),
                    "class": words.clean(change.cls or "", 80),
                    "percentile": words.clean(change.percentile, 20),
                    "status": change.status,
                },
                change.change,
            )
