"""The report on a terminal: verdict, four questions, one card a finding (worst first), one summary line.

Plain ASCII scaffolding, 80 columns, readable without colour; colour is added only when asked for.
"""

from collections.abc import Iterable

from auditor.evidence import Finding, QuestionResult, Report
from auditor.report import products, steps, truth, words
from auditor.report.beside import Beside, beside
from auditor.report.figures import figures, latency, rate
from auditor.report.lines import wrap

__all__ = ["render", "render_colour"]

_INDENT = 13
_COLOURS = {"fail": "1;31", "inconclusive": "1;35", "warn": "33", "waived": "33", "pass": "32", "skip": "2"}
_VERDICT_COLOURS = {"READY": "1;32", "NOT READY": "1;31", "INCONCLUSIVE": "1;35"}


def _field(label: str, text: str, *, whole_words: bool = False) -> list[str]:
    return wrap(text, f"  {label:<{_INDENT - 2}}", _INDENT, whole_words=whole_words)


class _Paint:
    """Colours a word, or leaves it alone."""

    def __init__(self, colour: bool) -> None:
        self.colour = colour

    def __call__(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text


# ------------------------------------------------------------------------------------------------------------ sections


def _verdict(report: Report, paint: _Paint) -> Iterable[str]:
    lines = wrap(words.clean(report.verdict_line), "", 2)
    code = _VERDICT_COLOURS[report.verdict]
    first = lines[0]
    yield first.replace(report.verdict, paint(report.verdict, code), 1)
    yield from lines[1:]
    yield from wrap(" | ".join(words.context(report)), "  ", 2)
    if reason := words.unsent(report):
        yield from wrap(reason, "  no load: ", 4)
    if (nearest := report.evidence.nearest) is not None:
        yield from wrap(words.clean(nearest.sentence), "  nearest pass: ", 4)
    if report.interrupted:
        yield from wrap(words.clean(report.interrupted), "  stopped early: ", 4)


def _question(result: QuestionResult, title_width: int, paint: _Paint) -> Iterable[str]:
    status = words.STATUS_WORDS[result.status] if result.asked else "not asked"
    title = words.clip(result.title, title_width)
    start = f"  {words.clip(result.question, 2)}  {title:<{title_width}}  {status:<12}"
    lines = wrap(words.clean(result.headline, 300).removeprefix("not asked: "), f"{start}  ", len(start) + 2)
    yield lines[0].replace(status, paint(status, _COLOURS[result.status if result.asked else "skip"]), 1)
    yield from lines[1:]


def _questions(report: Report, paint: _Paint) -> Iterable[str]:
    width = min(max((len(words.clean(q.title)) for q in report.questions), default=0), 24)
    for result in report.questions:
        yield from _question(result, width, paint)


def _answers(report: Report) -> Iterable[str]:
    """What the answering rules say, in words: a reader wants it even when all is well."""
    for result in report.questions:
        for position, answer in enumerate(result.answers):
            first = f"  {words.clip(result.question, 2) if not position else ' '}  "
            yield from wrap(words.clean(answer, 300), first, len(first))


def _products(report: Report) -> Iterable[str]:
    """Both phases as matrix products, which says more of a bottleneck than its name."""
    table = products.of_evidence(report.evidence)
    for line in products.lines(table) if table is not None else ():
        yield f"  {line}"


def _steps(report: Report) -> Iterable[str]:
    """Where the time goes, as far as the ladders told."""
    for block in steps.blocks(report):
        yield from (f"  {line}" for line in block)


def _measured(report: Report) -> Iterable[str]:
    """One line a load that imitates the traffic: what a reader wants to know even when all is well."""
    loads = *report.evidence.loads("slo"), *report.evidence.loads("unshared")
    if loads:
        yield "  the traffic as measured"
    for measurement in loads:
        item = figures(measurement)
        parts = [f"{item.requests} requests", f"{item.failed} failed"]
        parts += [f"TTFT {name} {latency(item.ttft[name])}" for name in ("p50", "p95") if name in item.ttft]
        parts += [f"TPS {name} {rate(item.tps[name])}" for name in ("p50", "p05") if name in item.tps]
        parts += [f"E2E p95 {latency(item.e2e['p95'])}"] if "p95" in item.e2e else []
        yield from wrap(", ".join(parts), f"    {words.clean(item.load, 40)}: ", 6)
        yield from _told(beside(measurement))
        for line in truth.lines(report.evidence, measurement.load.id):
            yield from wrap(line, "      ", 8)


def _told(item: Beside | None) -> Iterable[str]:
    """What the server itself says of that load."""
    if item is None:
        return
    parts = []
    if item.server_ttft is not None and item.client_ttft is not None:
        here = words.quantity(item.client_ttft, "s")
        parts.append(f"TTFT mean {words.quantity(item.server_ttft, 's')} against {here} here with the warm-up")
    if item.kv_usage is not None:
        parts.append(f"KV {words.quantity(item.kv_usage, 'share')} at most")
    if item.preemptions is not None:
        parts.append(words.quantity(item.preemptions, "preemption" if item.preemptions == 1 else "preemptions"))
    if item.waiting is not None:
        parts.append(f"{words.quantity(item.waiting, '')} waiting at most")
    if parts:
        yield from wrap(", ".join(parts), "      server: ", 6)


def _card(finding: Finding, confidence: float, paint: _Paint) -> Iterable[str]:
    """What was seen against what is asked, where, why, what to change; the numbers behind it last."""
    status = words.STATUS_WORDS[words.weight(finding)]
    yield ""
    lines = wrap(words.heading(finding), f"{status} ", 2)
    yield lines[0].replace(status, paint(status, _COLOURS[words.weight(finding)]), 1)
    yield from lines[1:]
    if finding.measured:
        yield from _field(finding.measured.provenance, words.number(finding.measured, confidence, provenance=False))
    if finding.required:
        yield from _field("required", words.number(finding.required, confidence))
    if finding.where and not finding.voided_by:
        yield from _field("where", words.clean(finding.where), whole_words=True)
    yield from _field("why", words.clean(finding.why))
    if finding.voided_by:  # the T finding, shown first, says the rest
        yield from _field("voided by", ", ".join(words.clean(v, 40) for v in finding.voided_by))
    else:
        yield from _details(finding, confidence)


def _details(finding: Finding, confidence: float) -> Iterable[str]:
    kind = "deciding" if finding.deciding else "advisory"
    for label, text in _consequences(finding):
        yield from _field(label, text)
    for position, remedy in enumerate(finding.remedies):
        yield from wrap(words.clean(remedy), f"  {'change' if not position else '':<{_INDENT - 2}}- ", _INDENT + 2)
    for position, item in enumerate(finding.numbers):
        yield from _field("numbers" if not position else "", words.number(item, confidence))
    yield from _field("", f"{kind}, {finding.severity} severity, {finding.confidence} confidence")


def _consequences(finding: Finding) -> Iterable[tuple[str, str]]:
    if finding.missing:
        yield "missing", words.clean(finding.missing)
    if finding.voids:
        yield "voids", words.voids(finding)
    waiver = words.waiver(finding)
    if waiver:
        yield "waived", waiver


def _folded(report: Report) -> Iterable[str]:
    passed = words.passed(report)
    if passed:
        yield ""
        yield from wrap(", ".join(passed), "passed       ", _INDENT)
    missing = words.skipped_by_reason(report)
    if missing:
        yield ""
    for (deciding, reason), findings in missing.items():
        label = "undecided" if deciding else "skipped"
        yield from wrap(f"{words.headings(findings)}: {reason}", f"{label:<{_INDENT}}", _INDENT + 2)


def _waivers(report: Report) -> Iterable[str]:
    for label, items in (("expired", report.expired_waivers), ("unused", report.unused_waivers)):
        for item in items:
            yield from wrap(f"{label} waiver: {words.clean(item)}", "", 2)


def _summary(report: Report, paint: _Paint) -> Iterable[str]:
    """The last line, which a pipeline's log ends with, says it all again."""
    yield ""
    yield from _waivers(report)
    cards = words.shown(report)
    more = f"; more with: audit explain {words.clean(cards[0].rule, 20)}" if cards else ""
    lines = wrap(f"{report.verdict}: {words.counts(report.findings)}{more}", "", 2)
    yield lines[0].replace(report.verdict, paint(report.verdict, _VERDICT_COLOURS[report.verdict]), 1)
    yield from lines[1:]


def _lines(report: Report, paint: _Paint) -> Iterable[str]:
    confidence = report.evidence.profile.probe.confidence
    yield from _verdict(report, paint)
    yield ""
    yield from _questions(report, paint)
    yield from _block(_answers(report))
    for finding in words.shown(report):
        yield from _card(finding, confidence, paint)
    for block in (_measured(report), _steps(report), _products(report)):
        yield from _block(block)
    yield from _folded(report)
    yield from _summary(report, paint)


def _block(lines: Iterable[str]) -> Iterable[str]:
    """Lines with a blank one before; nothing of none."""
    found = list(lines)
    return ["", *found] if found else []


def render(report: Report) -> str:
    """The report as plain text of at most 80 columns (file names and flags are never broken)."""
    return "\n".join(line.rstrip() for line in _lines(report, _Paint(False))) + "\n"


def render_colour(report: Report) -> str:
    """The same text with the status words in colour."""
    return "\n".join(line.rstrip() for line in _lines(report, _Paint(True))) + "\n"
