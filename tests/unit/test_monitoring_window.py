"""Counts of a window from samples at the edges of its slices: exact, and what nobody saw is never good."""

from dataclasses import dataclass

import pytest

from auditor.measurement import Histogram
from auditor.monitoring.window import Edges, Read, observed, summed

INF = float("inf")
EDGES = Edges(start=1000.0, step=60.0, count=4)
POD = {"job": "vllm", "instance": "a:8000", "model_name": "m"}
UP = {"__name__": "up", "job": "vllm", "instance": "a:8000"}


@dataclass(frozen=True)
class Track:
    labels: dict
    points: tuple


def track(values, labels=None, **more):
    """Values at the edges; None is no sample."""
    points = tuple((1000.0 + 60.0 * i, float(v)) for i, v in enumerate(values) if v is not None)
    return Track({**(POD if labels is None else labels), **more}, points)


def ttft(counts, fast, **labels):
    """A TTFT histogram with one bound, 0.5 s; each request takes 0.2 s in the sum."""
    sums = [None if c is None else 0.2 * c for c in counts]
    return [
        track(fast, __name__="x_bucket", le="0.5", **labels),
        track(counts, __name__="x_bucket", le="+Inf", **labels),
        track(counts, __name__="x_count", **labels),
        track(sums, __name__="x_sum", **labels),
    ]


def seen(tracks, up=(1, 1, 1, 1, 1), **rest):
    return observed(
        Read(source="p", edges=EDGES, histograms={"ttft": tracks}, up=[track(up, UP)] if up else [], **rest)
    )


def test_differences_of_samples_are_the_counts_of_slices():
    found = seen(ttft([100, 110, 110, 130, 140], [50, 59, 59, 77, 86]))
    assert found.histograms["ttft"] == Histogram(sum=pytest.approx(8.0), count=40, buckets=((0.5, 36.0), (INF, 40.0)))
    assert [s.histograms["ttft"].count for s in found.slices] == [10, 0, 20, 10]
    assert (found.window, found.passive, found.source) == (240.0, True, "p")
    assert (found.values["unknown"], found.values["restarts"]) == (0, 0)
    assert [(s.start, s.seconds) for s in found.slices] == [(0, 60), (60, 60), (120, 60), (180, 60)]


def test_a_restart_counts_from_nothing_and_may_have_lost_a_slices_worth():
    found = seen(ttft([100, 110, 4, 9, 9], [100, 110, 4, 9, 9]))
    assert found.histograms["ttft"].count == 10 + 4 + 5
    assert (found.values["unknown"], found.values["restarts"]) == (10, 1)


def test_a_restart_shows_in_any_bucket():
    """In a gap a new process may count beyond the old one's 110: only its fast requests are fewer."""
    found = seen(ttft([100, 110, None, 150, 160], [100, 110, None, 20, 30]))
    assert found.histograms["ttft"].buckets == ((0.5, 10.0 + 20 + 10), (INF, 10.0 + 150 + 10))
    assert (found.values["restarts"], found.values["unknown"]) == (1, 10)


def test_a_restart_shows_by_what_lay_between_two_edges():
    """Crowded and slow, killed and fast again within one minute: at its end every count is above the old one."""
    tracks, low = ttft([100, 110, 140, 150, 150], [50, 55, 85, 95, 95]), [None, 100, 3, 140, 150]
    assert seen(tracks).values["restarts"] == 0
    found = seen(tracks, lows={"ttft": [track(low)]})
    assert found.histograms["ttft"].buckets == ((0.5, 5.0 + 85 + 10), (INF, 10.0 + 140 + 10))
    assert (found.values["restarts"], found.values["unknown"]) == (1, 10)


def test_a_restart_in_the_first_slice_may_have_lost_as_many_again():
    found = seen(ttft([100, 40, 40, 40, 40], [100, 40, 40, 40, 40]))
    assert (found.histograms["ttft"].count, found.values["unknown"]) == (40, 40)


def test_a_restart_in_a_gap_shows_by_what_lay_in_it():
    tracks = ttft([100, 110, None, 150, 160], [100, 110, None, 150, 160])
    low = [None, 100, 2, 20, 150]
    assert seen(tracks, lows={"ttft": [track(low)]}).values["restarts"] == 1
    assert seen(tracks, lows={"ttft": [track([None, 100, 110, 110, 150])]}).values["restarts"] == 0


def test_a_counter_that_restarted_within_a_slice_counts_from_nothing():
    ended = track([10, 20, 30, 40, 50], __name__="vllm:request_success_total", finished_reason="stop")
    low = track([None, 10, 1, 30, 40], finished_reason="stop")
    quiet = ttft([0, 0, 0, 0, 0], [0, 0, 0, 0, 0])
    found = seen(quiet, counters={"requests": [ended]}, lows={"requests": [low]})
    assert found.values["requests"] == 10 + 30 + 10 + 10


def test_slices_without_any_target_are_not_good_ones():
    """A pod that was out of discovery for two minutes: 10 a minute may have failed there."""
    found = seen(ttft([100, 110, None, None, 120], [100, 110, None, None, 120]), up=(1, 1, None, None, 1))
    assert found.values["unknown"] == 20


def test_a_target_that_ends_may_have_lost_a_slices_worth():
    found = seen(ttft([100, 110, 130, None, None], [0, 0, 0, None, None]))
    assert found.histograms["ttft"].count == 30
    assert found.values["unknown"] == 20
    assert found.values["instances"] == 0


def test_a_missed_scrape_loses_nothing():
    found = seen(ttft([100, None, 130, None, 140], [0, None, 0, None, 0]))
    assert found.histograms["ttft"].count == 40
    assert found.values["unknown"] == 0


def test_a_series_that_appears_on_a_target_that_was_scraped_counts_from_nothing():
    found = seen(ttft([None, None, 7, 9, 9], [None, None, 7, 9, 9]))
    assert found.histograms["ttft"].count == 9
    assert found.values["unknown"] == 0


def test_the_past_of_a_target_that_is_new_is_unknown():
    """An engine that ran for a month before this Prometheus knew it: its 5,000 requests are none of the window's."""
    found = seen(ttft([None, None, 5000, 5009, 5009], [None, None, 5000, 5009, 5009]), up=(None, None, 1, 1, 1))
    assert found.histograms["ttft"].count == 9
    assert found.values["unknown"] == 5000


def test_replicas_add_up_and_ranks_that_say_the_same_do_not():
    other = ttft([0, 5, 5, 5, 5], [0, 1, 1, 1, 1], instance="b:8000")
    rank = [t for i in range(2) for t in ttft([0, 10, 10, 10, 10], [0, 8, 8, 8, 8], tp_rank=str(i))]
    found = seen([*rank, *other])
    assert found.histograms["ttft"].buckets == ((0.5, 9.0), (INF, 15.0))
    assert found.values["instances"] == 2


def test_counters_by_the_reason_for_which_requests_ended():
    def ended(values, reason):
        return track(values, __name__="vllm:request_success_total", finished_reason=reason)

    counters = {
        "requests": [
            ended([10, 20, 30, 40, 50], "stop"),
            ended([0, 0, 2, 2, 2], "abort"),
            ended([0, 0, 0, 0, 1], "error"),
        ]
    }
    found = seen(ttft([0, 0, 0, 0, 0], [0, 0, 0, 0, 0]), counters=counters, zero=("aborted", "refusals"))
    assert {n: found.values[n] for n in ("requests", "aborted", "errors", "refusals")} == {
        "requests": 43,
        "aborted": 2,
        "errors": 1,
        "refusals": 0,
    }
    assert [s.values["aborted"] for s in found.slices] == [0, 2, 0, 0]


def test_gauges_at_their_highest_and_what_is_pending_at_the_end():
    gauges = {"in_flight": [track([None, 3.5, 8.0, 2.0, 4.0], {})], "kv_usage": [track([None, 0.1, 0.9, 0.2, 0.3], {})]}
    found = seen(ttft([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]), gauges=gauges)
    assert (found.values["in_flight"], found.values["kv_usage"], found.values["pending"]) == (8.0, 0.9, 4.0)
    assert [s.values["in_flight"] for s in found.slices] == [3.5, 8.0, 2.0, 4.0]


def test_how_much_of_a_slice_its_targets_answered():
    found = seen(ttft([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]), up=(1, 1, 0, 1, 1))
    assert (found.values["up"], found.values["unknown"]) == (0, 1)
    half = seen(ttft([0, 10, 20, 40, 40], [0, 0, 0, 0, 0]), up=(1, 1, 0.5, 1, 0.9))
    assert half.values["unknown"] == pytest.approx(5 + 2)  # half of the 10, a tenth of the 20 that came last
    assert "up" not in seen(ttft([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]), up=None).values


def test_no_series_are_nothing_observed():
    found = observed(Read(source="p", edges=EDGES))
    assert found.histograms == {}
    assert [s.histograms for s in found.slices] == [{}] * 4
    assert summed([]) is None


def test_buckets_of_some_requests_are_not_those_of_all():
    bare, full = Histogram(sum=3.0, count=3.0), Histogram(sum=1.0, count=2.0, buckets=((0.5, 2.0), (INF, 2.0)))
    assert summed([bare, full]) == Histogram(sum=4.0, count=5.0)
    assert summed([Histogram(sum=0.0, count=0.0), full]) == full


def test_points_between_the_edges_are_left_out():
    assert [EDGES.place(t) for t in (1000.0, 1060.5, 1090.0, 1240.0, 1300.0, 900.0)] == [0, 1, None, 4, None, None]
