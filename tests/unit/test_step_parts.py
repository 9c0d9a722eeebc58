"""The parts of the step law: links between devices, experts that a step reads, drafts, classes, products."""

from dataclasses import replace
from typing import Any

import pytest
from model_shapes import device

from auditor.catalog import accelerators, models
from auditor.theory import efficiency, links, phases, priors, speculation
from auditor.theory.classes import device_class, is_local
from auditor.theory.experts import coverage
from auditor.theory.kv.geometry import Experts
from auditor.theory.settings import Settings


def settings(**facts: Any) -> Settings:
    return Settings(**{"engine": "vllm", **facts})


LINKS = [  # interconnect as data sheets write it, devices, bytes/s each way, switched
    ("NVLink4 900; PCIe5", 8, 450e9, True),
    ("NVLink5 1800, 72-GPU domain", 8, 900e9, True),
    ("NVLink3 bridge 112.5; PCIe4", 2, 56.25e9, True),
    ("NVLink3 bridge 112.5; PCIe4", 4, 31.52e9, False),  # a bridge joins two cards only
    ("NVLink2 300 GB/s bidir; PCIe3 x16", 4, 150e9, True),
    ("PCIe4 x8", 2, 15.76e9, False),
    ("PCIe4 x16, no P2P", 2, 31.52e9 / 1.5, False),
    ("IF 896 aggregate (7x128); PCIe5", 8, 448e9, True),
    ("24x100GbE RoCE", 8, 300e9, False),
    ("ConnectX-7 200GbE", 2, 25e9, False),
    ("NVLink4", 8, 150e9, True),  # speed not told
    (None, 2, 31.52e9, False),
]


@pytest.mark.parametrize(("text", "count", "bandwidth", "switched"), LINKS)
def test_what_joins_devices(text, count, bandwidth, switched):
    found = links.link(device(interconnect=text), count)
    assert found.bandwidth == pytest.approx(bandwidth)
    assert found.switched is switched


MEASURED = [  # devices, microseconds of an all-reduce of 64 MiB on H100 (aiconfigurator's nccl tables)
    (2, 245),
    (4, 316),
    (8, 346),
]


@pytest.mark.parametrize(("count", "microseconds"), MEASURED)
def test_large_all_reduces_take_what_was_measured(count, microseconds):
    found = links.all_reduce(accelerators.find("h100-sxm"), count, 64 << 20)
    assert found * 1e6 == pytest.approx(microseconds, rel=0.15)


def test_rings_over_a_bus_wait_for_every_hop():
    card = accelerators.find("a100-pcie-80")
    two, four, eight = (links.all_reduce(card, n, 16_384) for n in (2, 4, 8))
    assert two < 5e-6  # a bridge joins two
    # 6 and 14 hops of 16 us, and 1.5 and 1.75 times the message at 0.65 of 31.5 GB/s
    assert (four, eight) == pytest.approx((97.2e-6, 225.4e-6), rel=1e-3)
    assert links.all_reduce(card, 1, 1e9) == links.all_to_all(card, 1, 1e9) == 0.0


def test_experts_that_a_step_reads():
    experts = Experts(count=128, per_token=4, layers=36, parameters=1)
    assert coverage(experts, 1) == pytest.approx(4 / 128)
    # Fewer than tokens that choose independently would touch: 1 - (1 - 4/128)^64 = 0.869
    assert 0.6 < coverage(experts, 64) < 0.869
    assert coverage(experts, 100_000) == pytest.approx(1.0, abs=1e-3)
    assert coverage(replace(experts, per_token=128), 1) == 1.0
    assert [coverage(experts, n) for n in (1, 8, 64, 512)] == sorted(coverage(experts, n) for n in (1, 8, 64, 512))


def test_yield_of_drafts():
    # Leviathan et al., equation 1: (1 - a^4) / (1 - a) for three drafted tokens
    assert speculation.yield_of(settings()) == speculation.Yield(1.0, 1.0, 1.0)
    found = speculation.yield_of(settings(speculative_tokens=3))
    assert (found.likely, found.low, found.high) == pytest.approx((2.533, 1.875, 3.186625))
    endless = speculation.yield_of(settings(speculative_tokens=10**9))  # the sum of the series, at once
    assert (endless.likely, endless.low, endless.high) == pytest.approx((10 / 3, 2.0, 20 / 3))


def test_drafting_reads_layers_and_heads():
    model = models.find("llama-3.1-8b")
    assert speculation.drafting_bytes(model, settings()) == 0.0
    assert speculation.drafting_bytes(model, settings(speculative_tokens=3, draft_layers=0)) == 0.0
    stack, head = 2 * 6_979_588_096, 2 * 525_336_576
    found = speculation.drafting_bytes(model, settings(speculative_tokens=3))
    assert found == pytest.approx(3 * (stack / 32 + head), rel=1e-3)


CLASSES = [
    ("h100-pcie", "hopper"),
    ("gb200", "blackwell"),
    ("gb10", "gb10"),
    ("a100-sxm-80", "hbm"),
    ("rtx-4090", "geforce"),
    ("rtx-4000-ada", "gddr"),
    ("rtx-6000-ada", "gddr"),
    ("rtx-pro-6000-bw", "gddr"),
    ("l40s", "gddr"),
    ("mi300x", "amd"),
    ("gaudi3", "other"),
    ("apple-m2-ultra-192gb", "apple"),
]


@pytest.mark.parametrize(("key", "kind"), CLASSES)
def test_classes_of_hardware(key, kind):
    assert device_class(accelerators.find(key)) == kind


def test_which_engines_are_local():
    card, server = accelerators.find("rtx-4090"), accelerators.find("h100-sxm")
    assert is_local(settings(engine="llamacpp"), server)
    assert is_local(settings(engine="generic"), card)
    assert not is_local(settings(engine="generic"), server)
    assert not is_local(settings(), card)


def test_any_engine_on_apple_is_held_against_apple():
    """MLX on an M2 Ultra as llama.cpp on one: no served accelerator speaks for it."""
    apple, model = accelerators.find("apple-m2-ultra-192gb"), models.find("llama-3.1-8b")
    assert efficiency.decode_band(model, settings(engine="generic"), apple, 1)[:2] == (0.53, 0.77)
    assert efficiency.prefill_band(settings(engine="generic"), apple)[:2] == (0.57, 0.70)


def test_products_of_llamacpp_run_on_other_units():
    card, packed = accelerators.find("rtx-3090"), settings(engine="llamacpp", weight_bits=4.89, quantization="q4_k_m")
    assert priors.products_rate(card, packed) == 284e12  # int8
    assert priors.products_rate(card, settings(engine="llamacpp")) == 142e12  # 16-bit accumulation, twice 71
    apple = accelerators.find("apple-m2-ultra-192gb")
    assert priors.products_rate(apple, packed) == apple.flops["fp32"]
    assert priors.products_rate(card, settings()) == 71e12


def test_laws_tell_eager_mode_and_carry_over():
    model, card = models.find("llama-3.1-8b"), accelerators.find("l40s")
    law = priors.decode_law(model, settings(), card)
    assert "carried over to" in law.source
    eager = priors.decode_law(model, settings(enforce_eager=True), card)
    assert eager.per_layer - law.per_layer == pytest.approx(200e-6)
    assert eager.high / eager.low > law.high / law.low


def test_unfused_attention_moves_its_scores():
    model, card = models.find("llama-3.1-8b"), accelerators.find("rtx-3090")
    fused = settings(engine="llamacpp", weight_bits=4.89, quantization="q4_k_m")
    laws = [priors.prefill_law(model, replace(fused, fused_attention=f), card).scores for f in (True, False)]
    assert laws == [0.0, 14.0]


# -------------------------------------------------------------------------------------------------------------- phases


def test_the_two_faces_of_a_model():
    model, card = models.find("llama-3.1-8b"), accelerators.find("h100-sxm")
    prefill = phases.prefill_phase(model, settings(), 4096)
    decode = phases.decode_phase(model, settings(), 64, 4000)
    assert (prefill.n, prefill.m, prefill.q_width, prefill.kv_width) == (4096, 4096, 4096, 1024)
    assert (decode.n, decode.m, decode.sequences) == (1, 4000, 64)
    # A product with 2-byte weights does one FLOP a byte for each token; 32 heads over 8 KV heads do 4 on the cache.
    assert decode.linear.intensity == pytest.approx(64, rel=1e-3)
    assert decode.attention.intensity == pytest.approx(4)
    assert prefill.total.intensity > phases.ridge(card, settings()) > decode.total.intensity


def test_latent_attention_works_hard_on_little():
    decode = phases.decode_phase(models.find("deepseek-v3"), settings(), 1, 4000)
    assert decode.kv_width == 576
    assert decode.attention.intensity == pytest.approx(241.8, abs=0.1)  # 2 x 128 x (576 + 512) FLOPs over 1,152 bytes


CRITICAL = [  # settings, tokens a step on an H100 from which products bind: ridge x bytes a weight / 2
    ("llama-3.1-8b", {}, 295.2),
    ("llama-3.1-8b", {"compute_dtype": "fp8", "weight_bits": 8.0}, 295.4),
    ("llama-3.1-8b", {"weight_bits": 4.0}, 73.8),
    ("mixtral-8x7b", {}, 4 * 295.2),  # two of eight experts a token
]


@pytest.mark.parametrize(("name", "facts", "tokens"), CRITICAL)
def test_where_products_turn_compute_bound(name, facts, tokens):
    found = phases.critical_tokens(models.find(name), settings(**facts), accelerators.find("h100-sxm"))
    assert found == pytest.approx(tokens, abs=0.2)
