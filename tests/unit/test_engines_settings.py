"""Settings resolved from profile, launch line, server and defaults; formats; contradictions."""

from dataclasses import replace

import pytest

from auditor.catalog import models
from auditor.engines import formats
from auditor.engines.flavours import FLAVOURS
from auditor.engines.launch import parse_launch
from auditor.engines.settings import conflicts, drafting, engine_of, resolve
from auditor.evidence import Location
from auditor.measurement import Served
from auditor.profile import Deployment, Endpoint, Profile
from auditor.theory.device import Device
from auditor.theory.kv.cells import draft_layers
from auditor.theory.kv.geometry import Geometry, Indexer, Layers, Recurrent
from auditor.theory.kv.pool import kv_pool
from auditor.theory.overhead.sglang import automatic_fraction

LLAMA = models.find("meta-llama/Llama-3.1-8B-Instruct")
LATENT = Geometry(
    name="deepseek-ai/DeepSeek-V3",
    architecture="DeepseekV3ForCausalLM",
    layers=(Layers(kind="mla", count=61, kv_heads=1, qk_head_dim=192, v_head_dim=128, latent_dim=576),),
    hidden_size=7168,
    vocab_size=129280,
    attention_heads=128,
    parameters=671_000_000_000,
    active_parameters=37_000_000_000,
    embedding_parameters=926_679_040,
    tied_embeddings=False,
    max_position=163840,
    quantization="fp8",
)
GIB = 2**30


def device(
    gib: float,
    key: str = "h100-sxm",
    kind: str = "gpu",
    flops: tuple[str, ...] = ("bf16", "fp8"),
    vendor: str = "x",
) -> Device:
    return Device(
        key=key,
        name=key,
        vendor=vendor,
        kind=kind,
        memory_bytes=int(gib * GIB),
        usable_bytes=int(gib * GIB),
        bandwidth=3e12,
        flops=dict.fromkeys(flops, 1e15),
    )


H100 = device(79.2)


def profile(engine="auto", url="http://h/v1", **deployment) -> Profile:
    return Profile(version=1, name="t", endpoint=Endpoint(url=url, engine=engine), deployment=Deployment(**deployment))


def test_declared_beats_launch_beats_served_beats_default():
    launch = parse_launch("vllm serve m --max-num-seqs 128 --max-model-len 16384 --block-size 32")
    served = Served(
        engine="vllm",
        api="chat",
        engine_version="0.32.0",
        max_num_seqs=64,
        max_model_len=8192,
        gpu_memory_utilization=0.8,
        sources={"gpu_memory_utilization": "/metrics", "engine_version": "/version"},
    )
    settings, sources = resolve(profile(max_num_seqs=256), launch, served, LLAMA, H100)
    assert (settings.max_num_seqs, sources["max_num_seqs"]) == (256, "declared")
    assert (settings.max_model_len, sources["max_model_len"]) == (16384, "launch --max-model-len")
    assert (settings.memory_fraction, sources["memory_fraction"]) == (0.8, "served /metrics")
    assert (settings.max_num_batched_tokens, sources["max_num_batched_tokens"]) == (8192, "default of vLLM 0.32.0")
    assert (settings.engine_version, sources["engine_version"]) == ("0.32.0", "served /version")


def test_auto_in_the_profile_is_no_declaration():
    settings, sources = resolve(
        profile(engine="vllm", max_num_seqs="auto", max_model_len="auto"), None, None, LLAMA, H100
    )
    assert (settings.max_num_seqs, sources["max_num_seqs"]) == (1024, "default of vLLM")
    assert (settings.max_model_len, sources["max_model_len"]) == (131072, "the model's own")


@pytest.mark.parametrize(
    ("version", "fraction"), [("0.11.0", 0.9), ("0.20.2", 0.92), ("v0.32.0+cpu", 0.92), (None, 0.92)]
)
def test_vllm_gpu_memory_utilization_by_version(version, fraction):
    settings, _ = resolve(profile(engine="vllm", engine_version=version), None, None, LLAMA, H100)
    assert settings.memory_fraction == fraction


@pytest.mark.parametrize(
    ("where", "version", "tokens", "seqs", "block"),
    [
        (device(79.2), "0.18.0", 8192, 1024, 16),
        (device(79.15, key="a100-80gb-sxm"), "0.18.0", 2048, 256, 16),
        (device(22.0, key="l4"), "0.18.0", 2048, 256, 16),
        (device(178.4, key="b200"), "0.32.0", 16384, 1024, 16),
        (device(178.4, key="b200"), "0.18.0", 8192, 1024, 16),
        (device(64, key="cpu", kind="cpu"), "0.32.0", 2048, 128, 128),
        (None, "0.32.0", 2048, 256, 16),
    ],
)
def test_vllm_batch_limits_by_device(where, version, tokens, seqs, block):
    settings, _ = resolve(profile(engine="vllm", engine_version=version), None, None, LLAMA, where)
    assert settings.max_num_batched_tokens == tokens
    assert settings.max_num_seqs == seqs
    assert settings.block_size == block


@pytest.mark.parametrize(
    ("gib", "fraction", "chunk"),
    [
        # MiB: 512 + 1.5 x 8192 + 128 + 2 x 256 + 8 x 58 graphs = 13904 of 81100.8
        (79.2, 0.829, 8192),
        # 512 + 1.5 x 4096 + 128 + 2 x 48 + 8 x 50 graphs = 7280 of 22558.7
        (22.03, 0.677, 4096),
    ],
)
def test_sglang_memory_fraction_rule(gib, fraction, chunk):
    settings, sources = resolve(profile(engine="sglang"), None, None, LLAMA, device(gib))
    assert settings.memory_fraction is None
    assert "memory_fraction" not in sources
    assert automatic_fraction(LLAMA, settings, gib * 2**30) == fraction
    assert settings.max_num_batched_tokens == chunk
    assert settings.block_size == 1


def test_sglang_fields_and_dp_attention():
    launch = parse_launch(
        "python -m sglang.launch_server --model-path m --tp 8 --dp 8 --enable-dp-attention --max-running-requests 256 "
        "--max-total-tokens 500K --mem-fraction-static 0.85 --swa-full-tokens-ratio 0.5"
    )
    settings, sources = resolve(profile(count=8), launch, None, LATENT, H100)
    assert (settings.tensor_parallel, settings.data_parallel, settings.devices) == (8, 8, 8)
    assert settings.max_num_seqs == 32  # 256 over 8 ranks
    assert settings.kv_pool_tokens == 512_000
    assert settings.memory_fraction == 0.85
    assert settings.swa_full_tokens_ratio == 0.5
    assert sources["kv_pool_tokens"] == "launch --max-total-tokens"


def test_devices_follow_parallelism_where_no_count_is_declared():
    launch = parse_launch("vllm serve m -tp 4 -pp 2 -dp 2")
    assert resolve(profile(), launch, None, LLAMA, H100)[0].devices == 16
    inside = parse_launch("python -m sglang.launch_server --model m --tp 8 --dp 4 --enable-dp-attention")
    assert resolve(profile(), inside, None, LATENT, H100)[0].devices == 8


def test_a_declared_count_alone_means_tensor_parallelism():
    settings, sources = resolve(profile(engine="vllm", count=4), None, None, LLAMA, H100)
    assert settings.tensor_parallel == 4
    assert sources["tensor_parallel"] == "deployment.count, no parallelism declared"
    assert resolve(profile(engine="llamacpp", count=2), None, None, LLAMA, H100)[0].pipeline_parallel == 2


def test_pools_that_flags_fix():
    bytes_ = resolve(profile(), parse_launch("vllm serve m --kv-cache-memory-bytes 4G"), None, LLAMA, H100)[0]
    assert bytes_.kv_pool_bytes == 4 * GIB
    blocks = resolve(profile(), parse_launch("vllm serve m --num-gpu-blocks-override 512"), None, LLAMA, H100)[0]
    assert blocks.kv_pool_tokens == 512 * 16


def test_served_kv_facts_are_not_used_for_the_pool():
    served = Served(engine="vllm", api="chat", kv_tokens=1_000_000, kv_blocks=62_500, block_size=16)
    with_facts, _ = resolve(profile(), None, served, LLAMA, H100)
    without, _ = resolve(profile(), None, Served(engine="vllm", api="chat"), LLAMA, H100)
    assert with_facts == without
    assert with_facts.kv_pool_tokens is None


def test_llama_cpp_slots():
    launch = parse_launch("llama-server -m m.gguf -c 8192 -np 4 -ctk q8_0 -ctv q4_0 --swa-full -ub 256")
    settings, _ = resolve(profile(), launch, None, LLAMA, None)
    assert (settings.slots, settings.max_num_seqs, settings.max_model_len) == (4, 4, 2048)
    assert settings.kv_unified is False
    assert settings.kv_bytes == (34 / 32 + 18 / 32) / 2
    assert settings.full_swa_cache is True
    assert settings.ubatch == 256


def test_llama_cpp_automatic_slots_share_one_buffer():
    settings, sources = resolve(profile(), parse_launch("llama-server -m m.gguf -c 4096"), None, LLAMA, None)
    assert (settings.slots, settings.kv_unified, settings.max_model_len) == (4, True, 4096)
    assert sources["kv_unified"] == "slots are automatic"
    served = Served(engine="llamacpp", api="chat", max_num_seqs=4, max_model_len=32768)
    settings, sources = resolve(profile(), None, served, LLAMA, None)
    assert settings.kv_unified is True
    assert sources["kv_unified"].startswith("assumed")
    two = Served(engine="llamacpp", api="chat", max_num_seqs=2, max_model_len=2048)
    assert resolve(profile(), None, two, LLAMA, None)[0].kv_unified is False


DELTA = replace(
    LLAMA,
    layers=(Layers(kind="full", count=10, kv_heads=2, qk_head_dim=256, v_head_dim=256),),
    recurrent=(Recurrent(kind="linear", count=30, heads=32, head_dim=128, state_size=128, groups=16, conv_kernel=4),),
)
SPARSE = replace(LATENT, indexer=Indexer(count=61, token_bytes=132))


def launched(line: str, geometry: Geometry = LLAMA, where: Device | None = H100, **deployment):
    return resolve(profile(**deployment), parse_launch(line), None, geometry, where)


def test_the_formats_of_recurrent_states_in_vllm():
    """The window's format is the matrix's too, where neither the model nor a flag says another."""
    settings, sources = launched("vllm serve m --mamba-ssm-cache-dtype float32", DELTA)
    assert (settings.state_bytes, settings.conv_bytes) == (4.0, None)
    assert sources["state_bytes"] == "launch --mamba-ssm-cache-dtype"
    both = launched("vllm serve m --mamba-cache-dtype float32", DELTA)[0]
    assert (both.state_bytes, both.conv_bytes) == (4.0, 4.0)
    told = replace(DELTA, recurrent=(replace(DELTA.recurrent[0], state_bytes=2.0),))
    assert launched("vllm serve m --mamba-cache-dtype float32", told)[0].state_bytes is None
    assert launched("vllm serve m --mamba-cache-mode all", LLAMA)[0].mamba_cache_mode is None


def test_a_mode_of_states_that_the_release_cannot_keep():
    line = "vllm serve m --mamba-cache-mode all"
    settings, sources = launched(line, DELTA, engine_version="0.31.0")
    assert settings.mamba_cache_mode == "align"
    assert sources["mamba_cache_mode"] == "launch --mamba-cache-mode all, which vLLM 0.31.0 turns into align here"
    falcon = replace(DELTA, architecture="FalconH1ForCausalLM", recurrent=(replace(DELTA.recurrent[0], kind="mamba2"),))
    settings, sources = launched(line, falcon, engine_version="0.31.0")
    assert (settings.mamba_cache_mode, sources["mamba_cache_mode"]) == ("all", "launch --mamba-cache-mode")


FP32, FP16 = {"fp32": 1e12}, {"fp32": 1e12, "bf16": 1e12}
BF16, AMX = {"fp32": 1e12, "bf16": 2e12}, {"fp32": 1e12, "bf16": 16e12}


def cpu(flops: dict[str, float], vendor: str = "intel") -> Device:
    return replace(device(64, "this-cpu", "cpu", vendor=vendor), flops=flops)


@pytest.mark.parametrize(
    ("release", "where", "kind", "flag", "size"),
    [
        # check_and_update_config in vllm/platforms/cpu.py
        ("0.32.0", cpu(BF16), "mamba2", "", 4.0),
        ("0.32.0", cpu(BF16), "mamba2", "bfloat16", 4.0),
        ("0.32.0", cpu(BF16), "linear", "", 4.0),
        ("0.32.0", cpu(BF16), "linear", "bfloat16", 2.0),  # gated delta nets may ask for 16 bits
        ("0.32.0", cpu(FP16), "mamba2", "", None),
        ("0.32.0", cpu(BF16, "arm"), "mamba2", "", None),
        ("0.28.0", cpu(AMX), "linear", "bfloat16", 4.0),  # up to 0.28 AMX alone, and it always
        ("0.28.0", cpu(BF16), "mamba2", "", None),
        ("0.25.1", cpu(AMX), "mamba2", "", None),
        ("0.32.0", H100, "mamba2", "", None),
    ],
)
def test_vllms_cpu_backend_keeps_matrices_in_fp32(release, where, kind, flag, size):
    geometry = replace(DELTA, recurrent=(replace(DELTA.recurrent[0], kind=kind),))
    line = "vllm serve m" + (f" --mamba-ssm-cache-dtype {flag}" if flag else "")
    settings, _ = launched(line, geometry, where, engine_version=release)
    assert settings.state_bytes == size


def test_a_cpu_of_which_nothing_is_known_is_taken_to_have_avx512_bf16():
    served = Served(engine="vllm", api="chat", engine_version="0.32.0+cpu")
    settings, sources = resolve(profile(), None, served, DELTA, None)
    assert settings.state_bytes == 4.0
    assert sources["state_bytes"] == "vLLM on a CPU, assumed to have AVX512-BF16"
    told = replace(served, mamba_ssm_cache_dtype="bfloat16", sources={"mamba_ssm_cache_dtype": "/metrics"})
    assert resolve(profile(), None, told, DELTA, None)[1]["state_bytes"] == "served /metrics"
    convolutions = replace(DELTA, recurrent=(replace(DELTA.recurrent[0], kind="short_conv", state_size=0),))
    assert resolve(profile(), None, served, convolutions, None)[0].state_bytes is None


def test_states_as_the_server_tells_them():
    served = Served(
        engine="vllm",
        api="chat",
        mamba_cache_mode="none",
        mamba_cache_dtype="auto",
        mamba_ssm_cache_dtype="float32",
        kv_pool_bytes=2**30,
        prefix_caching=False,
        sources={"mamba_ssm_cache_dtype": "/metrics", "kv_pool_bytes": "/metrics"},
    )
    settings, sources = resolve(profile(), None, served, DELTA, H100)
    assert (settings.mamba_cache_mode, settings.state_bytes, settings.conv_bytes) == ("none", 4.0, None)
    assert (settings.kv_pool_bytes, sources["kv_pool_bytes"]) == (2**30, "served /metrics")  # vLLM repeats its flag


def test_what_sglang_reports_of_its_pool_does_not_size_the_computed_one():
    served = Served(engine="sglang", api="chat", kv_pool_bytes=2**30, mamba_slots=64, swa_full_tokens_ratio=0.5)
    settings, _ = resolve(profile(), None, served, DELTA, H100)
    assert (settings.kv_pool_bytes, settings.mamba_slots, settings.swa_full_tokens_ratio) == (None, 64, 0.5)


def test_sglangs_slots_for_states():
    settings, sources = launched(
        "python -m sglang.launch_server --model m --max-mamba-cache-size 128 --mamba-full-memory-ratio 0.5 "
        "--mamba-ssm-dtype bfloat16 --disable-radix-cache",
        DELTA,
    )
    assert (settings.mamba_slots, settings.mamba_full_ratio, settings.state_bytes) == (128, 0.5, 2.0)
    assert (settings.prefix_caching, sources["mamba_slots"]) == (False, "launch --max-mamba-cache-size")


def test_pinned_blocks_are_those_of_the_flag_in_a_hybrid_too():
    settings, sources = launched("vllm serve m --num-gpu-blocks-override 512 --no-enable-prefix-caching", DELTA)
    assert kv_pool(DELTA, settings, None).blocks == 512
    assert sources["kv_pool_tokens"] == "launch --num-gpu-blocks-override"


def test_decode_context_parallelism():
    settings, sources = launched("vllm serve m -tp 8 -dcp 8", LATENT)
    assert (settings.decode_context_parallel, sources["decode_context_parallel"]) == (8, "launch -dcp")
    assert launched("vllm serve m -tp 8", LATENT)[0].decode_context_parallel == 1


@pytest.mark.parametrize(
    ("key", "version", "word", "kept"),
    [
        ("h200-sxm", "0.19.0", "fp8", "fp8_ds_mla"),  # DeepSeek's packed latents
        ("h200-sxm", "0.12.0", "fp8", "fp8_ds_mla"),
        ("b200-sxm", "0.12.0", "fp8", "fp8_ds_mla"),
        ("b200-sxm", "0.19.0", "fp8", "fp8_e4m3"),  # FlashInfer's kernels read plain values
        ("rtx-pro-6000-bw", "0.32.0", "auto", "fp8_ds_mla"),  # ... and on small Blackwells packed ones alone
        ("h200-sxm", "0.19.0", "auto", "auto"),
    ],
)
def test_vllms_kernel_for_sparse_mla_decides_the_caches_format(key, version, word, kept):
    where = device(140, key, vendor="nvidia")
    settings, _ = resolve(
        profile(engine="vllm", engine_version=version, kv_cache_dtype=word), None, None, SPARSE, where
    )
    assert settings.kv_cache_dtype == kept
    latent, _ = resolve(profile(engine="vllm", engine_version=version, kv_cache_dtype=word), None, None, LATENT, where)
    assert latent.kv_cache_dtype == word


@pytest.mark.parametrize(
    ("heads", "tensor_parallel", "kept"), [(128, 8, "fp8_e4m3"), (128, 4, "fp8_ds_mla"), (64, 4, "fp8_e4m3")]
)
def test_vllm_0_18_chose_blackwells_kernel_by_the_heads_of_a_device(heads, tensor_parallel, kept):
    """FlashInfer's up to 16 of them (_get_backend_priorities in vllm/platforms/cuda.py of 0.18.1)."""
    declared = profile(
        engine="vllm", engine_version="0.18.1", kv_cache_dtype="fp8", tensor_parallel=tensor_parallel, count=8
    )
    where = device(178.4, "b200-sxm", vendor="nvidia")
    assert resolve(declared, None, None, replace(SPARSE, attention_heads=heads), where)[0].kv_cache_dtype == kept


def test_vllms_sparse_mla_on_rocm_keeps_8_bits_plain():
    """ROCM_AITER_MLA_SPARSE; up to 0.17 the model's class packed them on every device."""
    where = device(192, "mi300x", vendor="amd")
    words = [
        resolve(profile(engine="vllm", engine_version=version, kv_cache_dtype="fp8"), None, None, SPARSE, where)[0]
        for version in ("0.17.1", "0.24.0")
    ]
    assert [settings.kv_cache_dtype for settings in words] == ["fp8_ds_mla", "fp8_e4m3"]


def test_sglangs_sparse_mla_on_blackwell():
    settings, _ = launched(
        "python -m sglang.launch_server --model m", SPARSE, device(178.4, "b200-sxm", vendor="nvidia")
    )
    assert (settings.kv_cache_dtype, settings.kv_bytes, settings.block_size) == ("fp8_e4m3", 1.0, 64)


@pytest.mark.parametrize(
    ("engine", "version", "own", "word", "size"),
    [
        # resolve_kv_cache_dtype_string in vllm/utils/torch_utils.py
        ("vllm", "0.13.0", "fp8", "auto", 2.0),
        ("vllm", "0.14.0", "fp8", "fp8_e4m3", 1.0),
        ("vllm", "0.19.1", "nvfp4", "auto", 2.0),
        ("vllm", "0.20.0", "nvfp4", "nvfp4", 0.5625),
        # configure_kv_cache_dtype in srt/mem_cache/kv_cache_dtype.py
        ("sglang", "0.5.2", "fp8", "auto", 2.0),
        ("sglang", "0.5.3", "fp8", "fp8_e4m3", 1.0),
        ("sglang", "0.5.23", "nvfp4", "auto", 2.0),
        # ModelLoader in tensorrt_llm/llmapi/llm_utils.py
        ("trtllm", None, "fp8", "fp8_e4m3", 1.0),
        ("lmdeploy", None, "fp8", "auto", 2.0),
    ],
)
def test_a_checkpoint_brings_the_format_of_its_cache(engine, version, own, word, size):
    geometry = replace(LLAMA, kv_format=own)
    settings, sources = resolve(profile(engine=engine, engine_version=version), None, None, geometry, H100)
    assert (settings.kv_cache_dtype, settings.kv_bytes) == (word, size)
    assert sources["kv_cache_dtype"] == ("the model's own" if word == "auto" else "the checkpoint's own")


def test_a_word_for_the_cache_beats_the_checkpoints():
    geometry = replace(LLAMA, kv_format="fp8")
    asked, sources = resolve(profile(engine="vllm", kv_cache_dtype="bfloat16"), None, None, geometry, H100)
    assert (asked.kv_bytes, sources["kv_bytes"]) == (2.0, "declared")
    assert launched("vllm serve m --kv-cache-dtype auto", geometry)[0].kv_bytes == 1.0


def test_the_checkpoints_cache_decides_the_kernel_of_mla():
    """FlashAttention on Hopper reads no 8 bits: FlashMLA's blocks of 64 instead of 16."""
    hopper = device(140, "h200-sxm", vendor="nvidia")
    for own, block in ((None, 16), ("fp8", 64)):
        geometry = replace(LATENT, kv_format=own)
        assert resolve(profile(engine="vllm"), None, None, geometry, hopper)[0].block_size == block


def test_keys_and_values_of_llamacpp_have_formats_of_their_own():
    settings, sources = launched("llama-server -m m.gguf -c 8192 -ctk q8_0 -ctv q4_0")
    assert (settings.key_bytes, settings.value_bytes) == (34 / 32, 18 / 32)
    assert sources["value_bytes"] == "launch -ctv"
    alike = launched("llama-server -m m.gguf -c 8192 -ctk q8_0")[0]
    assert (alike.key_bytes, alike.value_bytes) == (34 / 32, 2.0)
    assert launched("llama-server -m m.gguf -c 8192")[0].key_bytes is None


def test_the_hardware_decides_with_the_settings():
    settings, _ = resolve(profile(engine="vllm"), None, None, LLAMA, device(79.2, vendor="nvidia"))
    assert (settings.vendor, settings.capability) == ("nvidia", (9, 0))
    assert resolve(profile(engine="vllm"), None, None, LLAMA, None)[0].capability is None


@pytest.mark.parametrize(
    ("line", "where", "steps"),
    [
        ("vllm serve m --async-scheduling", H100, 2),
        ("vllm serve m --no-async-scheduling", H100, 1),
        ("vllm serve m --no-async-scheduling -pp 2", H100, 2),
        ("vllm serve m --async-scheduling -pp 2", H100, None),
        ("vllm serve m", H100, None),
    ],
)
def test_steps_in_flight(line, where, steps):
    assert launched(line, LLAMA, where)[0].steps_in_flight == steps


@pytest.mark.parametrize(
    ("speculative", "release", "steps"),
    [
        # vllm/config/vllm.py: what is drafted on the host waits for the step before
        ('{"method": "ngram", "num_speculative_tokens": 4}', "0.32.0", 1),
        ('{"model": "ngram", "num_speculative_tokens": 4}', "0.32.0", 1),
        ('{"method": "suffix"}', "0.32.0", 1),
        ('{"method": "medusa", "model": "m", "num_speculative_tokens": 4}', "0.32.0", 1),
        ('{"method": "ngram_gpu", "num_speculative_tokens": 4}', "0.32.0", None),
        ('{"method": "eagle3", "model": "m", "num_speculative_tokens": 3}', "0.32.0", None),
        ('{"method": "mtp"}', "0.32.0", None),
        ('{"model": "small", "num_speculative_tokens": 3}', "0.28.0", None),
        ('{"model": "small", "num_speculative_tokens": 3}', "0.27.1", 1),
        ('{"method": "draft_model", "model": "small", "num_speculative_tokens": 3}', "0.27.1", 1),
    ],
)
def test_drafts_that_no_step_is_scheduled_ahead_of(speculative, release, steps):
    settings, sources = launched(f"vllm serve m -sc '{speculative}'", LLAMA, engine_version=release)
    assert settings.steps_in_flight == steps
    assert sources.get("steps_in_flight") == (f"default of vLLM {release}" if steps else None)


def test_the_build_of_the_engine_tells_whose_device_it_is():
    """vLLM 0.32.0+cpu holds one step of 2,048 tokens, in blocks of 128."""
    served = Served(engine="vllm", api="chat", engine_version="0.32.0+cpu")
    settings, sources = resolve(profile(), None, served, LLAMA, None)
    assert (settings.vendor, sources["vendor"]) == ("cpu", "engine version 0.32.0+cpu")
    assert (settings.steps_in_flight, settings.block_size, settings.max_num_seqs) == (1, 128, 128)
    rocm = replace(served, engine_version="0.18.0+rocm700")
    assert resolve(profile(), None, rocm, LATENT, None)[0].vendor == "amd"
    assert resolve(profile(), None, rocm, LATENT, None)[0].block_size == 16
    assert resolve(profile(), None, replace(served, engine_version="0.18.0"), LLAMA, None)[0].vendor is None


@pytest.mark.parametrize(
    ("line", "geometry", "block", "vendor"),
    [
        ("vllm serve m", LLAMA, 128, "cpu"),
        ("vllm serve m", LLAMA, 16, None),
        ("vllm serve m --block-size 128", LLAMA, 128, None),
        ("vllm serve m", LATENT, 128, None),
        ("vllm serve m", DELTA, 128, None),
    ],
)
def test_blocks_that_only_the_cpu_starts_with_tell_the_device(line, geometry, block, vendor):
    """The version a running server tells has no build in it."""
    served = Served(engine="vllm", api="chat", engine_version="0.32.0", block_size=block)
    settings, _ = resolve(profile(), parse_launch(line), served, geometry, None)
    assert settings.vendor == vendor
    assert settings.steps_in_flight == (1 if vendor else None)


def test_the_cpu_schedules_nothing_ahead():
    assert resolve(profile(engine="vllm"), None, None, LLAMA, device(64, "cpu", "cpu"))[0].steps_in_flight == 1


def test_the_phase_of_an_instance():
    prefill = launched("python -m sglang.launch_server --model m --disaggregation-mode prefill")[0]
    assert prefill.disaggregated == "prefill"
    assert resolve(profile(engine="vllm", disaggregated=True), None, None, LLAMA, H100)[0].disaggregated == "yes"
    assert launched("vllm serve m")[0].disaggregated is None


def test_attention_that_writes_its_scores():
    assert (
        launched("python -m sglang.launch_server --model m --attention-backend torch_native")[0].fused_attention
        is False
    )
    assert launched("llama-server -m m.gguf -fa off")[0].fused_attention is False
    assert launched("llama-server -m m.gguf")[0].fused_attention is True
    assert launched("llama-server -m m.gguf", engine_version="b6123")[0].fused_attention is False


def test_lmdeploy_is_resolved_offline():
    settings, sources = launched("lmdeploy serve api_server m --tp 2 --quant-policy 4", LLAMA, device(79.2, "h100-sxm"))
    assert (settings.engine, settings.tensor_parallel, settings.devices) == ("lmdeploy", 2, 2)
    assert (settings.memory_fraction, settings.block_size, settings.max_num_seqs) == (0.8, 64, 1024)
    assert (settings.kv_cache_dtype, settings.kv_bytes, settings.prefix_caching) == ("int4", 0.5, False)
    assert sources["memory_fraction"] == "default of LMDeploy"
    assert kv_pool(LLAMA, settings, 2**34).rule.startswith("LMDeploy (not checked on a running engine)")


@pytest.mark.parametrize(
    ("line", "tokens", "layers"),
    [
        ("""vllm serve m -sc '{"method": "eagle3", "num_speculative_tokens": 3}'""", 3, 1),
        ("""vllm serve m -sc '{"method": "ngram", "num_speculative_tokens": 4}'""", 4, 0),
        ("""vllm serve m -sc '{"method": "mtp"}'""", 1, 1),  # as many as the checkpoint has modules
        ("""vllm serve m -sc '{"model": "small", "num_speculative_tokens": 5}'""", 5, None),
        ("python -m sglang.launch_server --model m --speculative-algorithm EAGLE", 4, 1),
        ("python -m sglang.launch_server --model m --speculative-algorithm NEXTN --speculative-num-steps 2", 3, 1),
        ("python -m sglang.launch_server --model m --speculative-algorithm NGRAM", 4, 0),
        ("vllm serve m", 0, None),
    ],
)
def test_drafts_and_their_layers(line, tokens, layers):
    settings, _ = launched(line, LATENT)
    assert (settings.speculative_tokens, settings.draft_layers) == (tokens, layers)


def test_gemma_4s_assistant_is_a_model_whose_cache_is_the_targets():
    gemma = replace(LLAMA, architecture="Gemma4ForConditionalGeneration")
    for draft in ('"method": "mtp"', '"model": "google/gemma-4-31B-it-assistant"'):
        settings, _ = launched(f"""vllm serve m -sc '{{{draft}, "num_speculative_tokens": 4}}'""", gemma)
        assert (settings.speculative_tokens, draft_layers(gemma, settings)) == (4, 0)
    settings, _ = launched("""vllm serve m -sc '{"model": "m-eagle3", "num_speculative_tokens": 4}'""", gemma)
    assert draft_layers(gemma, settings) == 1


def test_a_draft_model_of_its_own_brings_its_layers():
    line = """vllm serve m -sc '{"model": "small", "num_speculative_tokens": 5}'"""
    settings, sources = resolve(profile(), parse_launch(line), None, LATENT, H100, draft=LLAMA)
    assert (settings.draft, settings.draft_layers) == (LLAMA.layers, None)
    assert sources["draft"] == "launch -sc"
    heads = line.replace('{"model"', '{"method": "eagle3", "model"')
    assert resolve(profile(), parse_launch(heads), None, LATENT, H100, draft=LLAMA)[0].draft == ()
    assert resolve(profile(), parse_launch("vllm serve m"), None, LATENT, H100, draft=LLAMA)[0].draft == ()


def test_which_model_drafts():
    line = parse_launch("vllm serve m --spec-model small --spec-tokens 4")
    assert drafting(profile(), line) == "small"
    assert drafting(profile(speculative={"model": "other", "num_speculative_tokens": 2}), line) == "other"
    assert drafting(profile(speculative="none"), line) is None
    assert drafting(profile(), parse_launch("vllm serve m --spec-method eagle3 --spec-model x-EAGLE3")) is None
    standalone = "python -m sglang.launch_server --model m --speculative-algorithm STANDALONE"
    assert drafting(profile(), parse_launch(f"{standalone} --speculative-draft-model-path small")) == "small"
    assert drafting(profile(), None) is None


def test_sglang_drafts_more_for_a_llama_and_tells_how_many():
    line = "python -m sglang.launch_server --model m --speculative-algorithm EAGLE3"
    assert launched(line, LLAMA)[0].speculative_tokens == 8
    served = Served(engine="sglang", api="chat", speculative="EAGLE", speculative_tokens=6)
    assert resolve(profile(), None, served, LLAMA, H100)[0].speculative_tokens == 6


def test_speculation():
    given = resolve(
        profile(engine="vllm", speculative={"method": "ngram", "num_speculative_tokens": 5}), None, None, LLAMA, H100
    )
    assert given[0].speculative_tokens == 5
    named = resolve(profile(engine="vllm", speculative="eagle3"), None, None, LLAMA, H100)
    assert named[0].speculative_tokens == 3
    assert named[1]["speculative_tokens"] == "assumed, eagle3 gives no number, declared"
    off = resolve(
        profile(engine="vllm", speculative="none"), parse_launch("vllm serve m --spec-tokens 4"), None, LLAMA, H100
    )
    assert off[0].speculative_tokens == 0


def test_kernel_graphs():
    assert resolve(profile(engine="vllm", max_num_seqs=64), None, None, LLAMA, H100)[0].captured_batch == 128
    assert resolve(profile(engine="vllm"), None, None, LLAMA, H100)[0].captured_batch == 512
    assert resolve(profile(engine="vllm", enforce_eager=True), None, None, LLAMA, H100)[0].captured_batch is None
    assert resolve(profile(engine="sglang"), None, None, LLAMA, H100)[0].captured_batch == 256
    assert resolve(profile(engine="sglang", tensor_parallel=4), None, None, LLAMA, H100)[0].captured_batch == 512
    assert resolve(profile(engine="sglang", max_num_seqs=16), None, None, LLAMA, H100)[0].captured_batch == 16


def test_formats_of_an_fp8_model_follow_the_device():
    on_hopper, sources = resolve(profile(engine="sglang", tensor_parallel=8), None, None, LATENT, H100)
    assert (on_hopper.weight_bits, on_hopper.compute_dtype, on_hopper.kv_bytes) == (
        pytest.approx(8, abs=0.01),
        "fp8",
        2.0,
    )
    assert sources["weight_bits"] == "the model's own"
    on_ampere, _ = resolve(profile(engine="sglang"), None, None, LATENT, device(79.2, flops=("bf16",)))
    assert on_ampere.compute_dtype == "bf16"


def test_an_unknown_format_is_said_to_be_assumed():
    settings, sources = resolve(
        profile(engine="vllm", quantization="zip", kv_cache_dtype="odd"), None, None, LLAMA, H100
    )
    assert (settings.weight_bits, sources["weight_bits"]) == (16.0, "assumed, zip is not known")
    assert (settings.kv_bytes, sources["kv_bytes"]) == (2.0, "assumed, odd is not known")


def test_quantization_none_is_none():
    settings, sources = resolve(profile(engine="vllm", quantization="none"), None, None, LLAMA, H100)
    assert settings.quantization is None
    assert (settings.weight_bits, sources["quantization"]) == (16.0, "declared")


@pytest.mark.parametrize(
    ("word", "bits"),
    [
        (None, 16.0),
        ("fp8", 8 + 32 / 128**2),  # an fp32 scale for a block of 128 x 128
        ("awq", 4 + (16 + 4) / 128),  # a 16-bit scale and a 4-bit zero for 128 values
        ("gptq_marlin", 4 + (16 + 4) / 128),
        ("nvfp4", 4.5),
        ("mxfp4", 4.25),
        ("int4", 4 + 16 / 128),
        ("w4afp8", 4 + 16 / 128),
        ("bf16", 16.0),
        ("f32", 32.0),
        ("q8_0", 8.5),
        ("q4_0", 4.5),
        ("q4_k_m", 4.89),
        ("iq2_xxs", 2.38),
        ("UD-Q4_K_XL", 4.89),  # what publishers put before llama.cpp's words
        ("i1-Q4_K_M", 4.89),
        ("4bit", 4 + 32 / 64),  # MLX: a 16-bit scale and bias for 64 values
        ("MLX 4bit", 4.5),
        ("mlx-6bit", 6.5),
        ("mlx_q8", 8.5),
        ("gptq-4bit", 4 + (16 + 4) / 128),
        ("8-bit", 8 + 32 / 128**2),
        ("smoothquant", 8 + 32 / 128**2),
        ("q4", 4.89),  # as people shorten them
        ("Q8", 8.5),
        ("UD-Q8_K_XL", 8.5),
        ("TQ1_0", 54 * 8 / 256),  # ggml-common.h: blocks of 54 bytes for 256 values
        ("q4f16_1", 4 + 16 / 32),  # MLC-LLM
        ("bitsandbytes", 4.5),
        ("bnb-4bit", 4.5),
        ("bnb-8bit", 8 + 32 / 128**2),
        ("w8a8_int8", 8 + 32 / 128**2),
        ("modelopt", 8 + 32 / 128**2),  # a loader, most of whose checkpoints are fp8
        ("q9_z", None),
        ("zip", None),
    ],
)
def test_weight_bits(word, bits):
    assert formats.weight_bits(word, "bf16") == bits


@pytest.mark.parametrize(
    ("word", "size"),
    [
        ("auto", 2.0),
        ("fp8_e4m3", 1.0),
        ("fp8_ds_mla", 1.0),
        ("int8", 1.0),
        ("bfloat16", 2.0),
        ("f32", 4.0),
        ("q8_0", 34 / 32),
        ("q4_0", 18 / 32),
        ("fp4_e2m1", 0.5625),
        ("odd", None),
    ],
)
def test_kv_bytes(word, size):
    assert formats.kv_bytes(word, "bf16") == size


def test_which_engine_it_is():
    launch = parse_launch("llama-server -m m.gguf")
    served = Served(engine="sglang", api="chat", sources={"engine": "its own answers"})
    assert engine_of(profile(engine="trtllm"), launch, served) == ("trtllm", "declared")
    assert engine_of(profile(), launch, served) == ("llamacpp", "launch command")
    assert engine_of(profile(), None, served) == ("sglang", "served its own answers")
    assert engine_of(profile(), None, None)[0] == "generic"
    assert engine_of(profile(url="emulator"), None, None)[0] == "vllm"
    assert engine_of(profile(url="emulator", mem_fraction_static=0.8), None, None)[0] == "sglang"


def test_a_generic_server_has_no_defaults():
    settings, sources = resolve(profile(), None, None, None, None)
    assert settings.engine == "generic"
    assert settings.max_num_seqs is settings.max_num_batched_tokens is settings.max_model_len is None
    assert not any(source.startswith("default") for source in sources.values())


def test_trtllm_defaults():
    settings, _ = resolve(profile(engine="trtllm"), None, None, LLAMA, H100)
    assert (settings.memory_fraction, settings.block_size) == (0.9, 32)
    assert (settings.max_num_seqs, settings.max_num_batched_tokens) == (2048, 8192)


# ---------------------------------------------------------------------------------------------------------- conflicts


def said(profile_, launch=None, served=None, lines=None):
    return [
        (c.field, c.first, c.first_where, c.second, c.second_where)
        for c in conflicts(profile_, launch, served, lines or {})
    ]


def test_declared_against_launch_names_both_places():
    launch = parse_launch("vllm serve m --max-model-len 16384 -tp 2")
    lines = {"deployment.max_model_len": Location("p.yaml", 12, 3)}
    assert said(profile(max_model_len=32768, tensor_parallel=2), launch, None, lines) == [
        ("deployment.max_model_len", "32768", "p.yaml:12:3", "16384", "launch --max-model-len")
    ]


def test_declared_and_launch_against_served():
    launch = parse_launch("vllm serve m --served-model-name tiny --max-model-len 4096 --max-num-queued-reqs 20")
    served = Served(
        engine="vllm",
        api="chat",
        model="tiny",
        max_model_len=2048,
        queue_limit=10,
        block_size=128,
        sources={"max_model_len": "/v1/models", "block_size": "/metrics"},
    )
    assert said(profile(block_size=16), launch, served) == [
        ("deployment.max_model_len", "4096", "launch --max-model-len", "2048", "served /v1/models"),
        ("deployment.block_size", "16", "deployment.block_size", "128", "served /metrics"),
        ("queue_limit", "20", "launch --max-num-queued-reqs", "10", "served"),
    ]


@pytest.mark.parametrize(
    ("declared", "served"),
    [
        ({"engine_version": "0.32"}, {"engine_version": "0.32.0+cpu"}),
        ({"kv_cache_dtype": "fp8"}, {"kv_cache_dtype": "fp8_e4m3"}),
        ({"quantization": "awq"}, {"quantization": "awq_marlin"}),
        ({"speculative": {"method": "ngram"}}, {"speculative": "on"}),
        ({"gpu_memory_utilization": 0.92}, {"gpu_memory_utilization": 0.9200001}),
        ({"enforce_eager": False}, {"enforce_eager": False}),
        ({"max_num_seqs": "auto"}, {"max_num_seqs": 8}),
        ({}, {"max_num_seqs": 8}),
    ],
)
def test_the_same_said_differently_is_no_conflict(declared, served):
    assert said(profile(**declared), None, Served(engine="vllm", api="chat", **served)) == []


@pytest.mark.parametrize(
    ("declared", "served"),
    [
        ({"engine_version": "0.31"}, {"engine_version": "0.32.0"}),
        ({"kv_cache_dtype": "fp8"}, {"kv_cache_dtype": "auto"}),
        ({"gpu_memory_utilization": 0.92}, {"gpu_memory_utilization": 0.9}),
        ({"enforce_eager": False}, {"enforce_eager": True}),
        ({"speculative": "eagle3"}, {"sources": {"speculative": "/metrics, no spec_decode counters"}}),
        ({"speculative": "none"}, {"speculative": "EAGLE"}),
        ({"disaggregated": False}, {"disaggregated": True}),
    ],
)
def test_a_difference_is_a_conflict(declared, served):
    found = said(profile(**declared), None, Served(engine="vllm", api="chat", **served))
    assert [field for field, *_ in found] == [f"deployment.{next(iter(declared))}"]


def test_a_block_enlarged_to_the_states_of_a_hybrid_is_no_conflict():
    """vLLM pads a hybrid's blocks: 784 = 49 x 16. A kernel's 64 is another thing than the 16 that was asked."""

    def found(told: int) -> list[str]:
        served = Served(engine="vllm", api="chat", block_size=told)
        return [c.second for c in conflicts(profile(), parse_launch("vllm serve m --block-size 16"), served, {})]

    assert found(784) == []
    assert found(64) == ["64"]


def test_states_launched_and_served_otherwise_are_a_conflict_of_capacity():
    launch = parse_launch("vllm serve m --mamba-cache-mode align --mamba-ssm-cache-dtype auto")
    served = Served(engine="vllm", api="chat", mamba_cache_mode="none", mamba_ssm_cache_dtype="float32")
    [found] = conflicts(profile(), launch, served, {})
    assert (found.field, found.first, found.second, found.on_capacity) == ("mamba_cache_mode", "align", "none", True)


def test_another_catalogue_model_is_a_conflict_and_an_alias_is_none():
    declared = profile(model="Qwen/Qwen3-8B")

    def conflicts_with(model):
        return [field for field, *_ in said(declared, None, Served(engine="vllm", api="chat", model=model))]

    assert conflicts_with("meta-llama/Llama-3.1-8B-Instruct") == ["deployment.model"]
    assert conflicts_with("qwen3-8b") == []
    assert conflicts_with("chat-prod") == []


def test_engine_model_and_device_count():
    launch = parse_launch("vllm serve Qwen/Qwen3-8B -tp 4")
    served = Served(engine="sglang", api="chat", model="Qwen/Qwen3-32B")
    declared = profile(engine="trtllm", model="Qwen/Qwen3-14B", count=8)
    assert [field for field, *_ in said(declared, launch, served)] == [
        "endpoint.engine",
        "endpoint.engine",
        "deployment.model",
        "deployment.model",
        "endpoint.model",
        "deployment.count",
    ]
    assert (
        said(profile(model="qwen3-8b", count=4), launch, Served(engine="vllm", api="chat", model="Qwen/Qwen3-8B")) == []
    )
    assert said(profile(model="./models/tiny"), launch) == []


def test_every_flavour_resolves_without_anything():
    for name in FLAVOURS:
        settings, sources = resolve(profile(engine=name), None, None, None, None)
        assert settings.engine == name
        assert sources["engine"] == "declared"


def test_a_rank_of_sglangs_dp_attention_tells_its_own_part():
    """256 over 8 ranks is 32 on each; 64 there would be 512 in all."""
    launch = parse_launch(
        "python -m sglang.launch_server --model-path m --tp 8 --dp 8 --enable-dp-attention --max-running-requests 256"
    )

    def found(told: int) -> list[str]:
        server = Served(engine="sglang", api="chat", max_num_seqs=told, sources={"max_num_seqs": "/server_info"})
        return [c.first for c in conflicts(profile(count=8), launch, server, {}) if c.field.endswith("max_num_seqs")]

    assert found(32) == []
    assert found(64) == ["32"]
