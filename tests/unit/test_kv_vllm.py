"""vLLM's pools against what engines printed at start.

Published: github.com/ashishkamra/vllm-memory-estimator, test_data/validation_db.json (H200, B200), and issues as named.
The logs round the memory to 0.01 GiB, so blocks follow from it to about one in ten thousand.
"""

from dataclasses import replace
from typing import Any

import pytest
from kv_shapes import (
    DEEPSEEK_R1,
    DEEPSEEK_V32,
    GEMMA_4_31B,
    GIB,
    LLAMA_70B,
    MAVERICK,
    NEMOTRON_3_NANO,
    QWEN3_CODER_NEXT,
    QWEN35_27B,
    QWEN35_35B,
    QWEN35_397B,
    attention,
    model,
)

from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.settings import Settings


def on_vllm(version: str, length: int | None, **changes: Any) -> Settings:
    facts: dict[str, Any] = {
        "engine": "vllm",
        "engine_version": version,
        "max_model_len": length,
        "max_num_batched_tokens": 8192,
    }
    if changes.get("kv_bytes") == 1.0:
        facts["kv_cache_dtype"] = "fp8"
    return Settings(**{**facts, **changes})


QWEN3_235B = model(attention(94, 4, 128))
QWEN25_14B = model(attention(48, 8, 128))
QWEN3_14B = model(attention(40, 8, 128))
TP2, TP4, TP8 = ({"tensor_parallel": n, "devices": n} for n in (2, 4, 8))
ALIGNED: dict[str, Any] = {"kv_bytes": 1.0, "mamba_cache_mode": "align"}
MTP = {**TP2, **ALIGNED, "speculative_tokens": 3, "draft_layers": 1}
PUBLISHED: list[tuple[str, Geometry, str, dict[str, Any], float, int, int, float]] = [
    # name, model, version, settings, GiB, max_model_len, tokens as logged, concurrency as logged
    ("llama-70b-fp8-kv", LLAMA_70B, "0.18.0", {**TP4, "kv_bytes": 1.0}, 142.94, 8192, 3_747_120, 457.41),
    ("llama-70b", LLAMA_70B, "0.20.0", TP4, 90.66, 131_072, 1_188_336, 9.07),
    ("r1-hopper-0.16", DEEPSEEK_R1, "0.16.0", {**TP8, "block_size": 64}, 43.08, 8192, 658_176, 80.34),
    ("r1-hopper-0.18", DEEPSEEK_R1, "0.18.0", {**TP8, "block_size": 16}, 42.79, 8192, 653_808, 79.81),
    ("r1-blackwell", DEEPSEEK_R1, "0.18.0", {**TP8, "block_size": 32}, 79.81, 8192, 1_219_424, 148.86),
    ("v3.2", DEEPSEEK_V32, "0.18.0", {**TP8, "block_size": 64}, 41.76, 8192, 572_480, 69.88),
    ("maverick-8192", MAVERICK, "0.11.2", {**TP8, "kv_bytes": 1.0}, 70.89, 8192, 6_194_752, 756.20),
    ("maverick-10000", MAVERICK, "0.11.2", {**TP8, "kv_bytes": 1.0}, 70.91, 10_000, 6_196_080, 619.61),
    ("gemma-4-8192", GEMMA_4_31B, "0.18.2rc1.dev73", {}, 69.75, 8192, 76_176, 10.13),
    ("gemma-4-10000", GEMMA_4_31B, "0.18.2rc1.dev73", {}, 69.75, 10_000, 76_176, 8.93),
    ("nemotron-0.13", NEMOTRON_3_NANO, "0.13.0", {"kv_bytes": 1.0}, 93.13, 8192, 6_506_208, 1299.00),
    ("nemotron-0.18", NEMOTRON_3_NANO, "0.18.0", {"kv_bytes": 1.0}, 95.04, 10_000, 6_644_016, 1136.43),
    ("nemotron-0.20", NEMOTRON_3_NANO, "0.20.0", {"kv_bytes": 1.0}, 94.45, 262_144, 6_602_256, 117.99),
    ("qwen3-coder-next", QWEN3_CODER_NEXT, "0.18.0", {}, 49.29, 10_000, 538_016, 179.91),
    ("qwen3.5-35b", QWEN35_35B, "0.18.0", {}, 89.92, 8192, 1_178_496, 405.82),
    ("qwen3.5-397b", QWEN35_397B, "0.18.0", TP4, 26.76, 10_000, 466_752, 136.23),
    # github.com/noonghunna/club-3090, issues 652, 612 and 642: prefixes kept, three drafts on a pair (11.05 as rounded)
    ("qwen3.6-35b-5090", QWEN35_35B, "0.24.0", ALIGNED, 6.01, 131_072, 569_878, 4.35),
    ("qwen3.6-35b-5090-again", QWEN35_35B, "0.24.0", ALIGNED, 5.98, 131_072, 567_978, 4.33),
    ("qwen3.6-27b-pair", QWEN35_27B, "0.24.0", MTP, 11.054, 262_144, 623_873, 2.38),
    # github.com/mitchross/talos-argocd-proxmox pull request 1995
    ("qwen3.8-27b-pair", QWEN35_27B, "0.26.0", {**TP2, **ALIGNED}, 4.99, 131_072, 302_921, 2.31),
    # blog.kubesimplify.com/running-a-big-llm-across-multiple-gpus-with-vllm
    ("qwen3-235b", QWEN3_235B, "0.27.1", TP4, 27.85, 32_768, 621_392, 18.96),
]


@pytest.mark.parametrize(
    ("geometry", "version", "changes", "gib", "length", "tokens", "concurrency"),
    [row[1:] for row in PUBLISHED],
    ids=[row[0] for row in PUBLISHED],
)
def test_published_logs(geometry, version, changes, gib, length, tokens, concurrency):
    settings = on_vllm(version, length, **changes)
    pool = kv_pool(geometry, settings, gib * GIB)
    assert pool.tokens == pytest.approx(tokens, rel=7e-4)
    assert capacity(geometry, settings, pool, length) == pytest.approx(concurrency, rel=7e-4, abs=0.005)


def test_logs_that_tell_concurrency_alone():
    """github.com/noonghunna/club-3090 issue 1026: 3.34 x 262,144 of 15.52 GiB; LMCache/LMCache issue 1739: 1.30 x
    32,768 of 6.51.
    """
    for geometry, version, changes, gib, length, concurrency in (
        (QWEN35_27B, "0.27.0", MTP, 15.52, 262_144, 3.34),
        (QWEN3_14B, "0.10.2", {}, 6.51, 32_768, 1.30),
    ):
        settings = on_vllm(version, length, **changes)
        pool = kv_pool(geometry, settings, gib * GIB)
        assert capacity(geometry, settings, pool, length) == pytest.approx(concurrency, abs=0.006)


def test_a_log_that_tells_blocks_alone():
    """github.com/vllm-project/vllm issue 13061: 81,536 tokens of 7.46 GiB, Qwen2.5-14B on two cards."""
    pool = kv_pool(QWEN25_14B, on_vllm("0.7.2", 131_072, **TP2), 7.46 * GIB)
    assert pool.tokens == pytest.approx(81_536, rel=1e-3)


def test_exaone_in_groups():
    """EXAONE-4.0-32B in vLLM 0.11: 48 sliding and 16 full layers are 4 groups; 42,224 tokens at 10.28 x 4,096."""
    geometry = model(attention(48, 8, 128, 4096), attention(16, 8, 128))
    settings = on_vllm("0.11.0", 4096, block_size=16, max_num_batched_tokens=2048)
    # 42,224 / 16 x 4 = 10,556 blocks; a request takes 256 + 3 x 257 of them.
    pool = kv_pool(geometry, settings, 10_556 * 16 * 16 * 4096 + 1)
    assert (pool.blocks, pool.tokens) == (10_556, 42_224)
    assert capacity(geometry, settings, pool, 4096) == pytest.approx(10.28, abs=0.005)


def test_a_blog_explains_the_token_line():
    """Qwen3.5-35B-A3B with fp8 keys and prefix caching in vLLM 0.17: blocks of 2,096, 159,296 "tokens", 8.00 x 65,536.

    159,296 / 2,096 x 4 groups are 304 blocks; a request takes 32 and 2 of each of 3 groups of states.
    """
    settings = on_vllm("0.17.0", 65_536, kv_bytes=1.0, mamba_cache_mode="align")
    pool = kv_pool(QWEN35_35B, settings, 304 * 10 * 2096 * 1024)
    assert (pool.blocks, pool.tokens, pool.block_size) == (304, 159_296, 2096)
    assert capacity(QWEN35_35B, settings, pool, 65_536) == 8.0


def test_an_issue_shows_the_states_of_each_request():
    """Qwen3.5-27B in vLLM 0.19 (vllm-project/vllm issue 40691): 290,864 "tokens", 33.04 x 32,768.

    290,864 / 784 x 4 = 1,484 blocks and up to 3 more; a request takes 42 and 1 of each of 3 groups of states.
    """
    settings = on_vllm("0.19.0", 32_768)
    pool = kv_pool(QWEN35_27B, settings, 1487 * 16 * 784 * 4096)
    assert (pool.blocks, pool.tokens, pool.block_size) == (1487, 290_864, 784)
    assert capacity(QWEN35_27B, settings, pool, 32_768) == pytest.approx(33.04, abs=0.005)


def test_a_refusal_of_more_requests_than_states():
    """Qwen3.8-27B in vLLM 0.26 on an L40S: 184 blocks, 141,036 tokens, 1.08 x 131,072; 256 requests were refused."""
    settings = on_vllm("0.26.0", 131_072, max_num_seqs=256)
    pool = kv_pool(QWEN35_27B, settings, 184 * 16 * 784 * 4096)
    assert (pool.blocks, pool.tokens) == (184, 141_036)
    assert pool.refusal == (
        "max_num_seqs 256 is more than the 184 blocks that can hold a request's state: lower it to those"
    )
    assert kv_pool(QWEN35_27B, on_vllm("0.26.0", 131_072, max_num_seqs=184), pool.bytes).refusal is None
    assert (
        kv_pool(QWEN35_27B, on_vllm("0.26.0", 131_072, max_num_seqs=256, enforce_eager=True), pool.bytes).refusal
        is None
    )
    assert kv_pool(QWEN35_27B, on_vllm("0.19.0", 131_072, max_num_seqs=256), pool.bytes).refusal is None


def test_gemma_4s_assistant_reads_the_targets_cache():
    """Two H200, 8-bit weights and cache, Google's assistant drafting 4 tokens: 16 GiB are 132,784 tokens and 4.05 x
    32,768 (vllm/model_executor/models/gemma4_mtp.py); an EAGLE head has a layer of its own.
    """
    target = replace(GEMMA_4_31B, architecture="Gemma4ForCausalLM")
    drafting = on_vllm("0.27.0", 32_768, kv_bytes=1.0, tensor_parallel=2, devices=2, speculative_tokens=4)
    pool = kv_pool(target, drafting, 16 * GIB)
    assert pool.tokens == pytest.approx(132_784, rel=5e-4)
    assert capacity(target, drafting, pool, 32_768) == pytest.approx(4.05, abs=0.005)
    eagle = replace(drafting, draft_layers=1)
    assert capacity(target, eagle, kv_pool(target, eagle, 16 * GIB), 32_768) < 3.9
