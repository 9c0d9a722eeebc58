"""Requests as comma-separated values: all of them, in full, and no formula of a server's."""

import csv
import io
from dataclasses import replace

import pytest
from machine_formats import BARE, REPORTS, hostile
from made_reports import EVIDENCE, REPORT

from auditor.report.csv import COLUMNS, render


def _rows(report):
    return list(csv.DictReader(io.StringIO(render(report)), strict=True))


def test_every_request_is_a_line_failed_ones_too():
    rows = _rows(REPORT)
    assert [(row["load"], row["phase"], row["index"], row["error"]) for row in rows] == [
        ("slo", "measured", "0", ""),
        ("slo", "measured", "1", ""),
        ("slo", "measured", "2", ""),
        ("slo", "measured", "3", "timeout"),
    ]


def test_numbers_come_in_full_and_what_was_not_observed_is_empty():
    """The third request: first token after 2.4 s, ten more 20 ms apart, so e2e 2.6 s and 50 tokens a second."""
    good, failed = _rows(REPORT)[2:]
    assert (good["class"], good["start_s"], good["ttft_s"]) == ("rag", "1.0", "2.4")
    assert float(good["e2e_s"]) == 2.4 + 0.02 * 10
    assert float(good["tpot_s"]) == pytest.approx(0.02)
    assert float(good["tps"]) == pytest.approx(50)
    assert (good["prompt_tokens"], good["output_tokens"], good["cached_tokens"]) == ("3000", "11", "")
    assert (good["events"], good["estimated"]) == ("11", "false")
    assert (failed["ttft_s"], failed["e2e_s"], failed["tpot_s"], failed["status"]) == ("", "", "", "")


def test_the_warm_up_is_told_apart():
    measured = EVIDENCE.measurements[0]
    warm = replace(measured, warmup=measured.samples[:1])
    rows = _rows(replace(REPORT, evidence=replace(EVIDENCE, measurements=(warm,))))
    assert [row["phase"] for row in rows] == ["warmup", *["measured"] * 4]


def test_without_requests_there_is_a_head():
    assert render(BARE) == ",".join(COLUMNS) + "\n"


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_every_line_has_every_column(name):
    rows = list(csv.reader(io.StringIO(render(REPORTS[name])), strict=True))
    assert {len(row) for row in rows} == {len(COLUMNS)}


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", " \r\n=HYPERLINK()", "\x1b[0m=1"]
)
def test_no_cell_is_a_formula(text):
    for row in _rows(hostile(text)):
        for name, cell in row.items():
            if name in ("detail", "server_id", "via", "finish_reason", "error", "class"):
                assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", " "))


def test_hostile_text_is_one_short_cell():
    text = render(hostile())
    assert len(text.splitlines()) == 5
    assert len(text) < 20_000
