"""vLLM's overhead against what it logged at start, and by hand."""

from dataclasses import replace
from typing import Any

import pytest
from memory_logs import LOGS, Log, device_of, model, settings_of
from model_shapes import shape

from auditor.catalog import models
from auditor.theory.kv.geometry import Recurrent
from auditor.theory.kv.releases import releases
from auditor.theory.memory import memory
from auditor.theory.overhead import activations
from auditor.theory.settings import Settings

GIB = float(1 << 30)
STATE = Recurrent(kind="mamba2", count=1, heads=8, head_dim=64, state_size=16, groups=1, conv_kernel=4)
H100 = next(log for log in LOGS if log.device == "h100-sxm")


def found(name: str, version: str | None = "0.16.0", log: Log = H100, **facts: Any):
    geometry = facts.pop("geometry", None) or model(name)
    settings = replace(settings_of(log), engine_version=version, weight_bytes=20 * GIB, **facts)
    return memory(geometry, settings, device_of(log))


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.model} {log.device} x{log.devices} {log.version}")
def test_the_memory_that_vllm_found_left(log):
    answer = memory(model(log.model), settings_of(log), device_of(log))
    assert answer.pool / GIB == pytest.approx(log.left, abs=0.35)
    assert answer.pool_low / GIB - 0.005 <= log.left <= answer.pool_high / GIB + 0.005


def test_a_gated_layer_by_hand():
    """20,000 tokens x 2 bytes x (3 x 14,336 + 3 x 4,096) = 2,211,840,000 bytes; the log says 2.07 GiB."""
    geometry = model("llama-3.1-8b")
    assert activations.forward(geometry, Settings(engine="vllm"), 20_000) == 2_211_840_000
    half = activations.forward(geometry, Settings(engine="vllm", tensor_parallel=2), 20_000)
    assert half == 20_000 * 2 * (3 * 7_168 + 3 * 4_096)  # hidden states are not divided


def test_the_width_of_a_layer_is_read_from_the_model():
    assert shape("llama-8b").intermediate_size == 14_336
    assert models.find("qwen3-30b-a3b").expert_size == 768


def test_a_layer_without_figures_is_like_llamas():
    geometry = model("llama-3.1-8b", intermediate_size=None)
    assert activations.forward(geometry, Settings(engine="vllm"), 20_000) == 2_211_840_000


def test_the_sorted_logits_by_hand():
    """38.25 bytes x 1,024 x 128,256 and 9,216 hidden states of 4,096 x 2 bytes: 4.75 GiB."""
    answer = found("llama-3.1-8b")
    assert answer.activations == 38.25 * 1024 * 128_256 + 9_216 * 4_096 * 2
    assert answer.graphs == 0.0
    assert answer.overhead == pytest.approx(answer.activations + answer.other)


def test_the_workspaces_of_experts_by_hand():
    """8,192 tokens x 8 experts x (2,048 + 2,048) x 2 bytes = 0.5 GiB: 0.13 to 0.14 cost Qwen3-VL-30B as much."""
    assert activations.expert_workspace(model("qwen3-vl-30b"), Settings(engine="vllm"), 8192) == 0.5 * GIB
    before, after = (found("qwen3-vl-30b", version).pool for version in ("0.13.0", "0.14.1"))
    assert before - after == 0.5 * GIB


@pytest.mark.parametrize(
    "facts",
    [
        {"weight_bits": 4.25},
        {"quantization": "compressed-tensors", "geometry": model("qwen3-vl-30b", formats={"experts": "int4-g32"})},
        {"weight_bits": 8.0, "capability": (10, 0)},
        {"weight_bits": 8.0, "capability": (8, 0)},
        {"weight_bits": 8.0, "capability": (9, 0), "quantization": "modelopt"},
        {"weight_bits": 8.0, "capability": (9, 0), "quantization": "fp8"},
    ],
    ids=["int4", "int4 experts", "fp8 on Blackwell", "fp8 on Ampere", "ModelOpt on Hopper", "blocks on Hopper"],
)
def test_some_kernels_of_experts_keep_nothing(facts):
    before, after = (found("qwen3-vl-30b", version, **facts).pool for version in ("0.13.0", "0.16.0"))
    assert before == after


def test_blocks_of_fp8_on_hopper_went_back_to_triton():
    """DeepSeek-R1 on eight H200: 43.08 GiB left by 0.16, 1.75 more than its workspaces would have left."""
    facts = {"weight_bits": 8.0, "capability": (9, 0), "quantization": "fp8", "tensor_parallel": 8, "devices": 8}
    sixteen, seventeen = (found("deepseek-r1", version, **facts) for version in ("0.16.0", "0.17.1"))
    assert sixteen.activations == 38.25 * 1024 * 129_280 + 9_216 * 7_168 * 2
    assert seventeen.activations == 14 * 1024 * 129_280 + 9_216 * 7_168 * 2 + 2 * 8192 * 8 * 7_168 * 2
    spread = found("deepseek-r1", "0.17.1", expert_parallel=8, **facts)
    assert spread.activations < seventeen.activations


def test_experts_of_data_parallel_ranks_see_all_tokens():
    alone, eight = (found("deepseek-r1", "0.18.0", data_parallel=ranks, expert_parallel=8) for ranks in (1, 8))
    workspace = activations.expert_workspace(model("deepseek-r1"), Settings(engine="vllm", expert_parallel=8), 8192)
    assert eight.activations - alone.activations == pytest.approx(7 * workspace)
    assert any("DeepEP" in note for note in eight.notes)
    chunked = found("deepseek-r1", "0.14.1", data_parallel=8, expert_parallel=8)
    assert chunked.activations < eight.activations  # 16,384 tokens at a time up to 0.17


def test_eras_of_one_device():
    """The sort went with 0.17, graphs on trial came with 0.18, their subtraction with 0.20, the second runner later."""
    pools = [found("llama-3.1-8b", version).pool / GIB for version in ("0.16.0", "0.17.1", "0.19.0", "0.20.0")]
    assert pools[1] - pools[0] == pytest.approx(24.25 * 1024 * 128_256 / GIB)
    assert pools[1] - pools[2] == pytest.approx(0.25)
    assert pools[2] - pools[3] == pytest.approx(0.45)
    eager = [found("llama-3.1-8b", version, enforce_eager=True).pool for version in ("0.17.1", "0.20.0")]
    assert eager[0] == eager[1]
    assert found("llama-3.1-8b", "0.29.0").activations < found("llama-3.1-8b", "0.24.0").activations


@pytest.mark.parametrize(
    ("version", "devices", "link", "left"),
    [
        ("0.17.1", 2, "NVLink4 900", 0.0),  # no trial
        ("0.19.0", 1, "NVLink4 900", 0.25),
        ("0.19.0", 2, "NVLink4 900", 1.6),  # peers hold the trial's buffers
        ("0.19.0", 2, "PCIe5 x16", 0.25),  # "Custom allreduce is disabled because platform lacks GPU P2P capability"
        ("0.19.0", 4, "PCIe5 x16", 0.25),
        ("0.19.0", 2, "NVLink4 bridge 600; PCIe5", 0.25),
        ("0.27.0", 2, "NVLink4 900", 0.1),  # measured after the memory was
    ],
)
def test_a_trial_leaves_the_buffers_that_peers_hold(version, devices, link, left):
    settings = replace(settings_of(H100), engine_version=version, devices=devices, tensor_parallel=devices)
    device = replace(device_of(H100), interconnect=link)
    graphs, eager = (
        memory(model("qwen3-32b"), replace(settings, enforce_eager=eager), device) for eager in (False, True)
    )
    assert (graphs.other - eager.other) / GIB == pytest.approx(left)


def test_a_pair_on_pcie_may_leave_as_much_where_its_cards_reach_each_other():
    pair, four = (
        memory(
            model("qwen3-32b"),
            replace(settings_of(H100), engine_version="0.19.0", devices=devices, tensor_parallel=devices),
            replace(device_of(H100), interconnect="PCIe4 x16"),
        )
        for devices in (2, 4)
    )
    assert pair.overhead_high - four.overhead_high > 1.3 * GIB


def test_graphs_lie_beyond_the_budget_until_they_are_subtracted():
    before, after = found("llama-3.1-8b", "0.19.0"), found("llama-3.1-8b", "0.20.0")
    assert (before.graphs, after.beyond) == (0.0, 0.0)
    assert before.beyond > 0 < after.graphs
    small = found("llama-3.1-8b", "0.20.0", captured_batch=64)
    assert small.graphs == pytest.approx(0.2 * after.graphs)
    amd = next(log for log in LOGS if log.device == "mi300x")
    assert found("llama-3.1-8b", "0.24.0", amd).graphs == 0.0 < found("llama-3.1-8b", "0.27.0", amd).graphs


def test_the_first_engine_ran_whole_prompts():
    log = LOGS[0]
    short, long, chunked = (
        found("llama-3.1-8b", "0.7.3", log, max_model_len=length).activations for length in (4096, 32768, 131072)
    )
    assert long == 32768 * 110_592
    # 4,096 and 2,048 tokens: the logits of 256 sequences weigh more
    assert short == 38.25 * 256 * 128_256 + (4096 + 256) * 4096 * 2
    assert chunked == 38.25 * 256 * 128_256 + (2048 + 256) * 4096 * 2
    assert "whole" in " ".join(found("llama-3.1-8b", "0.7.3", log).notes)


def test_the_context_is_counted_by_the_first_releases_of_v1():
    old, new, turing = (
        found("llama-3.1-8b", version, capability=capability).other
        for version, capability in (("0.8.5", (9, 0)), ("0.9.1", (9, 0)), ("0.8.5", (7, 5)))
    )
    assert old - new == pytest.approx(0.4 * GIB)
    assert turing == new  # V0 went on running there


@pytest.mark.parametrize(
    ("facts", "until"),
    [
        ({"quantization": "q8_0", "weight_bits": 8.5}, "0.8.5"),
        ({"speculative_tokens": 3}, "0.8.5"),
        ({"compute_dtype": "fp32"}, "0.9.0"),
        ({"capability": (7, 5)}, "0.9.0"),
        ({"kv_bytes": 1.0, "capability": (8, 9)}, "0.9.0"),
        ({"geometry": model("llama-3.1-8b", recurrent=(STATE,))}, "0.9.0"),
    ],
    ids=["GGUF", "drafts", "32 bit", "Turing", "8-bit cache", "states"],
)
def test_what_v1_left_to_the_first_engine(facts, until):
    """The first releases of V1 count the device context, 0.4 GiB, V0 does not (_is_v1_supported_oracle)."""
    other = {version: found("llama-3.1-8b", version, **facts).other / GIB for version in ("0.8.5", "0.9.0", "0.9.1")}
    assert other["0.8.5"] == pytest.approx(other["0.9.1"])
    assert other["0.9.0"] - other["0.9.1"] == pytest.approx(0.0 if until == "0.9.0" else 0.4)


def test_a_gguf_file_on_a_laptops_card():
    """Llama-3.2-3B in Q8_0 by vLLM 0.8.2, 7.65 GiB: 3.26 of weights and 2.38 left, 1,395 blocks."""
    card = replace(
        H100, device="rtx-4070-laptop", total=7.65, version="0.8.2", utilization=0.9, weights=3.2637, settings={}
    )
    settings = replace(settings_of(card), quantization="q8_0", weight_bits=8.5, max_model_len=10_000)
    answer = memory(model("llama-3.1-8b", hidden_size=3072, intermediate_size=8192), settings, device_of(card))
    assert answer.pool / GIB == pytest.approx(2.38, abs=0.1)


def test_what_is_not_known_is_said_and_widens_the_band():
    known = found("llama-3.1-8b", "0.19.0")
    width = known.pool_high - known.pool_low
    for answer, word in [
        (found("llama-3.1-8b", None), "version is not known"),
        (found("llama-3.1-8b", "0.6.6"), "run whole"),
        (found("llama-3.1-8b", "0.19.0", geometry=model("llama-3.1-8b", vision=True)), "vision encoder"),
        (found("deepseek-r1", "0.19.0", geometry=model("deepseek-r1", architecture="DeepseekV4ForCausalLM")), "V4"),
        (found("llama-3.1-8b", "0.19.0", disaggregated="decode"), "connector"),
    ]:
        assert any(word in note for note in answer.notes), answer.notes
        assert answer.pool_high - answer.pool_low > width
    assert known.notes == ()


def test_an_unknown_version_spans_all_eras():
    unknown = found("llama-3.1-8b", None)
    for version in ("0.16.0", "0.19.1", "0.25.0", "0.32.0"):
        era = found("llama-3.1-8b", version)
        assert unknown.overhead_low <= era.overhead <= unknown.overhead_high


def test_a_range_of_releases_is_the_middle_of_its_ends():
    first, last, between = (found("llama-3.1-8b", version) for version in ("0.16.0", "0.29.0", "0.16.0-0.29.0"))
    assert between.pool == pytest.approx((first.pool + last.pool) / 2)
    assert between.overhead_low <= min(first.overhead_low, last.overhead_low)
    assert between.overhead_high >= max(first.overhead_high, last.overhead_high)
    assert releases("0.16.0-0.29.0") == ("0.16.0", "0.29.0")
    assert {releases(text) for text in (None, "0.16.0", "0.11.0-25.10", "0.18.2rc1.dev73+gdb7a17ecc")} == {None}


def test_a_step_is_the_smallest_where_the_settings_leave_it_open():
    small = found("llama-3.1-8b", max_num_seqs=None, max_num_batched_tokens=None)
    assert small.activations == 38.25 * 256 * 128_256 + (2048 + 256) * 4096 * 2


def test_memory_shared_with_the_host_may_leave_more_than_the_budget_holds():
    log = replace(H100, total=121.7)
    spark = replace(device_of(log), kind="unified")
    answer = memory(model("qwen3-vl-30b"), replace(settings_of(log), memory_fraction=0.49), spark)
    assert any("shared with the host" in note for note in answer.notes)
    assert answer.pool_high > answer.budget - answer.weights
    assert answer.overhead_low == 0


def test_a_stage_that_does_not_sample_has_more_room():
    """8,192 tokens x 110,592 bytes of layers, nine tenths of it at least, instead of 4.75 GiB of logits."""
    answer = found("llama-3.1-8b", pipeline_parallel=2, devices=2)
    assert any("pipeline stage" in note for note in answer.notes)
    assert answer.overhead_low < 0.9 * 8192 * 110_592 + GIB < answer.activations


def test_communicators_are_small_without_a_switch():
    switched, plain = (
        memory(model("qwen3-32b"), settings_of(LOGS[4]), replace(device_of(LOGS[4]), interconnect=link)).other
        for link in ("NVLink4 900; PCIe5", "NVLink4 bridge 600; PCIe5")
    )
    assert switched / GIB == pytest.approx(0.54, abs=0.03)  # the log's non_torch_memory of two H100
    assert plain < switched / 2


def test_a_pool_set_by_a_flag_skips_the_budget():
    answer = found("llama-3.1-8b", kv_pool_bytes=int(3 * GIB))
    assert (answer.pool, answer.pool_low, answer.pool_high) == (3 * GIB, 3 * GIB, 3 * GIB)
    assert answer.budget == answer.weights + answer.overhead + 3 * GIB
