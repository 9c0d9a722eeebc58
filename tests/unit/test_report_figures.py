"""A load summed up: failures stay in the base."""

import math

from made_reports import LOAD, MEASUREMENT

from auditor.report.figures import figures, latency, prompt_and_output, rank, rate, tokens_of


def test_a_failed_request_counts_as_infinitely_slow():
    sums = figures(MEASUREMENT)
    assert (sums.requests, sums.failed, sums.errors) == (4, 1, {"timeout": 1})
    assert sums.ttft == {"p50": 1.2, "p95": math.inf, "p99": math.inf, "max": math.inf}
    assert latency(sums.ttft["p95"]) == "failed"
    assert latency(sums.ttft["p50"]) == "1.2 s"


def test_a_failed_request_has_no_speed():
    sums = figures(MEASUREMENT)
    assert sums.tps["p05"] == 0.0
    assert rate(sums.tps["p05"]) == "failed"
    assert rate(sums.tps["p50"]) == "50 tok/s"


def test_totals_and_server_numbers():
    sums = figures(MEASUREMENT)
    assert sums.output_rate == 16.5  # 3 x 11 tokens in 2 s
    assert sums.server["preemptions"] == {"first": 3.0, "last": 9.0, "max": 9.0}
    assert sums.server["kv_usage"]["max"] == 0.97


def test_nearest_rank_never_interpolates():
    assert rank([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0
    assert rank([3.0, 1.0, 2.0, 4.0], 0.51) == 3.0
    assert rank([3.0, 1.0, 2.0, 4.0], 0.05) == 1.0
    assert rank([], 0.5) is None


def test_a_load_in_tokens():
    assert tokens_of(LOAD) == 5 * 3150
    assert prompt_and_output(LOAD) == (3000, 150)
