"""Ladders as an audit's evidence gives them: one replica's share, what queued, and nothing where inputs lack."""

from dataclasses import replace

import pytest

from auditor import bounds
from auditor.profile import Traffic
from auditor.testing import make_evidence, make_load, make_measurement, make_profile, make_sample


def decode_load(batch: int, context: int, starts: tuple[float, ...], output: int = 20) -> object:
    samples = [
        make_sample(i, load="d", start=start, ttft=0.1, tpot=0.01, output_tokens=output, prompt_tokens=context)
        for i, start in enumerate(starts)
    ]
    return make_measurement(samples, load=make_load("decode", concurrency=batch, context=context))


def test_ladders_are_those_of_the_healthy_deployment():
    """Its law: 20 ms + 25 us a token; steps of 7 ms + 20 us a stream + 50 ns a cached token."""
    found = bounds.ladders(make_evidence())
    assert found is not None
    assert (found.batch, found.accepted, found.queued) == (16, 1.0, ())
    assert {n for n, _ in found.prompts} == {32, 256, 1024, 1600, 3000}
    step = next(s for s in found.steps if (s.batch, s.context) == (16, 1624))
    assert step.seconds == pytest.approx(0.007 + 16 * 2e-5 + 16 * 1600 * 5e-8)
    told = bounds.measured(make_evidence())
    assert told is not None
    assert told.decode is not None
    assert told.decode.bound == "weights"


def test_streams_are_spread_over_replicas():
    loads = [decode_load(4, 100, (0.0, 0.0, 0.0, 0.0))]
    assert [step.batch for step in bounds.steps(loads, 2)] == [2]
    assert [step.batch for step in bounds.steps(loads, 8)] == [1]


def test_streams_that_never_decode_together_queued():
    """The second starts when the first has ended."""
    loads = [decode_load(2, 100, (0.0, 5.0)), decode_load(2, 100, (0.0, 0.0))]
    assert bounds.queued(loads) == ((2, 110),)
    assert len(bounds.steps(loads)) == 1


def test_nothing_is_told_without_model_target_or_ladder():
    evidence = make_evidence()
    assert bounds.measured(replace(evidence, device=None)) is None
    assert bounds.measured(replace(evidence, measurements=evidence.loads("slo"))) is None
    assert bounds.measured(replace(evidence, profile=make_profile(traffic=Traffic()))) is None
