"""What engines do where no flag says otherwise, by version, device and model.

Block sizes of MLA are those of start-up logs of DeepSeek-R1 in github.com/ashishkamra/vllm-memory-estimator
(test_data/validation_db.json): 658,176 tokens on H200 under 0.16.0 are 10,284 blocks of 64; 653,808 under 0.18.0 are
40,863 of 16; 1,219,424 on B200 under 0.18.0 are 38,107 of 32; 1,324,304 on MI300X under 0.11.2 are 82,769 of 16.
"""

from dataclasses import replace

import pytest

from auditor.catalog import accelerators, models
from auditor.engines.flavours import FLAVOURS
from auditor.engines.generations import compute_capability
from auditor.theory.kv.geometry import Geometry, Indexer, Layers, Recurrent

LLAMA = models.find("meta-llama/Llama-3.1-8B-Instruct")
LATENT = replace(
    LLAMA,
    architecture="DeepseekV3ForCausalLM",
    layers=(Layers(kind="mla", count=61, kv_heads=1, qk_head_dim=192, v_head_dim=128, latent_dim=576),),
)
SPARSE = replace(LATENT, indexer=Indexer(count=61, token_bytes=132))
DELTA = replace(
    LLAMA,
    layers=(Layers(kind="full", count=10, kv_heads=2, qk_head_dim=256, v_head_dim=256),),
    recurrent=(Recurrent(kind="linear", count=30, heads=32, head_dim=128, state_size=128, groups=16, conv_kernel=4),),
)
MAMBA = replace(
    DELTA, architecture="NemotronHForCausalLM", recurrent=(replace(DELTA.recurrent[0], kind="mamba2", state_bytes=4.0),)
)
PURE = replace(MAMBA, architecture="Mamba2ForCausalLM", layers=())


def defaults(engine: str, release: str | None, device: str | None, geometry: Geometry | None = None, **said: object):
    found = accelerators.find(device) if device else None
    return FLAVOURS[engine].defaults(release, found, geometry, said)


@pytest.mark.parametrize(
    ("device", "release", "block"),
    [
        ("h200-sxm", "0.11.0", 64),
        ("h200-sxm", "0.16.0", 64),
        ("h200-sxm", "0.18.0", 16),
        ("h200-sxm", None, 16),
        ("b200-sxm", "0.18.0", 32),
        ("b200-sxm", "0.16.0", 128),
        ("mi300x", "0.11.2", 16),
        ("mi300x", "0.18.0", 16),
        ("a100-sxm-80", "0.16.0", 16),
        ("rtx-5090", "0.18.0", 16),
        ("max-1550", "0.18.0", 64),
        (None, "0.16.0", 64),
    ],
)
def test_vllms_block_of_mla_follows_the_kernel_of_device_and_version(device, release, block):
    assert defaults("vllm", release, device, LATENT)["block_size"] == block


def test_vllms_sparse_mla_takes_64_and_an_8_bit_cache_flashmlas_block():
    for release in ("0.16.0", "0.19.0"):
        assert defaults("vllm", release, "h200-sxm", SPARSE)["block_size"] == 64
    assert defaults("vllm", "0.19.0", "h200-sxm", LATENT, kv_cache_dtype="fp8")["block_size"] == 64
    assert defaults("vllm", "0.19.0", "b200-sxm", LATENT, attention_backend="CUTLASS_MLA")["block_size"] == 128


@pytest.mark.parametrize(
    ("device", "release", "block"),
    [
        ("h200-sxm", "0.18.0", 16),
        ("max-1550", "0.18.0", 64),
        ("max-1550", "0.9.2", 64),
        ("max-1550", "0.9.1", 16),  # vllm/platforms/xpu.py
    ],
)
def test_vllms_block_of_other_models(device, release, block):
    assert defaults("vllm", release, device, LLAMA)["block_size"] == block


@pytest.mark.parametrize(
    ("device", "release", "said", "tokens", "sequences"),
    [
        ("h100-sxm", "0.18.0", {"performance_mode": "throughput"}, 16384, 2048),
        ("h100-sxm", "0.18.0", {"max_num_seqs": 2, "max_model_len": 1000}, 2000, 2),
        ("h100-sxm", "0.18.0", {"max_num_batched_tokens": 512}, 512, 512),
        ("l4", "0.18.0", {"max_model_len": 4096}, 2048, 256),
        ("a800-sxm-80", "0.18.0", {}, 8192, 1024),  # its name holds no "a100"
        ("tpu-v6e", "0.18.0", {}, 1024, 256),
        # A100: pull request 17885 took it out in 0.9.0, 17073 had put it in with all devices of 70 GiB in 0.8.5
        ("a100-sxm-80", "0.8.5", {}, 8192, 1024),
        ("a100-sxm-80", "0.8.x", {}, 8192, 1024),
        ("a100-sxm-80", "0.9.0", {}, 2048, 256),
        # before, H100 and H200 alone
        ("h200-sxm", "0.8.4", {}, 8192, 1024),
        ("mi300x", "0.8.4", {}, 2048, 256),
        # V0: prompts whole, unless they are long and nothing speaks against cutting them
        ("h100-sxm", "0.7.3", {"max_model_len": 8192}, 8192, 256),
        ("h100-sxm", "0.7.3", {"max_model_len": 65536}, 2048, 256),
        ("h100-sxm", "0.7.3", {"max_model_len": 65536, "speculative": "ngram"}, 65536, 256),
        ("mi300x", "0.9.0", {"max_model_len": 65536}, 65536, 256),
        ("mi300x", "0.9.1", {"max_model_len": 65536}, 8192, 1024),
        # 160 GiB and more: pull request 51726
        ("b200-sxm", "0.27.1", {}, 8192, 1024),
        ("b200-sxm", "0.28.0", {}, 16384, 1024),
        # limits bound each other since 0.10.1 and 0.11.1
        ("h100-sxm", "0.11.0", {"max_num_seqs": 2, "max_model_len": 1000}, 8192, 2),
        ("h100-sxm", "0.10.0", {"max_num_batched_tokens": 512}, 512, 1024),
    ],
)
def test_vllms_batch_limits_bound_each_other(device, release, said, tokens, sequences):
    found = defaults("vllm", release, device, LLAMA, **said)
    assert (found["max_num_batched_tokens"], found["max_num_seqs"]) == (tokens, sequences)


@pytest.mark.parametrize(
    ("release", "geometry", "caching", "mode"),
    [
        # pull request 50991, first in 0.28.0: on by default; before it was "opt-in for now" (arg_utils.py of 0.27.1)
        ("0.32.0", DELTA, None, "align"),
        ("0.28.0", MAMBA, None, "align"),
        ("0.27.1", MAMBA, None, "none"),
        ("0.26.0", DELTA, None, "none"),
        ("0.32.0", DELTA, False, "none"),
        ("0.32.0", PURE, None, "none"),  # without attention it stays off
        ("0.28.0", MAMBA, True, "align"),
        ("0.27.1", MAMBA, True, "all"),  # where the model's class says that its layers can
        ("0.27.1", DELTA, True, "align"),
        ("0.27.1", replace(MAMBA, architecture="Plamo2ForCausalLM"), True, "align"),
        ("0.15.0", PURE, True, "all"),
        ("0.14.1", MAMBA, True, "all"),
        ("0.14.1", DELTA, True, "none"),  # switched off again: no "align" yet
        ("0.11.0", MAMBA, True, "none"),
    ],
)
def test_vllm_keeps_states_for_prefixes_by_version(release, geometry, caching, mode):
    found = defaults("vllm", release, "h200-sxm", geometry, prefix_caching=caching)
    assert (found["mamba_cache_mode"], found["prefix_caching"]) == (mode, mode != "none")


@pytest.mark.parametrize(
    ("release", "geometry", "caching", "asked", "mode"),
    [
        ("0.31.0", MAMBA, None, "all", "all"),
        ("0.31.0", DELTA, None, "all", "align"),
        ("0.32.0", MAMBA, None, "all", "align"),  # this release knows no other
        ("0.31.0", MAMBA, False, "all", "none"),
        ("0.27.1", MAMBA, None, "all", "none"),
        ("0.27.1", MAMBA, True, "align", "align"),
    ],
)
def test_vllm_turns_a_mode_that_it_cannot_keep_into_another(release, geometry, caching, asked, mode):
    found = defaults("vllm", release, "h200-sxm", geometry, prefix_caching=caching, mamba_cache_mode=asked)
    assert found["mamba_cache_mode"] == mode


def test_no_mode_for_models_without_states():
    found = defaults("vllm", "0.32.0", "h200-sxm", LLAMA)
    assert "mamba_cache_mode" not in found
    assert "prefix_caching" not in found


def test_vllm_keeps_chunked_layers_in_full():
    """Layers that see chunks of 8,192 tokens (Llama 4) are managed as full ones since 0.10.1 (vllm/config/vllm.py)."""
    chunked = replace(LLAMA, layers=(*LLAMA.layers, replace(LLAMA.layers[0], kind="chunked", window=8192)))
    assert defaults("vllm", "0.18.0", "h200-sxm", chunked)["hybrid_kv_manager"] is False
    assert "hybrid_kv_manager" not in defaults("vllm", "0.10.0", "h200-sxm", chunked)
    assert "hybrid_kv_manager" not in defaults("vllm", "0.18.0", "h200-sxm", LLAMA)


@pytest.mark.parametrize(
    ("device", "geometry", "said", "page"),
    [
        ("h100-sxm", LLAMA, {}, 1),
        ("b200-sxm", LLAMA, {}, 64),
        ("b200-sxm", LATENT, {}, 64),
        ("h100-sxm", LATENT, {}, 1),
        ("h100-sxm", LATENT, {"attention_backend": "flashmla"}, 64),
        ("h100-sxm", LATENT, {"attention_backend": "cutlass_mla"}, 128),
        ("h200-sxm", SPARSE, {}, 64),
        ("b200-sxm", LLAMA, {"attention_backend": "fa4"}, 128),
        ("b200-sxm", LLAMA, {"attention_backend": "triton"}, 1),
        ("mi300x", LLAMA, {}, 1),
    ],
)
def test_sglangs_page_follows_the_attention_kernel(device, geometry, said, page):
    assert defaults("sglang", "0.5.23", device, geometry, **said)["block_size"] == page


@pytest.mark.parametrize(
    ("device", "release", "chunk", "captured", "wide"),
    [
        ("l4", "0.5.5", 2048, 24, 80),
        ("l4", "0.5.23", 4096, 48, 160),
        ("l40s", "0.5.23", 4096, 32, 160),
        ("h100-sxm", "0.5.23", 8192, 256, 512),
        ("b200-sxm", "0.5.23", 16384, 512, 512),
    ],
)
def test_sglangs_steps_follow_memory_and_release(device, release, chunk, captured, wide):
    """Comments of handle_gpu_memory_settings in srt/arg_groups/memory_hook.py (0.5.23), server_args.py (0.5.5)."""
    found = defaults("sglang", release, device, LLAMA)
    assert (found["max_num_batched_tokens"], found["captured_batch"]) == (chunk, captured)
    assert defaults("sglang", release, device, LLAMA, tensor_parallel=4)["captured_batch"] == wide
    assert "memory_fraction" not in found  # it follows from all the others: theory.overhead.sglang


def test_sglang_runs_48_requests_with_drafts():
    assert defaults("sglang", "0.5.23", "h100-sxm", LLAMA)["max_num_seqs"] == 2048
    drafted = defaults("sglang", "0.5.23", "h100-sxm", LLAMA, speculative={"method": "EAGLE"})
    assert drafted["max_num_seqs"] == 48
    ranks = {"speculative": "NEXTN", "dp_attention": True, "data_parallel": 8}
    assert defaults("sglang", "0.5.23", "h100-sxm", LATENT, **ranks)["max_num_seqs"] == 6


def test_sglangs_sparse_cache_is_8_bit_on_blackwell():
    assert defaults("sglang", "0.5.23", "b200-sxm", SPARSE)["kv_cache_dtype"] == "fp8_e4m3"
    assert "kv_cache_dtype" not in defaults("sglang", "0.5.23", "h200-sxm", SPARSE)


@pytest.mark.parametrize(
    ("build", "slots", "unified", "context"),
    [("b6123", 1, False, 4096), ("b7079", 4, True, 4096), ("b9265", 4, True, None), (None, 4, True, None)],
)
def test_llamacpps_slots_and_context_by_build(build, slots, unified, context):
    """Issue 17300 of ggml-org/llama.cpp: build 7079 starts four slots that share one buffer."""
    found = defaults("llamacpp", build, None)
    assert (found["slots"], found["kv_unified"], found.get("max_model_len")) == (slots, unified, context)


@pytest.mark.parametrize(
    ("device", "pair"),
    [
        ("rtx-5000-ada", (8, 9)),
        ("rtx-a5000", (8, 6)),
        ("b200-sxm", (10, 0)),
        ("gb300", (10, 3)),
        ("gb10", (12, 1)),
        ("gh200-96", (9, 0)),
        ("v100-sxm2-32", (7, 0)),
        ("mi300x", None),
    ],
)
def test_generations_by_the_name_of_the_device(device, pair):
    assert compute_capability(accelerators.find(device)) == pair


@pytest.mark.parametrize(
    ("written", "pair"),
    [
        ("RTX2080Ti-22G", (7, 5)),
        ("2080Ti", (7, 5)),
        ("Quadro RTX 8000", (7, 5)),
        ("RTX8000", (7, 5)),
        ("TITAN RTX", (7, 5)),
        ("GTX 1660", (7, 5)),
        ("V100S", (7, 0)),
        ("GTX1080Ti", (6, 1)),
        ("Tesla P40", (6, 1)),
        ("P100", (6, 0)),
        ("RTX3080-20G", (8, 6)),
        ("RTX4090D", (8, 9)),
        ("RTX 5070 Ti Laptop", (12, 0)),
        ("CMP 170HX", (8, 0)),
        ("CUDA", None),
        ("80G-class", None),
    ],
)
def test_generations_as_people_write_them(written, pair):
    """developer.nvidia.com/cuda-gpus and cuda-legacy-gpus."""
    device = replace(accelerators.find("l4"), key=written)
    assert compute_capability(device) == pair


def test_every_nvidia_device_of_the_catalogue_has_a_generation():
    unknown = [d.key for d in accelerators.devices() if d.vendor == "nvidia" and compute_capability(d) is None]
    assert unknown == []
