"""llama.cpp's cells against what build 11434 printed, published start-up logs, and its source.

A line reads "llama_kv_cache: size = T MiB (N cells, L layers, S/S seqs), K (type): K MiB, V (type): V MiB".
"""

from typing import Any

import pytest
from kv_shapes import DEEPSEEK_V32, GIB, GPT_OSS_20B, QWEN35_27B, attention, latent, model

from auditor.catalog.gguf_models import ARCHITECTURES
from auditor.theory.kv.geometry import Geometry, Indexer, Recurrent
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.kv.releases import NEWEST, build, release
from auditor.theory.settings import Settings

MIB = 1 << 20
GEMMA3_270M = model(
    attention(15, 1, 256, 512), attention(3, 1, 256), architecture="Gemma3ForCausalLM", max_position=32_768
)
LLAMA_8B = model(attention(32, 8, 128), architecture="LlamaForCausalLM", max_position=131_072)
F16, BF16, F32 = 2.0, 2.0, 4.0
Q8_0, Q5_1, Q5_0, Q4_1, Q4_0, IQ4_NL = 34 / 32, 24 / 32, 22 / 32, 20 / 32, 18 / 32, 18 / 32


def on_llama(**changes: Any) -> Settings:
    return Settings(**{"engine": "llamacpp", **changes})


def pool_of(geometry: Geometry, **changes: Any):
    return kv_pool(geometry, on_llama(**changes), None)


# gemma-3-270m, flags as settings: cells and MiB of keys and of values, first of full layers, then of sliding ones.
PRINTED = [
    ({"max_model_len": 2048, "slots": 4}, 2048, (12.00, 12.00), 1024, (30.00, 30.00)),  # -c 8192 -np 4
    ({"max_model_len": 1536, "slots": 3}, 1536, (6.75, 6.75), 1024, (22.50, 22.50)),  # -c 4000 -np 3
    ({"max_model_len": 512, "slots": 3}, 512, (2.25, 2.25), 512, (11.25, 11.25)),  # -c 1024 -np 3
    ({"max_model_len": 256, "slots": 4}, 256, (1.50, 1.50), 256, (7.50, 7.50)),  # -c 1024 -np 4
    (  # -c 16384 -np 2 -ctk q8_0 -ctv q4_0
        {"max_model_len": 8192, "slots": 2, "key_bytes": Q8_0, "value_bytes": Q4_0},
        *(8192, (12.75, 6.75), 1024, (7.97, 4.22)),
    ),
    (  # -c 16384 -np 2 -ctk q5_1 -ctv iq4_nl
        {"max_model_len": 8192, "slots": 2, "key_bytes": Q5_1, "value_bytes": IQ4_NL},
        *(8192, (9.00, 6.75), 1024, (5.62, 4.22)),
    ),
    (  # -c 16384 -np 1 -ctk q5_0 -ctv q4_1
        {"max_model_len": 16_384, "key_bytes": Q5_0, "value_bytes": Q4_1},
        *(16_384, (8.25, 7.50), 1024, (2.58, 2.34)),
    ),
    (  # -c 8192 -np 2 -ctk f32 -ctv f16
        {"max_model_len": 4096, "slots": 2, "key_bytes": F32, "value_bytes": F16},
        *(4096, (24.00, 12.00), 1024, (30.00, 15.00)),
    ),
    (  # -c 8192 -np 2 -ctk bf16 -ctv q8_0
        {"max_model_len": 4096, "slots": 2, "key_bytes": BF16, "value_bytes": Q8_0},
        *(4096, (12.00, 6.38), 1024, (15.00, 7.97)),
    ),
    ({"max_model_len": 8192, "slots": 4, "kv_unified": True}, 8192, (12.00, 12.00), 2560, (18.75, 18.75)),  # -kvu
    (  # -kvu -ub 64
        {"max_model_len": 8192, "slots": 4, "kv_unified": True, "ubatch": 64},
        *(8192, (12.00, 12.00), 2304, (16.88, 16.88)),
    ),
    ({"max_model_len": 20_000, "ubatch": 1024}, 20_224, (29.62, 29.62), 1536, (11.25, 11.25)),  # -c 20000 -ub 1024
    ({"slots": 4, "kv_unified": True}, 32_768, (48.00, 48.00), 2560, (18.75, 18.75)),  # -c 0 -np -1
]


@pytest.mark.parametrize(("facts", "cells", "full", "window", "sliding"), PRINTED)
def test_cells_and_bytes_are_those_printed(facts, cells, full, window, sliding):
    pool = pool_of(GEMMA3_270M, **facts)
    buffers = 1 if facts.get("kv_unified") else facts.get("slots", 1)
    assert (pool.tokens, pool.sliding_tokens) == (cells * buffers, window * buffers)
    assert pool.bytes / MIB == pytest.approx(sum(full) + sum(sliding), abs=0.02)
    for keys, values in (full, sliding):
        assert f"K {keys:.2f} MiB, V {values:.2f} MiB" in pool.rule


def test_swa_full_keeps_every_layer_in_full():
    """-c 32768 -np 2 --swa-full: 16,384 cells a slot in both caches, 96 and 480 MiB as printed."""
    pool = pool_of(GEMMA3_270M, max_model_len=16_384, slots=2, full_swa_cache=True)
    assert (pool.tokens, pool.bytes) == (2 * 16_384, (96 + 480) * MIB)


def test_published_logs():
    """ik_llama.cpp (github-data/discussions 258, 286 and 357): DeepSeek-R1 with -mla 2, DeepSeek-V3 with -mla 0 and
    Qwen3-235B-A22B, in GiB.
    """
    deepseek = model(latent(61), attention_heads=128)
    assert pool_of(deepseek, max_model_len=32_768).bytes == 2.14453125 * GIB
    assert pool_of(deepseek, max_model_len=512, latent_cache=False).bytes == 2.3828125 * GIB
    assert pool_of(model(attention(94, 4, 128)), max_model_len=32_768).bytes == 5.875 * GIB


def test_states_are_kept_in_fp32_for_each_slot():
    """Qwen3.6-27B with four sequences: 16 GiB of keys and values for 262,144 cells, 598.50 MiB of states
    (lmstudio-ai/lmstudio-bug-tracker issue 1862).
    """
    pool = pool_of(QWEN35_27B, max_model_len=262_144, slots=4, kv_unified=True)
    assert pool.state_bytes == 598.5 * MIB
    assert pool.bytes == 16 * GIB + 598.5 * MIB
    assert pool.state_slots == 4


STATES = [  # layers, slots, MiB of windows and of matrices as printed for small models
    (Recurrent(kind="linear", count=6, heads=8, head_dim=16, state_size=16, groups=4, conv_kernel=4), 4, 0.07 + 0.19),
    (Recurrent(kind="short_conv", count=4, heads=128, head_dim=1, state_size=0, groups=0, conv_kernel=3), 3, 0.01),
]


@pytest.mark.parametrize(("layers", "slots", "mebibytes"), STATES)
def test_small_states(layers, slots, mebibytes):
    pool = pool_of(model(attention(2, 2, 32), layers), max_model_len=2048, slots=slots)
    assert pool.state_bytes / MIB == pytest.approx(mebibytes, abs=0.006)
    assert f"states {pool.state_bytes / MIB:,.2f} MiB" in pool.rule


def test_drafts_roll_back_by_copies_of_the_state():
    plain, drafted = (pool_of(QWEN35_27B, max_model_len=4096, speculative_tokens=n).state_bytes for n in (0, 3))
    assert drafted == 4 * plain


# -------------------------------------------------------------------------------------------------------------- latents

LATENT = model(latent(4), attention_heads=4)


def test_latents_are_kept_once():
    """Four layers, 8,192 cells: K 36.00 MiB in f16 and 19.12 in q8_0, V none, as printed."""
    assert pool_of(LATENT, max_model_len=4096, slots=2).bytes == 36 * MIB
    packed = pool_of(LATENT, max_model_len=4096, slots=2, key_bytes=Q8_0, value_bytes=F16).bytes
    assert packed / MIB == pytest.approx(19.12, abs=0.006)


def test_older_builds_kept_their_values_too_and_before_that_every_head():
    """576 and 512 values up to about b7830 (pull request 19067); 4 heads of 192 and 128 before b5139 (12801)."""
    cells = 4 * 4096 * 2
    assert pool_of(LATENT, max_model_len=4096, engine_version="b7000").bytes == cells * (576 + 512)
    assert pool_of(LATENT, max_model_len=4096, engine_version="b5000").bytes == cells * 4 * (192 + 128)
    ranked = model(latent(4), attention_heads=4, extra={"kv_lora_rank": 500})
    assert pool_of(ranked, max_model_len=4096, engine_version="b7000").bytes == cells * (576 + 500)


def test_index_keys_have_the_keys_format():
    """128 values beside each latent of 576; none before llama.cpp knew sparse attention."""
    newest, older = (pool_of(DEEPSEEK_V32, max_model_len=4096, engine_version=v).bytes for v in (None, "b9000"))
    assert newest == 61 * 4096 * 2 * (576 + 128)
    assert older == 61 * 4096 * 2 * 576
    plain = model(attention(60, 4, 128), Indexer(count=57, token_bytes=2 * 96, width=96))
    assert pool_of(plain, max_model_len=4096).bytes == 4096 * 2 * (60 * 4 * 256 + 57 * 96)


# -------------------------------------------------------------------------------------------------------------- windows


@pytest.mark.parametrize("name", sorted({known.name for known in ARCHITECTURES.values()}))
def test_the_cache_has_windows_where_the_reader_of_its_files_has(name):
    slides = any(known.every for known in ARCHITECTURES.values() if known.name == name)
    mixed = model(attention(16, 8, 128, 4096), attention(16, 8, 128), architecture=name)
    assert (pool_of(mixed, max_model_len=32_768).sliding_tokens is not None) == slides


def test_windows_that_llama_cpp_does_not_know_are_kept_in_full():
    only = model(attention(32, 32, 96, 2047), architecture="Phi3ForCausalLM")
    mixed = model(attention(16, 8, 128, 4096), attention(16, 8, 128), architecture="Qwen2ForCausalLM")
    assert pool_of(only, max_model_len=4096).bytes == 1.5 * GIB
    assert pool_of(mixed, max_model_len=32_768).sliding_tokens is None


def test_layers_without_an_architecture_slide_where_kinds_are_mixed():
    """gpt-oss-20b at 131,072: sliding layers hold pad256(128 + 512) = 768 cells."""
    pool = pool_of(GPT_OSS_20B, max_model_len=131_072, ubatch=512)
    assert pool.bytes == 12 * 2048 * (131_072 + 768)
    assert pool_of(model(attention(32, 8, 128, 4096)), max_model_len=32_768).sliding_tokens is None


def test_windows_are_kept_from_b5430_on():
    assert pool_of(GPT_OSS_20B, max_model_len=8192, engine_version="b5400").sliding_tokens is None
    assert pool_of(GPT_OSS_20B, max_model_len=8192, engine_version="b5500").sliding_tokens == 768


def test_one_buffer_for_all_slots_before_b5913():
    """Four slots of 2,048 cells are one buffer of 8,192, whose sliding layers hold pad256(4 x 128 + 512) = 1,024."""
    pool = pool_of(GPT_OSS_20B, max_model_len=2048, slots=4, engine_version="b5800")
    assert (pool.tokens, pool.sliding_tokens) == (8192, 1024)
    assert capacity(GPT_OSS_20B, on_llama(slots=4), pool, 2048) == 4
    assert capacity(GPT_OSS_20B, on_llama(slots=4), pool, 2049) == 0


PADDED = [  # build, flash attention, cells of -c 4001
    ("b6000", True, 4096),
    ("b6000", False, 4032),
    ("b6900", True, 4001),
    ("b7000", False, 4096),
    (None, True, 4096),
]


@pytest.mark.parametrize(("version", "fused", "cells"), PADDED)
def test_cells_are_padded(version, fused, cells):
    assert pool_of(LLAMA_8B, max_model_len=4001, engine_version=version, fused_attention=fused).tokens == cells


def test_without_flash_attention_values_are_as_wide_as_the_widest_layers():
    """Two layers of 2 and of 4 heads of 32, 4,096 cells: K 1.50 MiB, V 1.50 with -fa on and 2.00 with -fa off."""
    uneven = model(attention(1, 2, 32), attention(1, 4, 32))
    fused, stored = (pool_of(uneven, max_model_len=4096, fused_attention=f).bytes for f in (True, False))
    assert (fused, stored) == (3.0 * MIB, 3.5 * MIB)


# ---------------------------------------------------------------------------------------------------- context and slots


def test_slots_bound_requests_and_a_unified_cache_its_cells_too():
    own = on_llama(max_model_len=4000, slots=4)
    pool = kv_pool(LLAMA_8B, own, None)
    assert pool.tokens == 4 * 4096
    assert capacity(LLAMA_8B, own, pool, 4096) == 4
    assert capacity(LLAMA_8B, own, pool, 4097) == 0
    unified = on_llama(max_model_len=8192, slots=4, kv_unified=True)
    pool = kv_pool(GPT_OSS_20B, unified, None)
    assert capacity(GPT_OSS_20B, unified, pool, 1000) == 4
    assert capacity(GPT_OSS_20B, unified, pool, 4096) == 2


def test_the_models_own_context_is_the_default():
    assert pool_of(LLAMA_8B).tokens == 131_072


FILLED = [  # model, settings, bytes as logged, cells
    (GPT_OSS_20B, {"ubatch": 512}, 12 * 2048 * (131_072 + 768), 131_072),
    (GPT_OSS_20B, {"ubatch": 512, "full_swa_cache": True}, 24 * 2048 * 4096, 4096),
    (GPT_OSS_20B, {}, 24 * 2048 * 256, 256),  # fewer cells than a window and a micro-batch
    (LLAMA_8B, {}, GIB, 8192),
    (LLAMA_8B, {"slots": 4}, GIB, 8192),
    (QWEN35_27B, {"slots": 4, "kv_unified": True}, 16 * GIB, 262_144),
]


@pytest.mark.parametrize(("geometry", "facts", "size", "cells"), FILLED)
def test_cells_follow_from_logged_bytes(geometry, facts, size, cells):
    pool = pool_of(geometry, kv_pool_bytes=size, **facts)
    assert pool.tokens == cells
    assert pool.bytes - pool.state_bytes == size


def test_a_context_wins_over_logged_bytes():
    assert pool_of(LLAMA_8B, kv_pool_bytes=GIB, max_model_len=4096).tokens == 4096


def test_layers_are_split_over_devices():
    half = pool_of(LLAMA_8B, max_model_len=8192, pipeline_parallel=2, devices=2)
    assert half.bytes == GIB / 2


def test_quantised_heads_that_no_block_divides_are_refused():
    """ "K cache type q8_0 with block size 32 does not divide n_embd_head_k=16": build 11434 exits."""
    small = model(attention(2, 4, 16))
    refusal = pool_of(small, max_model_len=4096, key_bytes=Q8_0).refusal
    assert refusal is not None
    assert "heads of 16" in refusal
    assert pool_of(small, max_model_len=4096).refusal is None
    assert pool_of(LLAMA_8B, max_model_len=4096, kv_bytes=Q4_0).refusal is None
    uneven = model(attention(2, 4, 64, v_head_dim=80))
    assert pool_of(uneven, max_model_len=4096, value_bytes=Q8_0).refusal is not None


def test_without_context_and_bytes_nothing_is_known():
    with pytest.raises(ValueError, match="context length"):
        pool_of(model(attention(1, 1, 64)))


# ------------------------------------------------------------------------------------------------------------- versions


def test_builds_are_read_as_people_write_them():
    texts = ("b6325", "b11434-ab12cd", "6123 (abc1234)", "11434", "server-cuda-b5921")
    assert [build(text) for text in texts] == [6325, 11434, 6123, 11434, 5921]
    assert {build(text) for text in (None, "", "2025", "2025-08", "b6xxx (2025-08)", "0.0.9")} == {NEWEST}


def test_releases_miss_nothing_but_count_as_the_newest():
    assert release("v0.5.9.post1") == (0, 5, 9)
    assert release("0.5.10rc1") == (0, 5, 10)
    assert release("0.5.x (2026-02)") == (0, 5, NEWEST)
    assert release("0.1x") == (0, 19, NEWEST)
    assert {release(text) for text in (None, "2026-08", "2026-01 main", "main")} == {(NEWEST,) * 3}
