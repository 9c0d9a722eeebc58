"""A server that answers with poison: its bytes go through the probe into every format and come out as plain words."""

import csv
import io
import json
import re
from xml.etree import ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from auditor.evidence import Report
from auditor.profile import Slo
from auditor.report.renderers import RENDERERS
from auditor.report.schema import report_schema
from tests.published import gitlab_schema, junit_schema, problems, sarif_schema
from tests.wire.benches import evidence_of, report_of
from tests.wire.byteserver import Request, Script, chunked, head, sse
from tests.wire.pitfalls import measure, plain

COMMANDS = b"\r\n::error::taken\n::stop-commands::x\n##[add-mask]y ##vso[task.complete]z\n"
POISON = (
    b"\x1b[31m\x1b]0;title\x07<script>alert(1)</script>]]>\x00\xff\xfe\xed\xa0\x80=HYPERLINK(1) [x](http://evil) | `c`"
    + COMMANDS
)
TEXT = POISON.decode("latin-1")
MEGABYTE = POISON + b"\xc3" * 1_000_000


def _body(data: bytes, status: str, kind: str) -> Script:
    return [(0.001, head(status, kind=kind, framing=f"content-length: {len(data)}") + data)]


def _stream(*events: object) -> Script:
    return [(0.1, head() + b"".join(sse(json.dumps(event)) for event in events) + sse("[DONE]") + chunked(b""))]


def _reply(text: str) -> dict[str, object]:
    return {"id": text, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": text}]}


REPLIES: dict[str, Script] = {
    "a megabyte of markup in no encoding": _body(MEGABYTE, "500 Internal Server Error", "text/html; charset=utf-8"),
    "an error in another encoding than said": _body(TEXT.encode("utf-16"), "400 Bad Request", "application/json"),
    "an error in JSON": _body(
        json.dumps({"error": {"message": TEXT * 1000}}).encode(), "429 Too Many Requests", "application/json"
    ),
    "an error in the stream": _stream({"error": {"message": TEXT, "type": TEXT, "code": TEXT}}),
    "half a character in the stream": _stream(_reply("\ud800" + TEXT)),
    "names and reasons of the server's choice": _stream(
        _reply(TEXT), {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    ),
    "bytes that are no events": [
        (0.1, head() + chunked(b"data: " + POISON.replace(b"\n", b"") + b"\n\n") + chunked(b""))
    ],
}


@pytest.fixture(name="report", scope="module", params=sorted(REPLIES))
def _report(request: pytest.FixtureRequest) -> Report:
    """An audit of which every other request met the poison."""
    good = plain(0.1, 0.01, 4)

    def script(_request: Request, number: int) -> Script:
        return REPLIES[request.param] if number % 2 else good

    measured, _ = measure(script, requests=40, concurrency=4, output=4)
    return report_of(evidence_of(measured, Slo(ttft={"p95": 0.2})))


@pytest.mark.parametrize("name", sorted(RENDERERS))
def test_it_comes_out_as_plain_words(report: Report, name: str) -> None:
    text = RENDERERS[name](report)
    text.encode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\ufffe\ufeff]", text)
    assert len(text) < 500_000
    if name in ("html", "junit", "markdown"):
        assert "<script>alert" not in text
    if name != "github":
        assert not [line for line in text.splitlines() if line.lstrip().startswith("::") or re.search(r"##\w*\[", line)]


def test_every_reader_still_takes_it(report: Report) -> None:
    text = {name: render(report) for name, render in RENDERERS.items()}
    assert problems(json.loads(text["json"]), report_schema()) == []
    assert problems(json.loads(text["sarif"]), sarif_schema()) == []
    assert problems(json.loads(text["gitlab"]), gitlab_schema()) == []
    assert list(junit_schema().iter_errors(text["junit"])) == []
    assert ElementTree.fromstring(text["junit"]).get("name") == report.name
    assert len(list(csv.DictReader(io.StringIO(text["csv"]), strict=True))) == 40
    assert list(text_string_to_metric_families(text["prometheus"]))
    assert all(re.match(r"::(error|warning|notice) ", line) for line in text["github"].splitlines())
