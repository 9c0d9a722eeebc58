"""A load cut into parts and put together again."""

import pytest

from auditor.loads import Load, Shape
from auditor.measurement import ClientHealth, Floor, Measurement, Sample
from auditor.probe.sharding import merged, placed, split, workers_for


def load(requests: int, concurrency: int, *, warmup: int = 0, rate: float | None = None) -> Load:
    shapes = tuple(Shape(cls="c", prompt_tokens=10 + i, output_tokens=100) for i in range(requests))
    before = tuple(Shape(cls="c", prompt_tokens=1000 + i, output_tokens=100) for i in range(warmup))
    arrivals = tuple(float(i) for i in range(warmup + requests)) if rate else ()
    return Load(
        id="slo", purpose="slo", concurrency=concurrency, shapes=shapes, warmup=before, arrivals=arrivals, rate=rate
    )


def sample(index: int, start: float = 0.0) -> Sample:
    return Sample(
        load="slo/1", index=index, cls="c", start=start, asked_prompt_tokens=1, asked_output_tokens=1, ttft=0.1
    )


@pytest.mark.parametrize(
    ("streams", "cores", "workers"),
    [(1, 1, 1), (1000, 8, 1), (1001, 8, 2), (4000, 8, 4), (4000, 3, 3), (4000, 1, 1)],
)
def test_a_closed_loop_gets_a_process_for_each_thousand_streams(streams: int, cores: int, workers: int) -> None:
    assert workers_for(load(5000, streams), cores) == workers


def test_no_process_without_a_request() -> None:
    assert workers_for(load(2, 4000), 8) == 2


def test_an_open_loop_gets_what_its_requests_cost() -> None:
    # 1,000 requests/s of 0.5 ms and 100 events of 15 us: 2 s of CPU time a second, 0.4 of it a process
    assert workers_for(load(5000, 1, rate=1000.0), 16, Floor(0.0, 0.0, 15e-6)) == 5
    assert workers_for(load(5000, 1, rate=10.0), 16, Floor(0.0, 0.0, 15e-6)) == 1


def test_every_slot_and_request_is_handed_out_once() -> None:
    whole = load(23, 7, warmup=5)
    parts = split(whole, 3)
    assert [part.load.concurrency for part in parts] == [3, 2, 2]
    assert sorted(i for part in parts for i in part.shapes) == list(range(23))
    assert sorted(i for part in parts for i in part.warmup) == list(range(5))
    for part in parts:
        assert part.load.shapes == tuple(whole.shapes[i] for i in part.shapes)
        assert part.load.warmup == tuple(whole.warmup[i] for i in part.warmup)
    assert len({part.load.id for part in parts}) == 3


def test_slots_get_the_same_number_of_requests_wherever_they_run() -> None:
    parts = split(load(70, 7), 3)
    assert [len(part.load.shapes) for part in parts] == [30, 20, 20]


def test_a_conversation_stays_in_one_process() -> None:
    shapes = tuple(
        Shape(cls="c", prompt_tokens=10, output_tokens=1, talk=talk, turn=turn)
        for talk in range(5)
        for turn in range(3)
    )
    parts = split(Load(id="slo", purpose="slo", concurrency=4, shapes=shapes), 2)
    assert [part.shapes for part in parts] == [(0, 1, 2, 6, 7, 8, 12, 13, 14), (3, 4, 5, 9, 10, 11)]
    assert [part.load.concurrency for part in parts] == [2, 2]


def test_slots_without_a_request_are_left_out() -> None:
    assert [part.load.concurrency for part in split(load(5, 10**10), 3)] == [2, 2, 1]


def test_arrivals_keep_their_times_and_their_requests() -> None:
    whole = load(6, 1, warmup=3, rate=2.0)
    first, second = split(whole, 2)
    # the ninth arrival is the last; warm-up has the first three
    assert first.load.arrivals == (0.0, 2.0, 4.0, 6.0, 8.0)
    assert second.load.arrivals == (1.0, 3.0, 5.0, 7.0)
    assert (first.warmup, first.shapes) == ((0, 2), (1, 3, 5))
    assert (second.warmup, second.shapes) == ((1,), (0, 2, 4))
    assert first.load.rate == second.load.rate == 2.0


def test_samples_find_their_place_in_the_whole() -> None:
    whole = load(6, 2)
    part = split(whole, 2)[1]
    got = placed(sample(1), whole, part.shapes, 1)
    assert (got.load, got.index, got.worker, got.ttft) == ("slo", 3, 1, 0.1)


def test_measurements_are_put_together() -> None:
    whole = load(4, 2, warmup=2)
    parts = split(whole, 2)
    healths = [
        ClientHealth(loop_lag_p99=0.001, loop_lag_max=0.002, peak_inflight=1, cpu_share=0.3, clock="kernel"),
        ClientHealth(loop_lag_p99=None, loop_lag_max=0.005, peak_inflight=1, cpu_share=0.6, clock="kernel"),
    ]
    results = [
        (part, Measurement(load=part.load, samples=(), warmup=(sample(0),), duration=2.0 + i, client=health))
        for i, (part, health) in enumerate(zip(parts, healths, strict=True))
    ]
    samples = [placed(sample(i), whole, part.shapes, n) for n, part in enumerate(parts) for i in (1, 0)]
    got = merged(whole, samples, results, stopped="enough")
    assert [s.index for s in got.samples] == [0, 1, 2, 3]
    assert [(s.index, s.worker, s.load) for s in got.warmup] == [(0, 0, "slo"), (1, 1, "slo")]
    assert (got.load, got.duration, got.stopped) == (whole, 3.0, "enough")
    assert got.client == ClientHealth(
        loop_lag_p99=0.001, loop_lag_max=0.005, peak_inflight=2, cpu_share=0.6, clock="kernel", workers=2
    )


def test_the_kernel_s_clock_counts_only_where_every_part_had_it() -> None:
    whole = load(2, 2)
    clocks = ("kernel", "loop")
    results = [
        (part, Measurement(load=part.load, samples=(), client=ClientHealth(clock=clock)))
        for part, clock in zip(split(whole, 2), clocks, strict=True)
    ]
    assert merged(whole, (), results).client.clock == "loop"
