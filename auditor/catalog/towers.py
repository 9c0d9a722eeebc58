"""Weight matrices of vision and audio encoders and of what projects them into the language model.

Shapes are those of the modules in Hugging Face transformers (src/transformers/models/*/modeling_*.py) and, for what is
not there, vLLM (vllm/model_executor/models/kimi_k25_vit.py, intern_vit.py). An encoder whose shape is not known counts
nothing; the reader notes it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from auditor.catalog.audio import AUDIO
from auditor.catalog.encoders import Encoder, encoder_layers, linear, matrix, projector, vector
from auditor.theory.tensors import Tensor

__all__ = ["towers"]

_Facts = Mapping[str, Any]


def towers(config: _Facts, text: _Facts) -> tuple[Tensor, ...]:
    """Encoders of a whole config.json beside the language model `text`, as far as their shapes are known."""
    if isinstance(config.get("thinker_config"), dict):
        return towers({**config["thinker_config"], "model_type": config.get("model_type")}, text)
    found: list[Tensor] = []
    for key, builders in (("vision_config", _VISION), ("audio_config", AUDIO)):
        own = config.get(key)
        build = builders.get(_kind(own, config)) if isinstance(own, dict) else None
        if build and own:
            try:
                found += build(own, config, text)
            except KeyError:  # a size is left to a class's default that is not known
                return ()
    return tuple(tensor for tensor in found if tensor.parameters > 0)


def _kind(own: _Facts, config: _Facts) -> str:
    """The encoder's class by its model_type, or its wrapper's."""
    kind = str(own.get("model_type") or "")
    return kind if kind in _VISION or kind in AUDIO else str(config.get("model_type") or "")


def _patches(own: _Facts, width: int, *, biased: bool, frames: int = 1) -> list[Tensor]:
    side = own["patch_size"]
    channels = own.get("in_channels") or own.get("in_chans") or own.get("num_channels") or 3
    return linear(width, channels * frames * side * side, biased=biased)


def _grid(own: _Facts) -> int:
    return int(own["image_size"] // own["patch_size"]) ** 2


# ----------------------------------------------------------------------------------------------------------------- Qwen


def _qwen2_vl(own: _Facts, _: _Facts, text: _Facts) -> list[Tensor]:
    width = own.get("embed_dim", 1280)
    inner = int(width * own.get("mlp_ratio", 4))
    encoder = Encoder(layers=own.get("depth", 32), width=width, inner=inner, heads=own.get("num_heads", 16))
    patch = _patches({"patch_size": 14, **own}, width, biased=False, frames=own.get("temporal_patch_size", 2))
    return [
        *patch,
        *encoder_layers(encoder),
        vector(1, 2 * width),
        *_qwen_merger(own, width, own.get("hidden_size", text["hidden_size"])),
    ]


def _qwen25_vl(own: _Facts, _: _Facts, text: _Facts) -> list[Tensor]:
    width = own.get("hidden_size", 1280)
    encoder = Encoder(
        layers=own.get("depth", 32),
        width=width,
        inner=own.get("intermediate_size", 3420),
        heads=own.get("num_heads", 16),
        gated=True,
        norm_bias=False,
    )
    patch = _patches({"patch_size": 14, **own}, width, biased=False, frames=own.get("temporal_patch_size", 2))
    return [
        *patch,
        *encoder_layers(encoder),
        vector(1, width),
        *_qwen_merger(own, width, own.get("out_hidden_size", text["hidden_size"])),
    ]


def _qwen3_vl(own: _Facts, _: _Facts, text: _Facts) -> list[Tensor]:
    """A merger at the end, and one for each layer that feeds the language model's first layers (deepstack)."""
    width, out = own["hidden_size"], own.get("out_hidden_size", text["hidden_size"])
    encoder = Encoder(layers=own["depth"], width=width, inner=own["intermediate_size"], heads=own["num_heads"])
    merged = width * own.get("spatial_merge_size", 2) ** 2
    found = [*_patches(own, width, biased=True, frames=own.get("temporal_patch_size", 2)), *encoder_layers(encoder)]
    found += [matrix(1, own["num_position_embeddings"], width), vector(1, 2 * width)]
    for _layer in own.get("deepstack_visual_indexes") or ():
        found += [vector(1, 2 * merged), *_qwen_merger(own, width, out)]
    return found + _qwen_merger(own, width, out)


def _qwen_merger(own: _Facts, width: int, out: int) -> list[Tensor]:
    merged = width * own.get("spatial_merge_size", 2) ** 2
    return [
        matrix(1, merged, merged, merged),
        Tensor(part="tower", count=1, outputs=out, inputs=merged, split="inputs"),
        vector(1, merged + out),
    ]


# -------------------------------------------------------------------------------------------- CLIP, SigLIP and the like


def _clip(own: _Facts, config: _Facts, text: _Facts) -> list[Tensor]:
    """Engines load no layer beyond the one whose output is used (vllm/model_executor/models/llava.py)."""
    width = own["hidden_size"]
    used = config.get("vision_feature_layer", -2)
    layers = own["num_hidden_layers"] + (used + 1 if isinstance(used, int) and used < 0 else 0)
    encoder = Encoder(layers=layers, width=width, inner=own["intermediate_size"], heads=own["num_attention_heads"])
    positions = _grid(own) + 1
    return [
        *_patches(own, width, biased=False),
        *encoder_layers(encoder),
        matrix(1, positions, width),
        vector(1, 5 * width),
        *projector(width, text["hidden_size"]),
    ]


def _siglip(own: _Facts, config: _Facts, text: _Facts) -> list[Tensor]:
    width, hidden = own["hidden_size"], text["hidden_size"]
    encoder = Encoder(
        layers=own["num_hidden_layers"],
        width=width,
        inner=own["intermediate_size"],
        heads=own["num_attention_heads"],
    )
    found = [
        *_patches(own, width, biased=True),
        *encoder_layers(encoder),
        matrix(1, _grid(own), width),
        vector(1, 2 * width),
    ]
    outer = str(config.get("model_type"))
    if outer in ("gemma3", "gemma3n"):
        return [*found, matrix(1, hidden, width), vector(1, width)]
    if outer == "paligemma":
        return found + linear(hidden, width)
    if outer in ("idefics3", "smolvlm"):
        return found + linear(hidden, width * config.get("scale_factor", 2) ** 2, biased=False)
    return found + projector(width, text["hidden_size"])


def _pixtral(own: _Facts, config: _Facts, text: _Facts) -> list[Tensor]:
    """Mistral's own format, which vLLM prefers for Mistral's models, is not divided (pixtral.py, VisionTransformer)."""
    width, own_format = own["hidden_size"], config.get("model_type") == "mistral3"
    encoder = Encoder(
        layers=own["num_hidden_layers"],
        width=width,
        inner=own["intermediate_size"],
        heads=own["num_attention_heads"],
        gated=True,
        biased=False,
        norm_bias=False,
        split=not own_format,
    )
    found = [*_patches(own, width, biased=False), *encoder_layers(encoder), vector(1, width)]
    merge = config.get("spatial_merge_size", 1)
    if own_format:
        found += [vector(1, width), *linear(width, width * merge**2, biased=False)]
    return found + projector(width, text["hidden_size"], biased=bool(config.get("multimodal_projector_bias", True)))


def _llama4(own: _Facts, _: _Facts, text: _Facts) -> list[Tensor]:
    width, out = own.get("hidden_size", 768), own.get("vision_output_dim", 7680)
    shuffled = int(width / own.get("pixel_shuffle_ratio", 0.5) ** 2)
    inner, wide = own.get("intermediate_size", 5632), own.get("projector_output_dim", 4096)
    encoder = Encoder(
        layers=own.get("num_hidden_layers", 34), width=width, inner=inner, heads=own.get("num_attention_heads", 16)
    )
    sized = {"patch_size": 14, "image_size": 448, **own}
    return [
        *_patches(sized, width, biased=False),
        *encoder_layers(encoder),
        matrix(1, _grid(sized) + 2, width),
        vector(1, 4 * width),
        *linear(own.get("projector_input_dim", 4096), shuffled, biased=False),
        *linear(wide, own.get("projector_input_dim", 4096), biased=False),
        *linear(text["hidden_size"], out, biased=False),
    ]


def _internvit(own: _Facts, config: _Facts, text: _Facts) -> list[Tensor]:
    width, normed = own["hidden_size"], own.get("qk_normalization") or own.get("use_qk_norm")
    biased = own.get("attention_bias", own.get("qkv_bias", True))  # of queries, keys and values
    encoder = Encoder(
        layers=own["num_hidden_layers"],
        width=width,
        inner=own["intermediate_size"],
        heads=own["num_attention_heads"],
        norm_bias=own.get("norm_type", "layer_norm") == "layer_norm",
        vectors=width * (2 + (2 if normed else 0) - (0 if biased else 3)),
    )
    size = own["image_size"][0] if isinstance(own["image_size"], list) else own["image_size"]
    patch = own["patch_size"][0] if isinstance(own["patch_size"], list) else own["patch_size"]
    sized = {**own, "image_size": size, "patch_size": patch}
    merged = width * round(1 / config.get("downsample_ratio", 0.5)) ** 2
    return [
        *_patches(sized, width, biased=True),
        *encoder_layers(encoder),
        matrix(1, _grid(sized) + 2, width),
        vector(1, 2 * merged),
        *projector(merged, text["hidden_size"]),
    ]


# --------------------------------------------------------------------------------------------- others, by their wrapper


def _moonvit(own: _Facts, _: _Facts, text: _Facts) -> list[Tensor]:
    """MoonViT of Kimi-VL, Kimi-K2.5 and Kimi-K3; vLLM keeps a whole copy on every device."""
    width = own.get("vt_hidden_size") or own["hidden_size"]
    plain = own.get("norm_type") == "rmsnorm"
    encoder = Encoder(
        layers=own.get("vt_num_hidden_layers") or own["num_hidden_layers"],
        width=width,
        inner=own.get("vt_intermediate_size") or own["intermediate_size"],
        heads=own.get("vt_num_attention_heads") or own["num_attention_heads"],
        biased=own.get("attn_bias", True),
        norm_bias=not plain,
        attention=own.get("qkv_hidden_size"),
        split=False,
    )
    positions = own.get("init_pos_emb_height", 64) * own.get("init_pos_emb_width", 64)
    merge = own.get("merge_kernel_size", [2, 2])
    merged = width * merge[0] * merge[1]
    return [
        *_patches(own, width, biased=own.get("patch_embed_proj_bias", True)),
        *encoder_layers(encoder),
        matrix(1, positions, width),
        vector(1, 4 * width),
        *linear(merged, merged),
        *linear(text["hidden_size"], merged),
    ]


def _gemma4(own: _Facts, _: _Facts, text: _Facts) -> list[Tensor]:
    """vLLM runs transformers' own modules, a whole copy on every device."""
    width, size = own["hidden_size"], own["head_dim"]
    encoder = Encoder(
        layers=own["num_hidden_layers"],
        width=width,
        inner=own["intermediate_size"],
        heads=own["num_attention_heads"],
        gated=True,
        biased=False,
        norm_bias=False,
        vectors=2 * width + 2 * size,
        split=False,
    )
    return [
        *_patches(own, width, biased=False),
        *encoder_layers(encoder),
        matrix(2, own["position_embedding_size"], width),
        *linear(text["hidden_size"], width, biased=False),
    ]


def _glm4v(own: _Facts, _: _Facts, text: _Facts) -> list[Tensor]:
    """GLM-4.1V and 4.5V: a convolution halves each side, then a gated merger (modeling_glm4v.py)."""
    width, out = own["hidden_size"], own.get("out_hidden_size", text["hidden_size"])
    encoder = Encoder(
        layers=own["depth"],
        width=width,
        inner=out,
        heads=own["num_heads"],
        gated=True,
        biased=False,
        norm_bias=False,
    )
    merged, inner = own.get("spatial_merge_size", 2) ** 2, own["intermediate_size"]
    return [
        *_patches(own, width, biased=True, frames=own.get("temporal_patch_size", 2)),
        *encoder_layers(encoder),
        matrix(1, _grid(own), width),
        *linear(out, width * merged),
        matrix(1, out, out, out),
        matrix(3, inner, out, inner),
        vector(1, 2 * width + 2 * out),
    ]


_Builder = Callable[[_Facts, _Facts, _Facts], list[Tensor]]
_VISION: Mapping[str, _Builder] = {
    "clip_vision_model": _clip,
    "gemma4_vision": _gemma4,
    "glm4v": _glm4v,
    "glm4v_moe": _glm4v,
    "idefics3_vision": _siglip,
    "intern_vit_6b": _internvit,
    "internvl_vision": _internvit,
    "kimi_k25": _moonvit,
    "kimi_k3": _moonvit,
    "kimi_vl": _moonvit,
    "llama4": _llama4,
    "llama4_vision_model": _llama4,
    "moonvit": _moonvit,
    "pixtral": _pixtral,
    "qwen2_5_omni_vision_encoder": _qwen25_vl,
    "qwen2_5_vl": _qwen25_vl,
    "qwen2_vl": _qwen2_vl,
    "qwen3_5": _qwen3_vl,
    "qwen3_5_moe": _qwen3_vl,
    "qwen3_omni_moe_vision_encoder": _qwen3_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "siglip_vision_model": _siglip,
    "smolvlm_vision": _siglip,
}
