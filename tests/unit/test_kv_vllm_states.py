"""vLLM's blocks for models with recurrent state, worked by hand from its source at the releases where rules changed."""

import pytest
from kv_shapes import NEMOTRON_3_NANO, QWEN3_CODER_NEXT, QWEN35_27B, attention, latent, mamba2, model, need, on

from auditor.theory.kv.geometry import Recurrent
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.kv.vllm_groups import layout


@pytest.mark.parametrize(
    ("geometry", "changes", "block"),
    [
        # state (2 x 16 x 128 + 32 x 128) x 3 x 2 + 32 x 128 x 128 x 2 = 1,097,728 bytes; 2,048 a token: 536 -> 544
        (QWEN3_CODER_NEXT, {}, 544),
        # (4,096 + 48 x 128) x 3 x 2 + 48 x 128 x 128 x 4 = 3,207,168 bytes; 4,096 a token: 783 -> 784
        (QWEN35_27B, {}, 784),
        # TP 2 halves both
        (QWEN35_27B, {"tensor_parallel": 2, "devices": 2}, 784),
        # fp8 keys: 2,048 a token: 1,566 -> 1,568
        (QWEN35_27B, {"kv_bytes": 1.0}, 1568),
        # (64 x 64 + 2 x 8 x 128) x 3 x 2 + 64 x 64 x 128 x 4 = 2,134,016 bytes; fp8 512 a token: 4,168 -> 4,176
        (NEMOTRON_3_NANO, {"kv_bytes": 1.0}, 4176),
        # TP 8 x 2 KV heads replicates: 266,752 bytes; 256 a token: 1,042 -> 1,056
        (NEMOTRON_3_NANO, {"kv_bytes": 1.0, "tensor_parallel": 8, "devices": 8}, 1056),
        # two drafted tokens widen the convolution: (4,096 + 6,144) x 5 x 2 + 3,145,728 = 3,248,128: 793 -> 800
        (QWEN35_27B, {"speculative_tokens": 2}, 800),
        # a larger block of the user's stays, and is the step since 0.20
        (QWEN35_27B, {"block_size": 1024}, 1024),
        (QWEN35_27B, {"block_size": 128}, 784),
        (QWEN35_27B, {"block_size": 128, "engine_version": "0.20.0"}, 896),
    ],
)
def test_an_attention_block_holds_a_state(geometry, changes, block):
    found = layout(geometry, on(**changes))
    assert found.block == block
    assert len({kind.spec.page for kind in found.kinds}) == 1


def test_latent_layers_beside_states_take_wider_steps():
    """A state of 16 x 128 x 128 x 4 + (3 x 16 x 128) x 3 x 2 = 1,085,440 bytes; 1,152 a token: 942.2."""
    kda = Recurrent(
        kind="linear", count=3, heads=16, head_dim=128, state_size=128, groups=16, conv_kernel=4, state_bytes=4.0
    )
    kimi = model(latent(1), kda)
    steps = {v: layout(kimi, on(v)).block for v in ("0.19.1", "0.20.2", "0.26.0", "0.27.0", "0.29.0")}
    assert steps == {"0.19.1": 960, "0.20.2": 944, "0.26.0": 944, "0.27.0": 1024, "0.29.0": 1024}


@pytest.mark.parametrize(
    ("version", "capability", "block"),
    [
        ("0.11.0", (10, 0), 784),
        ("0.11.1", (10, 0), 800),
        ("0.17.1", (10, 3), 800),
        ("0.17.1", (9, 0), 784),
        ("0.17.1", (12, 0), 784),
        ("0.18.0", (10, 0), 784),
    ],
)
def test_blackwells_kernel_reads_heads_of_256_in_steps_of_32(version, capability, block):
    """3,207,168 bytes of a state are 783 tokens (flashinfer-ai/flashinfer issue 1993)."""
    assert layout(QWEN35_27B, on(version, capability=capability)).block == block


def test_blackwell_reads_smaller_heads_in_steps_of_16():
    """2,134,016 bytes of a state are 4,168 tokens of 512 bytes."""
    settings = on("0.17.1", kv_bytes=1.0, capability=(10, 0))
    assert layout(NEMOTRON_3_NANO, settings).block == 4176


def test_states_of_every_block_align_to_the_scans_chunk():
    """Mode "all": multiples of 128 for Nemotron's chunk, and a state for each block of a request."""
    told = model(attention(6, 2, 128), mamba2(23, 64, 64, 128, 8, 4.0), extra={"mamba_chunk_size": 128})
    settings = on("0.18.0", kv_bytes=1.0, mamba_cache_mode="all")
    assert layout(told, settings).block == 4224
    assert layout(NEMOTRON_3_NANO, settings).block == 4352  # mamba_ssm's own chunk of 256
    # 4 groups of states and one of attention: ceil(10,000 / 4,224) blocks in each
    assert need(told, 10_000, settings) == 5 * 3
    assert need(told, 10_000, on("0.22.1", kv_bytes=1.0, mamba_cache_mode="all", speculative_tokens=2)) == 3 + 4 * (
        3 + 2
    )


@pytest.mark.parametrize(
    ("version", "mode", "drafted", "states"),
    [
        ("0.11.0", None, 0, 1),
        ("0.13.0", None, 2, 1),
        ("0.15.0", None, 2, 3),
        ("0.18.0", "none", 0, 1),
        ("0.18.0", "align", 0, 2),
        ("0.18.0", "align", 2, 4),
        ("0.31.0", "align", 0, 2),
        ("0.32.0", "align", 0, 3),
        ("0.32.0", "none", 1, 2),
    ],
)
def test_states_of_one_request(version, mode, drafted, states):
    settings = on(version, mamba_cache_mode=mode, speculative_tokens=drafted, draft_layers=0)
    blocks = need(NEMOTRON_3_NANO, 1, settings)
    assert blocks == 1 + 4 * states


def test_only_mamba2_keeps_a_checkpoint_more():
    settings = on("0.32.0", mamba_cache_mode="align")
    assert need(QWEN35_27B, 1, settings) == 1 + 3 * 2


def test_a_model_of_states_alone():
    """4 layers of 8 x 64 x 64 x 2 + (512 + 2 x 64) x 3 x 2 = 69,376 bytes; a request takes one block, however long."""
    mamba = model(mamba2(4, 8, 64, 64, 1), max_position=4096)
    pool = kv_pool(mamba, on("0.32.0", max_num_seqs=None), 10 * 4 * 69_376)
    assert pool.blocks == 10
    assert [capacity(mamba, on("0.32.0"), pool, length) for length in (1, 8192)] == [10.0, 10.0]


def test_a_model_without_cache():
    bare = model()
    pool = kv_pool(bare, on("0.32.0", max_num_seqs=64), None)
    assert (pool.blocks, pool.bytes, pool.tokens) == (1, 0.0, 0)
    assert capacity(bare, on("0.32.0", max_num_seqs=64), pool, 8192) == 64


def test_v0_kept_states_outside_of_blocks():
    assert layout(NEMOTRON_3_NANO, on("0.7.3")).block_bytes == 6 * 16 * 1024
