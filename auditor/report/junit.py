"""The report as JUnit XML: a suite a question, a case a finding, for every pipeline that shows tests.

Fits the schema of Jenkins' xUnit plugin (junit-10.xsd). A failure is what the verdict counts as one, an error what must
not stay open; waived failures and rules that could not look are skipped. The first case is the verdict itself, so that
the file fails exactly where the exit code is not 0.
"""

from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from auditor.evidence import Report
from auditor.report import words
from auditor.report.issues import VERDICT, Issue, issues, passing, path

__all__ = ["render"]

_OTHERS = {"T": "Measurement validity", "w": "Waivers"}


def render(report: Report) -> str:
    """The report as one XML document."""
    found = [issue for issue in issues(report) if issue.finding.rule != VERDICT]
    root = Element("testsuites", name=words.clean(report.name, 160))
    _verdict(root, report)
    titles = {q.question: words.clean(f"{q.question} {q.title}", 160) for q in report.questions}
    for letter, title in {**titles, **_OTHERS}.items():
        own = [issue for issue in found if issue.finding.rule[:1] == letter]
        if own or letter in titles:
            _suite(root, report, title, own)
    known = {*titles, *_OTHERS}
    if rest := [issue for issue in found if issue.finding.rule[:1] not in known]:
        _suite(root, report, "Other", rest)
    for parent in (*root, root):
        _count(parent)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _verdict(root: Element, report: Report) -> None:
    suite = SubElement(root, "testsuite", name="Verdict")
    _properties(suite, report)
    case = _case(suite, report, "verdict")
    lines = [words.clean(report.verdict_line), *words.context(report)]
    lines += [f"stopped early: {words.clean(report.interrupted)}"] if report.interrupted else []
    if passing(report):
        _text(case, "system-out", lines)
    else:
        failed = report.verdict == "NOT READY" and report.interrupted is None
        _text(case, "failure" if failed else "error", lines, report.verdict)


def _properties(suite: Element, report: Report) -> None:
    facts = {
        "verdict": report.verdict,
        "exit code": str(report.exit_code),
        "date": words.clean(report.date, 40),
        "serving-audit": words.clean(report.tool_version, 40),
    }
    facts |= {f"question {words.clean(q.question, 8)}": q.status if q.asked else "not asked" for q in report.questions}
    properties = SubElement(suite, "properties")
    for name, value in facts.items():
        SubElement(properties, "property", name=name, value=value)


def _suite(root: Element, report: Report, title: str, found: Iterable[Issue]) -> None:
    suite = SubElement(root, "testsuite", name=title)
    for issue in found:
        _of_issue(_case(suite, report, issue.name), issue)


def _case(suite: Element, report: Report, name: str) -> Element:
    return SubElement(suite, "testcase", classname=f"{words.clean(report.name, 160)}.{suite.get('name')}", name=name)


def _of_issue(case: Element, issue: Issue) -> None:
    finding, lines = issue.finding, [issue.text, *_marks(issue)]
    if issue.level == "error":
        _text(case, "failure" if finding.status == "fail" else "error", lines, finding.status, issue.summary)
    elif issue.level == "skip" or finding.waived is not None:
        message = f"waived {words.waiver(finding)}" if finding.waived is not None else finding.missing or finding.why
        _text(case, "skipped", lines, "waived" if finding.waived is not None else "skip", words.clean(message))
    else:
        _text(case, "system-out", [f"{finding.status}: {lines[0]}", *lines[1:]])


def _marks(issue: Issue) -> Iterator[str]:
    if issue.finding.where is not None:
        yield f"where: {path(issue.finding.where)}:{issue.finding.where.line}:{issue.finding.where.column}"
    if issue.page:
        yield f"more: audit explain {issue.page}"
    yield f"fingerprint: {issue.fingerprint}"


def _text(case: Element, tag: str, lines: Iterable[str], kind: str = "", message: str = "") -> None:
    """An element with text; `kind` and `message` are attributes of what is no plain output."""
    every = list(lines)
    element = SubElement(case, tag, {"type": kind, "message": message or every[0]} if kind else {})
    element.text = "\n".join(every)


def _count(parent: Element) -> None:
    cases = list(parent.iter("testcase"))
    counts = {"tests": len(cases)}
    counts |= {name: len(list(parent.iter(tag))) for name, tag in (("failures", "failure"), ("errors", "error"))}
    if parent.tag == "testsuite":
        counts["skipped"] = len(list(parent.iter("skipped")))
    for name, number in counts.items():
        parent.set(name, str(number))
