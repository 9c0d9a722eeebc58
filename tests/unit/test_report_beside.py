"""The server's own numbers beside the client's, on a load worked out by hand."""

from dataclasses import replace

import pytest
from made_reports import EVIDENCE, LOAD, MEASUREMENT, READY, sample

from auditor.measurement import Histogram, Snapshot
from auditor.report.beside import beside
from auditor.report.renderers import RENDERERS

BEFORE = Snapshot(
    at=0.0,
    phase="before",
    values={"preemptions": 3.0, "running": 9.0},
    histograms={"ttft": Histogram(sum=10.0, count=4.0), "tpot": Histogram(sum=1.0, count=4.0)},
)
DURING = (
    Snapshot(at=0.5, phase="during", values={"kv_usage": 0.97, "running": 3.0, "waiting": 1.0}),
    Snapshot(at=1.0, phase="during", values={"kv_usage": 0.50, "running": 4.0, "waiting": 0.0}),
)
AFTER = Snapshot(
    at=2.5,
    phase="after",
    values={"preemptions": 5.0, "running": 0.0},
    histograms={"ttft": Histogram(sum=16.0, count=8.0), "tpot": Histogram(sum=1.076, count=8.0)},
)
# TTFT here: warm-up 1.8 s, then 1.0, 1.2 and 2.4 s; the failed request has none. The server: (16 - 10) / 4 = 1.5 s.
LOADED = replace(MEASUREMENT, warmup=(sample(0, 1.8),), snapshots=(BEFORE, *DURING, AFTER))


def without(snapshot, name):
    return replace(
        snapshot,
        values={k: v for k, v in snapshot.values.items() if k != name},
        histograms={k: v for k, v in snapshot.histograms.items() if k != name},
    )


def test_means_of_the_same_requests_stand_beside_each_other():
    found = beside(LOADED)
    assert (found.requests, found.server_requests) == (4, 4)
    assert found.server_ttft == 1.5
    assert found.client_ttft == pytest.approx(1.6)  # (1.8 + 1.0 + 1.2 + 2.4) / 4
    assert found.ttft_difference == pytest.approx(0.1)
    assert found.ttft_difference_share == pytest.approx(0.1 / 1.5)
    assert found.server_tpot == pytest.approx(0.019)  # 0.076 / 4
    assert found.client_tpot == pytest.approx(0.02)


def test_gauges_at_their_highest_while_the_load_ran_and_counters_by_how_far_they_moved():
    found = beside(LOADED)
    assert (found.kv_usage, found.running, found.waiting, found.preemptions) == (0.97, 4.0, 1.0, 2.0)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("ttft", ("server_ttft", "ttft_difference", "ttft_difference_share", "server_requests")),
        ("tpot", ("server_tpot",)),
        ("kv_usage", ("kv_usage",)),
        ("running", ("running",)),
        ("waiting", ("waiting",)),
        ("preemptions", ("preemptions",)),
    ],
)
def test_what_the_page_lacks_is_not_observed_and_never_zero(name, fields):
    found = beside(replace(LOADED, snapshots=tuple(without(s, name) for s in LOADED.snapshots)))
    assert [getattr(found, field) for field in fields] == [None] * len(fields)


def test_a_server_that_counts_each_token_is_compared_token_by_token():
    # 60 tokens in 1.5 s, as SGLang counts its inter-token latency; here one request of 10 steps of 20 ms and one of
    # 2 steps of 80 ms: (0.2 + 0.16) / 12 = 30 ms a token, while the mean over requests would be 50 ms.
    slow = replace(sample(1, 1.0), arrivals=(1.0, 1.08, 1.16), e2e=1.16, output_tokens=3)
    after = replace(AFTER, histograms={"tpot": Histogram(sum=2.5, count=64.0)})
    found = beside(replace(LOADED, warmup=(), samples=(sample(0, 1.0), slow), snapshots=(BEFORE, after)))
    assert found.server_tpot == pytest.approx(0.025)
    assert found.client_tpot == pytest.approx(0.03)


def test_a_histogram_that_appears_or_restarts_counts_from_nothing():
    assert beside(replace(LOADED, snapshots=(without(BEFORE, "ttft"), AFTER))).server_ttft == 2.0  # 16 / 8
    again = replace(AFTER, histograms={"ttft": Histogram(sum=3.0, count=2.0)})
    assert beside(replace(LOADED, snapshots=(BEFORE, again))).server_ttft == 1.5
    assert beside(replace(LOADED, snapshots=(BEFORE, replace(BEFORE, phase="after")))).server_ttft is None


@pytest.mark.parametrize("snapshots", [(), (BEFORE,), (AFTER,), (BEFORE, *DURING)])
def test_a_load_without_snapshots_on_both_sides_has_no_such_row(snapshots):
    assert beside(replace(LOADED, snapshots=snapshots)) is None


def test_one_token_replies_have_no_time_per_token_to_compare():
    one = replace(sample(0, 1.0), arrivals=(1.0,), e2e=1.0, output_tokens=1)
    found = beside(replace(LOADED, warmup=(), samples=(one,)))
    assert (found.client_tpot, found.server_tpot) == (None, None)


def rendered(name, measurement):
    return RENDERERS[name](replace(READY, evidence=replace(EVIDENCE, measurements=(measurement,))))


def test_the_table_of_the_markdown_report():
    text = rendered("markdown", LOADED)
    assert "Server beside client" in text
    row = "| slo | 4 | 4 | 1.5 s | 1.6 s | +100 ms (+6.67 %) | 19 ms | 20 ms | 97 % | 2 | 4 | 1 |"
    assert row in text


def test_cells_of_what_is_not_observed_stay_empty():
    bare = [replace(s, values={}, histograms={}) for s in LOADED.snapshots]
    text = rendered("markdown", replace(LOADED, snapshots=tuple(bare)))
    assert "| slo | 4 |   |   | 1.6 s |   |   | 20 ms |   |   |   |   |" in text


def test_the_line_of_the_terminal():
    text = " ".join(rendered("terminal", LOADED).split())
    ttft, rest = "TTFT mean 1.5 s against 1.6 s here with the warm-up", "2 preemptions, 1 waiting at most"
    assert f"server: {ttft}, KV 97 % at most, {rest}" in text


def test_one_preemption_and_nothing_else_of_the_server():
    after = replace(AFTER, values={"preemptions": 4.0}, histograms={})
    assert "\n      server: 1 preemption\n" in rendered("terminal", replace(LOADED, snapshots=(BEFORE, after)))


def test_no_line_where_the_server_tells_nothing():
    assert "server:" not in rendered("terminal", replace(LOADED, snapshots=()))
    assert "Server beside client" not in rendered("markdown", replace(LOADED, snapshots=()))


def test_other_loads_than_the_target_have_no_line_on_a_terminal():
    assert "server:" not in rendered("terminal", replace(LOADED, load=replace(LOAD, purpose="decode")))
