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
    assert fit.per_cached_token == 0.0
    assert fit.per_sequence == pytest.approx(2e-5 + 500 * 4e-8)


def test_a_cache_too_small_to_matter_is_not_identified():
    fit = fit_decode(decode_points(0.006, 2e-5, 1e-9, (500, 4000)))
    assert fit is not None
    assert not fit.identifiable


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
