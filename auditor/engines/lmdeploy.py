"""LMDeploy's api_server: launch flags and defaults from its source, not checked on a running engine.

Source: lmdeploy/cli/utils.py (ArgumentHelper), lmdeploy/cli/serve.py, lmdeploy/utils.py.
"""

from collections.abc import Mapping
from typing import Any

from auditor.engines.flavour import NOTHING, Flag, Flavour, Reply
from auditor.engines.replies import Facts, models, owned_by, says_metric
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry

__all__ = ["FLAVOUR"]

_FLAGS = (
    Flag(("--model-name",), "served_model_name"),
    Flag(("--server-name",), "host"),
    Flag(("--server-port",), "port"),
    Flag(("--api-keys",), "api_key", "many"),
    Flag(("--tp",), "tensor_parallel"),
    Flag(("--dp",), "data_parallel"),
    Flag(("--ep",), "expert_parallel"),
    Flag(("--dtype",), "compute_dtype"),
    Flag(("--model-format",), "quantization"),
    Flag(("--quant-policy",), "quant_policy"),
    Flag(("--session-len",), "max_model_len"),
    Flag(("--max-batch-size",), "max_num_seqs"),
    Flag(("--max-prefill-token-num",), "max_num_batched_tokens"),
    Flag(("--cache-max-entry-count",), "memory_fraction"),
    Flag(("--cache-block-seq-len",), "block_size"),
    Flag(("--enable-prefix-caching",), "prefix_caching", "on"),
)
_SWITCHES = frozenset(
    [
        *("--allow-credentials", "--disable-fastapi-docs", "--disable-vision-encoder", "--eager-mode", "--ssl"),
        *("--enable-eplb", "--enable-metrics", "--enable-microbatch", "--trust-remote-code", "--use-logn-attn"),
    ]
)
_VALUES = frozenset(
    [
        *("--adapters", "--allow-headers", "--allow-methods", "--allow-origins", "--backend", "--chat-template"),
        *("--communicator", "--device", "--dllm-block-length", "--download-dir", "--hf-overrides", "--log-level"),
        *("--max-concurrent-requests", "--max-log-len", "--max-prefill-iters", "--migration-backend", "--nnodes"),
        *("--node-rank", "--num-tokens-per-iter", "--proxy-url", "--reasoning-parser", "--revision", "--role"),
        *("--rope-scaling-factor", "--tool-call-parser", "--vision-max-batch-size"),
    ]
)
_PLAIN_FORMATS = ("hf", "llama")
_KV_WORDS = {4: "int4", 8: "int8"}
_BATCHES = {"a100": 384, "a800": 384, "h100": 1024, "h800": 1024, "h200": 1024, "l20y": 1024}  # get_max_batch_size


def _derive(fields: Mapping[str, Any]) -> dict[str, Any]:
    """quant_policy names the bits of keys and values; the format of a plain checkpoint is no quantisation."""
    derived = dict(fields)
    policy = derived.pop("quant_policy", 0)
    if policy in _KV_WORDS:
        derived["kv_cache_dtype"] = _KV_WORDS[policy]
    if derived.get("quantization") in _PLAIN_FORMATS:
        del derived["quantization"]
    return derived


def _recognise(replies: Mapping[str, Reply]) -> bool:
    return owned_by(replies, "lmdeploy") or says_metric(replies, ["lmdeploy:"])


def _read_served(replies: Mapping[str, Reply]) -> tuple[dict[str, Any], dict[str, str]]:
    facts = Facts()
    for entry in models(replies):
        facts.add("max_model_len", entry.get("max_model_len"), "/v1/models")
    return facts.result()


def _defaults(
    _release: str | None, device: Device | None, _geometry: Geometry | None = None, _said: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """Defaults of `lmdeploy serve api_server`: 0.8 of the free memory, blocks of 64, a batch by the device's name."""
    name = device.key.lower() if device else ""
    return {
        "memory_fraction": 0.8,
        "max_num_seqs": next((size for word, size in _BATCHES.items() if name.startswith(word)), 128),
        "max_num_batched_tokens": 8192,
        "block_size": 64,
        "enforce_eager": False,
        "prefix_caching": False,
    }


FLAVOUR = Flavour(
    name="lmdeploy",
    title="LMDeploy",
    commands=("lmdeploy serve api_server",),
    images=("openmmlab/lmdeploy",),
    seen_running=False,
    positional_model=True,
    flags=_FLAGS,
    switches=_SWITCHES,
    values=_VALUES,
    derive=_derive,
    derived_from={"kv_cache_dtype": "quant_policy"},
    info_paths=(),
    metrics_paths=("/metrics",),
    prefix="lmdeploy:",
    recognise=_recognise,
    read_served=_read_served,
    defaults=_defaults,
)
