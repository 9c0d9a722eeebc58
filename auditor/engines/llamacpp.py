"""llama.cpp's llama-server: launch flags, defaults by build, what its server tells."""

import re
from collections.abc import Mapping
from typing import Any

from auditor.engines.flag_words import LLAMACPP_SWITCHES, LLAMACPP_VALUES
from auditor.engines.flavour import NOTHING, Flag, Flavour, Reply
from auditor.engines.replies import Facts, field, models, owned_by, says_metric
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.llamacpp import STEP_CELLS, UBATCH
from auditor.theory.kv.releases import build

__all__ = ["FLAVOUR", "slot_context"]

_FUSED, _SHARED_SLOTS, _OWN_CONTEXT = 6325, 6930, 7400  # builds of August, November and December 2025

_FLAGS = (
    Flag(("-m", "--model"), "model"),
    Flag(("-hf", "-hfr", "--hf-repo"), "model"),
    Flag(("-a", "--alias"), "served_model_name"),
    Flag(("--host",), "host"),
    Flag(("--port",), "port"),
    Flag(("--api-key",), "api_key"),
    Flag(("-hft", "--hf-token"), "secret"),
    Flag(("-c", "--ctx-size"), "context"),
    Flag(("-np", "--parallel"), "slots"),
    Flag(("-ub", "--ubatch-size"), "ubatch"),
    Flag(("-b", "--batch-size"), "max_num_batched_tokens"),
    Flag(("-ctk", "--cache-type-k"), "kv_cache_dtype"),
    Flag(("-ctv", "--cache-type-v"), "kv_cache_dtype_v"),
    Flag(("-kvu", "--kv-unified"), "kv_unified", "on"),
    Flag(("-no-kvu",), "kv_unified", "off"),
    Flag(("--swa-full",), "full_swa_cache", "on"),
    Flag(("-fa", "--flash-attn"), "flash_attention", "maybe"),
    Flag(("-mla", "--mla-use"), "latent_mode"),
    Flag(("--cache-prompt",), "prefix_caching", "on"),
    Flag(("-md", "--model-draft", "--spec-draft-model"), "speculative.model"),
    Flag(("--spec-type",), "speculative.method"),
    Flag(
        ("--spec-draft-n-max", "--draft-max", "--draft", "--draft-n", "--spec-ngram-mod-n-max"),
        "speculative.num_speculative_tokens",
    ),
)

_ENV = {
    "LLAMA_ARG_MODEL": "-m",
    "LLAMA_ARG_HF_REPO": "-hf",
    "LLAMA_ARG_ALIAS": "-a",
    "LLAMA_ARG_CTX_SIZE": "-c",
    "LLAMA_ARG_N_PARALLEL": "-np",
    "LLAMA_ARG_UBATCH": "-ub",
    "LLAMA_ARG_BATCH": "-b",
    "LLAMA_ARG_CACHE_TYPE_K": "-ctk",
    "LLAMA_ARG_CACHE_TYPE_V": "-ctv",
    "LLAMA_ARG_KV_UNIFIED": "-kvu",
    "LLAMA_ARG_SWA_FULL": "--swa-full",
    "LLAMA_ARG_FLASH_ATTN": "-fa",
    "LLAMA_API_KEY": "--api-key",
    "LLAMA_ARG_PORT": "--port",
}


def slot_context(context: int, slots: int, *, unified: bool) -> int:
    """The context of one slot, as llama-context.cpp computes it: cells padded to 256, split over the slots unless they
    share one buffer.
    """
    padded = -(-context // STEP_CELLS) * STEP_CELLS
    return padded if unified else -(-(padded // slots) // STEP_CELLS) * STEP_CELLS


def _derive(fields: Mapping[str, Any]) -> dict[str, Any]:
    """-c is what all slots share; -c 0 means the model's own, -np -1 means 4 slots in one buffer
    (tools/server/server.cpp); ik_llama.cpp's -mla 0 keeps every head's keys and values.
    """
    derived = dict(fields)
    if derived.pop("latent_mode", None) == 0:
        derived["latent_cache"] = False
    if (word := str(derived.pop("flash_attention", "auto")).lower()) in ("off", "0", "disabled", "false"):
        derived["fused_attention"] = False
    elif word != "auto":
        derived["fused_attention"] = True
    if derived.get("context", 1) <= 0:
        del derived["context"]
    if derived.get("slots", 1) <= 0:
        del derived["slots"]
    if "slots" in derived:
        derived["max_num_seqs"] = derived["slots"]
    if "context" in derived:
        unified = derived.get("kv_unified", "slots" not in derived)
        derived["max_model_len"] = slot_context(derived["context"], derived.get("slots", 4), unified=unified)
    if str(derived.get("model", "")).lower().endswith(".gguf"):
        quantization = re.search(r"(?i)[-._](i?q\d_\w+?|bf16|f16|f32|mxfp4)\.gguf$", derived["model"])
        if quantization:
            derived["quantization"] = quantization[1].lower()
    return derived


def _recognise(replies: Mapping[str, Reply]) -> bool:
    served = any(reply.headers.get("server", "").startswith("llama.cpp") for reply in replies.values())
    return served or owned_by(replies, "llamacpp") or says_metric(replies, ["llamacpp:"])


def _read_served(replies: Mapping[str, Reply]) -> tuple[dict[str, Any], dict[str, str]]:
    facts = Facts()
    build = field(replies, "/props", "build_info")
    known = isinstance(build, str) and not build.startswith("b0")  # b0: built outside its repository
    facts.add("engine_version", build if known else None, "/props")
    facts.add("max_num_seqs", field(replies, "/props", "total_slots"), "/props")
    facts.add("max_model_len", field(replies, "/props", "default_generation_settings", "n_ctx"), "/props")
    facts.add("quantization", _file_type(field(replies, "/props", "model_ftype")), "/props")
    slots = replies["/slots"].json if "/slots" in replies else None
    if isinstance(slots, list) and slots and isinstance(slots[0], dict):
        facts.add("max_num_seqs", len(slots), "/slots")
        facts.add("max_model_len", slots[0].get("n_ctx"), "/slots")
    for entry in models(replies):
        meta = entry.get("meta")
        if isinstance(meta, dict):
            facts.add("max_model_len", meta.get("n_ctx"), "/v1/models")
            facts.add("quantization", _file_type(meta.get("ftype")), "/v1/models")
    kind = field(replies, "/props", "default_generation_settings", "params", "speculative.types")
    if kind == "none":
        facts.off("speculative", "/props")
    facts.add("speculative", kind if kind != "none" else None, "/props")
    return facts.result()


def _file_type(text: Any) -> str | None:
    """A file type as a quantisation word: "Q4_K - Medium" -> "q4_k_m"."""
    if not isinstance(text, str) or not text:
        return None
    name, _, size = text.partition(" - ")
    words = name.split()
    suffix = {"Small": "_s", "Medium": "_m", "Large": "_l"}.get(size.strip(), "")
    return (words[-1] if words[0] == "all" else words[0]).lower() + suffix


def _defaults(
    release: str | None, _device: Device | None, _geometry: Geometry | None = None, _said: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """Defaults of llama-server (tools/server/README.md): -b 2048, -ub 512, f16 KV, automatic slots and the model's own
    context; by build number, before pull request 16736 one slot of its own, before 16653 a context of 4,096, before
    15434 scores in memory.
    """
    number = build(release)
    slots = 4 if number >= _SHARED_SLOTS else 1
    found = {
        "slots": slots,
        "max_num_seqs": slots,
        "kv_unified": number >= _SHARED_SLOTS,
        "ubatch": UBATCH,
        "max_num_batched_tokens": 2048,
        "kv_cache_dtype": "f16",
        "full_swa_cache": False,
        "fused_attention": number >= _FUSED,
    }
    return found if number >= _OWN_CONTEXT else found | {"max_model_len": 4096}


FLAVOUR = Flavour(
    name="llamacpp",
    title="llama.cpp",
    commands=("llama-server", "llama serve"),
    images=("ggml-org/llama.cpp", "ggerganov/llama.cpp"),
    flags=_FLAGS,
    switches=LLAMACPP_SWITCHES,
    values=LLAMACPP_VALUES,
    env=_ENV,
    derive=_derive,
    forks={"ik_llama.cpp": {"full_swa_cache": True}},  # which keeps the whole context on sliding layers
    derived_from={"max_num_seqs": "slots", "max_model_len": "context", "quantization": "model"},
    info_paths=("/props", "/slots"),
    metrics_paths=("/metrics",),
    prefix="llamacpp:",
    recognise=_recognise,
    read_served=_read_served,
    defaults=_defaults,
)
