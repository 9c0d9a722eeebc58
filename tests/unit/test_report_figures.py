"""A load summed up: failures stay in the base."""

import math
from dataclasses import replace

import pytest
from made_reports import LOAD, MEASUREMENT, sample

from auditor.report.figures import figures, latency, prompt_and_output, rank, rate, tokens_of
from auditor.theory.judging import longest_at


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
    assert sums.output_rate is None  # four were never in flight
    assert sums.server["preemptions"] == {"first": 3.0, "last": 9.0, "max": 9.0}
    assert sums.server["kv_usage"]["max"] == 0.97


def stream(index, start, first, step, tokens, **facts):
    """A request whose tokens come one an event, `step` seconds apart, the first `first` seconds after its start."""
    arrivals = tuple(first + step * i for i in range(tokens))
    rest = {"arrivals": arrivals, "ttft": first, "e2e": arrivals[-1], "output_tokens": tokens, **facts}
    return replace(sample(index, None), start=start, **rest)


def loaded(concurrency, samples, **facts):
    load = replace(LOAD, concurrency=concurrency, warmup=())
    return replace(MEASUREMENT, load=load, samples=tuple(samples), duration=100.0, **facts)


def test_the_total_rate_counts_what_arrives_while_the_target_is_in_flight():
    # Slot one: 0 to 10 s, a token a second from 1 s on. Slot two: 2 to 12 s, likewise.
    # Two are in flight from 2 to 10 s: slot one brings tokens at 3 .. 10, slot two at 3 .. 10 s: 16 in 8 s.
    sums = figures(loaded(2, [stream(0, 0.0, 1.0, 1.0, 10), stream(1, 2.0, 1.0, 1.0, 10)]))
    assert sums.output_rate == 2.0
    assert sums.steady == 8.0


def test_the_total_rate_counts_tokens_not_events():
    # As above, but each event but the first carries two tokens: (10 - 2) s hold 8 + 7 events of two and one of one.
    two = [stream(i, at, 1.0, 1.0, 10, output_tokens=19) for i, at in ((0, 0.0), (1, 2.0))]
    assert figures(loaded(2, two)).output_rate == pytest.approx(31 / 8)


def test_a_slot_that_takes_its_next_request_does_not_end_the_steady_window():
    # One slot, two requests of 4 s with 0.1 s between them: 8 tokens from 0 to 8.1 s.
    sums = figures(loaded(1, [stream(0, 0.0, 1.0, 1.0, 4), stream(1, 4.1, 1.0, 1.0, 4)]))
    assert sums.output_rate == pytest.approx(8 / 8.1)


def test_warm_up_counts_as_load_but_its_own_time_does_not():
    # The warm-up request fills the second slot until 6 s; the window is that of the measured one, 1 to 6 s:
    # it brings tokens at 2 .. 6 s, the warm-up request at 2 .. 6 s: 10 in 5 s.
    warm = (stream(0, 0.0, 1.0, 1.0, 6),)
    sums = figures(loaded(2, [stream(0, 1.0, 1.0, 1.0, 9)], warmup=warm))
    assert sums.output_rate == 2.0


def test_a_target_met_for_a_blink_gives_no_total_rate():
    # Two are in flight from 3.5 to 4 s; a median request takes 4 s.
    assert figures(loaded(2, [stream(0, 0.0, 1.0, 1.0, 4), stream(1, 3.5, 1.0, 1.0, 4)])).output_rate is None


def test_an_open_loop_counts_from_when_each_request_was_meant_to_be_sent():
    # Meant for 1 and 3 s, sent at 1.5 and 3 s: first tokens after 1.5 and 1 s, ends after 4.5 and 4 s.
    late = stream(0, 1.5, 1.0, 1.0, 4, late=0.5)
    load = replace(LOAD, warmup=(), arrivals=(0.0, 1.0), rate=0.5)
    measured = replace(MEASUREMENT, load=load, samples=(late, stream(1, 3.0, 1.0, 1.0, 4, late=0.0)), duration=100.0)
    sums = figures(measured)
    assert (sums.rate, sums.ttft["max"], sums.ttft["p50"], sums.e2e["max"]) == (0.5, 1.5, 1.0, 4.5)
    # Steady from the first request to the last one's start, 1.5 to 3 s: one token, at 2.5 s.
    assert (sums.steady, sums.output_rate) == (1.5, pytest.approx(1 / 1.5))


def test_requests_that_the_auditor_cut_off_are_no_failures():
    cut = sample(4, None, "cancelled")
    sums = figures(replace(MEASUREMENT, samples=(*MEASUREMENT.samples[:3], cut)))
    assert (sums.requests, sums.failed, sums.cancelled, sums.errors) == (3, 0, 1, {})
    assert sums.ttft["p95"] == 2.4


def test_the_longest_stretch_bridges_short_dips_only():
    spans = [(0.0, 4.0), (0.0, 5.0), (5.0, 9.0), (4.5, 9.0), (20.0, 25.0), (20.0, 25.0)]
    assert longest_at(spans, 2) == (20.0, 25.0)
    assert longest_at(spans, 2, dip=1.0) == (0.0, 9.0)
    assert longest_at(spans, 3, dip=1.0) is None


def test_nearest_rank_never_interpolates():
    assert rank([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0
    assert rank([3.0, 1.0, 2.0, 4.0], 0.51) == 3.0
    assert rank([3.0, 1.0, 2.0, 4.0], 0.05) == 1.0
    assert rank([], 0.5) is None


def test_a_load_in_tokens():
    assert tokens_of(LOAD) == 5 * 3150
    assert prompt_and_output(LOAD) == (3000, 150)
