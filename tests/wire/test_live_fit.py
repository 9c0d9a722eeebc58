"""The KV cache of a vLLM that runs now, computed from its launch line and the model's config alone: by hand.

    AUDIT_VLLM_URL=http://127.0.0.1:8801/v1 AUDIT_VLLM_DEVICE=cpu \\
    AUDIT_VLLM_LAUNCH="vllm serve models/tiny-mla --max-model-len 4096 --kv-cache-memory-bytes 67108864" \\
    pytest -m engine tests/wire/test_live_fit.py

The line must fix the cache's bytes or blocks and is read from the folder that the engine was started in. The device is
the CPU unless a catalogue key names another. Without the variables all is skipped.
"""

import json
import os
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from auditor.instruments.inputs import Inputs, inputs
from auditor.theory.kv.cells import KvPool
from auditor.theory.kv.pool import capacity, kv_pool

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """What the engine says of its cache (vllm:cache_config_info), and its version."""
    root = _variable("AUDIT_VLLM_URL").rstrip("/").removesuffix("/v1")
    with urlopen(f"{root}/version") as reply:
        version = json.load(reply)["version"]
    with urlopen(f"{root}/metrics") as reply:
        families = text_string_to_metric_families(reply.read().decode())
        labels = next(f.samples[0].labels for f in families if f.name.startswith("vllm:cache_config_info"))
    return {**labels, "version": version}


@pytest.fixture(scope="module")
def read(told: dict[str, str]) -> Inputs:
    """Geometry and settings from the launch line."""
    row: dict[str, Any] = {
        "launch": _variable("AUDIT_VLLM_LAUNCH"),
        "engine_version": told["version"],
        "accelerator": os.environ.get("AUDIT_VLLM_DEVICE", "cpu"),
    }
    return inputs(row | ({"gpu_memory_gib": 16} if row["accelerator"] == "cpu" else {}))


@pytest.fixture(scope="module")
def pool(read: Inputs) -> KvPool:
    return kv_pool(read.geometry, read.settings, None)


def test_blocks(pool: KvPool, told: dict[str, str]) -> None:
    assert pool.blocks == int(told["num_gpu_blocks"])


def test_tokens(pool: KvPool, told: dict[str, str]) -> None:
    assert str(pool.tokens) == told.get("kv_cache_size_tokens", str(pool.tokens))


def test_concurrency(read: Inputs, pool: KvPool, told: dict[str, str]) -> None:
    length = read.settings.max_model_len
    assert length is not None
    said = told.get("kv_cache_max_concurrency")
    computed = capacity(read.geometry, read.settings, pool, length) / read.settings.data_parallel
    assert said is None or computed == pytest.approx(float(said), abs=1e-9)


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        pytest.skip(f"{name} is not set")
    return value
