"""What serving images takes beside a tower's weights: the largest image, and buffers for the tokens of one step.

Limits of image processors are no part of a config.json: those of preprocessor_config.json as the models are published.
"""

from collections.abc import Callable, Mapping
from typing import Any

from auditor.theory.kv.geometry import Images

__all__ = ["images", "step_values"]

_Facts = Mapping[str, Any]

_QWEN_TOKENS = 16_384  # max_pixels 12,845,056 = 16,384 x 28 x 28 of Qwen2-VL, 16,777,216 = 16,384 x 32 x 32 of Qwen3-VL
_VIDEO_PAIRS = 7  # frames are taken in pairs, and of a dummy video at most 14 (vllm/model_executor/models/qwen2_vl.py)


def images(config: _Facts, text: _Facts) -> Images | None:
    """The largest image of a whole config.json whose language model is `text`; None where the encoder is not known."""
    own = config.get("vision_config")
    read = _KINDS.get(str(config.get("model_type")))
    try:
        return read(own, config, text) if read is not None and isinstance(own, dict) else None
    except KeyError:  # a size is left to a class's default that is not known
        return None


def step_values(config: _Facts, text: _Facts) -> int:
    """Values for each token of a step that vLLM allocates with the weights, in the model's dtype.

    Features of an image for the language model's first layers (deepstack_input_embeds in
    vllm/model_executor/models/qwen3_vl.py), and embeddings of every layer (per_layer_embeddings in gemma4_mm.py).
    """
    own = config.get("vision_config")
    if not isinstance(own, dict):
        return 0
    levels = own.get("deepstack_visual_indexes") or ()
    each_layer = text.get("hidden_size_per_layer_input") or 0
    return int(len(levels) * text["hidden_size"] + each_layer * text["num_hidden_layers"])


# A layer of an encoder holds its input, the sum after attention, its norm, and the two sides of the MLP's activation;
# the pixels that all came from are kept.


def _pixels(own: _Facts) -> int:
    channels = own.get("in_channels") or own.get("in_chans") or own.get("num_channels") or 3
    return int(channels * own.get("temporal_patch_size", 1) * own["patch_size"] ** 2)


def _qwen(own: _Facts, width: int, split: int, output: int, *, positions: bool, videos: int) -> Images:
    return Images(
        tokens=_QWEN_TOKENS,
        patches=_QWEN_TOKENS * own.get("spatial_merge_size", 2) ** 2,
        whole=(4 if positions else 3) * width + _pixels({"patch_size": 14, "temporal_patch_size": 2, **own}),
        split=split,
        output=output,
        videos=videos,
    )


def _qwen2_vl(own: _Facts, _: _Facts, text: _Facts) -> Images:
    width = own.get("embed_dim", 1280)
    inner = int(width * own.get("mlp_ratio", 4))
    return _qwen(own, width, 2 * inner, text["hidden_size"], positions=False, videos=_VIDEO_PAIRS)


def _qwen25_vl(own: _Facts, _: _Facts, text: _Facts) -> Images:
    width, inner = own.get("hidden_size", 1280), own.get("intermediate_size", 3420)
    return _qwen(own, width, 3 * inner, text["hidden_size"], positions=False, videos=_VIDEO_PAIRS)


def _qwen3_vl(own: _Facts, _: _Facts, text: _Facts) -> Images:
    """A pair of a video's frames holds fewer tokens than the largest image (video_preprocessor_config.json)."""
    levels = own.get("deepstack_visual_indexes") or ()
    output = (1 + len(levels)) * text["hidden_size"]
    return _qwen(own, own["hidden_size"], 2 * own["intermediate_size"], output, positions=True, videos=1)


def _gemma3(own: _Facts, config: _Facts, text: _Facts) -> Images:
    width = own["hidden_size"]
    return Images(
        tokens=config.get("mm_tokens_per_image", 256),
        patches=(own["image_size"] // own["patch_size"]) ** 2,
        whole=3 * width + _pixels(own),
        split=2 * own["intermediate_size"],
        output=text["hidden_size"],
    )


def _gemma4(own: _Facts, _: _Facts, text: _Facts) -> Images:
    """transformers' own modules, a whole copy on every device, one image after the other (gemma4_mm.py)."""
    width, tokens = own["hidden_size"], own["default_output_length"]
    return Images(
        tokens=tokens,
        patches=tokens * own["pooling_kernel_size"] ** 2,
        whole=3 * width + 3 * own["intermediate_size"] + _pixels(own),
        split=0,
        output=text["hidden_size"],
        one_by_one=True,
    )


_KINDS: Mapping[str, Callable[[_Facts, _Facts, _Facts], Images]] = {
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "qwen2_5_vl": _qwen25_vl,
    "qwen2_vl": _qwen2_vl,
    "qwen3_5": _qwen3_vl,
    "qwen3_5_moe": _qwen3_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
}
