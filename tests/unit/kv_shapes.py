"""Layers of well-known models as their config.json says them, for tests of KV caches."""

from typing import Any

from auditor.theory.kv import vllm
from auditor.theory.kv.geometry import Geometry, Indexer, Layers, Recurrent
from auditor.theory.settings import Settings

GIB = 1 << 30


def attention(count: int, heads: int, size: int, window: int | None = None, **changes: Any) -> Layers:
    """Full layers, or sliding ones where a window is given."""
    facts: dict[str, Any] = {
        "kind": "full" if window is None else "sliding",
        "count": count,
        "kv_heads": heads,
        "qk_head_dim": size,
        "v_head_dim": size,
        "window": window,
    }
    return Layers(**{**facts, **changes})


def latent(count: int, size: int = 576) -> Layers:
    """MLA with DeepSeek's heads."""
    return Layers(kind="mla", count=count, kv_heads=1, qk_head_dim=192, v_head_dim=128, latent_dim=size)


def delta_net(count: int, heads: int, key_heads: int = 16, element: float | None = None) -> Recurrent:
    """Gated delta nets of Qwen3-Next and Qwen3.5: heads of 128, a kernel of 4."""
    return Recurrent(
        kind="linear",
        count=count,
        heads=heads,
        head_dim=128,
        state_size=128,
        groups=key_heads,
        conv_kernel=4,
        state_bytes=element,
    )


def mamba2(count: int, heads: int, size: int, state: int, groups: int, element: float | None = None) -> Recurrent:
    return Recurrent(
        kind="mamba2",
        count=count,
        heads=heads,
        head_dim=size,
        state_size=state,
        groups=groups,
        conv_kernel=4,
        state_bytes=element,
    )


def model(*parts: Layers | Recurrent | Indexer, **changes: Any) -> Geometry:
    """A model of these layers; what else a geometry holds does not matter to its cache."""
    facts: dict[str, Any] = {
        "name": "layers",
        "architecture": "",
        "layers": tuple(part for part in parts if isinstance(part, Layers)),
        "recurrent": tuple(part for part in parts if isinstance(part, Recurrent)),
        "indexer": next((part for part in parts if isinstance(part, Indexer)), None),
        "hidden_size": 1024,
        "vocab_size": 1000,
        "attention_heads": 8,
        "parameters": 10_000_000,
        "active_parameters": 9_000_000,
        "embedding_parameters": 1_024_000,
        "tied_embeddings": True,
    }
    return Geometry(**{**facts, **changes})


LLAMA_70B = model(attention(80, 8, 128))
DEEPSEEK_R1 = model(latent(61))
DEEPSEEK_V32 = model(latent(61), Indexer(count=61, token_bytes=132, topk=2048))
GEMMA_4_31B = model(attention(50, 16, 256, 1024), attention(10, 4, 512))
MAVERICK = model(attention(36, 8, 128, 8192, kind="chunked"), attention(12, 8, 128))
GPT_OSS_20B = model(attention(12, 8, 64, 128), attention(12, 8, 64))
NEMOTRON_3_NANO = model(attention(6, 2, 128), mamba2(23, 64, 64, 128, 8, 4.0))
QWEN3_CODER_NEXT = model(attention(12, 2, 256), delta_net(36, 32, element=2.0))
QWEN35_27B = model(attention(16, 4, 256), delta_net(48, 48, element=4.0))
QWEN35_35B = model(attention(10, 2, 256), delta_net(30, 32, element=4.0))
QWEN35_397B = model(attention(15, 2, 256), delta_net(45, 64, element=4.0))


def on(version: str | None = "0.18.0", **changes: Any) -> Settings:
    """A vLLM of one release, with steps of 2,048 tokens."""
    facts: dict[str, Any] = {
        "engine": "vllm",
        "engine_version": version,
        "block_size": 16,
        "max_model_len": 8192,
        "max_num_batched_tokens": 2048,
    }
    return Settings(**{**facts, **changes})


def need(geometry: Geometry, length: int, settings: Settings) -> int:
    """Blocks that one request takes."""
    return vllm.blocks_needed(geometry, settings, length)
