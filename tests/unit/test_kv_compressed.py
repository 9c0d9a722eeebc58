"""DeepSeek-V4's caches: what vLLM and SGLang said of them, and layouts worked by hand.

Hand: entries of 584 bytes, index keys of 132, states of 2 x 2 x 512 fp32 (ratio 4, overlapping) and 2 x 512 (128);
pages are rounded up to 576 bytes. Blocks of 256 tokens: 64 entries -> 37,440, 64 keys -> 8,640, 2 entries -> 1,728.
"""

from dataclasses import replace
from typing import Any

import pytest

from auditor.catalog import models
from auditor.engines.flavours import FLAVOURS
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.kv.vllm import blocks_needed
from auditor.theory.kv.vllm_groups import layout
from auditor.theory.settings import Settings

GIB = 2**30
FLASH = models.find("deepseek-ai/DeepSeek-V4-Flash")
PRO = models.find("deepseek-ai/DeepSeek-V4-Pro")


def on_vllm(version: str, **changes: Any) -> Settings:
    facts: dict[str, Any] = {"kv_cache_dtype": "fp8", "max_num_batched_tokens": 8192, "max_model_len": 1 << 20}
    return Settings(engine="vllm", engine_version=version, **{**facts, **changes})


def test_what_a_request_needs_as_logged():
    """github.com/vllm-project/vllm/issues/44376: 30,000 tokens need 6.66 GiB, and 5.44 GiB hold 13,528 tokens."""
    settings = on_vllm("0.22.0", max_num_batched_tokens=16_384, max_model_len=30_000)
    block = layout(FLASH, settings).block_bytes
    assert round(blocks_needed(FLASH, settings, 30_000) * block / GIB, 2) == 6.66
    assert round(blocks_needed(FLASH, settings, 13_528) * block / GIB, 2) == 5.44


@pytest.mark.parametrize(
    ("version", "model", "block_bytes"),
    [
        ("0.20.2", FLASH, 22 * (37_440 + 8640 + 1728)),
        ("0.20.2", PRO, 31 * (37_440 + 8640 + 1728)),
        ("0.23.0", FLASH, 22 * 37_440 + 21 * 8640 + 20 * 1728),
        ("0.26.0", PRO, 31 * 37_440 + 30 * 8640 + 31 * 1728),
        ("0.27.0", FLASH, 21 * (37_440 + 8640) + 20 * 1728),
        ("0.32.0", FLASH, 21 * (37_440 + 8640) + 20 * 1728),
        ("0.32.0", PRO, 30 * (37_440 + 8640) + 31 * 1728),
    ],
)
def test_bytes_of_a_block(version, model, block_bytes):
    assert layout(model, on_vllm(version)).block_bytes == block_bytes


def test_five_tables_of_a_request():
    """43 windows in two groups of 22, states of both ratios in one each: 4,096 + 2 x 131 + 2,051 + 1,041 blocks."""
    found = layout(FLASH, on_vllm("0.25.0"))
    assert [(kind.spec.block, kind.spec.window, kind.groups) for kind in found.kinds] == [
        (256, None, 1),
        (64, 128, 2),
        (4, 8, 1),
        (8, 128, 1),
    ]
    assert blocks_needed(FLASH, on_vllm("0.25.0"), 1 << 20) == 4096 + 2 * 131 + 2051 + 1041


def test_a_draft_has_a_window_alone():
    """44 windows: still 22 in a group, so a block is no larger."""
    plain, drafted = (layout(FLASH, on_vllm("0.25.0", speculative_tokens=count)) for count in (0, 1))
    assert (drafted.kinds[1].layers, drafted.block_bytes) == (44, plain.block_bytes)


def test_sixteen_bit_rows_take_1024_bytes():
    """64 entries of 1,024 bytes, 64 keys in pages of 512 bytes' multiples, 2 entries: 65,536, 8,704, 2,048."""
    settings = on_vllm("0.32.0", kv_cache_dtype="bf16")
    assert layout(FLASH, settings).block_bytes == max(21 * (65_536 + 8704) + 20 * 2048, 22 * 65_536)


def test_the_block_that_servers_report_is_the_smallest_tables():
    """github.com/vllm-project/vllm/issues/51163: block_size 4 is reported beside --block-size 256."""
    assert layout(FLASH, on_vllm("0.25.0", block_size=4)) == layout(FLASH, on_vllm("0.25.0", block_size=256))


def test_engines_take_256_tokens_unless_told():
    assert FLAVOURS["vllm"].defaults("0.32.0", None, FLASH, {})["block_size"] == 256
    assert FLAVOURS["sglang"].defaults("0.5.23", None, FLASH, {})["block_size"] == 256


def test_tensor_parallelism_copies_and_stages_divide():
    whole = layout(PRO, on_vllm("0.32.0")).block_bytes
    assert layout(PRO, on_vllm("0.32.0", tensor_parallel=8, devices=8)).block_bytes == whole
    halved = layout(PRO, on_vllm("0.32.0", pipeline_parallel=2, devices=2)).block_bytes
    assert halved == pytest.approx(whole / 2, rel=0.05)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (on_vllm("0.19.0"), "from 0.20 on"),
        (on_vllm("0.22.0", kv_cache_dtype="bf16"), "in fp8"),
        (on_vllm("0.32.0", decode_context_parallel=2), "decode context"),
        (on_vllm("0.32.0", hybrid_kv_manager=False), "hybrid KV cache manager"),
        (Settings(engine="llamacpp", max_model_len=4096), "how llamacpp lays out"),
        (Settings(engine="trtllm"), "how trtllm lays out"),
        (Settings(engine="sglang", engine_version="0.5.10"), "from 0.5.12 on"),
        (Settings(engine="sglang", vendor="amd"), "AMD devices"),
        (Settings(engine="sglang", block_size=64), "multiple of 128"),
    ],
)
def test_what_is_not_known_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        kv_pool(FLASH, settings, 20.0 * GIB)


# -------------------------------------------------------------------------------------------------------------- SGLang


def on_sglang(version: str, **changes: Any) -> Settings:
    facts: dict[str, Any] = {"swa_full_tokens_ratio": 0.1, "max_model_len": 1 << 20, "block_size": 256}
    return Settings(engine="sglang", engine_version=version, **{**facts, **changes})


def test_bytes_of_a_token_as_published():
    """github.com/sgl-project/sglang/pull/34499: one draft layer reserves 1,056.8 bytes a token at a ratio of 0.8, which
    is one 43rd of a token's: a 44th of what is charged.
    """
    settings = on_sglang("0.5.18", swa_full_tokens_ratio=0.8, speculative_tokens=2, max_num_seqs=1)
    states = 20 * 4096 * (2 * 256 + 257)
    token = 44 * 1056.8
    found = kv_pool(FLASH, settings, 1_000_000 * token + states)
    assert found.tokens == pytest.approx(1_000_000, rel=0.0003)


def test_states_of_the_large_ratio_followed_tokens_once():
    """0.5.12: 0.1 x (43 x 584 + 8/128 x 21 x 10,240 + 20 x 4,096) + 21 x (146 + 33) + 20 x 584/128 = 15,897.45."""
    token = 0.1 * (25_112 + 13_440 + 81_920) + 3759 + 91.25
    assert kv_pool(FLASH, on_sglang("0.5.12"), 60.0 * GIB).tokens == int(60 * GIB / token) // 256 * 256


def test_pages_are_padded_from_0_5_21_on():
    """0.1 x (43 x 585 + 8/256 x 21 x 10,240) + 21 x (585/4 + 33) + 20 x 864/128 = 7,086.75 a token; 4,096 requests and
    one keep 128 states of 20 x 4,096 bytes each, and 129 rows are spare.
    """
    token = 0.1 * (25_155 + 6720) + 3764.25 + 135
    left = 60 * GIB - 20 * 4096 * (4097 * 128 + 129)
    assert kv_pool(FLASH, on_sglang("0.5.23"), 60.0 * GIB).tokens == int(left / token) // 256 * 256


def test_requests_size_the_windows_where_a_flag_limits_them():
    """32 x (128 + 128 + 512) + 2 x 8,192 + 256, and four cached prefixes each of 384: 90,368 tokens."""
    settings = on_sglang("0.5.23", max_num_seqs=32, max_num_batched_tokens=8192)
    assert kv_pool(FLASH, settings, 60.0 * GIB).sliding_tokens == 24_576 + 16_384 + 256 + 32 * 4 * 384


def test_full_tokens_or_windows_bound_the_requests():
    settings = on_sglang("0.5.18")
    found = kv_pool(FLASH, settings, 60.0 * GIB)
    assert capacity(FLASH, settings, found, 256 * 400) == found.tokens / (256 * 400)
    short = replace(found, sliding_tokens=5120)
    assert capacity(FLASH, settings, short, 1000) == 10.0
