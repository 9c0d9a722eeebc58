"""GGUF headers: a file written here by hand, hostile ones, and the format's own sizes."""

import struct
import time
from pathlib import Path
from typing import Any

import pytest
from model_shapes import total_bytes

from auditor.catalog import gguf, models
from auditor.errors import UsageError
from auditor.theory.settings import Settings
from auditor.theory.weights import streamed_bytes

F32, Q8_0, Q4_K, Q6_K, MXFP4 = 0, 8, 12, 14, 39


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(item: Any) -> bytes:
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, list):
        if item and isinstance(item[0], str):
            return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(text, item))
        return struct.pack("<IIQ", 9, 5, len(item)) + struct.pack(f"<{len(item)}i", *item)
    return struct.pack("<II", 4, item)


def write(path: Path, metadata: dict[str, Any], tensors: list[tuple[str, tuple[int, ...], int]]) -> Path:
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    parts += [text(key) + value(item) for key, item in metadata.items()]
    for name, dimensions, kind in tensors:
        parts.append(text(name) + struct.pack("<I", len(dimensions)))
        parts.append(struct.pack(f"<{len(dimensions)}QIQ", *dimensions, kind, 0))
    path.write_bytes(b"".join(parts))
    return path


def llama(architecture: str = "llama", **changes: Any) -> dict[str, Any]:
    facts = {
        "block_count": 2,
        "embedding_length": 256,
        "feed_forward_length": 512,
        "attention.head_count": 8,
        "attention.head_count_kv": 2,
        "context_length": 4096,
        **changes,
    }
    return {
        "general.architecture": architecture,
        "general.name": "made here",
        "general.file_type": 15,
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(5000)],
        **{f"{architecture}.{key}": item for key, item in facts.items() if item is not None},
    }


LAYER = [
    ("attn_q.weight", (256, 256), Q4_K),
    ("attn_k.weight", (256, 64), Q4_K),
    ("attn_v.weight", (256, 64), Q6_K),
    ("attn_output.weight", (256, 256), Q4_K),
    ("attn_norm.weight", (256,), F32),
    ("ffn_norm.weight", (256,), F32),
    ("ffn_gate.weight", (256, 512), Q4_K),
    ("ffn_up.weight", (256, 512), Q4_K),
    ("ffn_down.weight", (512, 256), Q6_K),
]
ENDS = [("token_embd.weight", (256, 5000), Q6_K), ("output_norm.weight", (256,), F32)]


def tensors(layers: int = 2, head: bool = True) -> list[tuple[str, tuple[int, ...], int]]:
    found = [(f"blk.{i}.{name}", shape, kind) for i in range(layers) for name, shape, kind in LAYER]
    return found + ENDS + ([("output.weight", (256, 5000), Q6_K)] if head else [])


def test_a_small_llama(tmp_path):
    model = gguf.read(write(tmp_path / "m.gguf", llama(), tensors()))
    assert model.name == "made here"
    assert model.architecture == "LlamaForCausalLM"
    assert (model.vocab_size, model.hidden_size, model.max_position) == (5000, 256, 4096)
    assert [(g.kind, g.count, g.kv_heads, g.qk_head_dim, g.v_head_dim) for g in model.layers] == [
        ("full", 2, 2, 32, 32)
    ]
    layer = 2 * 256 * 256 + 2 * 256 * 64 + 3 * 256 * 512 + 512
    assert model.parameters == 2 * layer + 2 * 256 * 5000 + 256
    assert model.active_parameters == 2 * layer + 256
    assert not model.tied_embeddings
    assert model.quantization == "q4_k_m"
    # Q4_K is 144 bytes for 256 values, Q6_K 210
    four = 2 * 256 * 256 + 256 * 64 + 2 * 256 * 512
    six = 256 * 64 + 512 * 256
    vocabulary = 256 * 5000 * 210 // 256
    stack = 2 * (four * 144 // 256 + six * 210 // 256 + 2 * 256 * 4) + 256 * 4
    assert model.weight_bytes == stack + 2 * vocabulary
    facts = Settings(engine="llamacpp", quantization="q4_k_m", weight_bits=4.89)
    assert total_bytes(model, facts) == model.weight_bytes
    assert streamed_bytes(model, facts, 1, limit=True) == pytest.approx(stack + vocabulary)


def test_tied_embeddings_have_no_head(tmp_path):
    model = gguf.read(write(tmp_path / "m.gguf", llama(), tensors(head=False)))
    assert model.tied_embeddings
    facts = Settings(engine="llamacpp", quantization="q4_k_m", weight_bits=4.89)
    assert streamed_bytes(model, facts, 1, limit=True) == pytest.approx(model.weight_bytes)


def test_gemma3_slides_five_layers_of_six(tmp_path):
    facts = llama("gemma3", block_count=18, **{"attention.sliding_window": 512, "attention.key_length": 256})
    model = gguf.read(write(tmp_path / "m.gguf", facts, tensors(18, head=False)))
    assert [(g.kind, g.count, g.window, g.qk_head_dim) for g in model.layers] == [
        ("sliding", 15, 512, 256),
        ("full", 3, None, 256),
    ]


def layers_of(model: Any) -> list[tuple[Any, ...]]:
    return [(g.kind, g.count, g.readers, g.kv_heads, g.qk_head_dim, g.v_head_dim, g.window) for g in model.layers]


def test_layers_may_differ_in_heads_and_sizes(tmp_path):
    """Gemma 4: sliding layers of 8 x 256, full ones of 2 x 512, the last layers read the caches of earlier ones."""
    facts = llama(
        "gemma4",
        block_count=6,
        **{
            "attention.head_count_kv": [8, 8, 2, 8, 8, 2],
            "attention.key_length": 512,
            "attention.value_length": 512,
            "attention.key_length_swa": 256,
            "attention.value_length_swa": 256,
            "attention.sliding_window": 1024,
            "attention.sliding_window_pattern": [1, 1, 0, 1, 1, 0],
            "attention.shared_kv_layers": 3,
        },
    )
    model = gguf.read(write(tmp_path / "m.gguf", facts, tensors(6)))
    assert layers_of(model) == [("sliding", 2, 2, 8, 256, 256, 1024), ("full", 1, 1, 2, 512, 512, None)]
    assert model.layer_count == 6


SSM = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 4096,
    "ssm.state_size": 128,
    "ssm.time_step_rank": 32,
    "ssm.group_count": 16,
}


def test_gated_delta_nets_by_interval(tmp_path):
    """Qwen3-Next: 32 value heads of 128, 16 key heads of 128, each fourth layer attends."""
    facts = llama("qwen3next", block_count=8, full_attention_interval=4, **SSM)
    model = gguf.read(write(tmp_path / "m.gguf", facts, tensors(8)))
    assert [(g.kind, g.count) for g in model.layers] == [("full", 2)]
    (state,) = model.recurrent
    assert (state.kind, state.count, state.heads, state.head_dim) == ("linear", 6, 32, 128)
    assert (state.state_size, state.groups, state.conv_kernel) == (128, 16, 4)


def test_layers_without_keys_are_recurrent_or_mlps(tmp_path):
    """Nemotron-H: a layer is attention, Mamba or MLP; 0 KV heads and 0 MLP width mark Mamba."""
    facts = llama(
        "nemotron_h",
        block_count=4,
        feed_forward_length=[0, 512, 0, 512],
        **SSM,
        **{"attention.head_count_kv": [0, 0, 2, 0]},
    )
    model = gguf.read(write(tmp_path / "m.gguf", facts, tensors(4)))
    assert [(g.kind, g.count, g.kv_heads) for g in model.layers] == [("full", 1, 2)]
    (state,) = model.recurrent
    assert (state.kind, state.count, state.heads, state.head_dim, state.groups) == ("mamba2", 1, 32, 128, 16)


def test_attention_beside_mamba_mamba1_and_short_convolutions(tmp_path):
    beside = gguf.read(write(tmp_path / "h1.gguf", llama("falcon-h1", **SSM), tensors()))
    assert ([g.count for g in beside.layers], [r.count for r in beside.recurrent]) == ([2], [2])
    mixed = {"attention.head_count_kv": [0, 2]}
    (jamba,) = gguf.read(write(tmp_path / "j.gguf", llama("jamba", **SSM, **mixed), tensors())).recurrent
    assert (jamba.kind, jamba.count, jamba.heads, jamba.head_dim, jamba.groups) == ("mamba1", 1, 4096, 1, 0)
    facts = llama("lfm2", **mixed, **{"shortconv.l_cache": 3})
    (lfm2,) = gguf.read(write(tmp_path / "l.gguf", facts, tensors())).recurrent
    assert (lfm2.kind, lfm2.count, lfm2.heads, lfm2.state_size, lfm2.conv_kernel) == ("short_conv", 1, 256, 0, 3)
    none = facts | {"lfm2.attention.head_count_kv": [0, 0]}
    with pytest.raises(UsageError, match="has no attention layer"):
        gguf.read(write(tmp_path / "n.gguf", none, tensors()))


def test_kimi_keeps_matrices_of_head_size(tmp_path):
    facts = llama(
        "kimi-linear",
        **{"attention.head_count_kv": [0, 8], "kda.head_dim": 128, "ssm.conv_kernel": 4},
        **{"attention.kv_lora_rank": 512, "attention.key_length": 576},
        **{"attention.key_length_mla": 192, "attention.value_length_mla": 128},
    )
    model = gguf.read(write(tmp_path / "m.gguf", facts, tensors()))
    assert [(g.kind, g.count, g.latent_dim) for g in model.layers] == [("mla", 1, 576)]
    (state,) = model.recurrent
    assert (state.heads, state.head_dim, state.state_size, state.groups, state.conv_kernel) == (8, 128, 128, 8, 4)


def test_an_indexer_in_some_layers(tmp_path):
    """GLM-5.2: 128 fp8 values and a scale in each layer that chooses by itself."""
    facts = llama(
        "glm-dsa",
        block_count=4,
        nextn_predict_layers=1,
        **{"attention.kv_lora_rank": 512, "attention.key_length": 576, "attention.head_count_kv": 1},
        **{"attention.key_length_mla": 256, "attention.value_length_mla": 256},
        **{"attention.indexer.key_length": 128, "attention.indexer.top_k": 2048},
        **{"attention.indexer.types": [1, 0, 0]},
    )
    draft = [("blk.3.nextn.eh_proj.weight", (512, 256), Q8_0)]
    model = gguf.read(write(tmp_path / "m.gguf", facts, tensors(3) + draft))
    assert model.indexer is not None
    assert (model.indexer.count, model.indexer.token_bytes, model.indexer.topk) == (1, 132, 2048)
    assert [(g.kind, g.count) for g in model.layers] == [("mla", 3)]
    assert sum(tensor.parameters for tensor in model.tensors if tensor.draft) == 512 * 256
    assert model.extra["next_token_layers"] == 1


def test_windows_by_the_file_s_own_pattern_or_none(tmp_path):
    window = {"attention.sliding_window": 128}
    listed = llama("gpt-oss", block_count=4, **window, **{"attention.sliding_window_pattern": [1, 1, 1, 0]})
    assert [(g.kind, g.count) for g in gguf.read(write(tmp_path / "a.gguf", listed, tensors(4))).layers] == [
        ("sliding", 3),
        ("full", 1),
    ]
    phi = gguf.read(write(tmp_path / "p.gguf", llama("phi3", **window), tensors()))
    assert [(g.kind, g.count) for g in phi.layers] == [("full", 2)]  # llama.cpp ignores Phi's window
    dense_first = gguf.read(write(tmp_path / "l.gguf", llama("laguna", block_count=4, **window), tensors(4)))
    assert [(g.kind, g.count) for g in dense_first.layers] == [("full", 1), ("sliding", 3)]


def test_experts(tmp_path):
    routed = [
        (f"blk.{i}.ffn_{part}_exps.weight", (256, 512, 8), MXFP4) for i in (0, 1) for part in ("gate", "up", "down")
    ]
    facts = llama("gpt-oss", expert_count=8, expert_used_count=2, **{"attention.sliding_window": 128})
    model = gguf.read(write(tmp_path / "m.gguf", facts, tensors() + routed))
    assert model.experts is not None
    assert (model.experts.count, model.experts.per_token, model.experts.layers) == (8, 2, 2)
    assert model.experts.parameters == 3 * 256 * 512
    assert model.parameters - model.active_parameters == 2 * 6 * 3 * 256 * 512 + 2 * 256 * 5000
    assert sum(t.stored or 0 for t in model.tensors if t.part == "experts") == 6 * 8 * 256 * 512 * 17 // 32
    assert [g.kind for g in model.layers] == ["sliding", "full"]


def test_mla_keys(tmp_path):
    facts = llama(
        "deepseek2",
        **{
            "attention.kv_lora_rank": 512,
            "attention.key_length": 576,
            "attention.key_length_mla": 192,
            "attention.value_length_mla": 128,
        },
    )
    extra = [("blk.0.attn_kv_a_norm.weight", (512,), F32)]
    model = gguf.read(write(tmp_path / "m.gguf", facts, tensors() + extra))
    (group,) = model.layers
    assert (group.kind, group.latent_dim, group.qk_head_dim, group.v_head_dim) == ("mla", 576, 192, 128)
    assert model.extra["kv_lora_rank"] == 512


def test_split_files_are_added_up(tmp_path):
    first = write(tmp_path / "m-00001-of-00002.gguf", {**llama(), "split.count": 2}, tensors())
    with pytest.raises(UsageError, match=r"1 of its 2 parts are missing \(m-00002-of-00002\.gguf\)"):
        gguf.read(first)
    write(tmp_path / "m-00002-of-00002.gguf", {"split.no": 1}, [("blk.1.extra.weight", (256, 1), F32)])
    whole = gguf.read(first)
    alone = gguf.read(write(tmp_path / "alone.gguf", llama(), tensors()))
    assert whole.parameters == alone.parameters + 256


def test_a_huge_file_opens_at_once(tmp_path):
    path = write(tmp_path / "m.gguf", llama(), tensors())
    with path.open("r+b") as file:
        file.truncate(100 << 30)  # sparse: 100 GiB that take no space
    start = time.process_time()
    assert gguf.read(path).vocab_size == 5000
    assert time.process_time() - start < 0.5


def hostile(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


HOSTILE = [
    (b"", "not a readable GGUF file"),
    (b"GGUX" + bytes(60), "does not begin with GGUF"),
    (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1 is not 2 or 3"),
    (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "or it is big-endian"),
    (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "claims 1,152,921,504,606,846,976 tensors"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 40), "metadata entries"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 62) + b"x", "ends in the middle"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 99), "unknown type 99"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 9, 1), "array of the unknown type 9"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 0, 1 << 50), "array of 1,125,899"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 4, 1 << 20), "ends in the middle"),
    (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<I", 1 << 30), "dimensions"),
    (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<IQIQ", 1, 8, 77, 0), "type 77, whose size"),
    (
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<IQQIQ", 2, 1 << 40, 1 << 40, 0, 0),
        "claims 1,208,925,819,614,629,174,706,176 values",
    ),
]


@pytest.mark.parametrize(("content", "message"), HOSTILE)
def test_damaged_and_hostile_files_end_in_one_line(tmp_path, content, message):
    with pytest.raises(UsageError) as caught:
        gguf.read(hostile(tmp_path / "bad.gguf", content))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


REFUSED = [
    ({"general.architecture": "mamba"}, "architecture 'mamba' is not known"),
    ({"llama.attention.key_length": [32, 64]}, "attention.key_length differs between layers"),
    ({"llama.attention.head_count_kv": [2]}, "attention.head_count_kv has 1 entries for 2 layers"),
    ({"llama.attention.head_count_kv": [0, 0]}, "has no attention layers"),
    ({"llama.attention.head_count_kv": [2] * 5000}, "head_count_kv has 5,000 entries, more than any model"),
    ({"llama.attention.head_count": None}, "lacks llama.attention.head_count"),
    ({"llama.attention.causal": False}, "an encoder keeps no cache"),
    ({"llama.block_count": 0}, "lacks llama.block_count"),
    ({"llama.block_count": "two"}, "llama.block_count is 'two'"),
    ({"llama.block_count": 2**31 - 1}, "claims to have 2,147,483,647 layers"),
    ({"llama.nextn_predict_layers": 100}, "layers"),
    ({"llama.attention.head_count": 2**20}, "has 1,048,576 attention heads, more than its embedding_length"),
    ({"split.count": 100_000}, "claims to be split into 100,000 files"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_is_not_known_is_refused(tmp_path, changes, message):
    facts = {key: item for key, item in (llama() | changes).items() if item is not None}
    path = write(tmp_path / "m-00001-of-00002.gguf", facts, tensors())
    with pytest.raises(UsageError) as caught:
        gguf.read(path)
    assert message in str(caught.value)


def test_a_projector_is_no_language_model(tmp_path):
    with pytest.raises(UsageError, match=r"no token_embd\.weight"):
        gguf.read(write(tmp_path / "m.gguf", llama(), [("v.patch.weight", (4, 4), F32)]))
    with pytest.raises(UsageError, match="no such file"):
        gguf.read(tmp_path / "missing.gguf")


def test_the_catalogue_agrees_with_a_published_file():
    """gemma-3-270m Q4_K_M as published: 236 tensors, 268,098,176 parameters."""
    assert models.find("gemma-3-270m").parameters == 268_098_176
