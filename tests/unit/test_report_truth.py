"""How reports show the server's numbers beside the client's."""

from dataclasses import replace

from made_reports import EVIDENCE, READY

from auditor.report import truth
from auditor.report.renderers import RENDERERS
from auditor.watch import Agreement

TOLD = (
    Agreement(quantity="requests", load="slo", server=4.0, client=4.0, unit="requests", verdict="agrees"),
    Agreement(
        quantity="mean TTFT", load="slo", server=0.25, client=0.4, unit="s", verdict="differs",
        note="150 ms between engine and client \x1b[31m",
    ),
    Agreement(
        quantity="mean KV usage", load="slo", server=0.1, client=None, unit="share", verdict="unknown",
        note="the size of the pool is not known",
    ),
)  # fmt: skip
EVIDENCE_TOLD = replace(EVIDENCE, truth=TOLD)


def test_a_row_for_each_quantity_with_what_is_not_known_left_empty():
    assert truth.rows(EVIDENCE_TOLD) == [
        ("slo", "requests", "4", "4", "agrees", ""),
        ("slo", "mean TTFT", "250 ms", "400 ms", "differs", "150 ms between engine and client"),
        ("slo", "mean KV usage", "10 %", "", "unknown", "the size of the pool is not known"),
    ]


def test_a_terminal_says_what_agrees_and_each_difference():
    text = RENDERERS["terminal"](replace(READY, evidence=EVIDENCE_TOLD))
    assert "     server and client agree: requests\n" in text
    assert "     mean TTFT: 250 ms by the server, 400 ms here: 150 ms between engine and\n" in text


def test_a_load_without_the_servers_account_has_no_lines():
    assert list(truth.lines(EVIDENCE_TOLD, "another")) == []
    assert truth.rows(EVIDENCE) == []
