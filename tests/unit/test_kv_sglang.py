"""SGLang's pools against what 0.5.23 printed (its own allocator, on a CPU), published start-up logs, and its source.

A line reads "KV Cache is allocated. #tokens: N" or "SWAKVPool mem usage: X GB, swa size: N, full size: M".
"""

from typing import Any

import pytest
from kv_shapes import DEEPSEEK_R1, DEEPSEEK_V32, GIB, GPT_OSS_20B, attention, latent, model

from auditor.theory.kv.cells import KvPool
from auditor.theory.kv.geometry import Geometry, Indexer
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.settings import Settings

# The models that were run: four layers of 2 x 32, of 2 x 128, of a latent of 576; three full and three sliding layers
# of 2 x 32 with a window of 128.
GQA = model(attention(4, 2, 32), architecture="LlamaForCausalLM")
QWEN3 = model(attention(4, 2, 128), architecture="Qwen3ForCausalLM")
MLA = model(latent(4), architecture="DeepseekV2ForCausalLM")
GEMMA3 = model(attention(5, 2, 64, 512), attention(1, 2, 64), architecture="Gemma3ForCausalLM")
GPT_OSS = model(attention(3, 2, 32), attention(3, 2, 32, 128), architecture="GptOssForCausalLM")


def on_sglang(**changes: Any) -> Settings:
    return Settings(**{"engine": "sglang", "engine_version": "0.5.23", **changes})


def pool_of(geometry: Geometry, size: float | None = None, **changes: Any) -> KvPool:
    return kv_pool(geometry, on_sglang(**changes), size)


# --------------------------------------------------------------------------------------------------------------- tokens

PRINTED = [  # model, settings, tokens as printed, bytes that one takes
    (GQA, {"kv_pool_tokens": 65_536}, 65_536, 1024),
    (GQA, {"kv_pool_tokens": 100_000, "block_size": 64}, 99_968, 1024),
    (GQA, {"kv_pool_bytes": 958_295 * 1024}, 958_295, 1024),  # K and V of 0.46 GB each
    (QWEN3, {"kv_pool_bytes": 228_736 * 4096, "block_size": 128}, 228_736, 4096),  # 0.44 GB each
    (MLA, {"kv_pool_tokens": 5_000, "block_size": 16}, 4_992, 4608),  # 0.02 GB in all
    (GEMMA3, {"kv_pool_tokens": 20_000}, 20_000, 3072),  # sliding layers in full: 0.03 GB each
]


@pytest.mark.parametrize(("geometry", "changes", "tokens", "size"), PRINTED)
def test_tokens_are_those_printed(geometry, changes, tokens, size):
    pool = pool_of(geometry, **changes)
    assert (pool.tokens, pool.sliding_tokens, pool.state_slots) == (tokens, None, None)
    assert pool.bytes == tokens * size


def test_tokens_are_floored_to_pages_and_capped_by_a_flag():
    assert pool_of(GQA, 1000 * 1024, block_size=64).tokens == 960
    assert pool_of(GQA, 1000 * 1024, block_size=64).blocks == 15
    assert pool_of(GQA, 1000 * 1024, kv_pool_tokens=700).tokens == 700
    assert pool_of(GQA, 1000 * 1024, kv_pool_tokens=2000).tokens == 1000
    assert pool_of(GQA, 0.0).tokens == 0


def test_requests_take_whole_pages():
    pool = pool_of(GQA, 1000 * 1024, block_size=64)
    assert capacity(GQA, on_sglang(block_size=64), pool, 65) == 960 / 128


def test_a_published_log():
    """Qwen3-235B-A22B on TP 4: K and V of 8.23 GB each are 367,404 tokens (vllm-project/vllm issue 21348)."""
    qwen = model(attention(94, 4, 128))
    pool = pool_of(qwen, kv_pool_bytes=round(2 * 8.23 * GIB), engine_version="0.4.x", tensor_parallel=4, devices=4)
    assert pool.tokens == pytest.approx(367_404, rel=0.0006)  # K and V are rounded to 0.01 GB


def test_four_bit_caches_keep_a_scale_for_sixteen_values():
    """d / 2 + d / 16 bytes a vector: 2 x 94 x 128 x 9 / 16 = 13,536 bytes a token on each of four devices."""
    qwen = model(attention(94, 4, 128))
    four = {"kv_cache_dtype": "fp4_e2m1", "kv_bytes": 0.5 + 1 / 16, "tensor_parallel": 4, "devices": 4}
    assert pool_of(qwen, 13_536 * 1000, **four).tokens == 1000


def test_mxfp8_caches_keep_a_scale_for_thirty_two_values():
    assert pool_of(GQA, 1000 * 528, kv_cache_dtype="mxfp8", kv_bytes=1.0).tokens == 1000  # 512 + 512 / 32


# -------------------------------------------------------------------------------------------------------------- latents


def test_latents_are_whole_on_every_device():
    settings = {"tensor_parallel": 8, "devices": 8}
    assert pool_of(DEEPSEEK_R1, 1000 * 61 * 1152, **settings).tokens == 1000


def test_attention_ranks_inside_the_tp_group_keep_their_heads():
    """TP 8 and DP 8 on 8 devices: each rank has all four heads and a pool of its own, eight of them in all."""
    qwen = model(attention(94, 4, 128))
    inside = {"devices": 8, "tensor_parallel": 8, "data_parallel": 8}
    pool = pool_of(qwen, 1000 * 94 * 2048, **inside)
    assert pool.tokens == 1000
    assert capacity(qwen, on_sglang(**inside), pool, 500) == 16


PACKED = [  # release, vendor, compute capability, bytes of a latent that memory is divided by, and that a token takes
    ("0.5.23", "nvidia", (9, 0), 656, 656),
    ("0.5.23", "nvidia", (10, 0), 576, 576),
    ("0.5.23", "amd", None, 576, 576),
    ("0.5.9", "nvidia", (10, 0), 576, 656),
    ("0.5.12", "nvidia", (9, 0), 576, 656),
    ("0.5.23", None, None, 656, 656),
]


@pytest.mark.parametrize(("version", "vendor", "capability", "charged", "taken"), PACKED)
def test_sparse_latents_in_fp8_are_packed_where_the_kernels_want_it(version, vendor, capability, charged, taken):
    """132 bytes of index keys beside each latent (calculate_mla_kv_cache_dim, _compute_cell_size)."""
    facts = {"engine_version": version, "vendor": vendor, "capability": capability}
    pool = pool_of(DEEPSEEK_V32, 1000 * 61 * (charged + 132), kv_cache_dtype="fp8_e4m3", kv_bytes=1.0, **facts)
    assert pool.tokens == 1000
    assert pool.bytes == 1000 * 61 * (taken + 132)


def test_index_keys_are_stored_by_the_layers_that_compute_them():
    """20 of 78 layers compute a top-k: the others keep no index keys, but up to 0.5.17 all did."""
    glm = model(latent(78), Indexer(count=20, token_bytes=132))
    assert pool_of(glm, 1000 * (78 * 1152 + 20 * 132)).tokens == 1000
    assert pool_of(glm, 1000 * 78 * (1152 + 132), engine_version="0.5.17").tokens == 1000


def test_a_logged_pool_of_sparse_latents_is_divided_by_what_it_stores():
    pool = pool_of(DEEPSEEK_V32, kv_pool_bytes=1000 * 61 * 788, kv_cache_dtype="fp8_ds_mla", kv_bytes=1.0)
    assert pool.tokens == 1000
    older = {"engine_version": "0.5.9", "kv_cache_dtype": "fp8_ds_mla", "kv_bytes": 1.0}
    assert pool_of(DEEPSEEK_V32, kv_pool_bytes=1000 * 61 * 788, **older).tokens == 1000


# ---------------------------------------------------------------------------------------------------- other parallelism


def test_context_parallel_ranks_share_tokens():
    """TP 8 with 4 ranks of context: 8 heads over 2 groups, and a request's tokens over the ranks of its group."""
    eight = model(attention(10, 8, 64))
    settings = {"tensor_parallel": 8, "devices": 8, "decode_context_parallel": 4}
    pool = pool_of(eight, 1000 * 10 * 4 * 256, **settings)
    assert pool.tokens == 1000
    assert capacity(eight, on_sglang(**settings), pool, 400) == 10


def test_index_keys_are_whole_on_every_rank_of_context():
    settings = {"tensor_parallel": 8, "devices": 8, "decode_context_parallel": 4}
    assert pool_of(DEEPSEEK_V32, 1000 * 61 * (1152 + 4 * 132), **settings).tokens == 1000


def test_a_pipeline_stage_holds_its_layers():
    settings = {"pipeline_parallel": 3, "devices": 3}
    assert pool_of(model(attention(32, 8, 128)), 1000 * 11 * 4096, **settings).tokens == 1000


# --------------------------------------------------------------------------------------------------------------- drafts


def test_draft_layers_count_from_0_5_14_on():
    assert pool_of(GQA, 5 * 1024_000, speculative_tokens=3).tokens == 4000
    assert pool_of(GQA, 5 * 1024_000, speculative_tokens=3, draft_layers=2).tokens == 5 * 1024_000 // 1536
    assert pool_of(GQA, 5 * 1024_000, speculative_tokens=3, draft_layers=0).tokens == 5000
    assert pool_of(GQA, 5 * 1024_000, speculative_tokens=3, engine_version="0.5.12").tokens == 5000


def test_a_logged_pool_is_the_targets_own():
    assert pool_of(GQA, kv_pool_bytes=5 * 1024_000, speculative_tokens=3).tokens == 5000


def test_a_draft_model_counts_its_own_layers():
    """10 layers of 2 x 4 x 64 x 2 bytes beside the target's 1,024 a token."""
    draft = (attention(10, 4, 64),)
    assert pool_of(GQA, 5 * 1024_000, speculative_tokens=3, draft=draft).tokens == 5 * 1024_000 // (1024 + 10_240)


def test_a_sparse_drafts_index_counts():
    plain, drafted = (pool_of(DEEPSEEK_V32, 4 * GIB, speculative_tokens=n).tokens for n in (0, 2))
    assert (plain, drafted) == (4 * GIB // (61 * 1284), 4 * GIB // (62 * 1284))


# ------------------------------------------------------------------------------------------------------ sliding windows


def test_sliding_tokens_are_a_share_of_the_full_ones():
    """--max-total-tokens 5000 in pages of 16: full 4,992, sliding 3,984 as printed."""
    pool = pool_of(GPT_OSS, kv_pool_tokens=5_000, block_size=16)
    assert (pool.tokens, pool.sliding_tokens) == (4_992, 3_984)
    assert pool.bytes == (4_992 + 3_984) * 768


def test_a_smaller_ratio_buys_full_tokens():
    """--swa-full-tokens-ratio 0.25: full 1,034,883, sliding 258,720, 0.93 GB as printed."""
    size = (1_034_883 + 258_720) * 768
    assert round(size / GIB, 2) == 0.93
    pool = pool_of(GPT_OSS, size + 700, swa_full_tokens_ratio=0.25)
    assert (pool.tokens, pool.sliding_tokens) == (1_034_883, 258_720)


def test_without_prefix_caching_the_requests_size_the_sliding_pool():
    """--disable-radix-cache --max-running-requests 16 --chunked-prefill-size 1024 --page-size 16: 6,656 sliding tokens
    and 1,152,416 full ones as printed. 16 x (127 + 128 + 2 x 16) + 2 x 1024 + 16 = 6,656.
    """
    flags = {"prefix_caching": False, "max_num_seqs": 16, "max_num_batched_tokens": 1024, "block_size": 16}
    pool = pool_of(GPT_OSS, (1_152_416 + 6_656) * 768, **flags)
    assert (pool.tokens, pool.sliding_tokens) == (1_152_416, 6_656)
    by_ratio = pool_of(GPT_OSS, 1800 * 768, **{**flags, "engine_version": "0.5.20"})
    assert (by_ratio.tokens, by_ratio.sliding_tokens) == (992, 784)


def test_a_sliding_pool_that_admits_no_request_is_refused():
    """SWA pool (120 tokens) cannot hold even one request: the floor is 127 + 1 (as 0.5.23 stopped)."""
    flags = {"kv_pool_tokens": 3_000, "swa_full_tokens_ratio": 0.04}
    refusal = pool_of(GPT_OSS, **flags).refusal
    assert refusal is not None
    assert "120 tokens" in refusal
    assert "128" in refusal
    assert pool_of(GPT_OSS, kv_pool_tokens=3_000, swa_full_tokens_ratio=0.05).refusal is None
    assert pool_of(GPT_OSS, **flags, engine_version="0.5.12").refusal is None


def test_one_pool_when_told():
    pool = pool_of(GPT_OSS, kv_pool_tokens=6_000, hybrid_kv_manager=False)
    assert (pool.tokens, pool.sliding_tokens, pool.bytes) == (6_000, None, 6_000 * 1536)


def test_the_scarcer_pool_decides():
    """800 sliding tokens serve 6.25 requests of up to 128; a longer one holds 127 and a page, full tokens then lack."""
    geometry = model(attention(12, 8, 64), attention(12, 8, 64, 128), architecture="GptOssForCausalLM")
    pool = pool_of(geometry, 12 * 2048 * 1800 + 1)
    assert (pool.tokens, pool.sliding_tokens) == (1000, 800)
    assert capacity(geometry, on_sglang(), pool, 128) == 6.25
    assert capacity(geometry, on_sglang(), pool, 500) == 2.0


def test_a_pool_that_the_server_told_has_its_sliding_part():
    told = KvPool(tokens=1000, blocks=None, block_size=1, bytes=0.0, bytes_per_token=0.0, rule="as served")
    assert capacity(GPT_OSS, on_sglang(), told, 128) == 6.25


HYBRID_SINCE = [  # architecture, the last release that keeps its windows in full and the first that does not
    ("GptOssForCausalLM", "0.5.7", "0.5.8"),
    ("Step3p5ForCausalLM", "0.5.8", "0.5.9"),
    ("Gemma4ForConditionalGeneration", "0.5.10", "0.5.12"),
    ("MellumForCausalLM", "0.5.15", "0.5.16"),
    ("BeamForCausalLM", "0.5.20", "0.5.23"),
    ("", "0.5.7", "0.5.8"),
]


@pytest.mark.parametrize(("architecture", "before", "since"), HYBRID_SINCE)
def test_which_windows_have_a_pool_of_their_own(architecture, before, since):
    """is_hybrid_swa_model in srt/configs/model_config.py of these releases."""
    geometry = model(attention(10, 8, 64), attention(30, 8, 64, 512), architecture=architecture)
    assert pool_of(geometry, GIB, engine_version=before).sliding_tokens is None
    assert pool_of(geometry, GIB, engine_version=since).sliding_tokens is not None


@pytest.mark.parametrize("architecture", ["Gemma3ForCausalLM", "Gemma2ForCausalLM", "Olmo3ForCausalLM"])
def test_other_windows_are_kept_in_full(architecture):
    geometry = model(attention(1, 2, 64), attention(5, 2, 64, 512), architecture=architecture)
    assert pool_of(geometry, 1000 * 3072).tokens == 1000


def test_kinds_of_unequal_heads():
    """MiMo-V2-Flash on TP 4 in pages of 64: full 375,360, sliding 300,288; sliding keys 8.38 GB, values 5.59 GB
    (sgl-project/sglang pull request 18039).
    """
    mimo = model(
        attention(9, 4, 192, v_head_dim=128),
        attention(39, 8, 192, 128, v_head_dim=128),
        architecture="MiMoV2FlashForCausalLM",
    )
    pool = pool_of(mimo, kv_pool_tokens=375_360, block_size=64, tensor_parallel=4, devices=4)
    assert (pool.tokens, pool.sliding_tokens) == (375_360, 300_288)
    full = 375_360 * 9 * 320 * 2
    assert (pool.bytes - full) / GIB == pytest.approx(8.38 + 5.59, abs=0.011)


def test_a_cap_meant_the_mean_of_all_layers_up_to_0_5_9():
    """1,000 tokens in each of 24 layers are 24,000, of which full layers get 24,000 / (12 + 0.8 x 12)."""
    gpt = model(*GPT_OSS_20B.layers, architecture="GptOssForCausalLM")
    assert pool_of(gpt, kv_pool_tokens=1000, engine_version="0.5.9").tokens == 1111
    assert pool_of(gpt, kv_pool_tokens=1000, engine_version="0.5.10").tokens == 1000


def test_models_that_only_slide():
    only = model(attention(12, 8, 64, 512), architecture="UnlimitedOCRForCausalLM")
    pool = pool_of(only, 12 * 2048 * 1000)
    assert (pool.tokens, pool.sliding_tokens) == (1000, 1000)
    assert capacity(only, on_sglang(), pool, 5000) == 1000 / 512


def test_the_rule_is_told_in_words():
    assert "1,024 bytes a token" in pool_of(GQA, GIB).rule
    assert "sliding layers hold" in pool_of(GPT_OSS, GIB).rule


def test_a_pool_without_any_size_is_refused():
    with pytest.raises(ValueError, match="needs its bytes or its number of tokens"):
        pool_of(GQA)
