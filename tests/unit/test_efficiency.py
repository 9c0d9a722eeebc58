"""Efficiencies published for a class of hardware: quartiles, by hand from the table of sources."""

import pytest
from model_shapes import device, shape

from auditor.catalog import accelerators
from auditor.theory.efficiency import decode_band, prefill_band
from auditor.theory.settings import Settings

LLAMA = shape("llama-8b")


def decode(part, settings, batch=8, geometry=LLAMA):
    return decode_band(geometry, settings, part, batch)[:2]


def test_bands_by_class():
    settings = Settings(engine="vllm")
    assert decode(device(), settings) == (0.63, 0.74)
    assert decode(device(), Settings(engine="vllm", tensor_parallel=8)) == (0.25, 0.31)
    assert decode(accelerators.find("a100-80gb"), settings) == (0.44, 0.73)
    mixtral = shape("llama-8b", architectures=["MixtralForCausalLM"], num_local_experts=8, num_experts_per_tok=2)
    assert decode(device(), settings, 4, mixtral) == (0.12, 0.34)
    assert decode(device(), settings, 32, mixtral) == (0.38, 0.61)
    llamacpp = Settings(engine="llamacpp")
    assert decode(accelerators.find("rtx-4090"), llamacpp, 1) == (0.60, 0.80)
    assert decode(accelerators.find("m3-max-128gb"), llamacpp, 1) == (0.53, 0.77)
    assert prefill_band(llamacpp, accelerators.find("gb10"))[:2] == (0.25, 0.26)
    assert prefill_band(Settings(engine="vllm", compute_dtype="fp8"), device())[:2] == (0.30, 0.43)
    assert prefill_band(Settings(engine="vllm", compute_dtype="fp4"), device())[:2] == (0.25, 0.29)
    low, high, source = prefill_band(settings, accelerators.find("mi300x"))
    assert (low, high) == pytest.approx((0.40 * 0.67, 0.71 * 0.67))
    assert "16-bit" in source
