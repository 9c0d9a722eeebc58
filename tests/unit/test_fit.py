"""Fits recover what made the points, and say when the points cannot tell."""

import pytest
from model_shapes import device, shape

from auditor.catalog import accelerators
from auditor.theory.fit import band, fit_decode, fit_prefill
from auditor.theory.settings import Settings


def prefill_points(t0: float, a: float, b: float) -> list[tuple[float, float]]:
    return [(n, t0 + a * n + b * n * n) for n in (32, 256, 1024, 4096, 16384)]


def test_prefill_parts_are_recovered():
    fit = fit_prefill(prefill_points(0.02, 3e-5, 1e-9))
    assert fit is not None
    assert (fit.t0, fit.per_token, fit.per_token_squared) == pytest.approx((0.02, 3e-5, 1e-9), rel=1e-6)
    assert fit.residual == pytest.approx(0.0, abs=1e-9)
    assert fit.points == 5


def test_prefill_parts_are_never_negative():
    fit = fit_prefill([(100, 0.02), (1000, 0.05), (4000, 0.12), (16000, 0.30)])  # bends the wrong way
    assert fit is not None
    assert fit.per_token_squared == 0.0
    assert fit.residual > 0.01


def test_few_lengths_leave_the_quadratic_term_out():
    fit = fit_prefill([(100, 0.03), (100, 0.03), (1100, 0.06)])
    assert fit is not None
    assert (fit.t0, fit.per_token, fit.per_token_squared) == pytest.approx((0.027, 3e-5, 0.0))
    assert fit_prefill([(100, 0.03), (100, 0.04)]) is None
    assert fit_prefill([]) is None


def decode_points(base: float, q: float, k: float, contexts: tuple[int, ...]) -> list[tuple[float, float, float]]:
    return [(b, c, base + q * b + k * b * c) for b in (1, 4, 16, 64) for c in contexts]


def test_decode_parts_are_recovered():
    fit = fit_decode(decode_points(0.006, 2e-5, 4e-8, (500, 4000)))
    assert fit is not None
    assert (fit.base, fit.per_sequence, fit.per_cached_token) == pytest.approx((0.006, 2e-5, 4e-8), rel=1e-6)
    assert fit.identifiable


def test_one_context_cannot_tell_cache_from_compute():
    fit = fit_decode(decode_points(0.006, 2e-5, 4e-8, (500,)))
    assert fit is not None
    assert not fit.identifiable
    assert fit.lacking == "no batch was measured at two contexts"
    assert fit.per_cached_token == 0.0
    assert fit.per_sequence == pytest.approx(2e-5 + 500 * 4e-8)


def test_a_cache_too_small_to_matter_is_not_identified():
    fit = fit_decode(decode_points(0.006, 2e-5, 1e-9, (500, 4000)))
    assert fit is not None
    assert not fit.identifiable


def test_a_crossing_that_costs_nothing_tells_batch_and_context_not_apart():
    """Only one stream was measured at two contexts; larger batches all at 4,000 tokens, where B C is 4,000 B."""
    law = [(b, c, 0.006 + 2e-5 * b + 4e-8 * b * c) for b, c in ((1, 50), (1, 100), (32, 4000), (64, 4000))]
    fit = fit_decode(law)
    assert fit is not None
    assert fit.lacking == "batch and context grow together in it"


def test_errors_are_those_of_repeated_points():
    """Two lengths, each measured at 1 % above and below: the line's slope is uncertain by that over the root of two."""
    points = [(n, t * s) for n, t in ((100, 0.1), (1100, 1.1)) for s in (0.99, 1.01)]
    fit = fit_prefill(points)
    assert fit is not None
    assert (fit.t0, fit.per_token) == (pytest.approx(0.0, abs=1e-4), pytest.approx(1e-3, rel=1e-3))
    # a mean of two is uncertain by 0.01 x 1.4826 / sqrt(2) of it: 0.00105 s and 0.01153 s, 1,000 tokens apart
    assert fit.errors[1] == pytest.approx(1.158e-5, rel=0.01)


def test_one_request_far_off_does_not_move_the_law():
    points = [(n, (0.02 + 3e-5 * n) * s) for n in (32, 256, 1024, 4096) for s in (0.99, 1.0, 1.0, 1.01)]
    fit = fit_prefill([*points, (4096, 2.0)])
    assert fit is not None
    assert fit.per_token == pytest.approx(3e-5, rel=0.03)


def test_one_batch_is_no_ladder():
    assert fit_decode([(4, 100, 0.01), (4, 1000, 0.02)]) is None
    assert fit_decode([]) is None


def test_bands_by_class():
    settings = Settings(engine="vllm")
    assert band("decode", device(), settings, 8)[:2] == (0.63, 0.74)
    assert band("decode", device(), Settings(engine="vllm", tensor_parallel=8), 8)[:2] == (0.25, 0.31)
    assert band("decode", accelerators.find("a100-80gb"), settings, 8)[:2] == (0.44, 0.73)
    mixtral = shape("llama-8b", architectures=["MixtralForCausalLM"], num_local_experts=8, num_experts_per_tok=2)
    assert band("decode", device(), settings, 4, mixtral)[:2] == (0.12, 0.34)
    assert band("decode", device(), settings, 32, mixtral)[:2] == (0.38, 0.61)
    llamacpp = Settings(engine="llamacpp")
    assert band("decode", accelerators.find("rtx-4090"), llamacpp, 1)[:2] == (0.60, 0.80)
    assert band("decode", accelerators.find("m3-max-128gb"), llamacpp, 1)[:2] == (0.53, 0.77)
    assert band("prefill", accelerators.find("gb10"), llamacpp, 1)[:2] == (0.25, 0.26)
    assert band("prefill", device(), Settings(engine="vllm", compute_dtype="fp8"), 1)[:2] == (0.30, 0.43)
    assert band("prefill", device(), Settings(engine="vllm", compute_dtype="fp4"), 1)[:2] == (0.25, 0.29)
    low, high, source = band("prefill", accelerators.find("mi300x"), settings, 1)
    assert (low, high) == pytest.approx((0.40 * 0.67, 0.71 * 0.67))
    assert "16-bit" in source
