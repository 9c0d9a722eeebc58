"""The rate that a closed loop reached, worked by hand."""

import pytest

from auditor.loads import Load, Shape
from auditor.measurement import Measurement, Sample
from auditor.plan.arrivals import reached

LOAD = Load(id="slo", purpose="slo", concurrency=2, shapes=(Shape(cls="a", prompt_tokens=1, output_tokens=1),) * 6)


def sample(index: int, start: float, stay: float, error: str | None = None) -> Sample:
    return Sample(
        load="slo",
        index=index,
        cls="a",
        start=start,
        closed=stay,
        asked_prompt_tokens=1,
        asked_output_tokens=1,
        error=error,
    )


def test_a_service_that_goes_takes_with_it_what_was_in_flight() -> None:
    """One good, then three that are cut off with another good one at 1 s, and two that find nobody."""
    cut = [sample(i, 0.2 * i, 1.0 - 0.2 * i, "cut_off") for i in (1, 2, 3)]
    ended = (
        sample(0, 0.0, 0.5),
        *cut,
        sample(4, 0.5, 0.501),
        sample(5, 1.0, 0.0, "connect"),
        sample(6, 1.1, 0, "connect"),
    )
    assert Measurement(load=LOAD, samples=ended).silence == 5


def test_slots_in_step() -> None:
    """Two slots, waves of half a second: four a second, although six starts lie within one second."""
    waves = tuple(sample(i, 0.5 * (i // 2), 0.5) for i in range(6))
    assert reached(Measurement(load=LOAD, samples=waves)) == pytest.approx(4.0)


def test_warm_up_that_is_still_under_way_counts_by_its_part() -> None:
    """From 1 s to 3 s: half of a warm-up request of 2 s, 2 of one second each, and one of 1 s from 2.5 s by half."""
    warmup = (sample(0, 0.0, 2.0),)
    samples = (sample(0, 1.0, 1.0), sample(1, 2.0, 1.0), sample(2, 2.5, 1.0), sample(3, 3.0, 1.0))
    assert reached(Measurement(load=LOAD, samples=samples, warmup=warmup)) == pytest.approx((0.5 + 2 + 0.5) / 2)


def test_failed_requests_are_no_completions() -> None:
    waves = tuple(sample(i, 0.5 * (i // 2), 0.5, "http_5xx" if i % 2 else None) for i in range(6))
    assert reached(Measurement(load=LOAD, samples=waves)) == pytest.approx(2.0)
    failed = tuple(sample(i, float(i), 0.5, "http_5xx") for i in range(3))
    assert reached(Measurement(load=LOAD, samples=failed)) is None


def test_a_single_wave_is_counted_over_its_duration() -> None:
    both = (sample(0, 0.0, 1.0), sample(1, 0.0, 2.0))
    assert reached(Measurement(load=LOAD, samples=both, duration=2.0)) == pytest.approx(1.0)
