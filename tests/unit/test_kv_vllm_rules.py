"""vLLM's rules one by one, worked by hand from its source at the releases where they changed."""

from dataclasses import replace

import pytest
from kv_shapes import (
    DEEPSEEK_R1,
    DEEPSEEK_V32,
    GEMMA_4_31B,
    GIB,
    GPT_OSS_20B,
    MAVERICK,
    QWEN35_27B,
    attention,
    latent,
    model,
    need,
    on,
)

from auditor.theory.kv import vllm
from auditor.theory.kv.geometry import Geometry, Indexer
from auditor.theory.kv.pool import kv_pool
from auditor.theory.kv.vllm_groups import layout
from auditor.theory.settings import Settings

# -------------------------------------------------------------------------------------------------------------- groups


@pytest.mark.parametrize(
    ("version", "full", "sliding", "size", "groups"),
    [
        ("0.11.0", 13, 12, 12, (2, 1)),  # the smallest kind's, whatever the padding costs
        ("0.12.0", 13, 12, 13, (1, 1)),  # 13 < 1.25 x 12
        ("0.17.1", 4, 3, 3, (2, 1)),  # 4 is not below 1.25 x 3
        ("0.18.0", 4, 3, 4, (1, 1)),  # but below 1.5 x 3
        ("0.32.0", 6, 4, 4, (2, 1)),
        ("0.32.0", 10, 50, 10, (1, 5)),
    ],
)
def test_groups_are_as_large_as_the_smallest_kind_or_padded_up(version, full, sliding, size, groups):
    layers = model(attention(full, 8, 64), attention(sliding, 8, 64, 128))
    found = layout(layers, on(version))
    assert (found.group_size, tuple(kind.groups for kind in found.kinds)) == (size, groups)
    assert found.block_bytes == size * 16 * 8 * 128 * 2


def test_before_groups_sliding_layers_were_kept_in_full():
    for version in ("0.6.6", "0.8.5"):
        found = layout(GPT_OSS_20B, on(version))
        assert (found.tables, found.block_bytes) == (1, 24 * 16 * 2048)
        assert need(GPT_OSS_20B, 8192, on(version)) == 512
    assert layout(GPT_OSS_20B, on("0.9.2")).tables == 2


def test_a_model_of_sliding_layers_alone_slides_since_v1():
    mistral = model(attention(32, 8, 128, 4096))
    assert need(mistral, 32_768, on("0.7.3")) == 2048
    assert need(mistral, 32_768, on("0.10.0")) == (4095 + 2048 + 15) // 16 + 1
    assert need(mistral, 32_768, on("0.10.0", hybrid_kv_manager=False)) == (4095 + 2048 + 15) // 16 + 1


def test_without_the_hybrid_manager_all_layers_are_kept_in_full():
    found = layout(GEMMA_4_31B, on(hybrid_kv_manager=False))
    assert found.tables == 1
    assert found.block_bytes == 16 * (50 * 16_384 + 10 * 8192)
    assert need(GEMMA_4_31B, 8192, on(hybrid_kv_manager=False)) == 512


def test_states_need_the_hybrid_manager():
    with pytest.raises(ValueError, match="without its hybrid KV cache manager"):
        kv_pool(QWEN35_27B, on(hybrid_kv_manager=False), GIB)


@pytest.mark.parametrize(
    ("version", "drafted", "tables"), [("0.13.0", 0, 1), ("0.14.0", 0, 4), ("0.14.0", 3, 1), ("0.32.0", 0, 4)]
)
def test_chunked_layers_get_groups_since_0_14_and_never_with_drafts(version, drafted, tables):
    assert layout(MAVERICK, on(version, speculative_tokens=drafted)).tables == tables


def lives(geometry: Geometry, blocks: int, length: int, settings: Settings) -> float:
    pool = kv_pool(geometry, replace(settings, kv_pool_tokens=16 * blocks), None)
    return vllm.residents(geometry, settings, pool, length)


GPT_OSS_120B = model(attention(18, 8, 64), attention(18, 8, 64, 128))


def test_decoding_requests_hold_their_window_and_one_step_is_read_beside_them():
    """7,000 tokens: 438 blocks in full and ceil(127 / 16) + 1 in the window; who reads a prompt holds ceil((127 + 2048)
    / 16) + 1 = 137 there. Of 10,000 blocks 128 are for that step.
    """
    assert need(GPT_OSS_120B, 7000, on()) == 438 + 137
    assert lives(GPT_OSS_120B, 10_000, 7000, on()) == pytest.approx((10_000 - 128) / (438 + 9))


def test_several_short_prompts_share_a_step():
    """512 tokens: 32 + 9 blocks; four are read in 2,048 tokens, each with 33 - 9 blocks more."""
    assert lives(GPT_OSS_120B, 10_000, 512, on()) == pytest.approx((10_000 - 4 * 24) / 41)
    assert lives(GPT_OSS_120B, 130, 512, on()) == 2  # as many as a step reads: each holds 32 + 33
    assert lives(GPT_OSS_120B, 575, 7000, on()) == 574 / 575  # the null block serves none


def test_a_step_in_flight_is_held_by_the_prompts_of_one():
    """0.32 holds two steps of 8,192 tokens, that is all of 512; 16 prompts are in one."""
    ahead = on("0.32.0", max_num_batched_tokens=8192)
    assert lives(GPT_OSS_120B, 10_000, 512, ahead) == pytest.approx((10_000 - 16 * 24) / 41)


def test_what_fits_in_the_window_holds_its_tokens_alone():
    """100 tokens: 7 blocks in each group, and the one more that is reserved for those of a step, 2,048 / 112."""
    assert lives(GPT_OSS_120B, 1400, 100, on()) == pytest.approx((1400 - 2048 / 112) / 14)


def test_a_window_keeps_what_the_steps_in_flight_may_take_back():
    """Two steps of a token and three drafts: ceil((127 + 7) / 16) + 1 = 10 blocks; two steps are read."""
    ahead = on("0.32.0", speculative_tokens=3)
    extra = (127 + 2 * 2048 + 15) // 16 + 1 - 10
    assert lives(GPT_OSS_120B, 10_000, 7000, ahead) == pytest.approx((10_000 - extra) / (438 + 10))


def test_decoding_requests_hold_no_more_than_a_chunk():
    chunked = 2048 + 3 * 512
    assert lives(MAVERICK, 100_000, 32_768, on()) == pytest.approx((100_000 - 3 * 128) / chunked)


EXPERTS = replace(
    model(attention(94, 4, 128)), expert_size=1536, formats={"experts": "fp8"}, extra={"expert_block": 128}
)


@pytest.mark.parametrize(
    ("version", "changes", "starts"),
    [
        ("0.18.0", {"tensor_parallel": 4}, True),  # 384 columns each, three blocks
        ("0.18.0", {"tensor_parallel": 8}, False),  # 192
        ("0.28.0", {"tensor_parallel": 4, "data_parallel": 2}, False),
        ("0.28.0", {"tensor_parallel": 8, "expert_parallel": 8}, True),
        ("0.29.0", {"tensor_parallel": 8}, True),  # in blocks of 64
        (None, {"tensor_parallel": 8}, True),
    ],
)
def test_experts_in_blocks_are_divided_in_whole_blocks(version, changes, starts):
    if starts:
        assert kv_pool(EXPERTS, on(version, **changes), GIB).blocks
        return
    with pytest.raises(ValueError, match="experts of 1,536 in blocks of 128 over 8 devices"):
        kv_pool(EXPERTS, on(version, **changes), GIB)


def test_experts_of_another_format_have_no_such_blocks():
    plain = replace(EXPERTS, formats={"experts": "awq"})
    assert kv_pool(plain, on(tensor_parallel=8), GIB).blocks


def test_layers_that_keep_every_token_leave_nothing_of_a_step():
    full = model(attention(32, 8, 128))
    pool = kv_pool(full, on(), GIB)
    assert vllm.residents(full, on(), pool, 1000) == vllm.capacity(full, on(), pool, 1000)


def test_a_chunked_layer_holds_a_chunk_and_the_steps_in_flight():
    # full 32,768 / 16; chunked min(8192 + 2048, 32768) / 16 in three groups
    assert need(MAVERICK, 32_768, on("0.18.0")) == 2048 + 3 * 640
    # two steps with async scheduling
    assert need(MAVERICK, 32_768, on("0.26.0")) == 2048 + 3 * 768


@pytest.mark.parametrize(
    ("version", "changes", "steps"),
    [
        ("0.25.1", {}, 1),
        ("0.26.0", {}, 2),
        ("0.26.0", {"vendor": "cpu"}, 1),
        ("0.32.0", {"steps_in_flight": 1}, 1),
        ("0.26.0", {"pipeline_parallel": 4}, 4),
        ("0.32.0", {"pipeline_parallel": 4}, 5),
    ],
)
def test_sliding_layers_hold_what_is_in_flight(version, changes, steps):
    # a full group, and a sliding one: ceil((127 + steps x 2048) / 16) + 1
    expected = 1250 + -(-(127 + steps * 2048) // 16) + 1
    assert need(GPT_OSS_20B, 20_000, on(version, **changes)) == expected


# --------------------------------------------------------------------------------------------------------------- pages


def test_unequal_pages_are_evened_by_larger_blocks():
    """Gemma 4: full layers have half the bytes a token, so they take blocks of twice the tokens."""
    found = layout(GEMMA_4_31B, on())
    assert [(kind.spec.kind, kind.spec.block, kind.groups) for kind in found.kinds] == [
        ("sliding", 16, 5),
        ("full", 32, 1),
    ]
    assert (found.block, found.block_bytes) == (32, 10 * 16 * 16_384)
    with pytest.raises(ValueError, match="pages of 131,072 and 262,144 bytes"):
        layout(GEMMA_4_31B, on("0.11.2"))


def test_pages_that_do_not_divide_are_padded_since_0_24():
    layers = model(attention(4, 3, 64), attention(8, 4, 64, 512))
    with pytest.raises(ValueError, match="neither scaled nor padded"):
        layout(layers, on("0.23.0"))
    found = layout(layers, on("0.24.0"))
    assert [(kind.spec.block, kind.spec.page) for kind in found.kinds] == [(16, 16 * 4 * 256), (16, 16 * 4 * 256)]


def test_mla_pages_are_never_padded():
    """Sliding layers of 5 x 256 bytes a token beside latents of 1,152: since 0.27 they are kept in full instead."""
    layers = model(latent(4), attention(8, 5, 64, 512))
    with pytest.raises(ValueError, match="mla layers"):
        layout(layers, on("0.26.0"))
    found = layout(layers, on("0.27.0"))
    assert (found.tables, found.block_bytes) == (1, 16 * (4 * 1152 + 8 * 1280))


def test_sliding_layers_chose_their_own_block_for_some_releases():
    """With --block-size 64 Gemma's full pages are 64 x 8,192 bytes, twice those of 16 sliding tokens."""
    releases = ("0.25.1", "0.26.0", "0.30.0")
    blocks = {v: [kind.spec.block for kind in layout(GEMMA_4_31B, on(v, block_size=64)).kinds] for v in releases}
    assert blocks == {"0.25.1": [64, 128], "0.26.0": [32, 64], "0.30.0": [64, 128]}


def test_values_narrower_than_keys_were_padded_before_0_20():
    """MiMo-V2-Flash: keys of 192, values of 128; 4 heads on full layers, 8 on sliding ones."""
    mimo = model(attention(9, 4, 192, v_head_dim=128), attention(39, 8, 192, 128, v_head_dim=128))
    assert layout(mimo, on("0.19.1")).block_bytes == 9 * 16 * 8 * 384 * 2
    assert layout(mimo, on("0.20.0")).block_bytes == 9 * 16 * 8 * 320 * 2


def test_layers_that_differ_in_size_alone_share_a_table():
    layers = model(attention(10, 8, 128), attention(6, 2, 128))
    found = layout(layers, on())
    assert (found.tables, found.block_bytes) == (1, 16 * 512 * (10 * 8 + 6 * 2))
    assert need(layers, 8192, on()) == 512


# ----------------------------------------------------------------------------------------------------------------- MLA


def test_the_indexer_lies_beside_the_latent():
    assert layout(DEEPSEEK_V32, on(block_size=64)).block_bytes == 61 * 64 * (1152 + 132)
    assert need(DEEPSEEK_V32, 8192, on(block_size=64)) == 128


@pytest.mark.parametrize(
    ("version", "word", "size", "token"),
    [
        ("0.11.0", "auto", 2.0, 656),
        ("0.11.2", "auto", 2.0, 1152),
        ("0.18.0", "fp8", 1.0, 656),
        ("0.18.0", "fp8_e4m3", 1.0, 576),
        ("0.32.0", "nvfp4_ds_mla", 0.5625, 352),
    ],
)
def test_sparse_mla_packs_eight_bits_its_own_way(version, word, size, token):
    settings = on(version, block_size=64, kv_cache_dtype=word, kv_bytes=size)
    assert layout(DEEPSEEK_V32, settings).block_bytes == 61 * 64 * (token + 132)


def test_latents_were_keys_and_values_of_every_head_before_0_7_1():
    """DeepSeek-V2-Lite: 27 layers of 16 heads, keys and values padded to 256 (get_head_size in vllm/config.py)."""
    lite = model(latent(27), attention_heads=16)
    assert layout(lite, on("0.6.6")).block_bytes == 27 * 16 * 16 * 512 * 2
    assert layout(lite, on("0.6.6", tensor_parallel=4, devices=4)).block_bytes == 27 * 16 * 4 * 512 * 2
    assert layout(lite, on("0.7.1")).block_bytes == 27 * 16 * 1152


def test_dense_mla_stores_plain_fp8():
    assert layout(DEEPSEEK_R1, on(block_size=64, kv_cache_dtype="fp8", kv_bytes=1.0)).block_bytes == 61 * 64 * 576


@pytest.mark.parametrize(("word", "size"), [("int8_per_token_head", 1.0), ("int4_per_token_head", 0.5)])
def test_scales_of_every_token_and_head_are_stored_beside_it(word, size):
    settings = on("0.32.0", kv_cache_dtype=word, kv_bytes=size)
    assert layout(model(attention(2, 8, 128)), settings).block_bytes == 2 * 16 * 8 * (int(256 * size) + 8)
    assert layout(model(latent(2)), settings).block_bytes == 2 * 16 * (int(576 * size) + 8)


# ------------------------------------------------------------------------------------------------- drafts and parallels


def test_drafts_keep_full_layers_of_their_own():
    """MTP makes 17 full layers of 16, so 48 of states are 3 padded groups of 17."""
    found = layout(QWEN35_27B, on(speculative_tokens=1))
    assert [(kind.layers, kind.groups) for kind in found.kinds] == [(17, 1), (48, 3)]
    assert layout(QWEN35_27B, on(speculative_tokens=1, draft_layers=0)).group_size == 16
    assert layout(DEEPSEEK_V32, on(block_size=64, speculative_tokens=1)).block_bytes == 62 * 64 * (1152 + 132)


def test_a_draft_model_keeps_its_own_layers():
    """32 layers of 2 x 8 x 128 x 2 bytes and 24 of 2 x 4 x 64 x 2, in blocks of 16: one table."""
    drafted = on("0.20.0", speculative_tokens=4, draft=(attention(24, 4, 64),))
    found = layout(model(attention(32, 8, 128)), drafted)
    assert (found.tables, found.block_bytes) == (1, 16 * (32 * 4096 + 24 * 1024))
    # on two stages the last holds them all beside its 16
    staged = replace(drafted, pipeline_parallel=2, devices=2)
    assert layout(model(attention(32, 8, 128)), staged).block_bytes == 16 * (16 * 4096 + 24 * 1024)
    # tensor parallelism divides their heads too
    wide = replace(drafted, tensor_parallel=2, devices=2)
    assert layout(model(attention(32, 8, 128)), wide).block_bytes == 16 * (32 * 2048 + 24 * 512)


def test_decode_context_parallelism_shares_a_requests_tokens():
    settings = on("0.18.0", block_size=64, tensor_parallel=8, devices=8, decode_context_parallel=4)
    assert need(DEEPSEEK_R1, 8193, settings) == 33  # 8,193 / (4 x 64)
    pool = kv_pool(DEEPSEEK_R1, settings, 100 * 61 * 64 * 1152)
    assert pool.tokens == 100 * 64 * 4
    assert kv_pool(DEEPSEEK_R1, on("0.32.0", block_size=64, decode_context_parallel=4), pool.bytes).tokens == (
        100 * 8192 // 32
    )


def test_the_fullest_pipeline_stage_decides():
    # 61 layers on 4 stages: 15, 15, 16, 15
    assert layout(DEEPSEEK_R1, on(block_size=64, pipeline_parallel=4)).block_bytes == 16 * 64 * 1152
    # 80 on 3: 26, 27, 27 ... 80 = 3 x 26 + 2: the two stages before the last have one more
    assert layout(model(attention(80, 8, 128)), on(pipeline_parallel=3)).block_bytes == 27 * 16 * 4096
    # groups of 10 layers are halved with the layers: 50 + 10 on 2 stages
    assert layout(GEMMA_4_31B, on(pipeline_parallel=2)).block_bytes == 5 * 16 * 16_384
    # a draft lies on the last stage
    drafted = on(block_size=64, pipeline_parallel=4, speculative_tokens=1)
    assert layout(model(latent(60)), drafted).block_bytes == 16 * 64 * 1152


def test_unequal_pages_counted_on_every_stage_before_0_17():
    token = 1152 + 132
    assert layout(DEEPSEEK_V32, on("0.16.0", block_size=64, pipeline_parallel=2)).block_bytes == 61 * 64 * token
    assert layout(DEEPSEEK_V32, on("0.17.0", block_size=64, pipeline_parallel=2)).block_bytes == 31 * 64 * token


def test_layers_that_only_read_take_no_cache_and_fill_stages():
    shared = model(attention(10, 4, 128, readers=10))
    assert layout(shared, on()).block_bytes == 10 * 16 * 2048
    assert layout(shared, on(pipeline_parallel=2)).block_bytes == 5 * 16 * 2048


# ------------------------------------------------------------------------------------------------------------- figures


@pytest.mark.parametrize(("version", "tokens"), [("0.20.0", 100 // 2 * 16), ("0.20.1", int(100 / (512 + 137) * 8192))])
def test_the_logged_tokens_changed_their_meaning(version, tokens):
    """gpt-oss-20b: a request takes 512 full blocks and ceil((127 + 2048) / 16) + 1 = 137 sliding ones."""
    assert kv_pool(GPT_OSS_20B, on(version), 100 * 12 * 16 * 2048).tokens == tokens


def test_an_override_counts_blocks_whatever_their_size():
    """num_gpu_blocks_override reaches theory as blocks x the block that was set, not the one aligned to states."""
    pool = kv_pool(QWEN35_27B, on(kv_pool_tokens=300 * 16), GIB)
    assert (pool.blocks, pool.bytes) == (300, 300.0 * 16 * 784 * 4096)


def test_blocks_of_large_pools_are_exact():
    size = 11 * (1 << 40)
    assert kv_pool(DEEPSEEK_R1, on(block_size=64), size - 1).blocks == (size - 1) // (61 * 64 * 1152)


def test_a_pool_without_any_size_is_refused():
    with pytest.raises(ValueError, match="needs its bytes or its number of tokens"):
        kv_pool(GPT_OSS_20B, on(), None)


def test_the_rule_is_told_in_words():
    one, several = (kv_pool(g, on(), GIB).rule for g in (DEEPSEEK_R1, GEMMA_4_31B))
    assert one == "vLLM: pool / (61 layers, 1,124,352 bytes a block of 16) = 954 blocks"
    assert several == (
        "vLLM: pool / (groups of 10 layers (5 x sliding(1024), 1 x full), 2,621,440 bytes a block) = 409 blocks"
    )


def test_an_indexer_without_its_own_layers_is_no_group():
    bare = model(latent(2), Indexer(count=0, token_bytes=132))
    assert layout(bare, on(block_size=64)).block_bytes == 2 * 64 * 1152
