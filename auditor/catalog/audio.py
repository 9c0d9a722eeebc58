"""Weight matrices of audio encoders and of what projects them into the language model (transformers modeling_*.py)."""

from collections.abc import Callable, Mapping
from typing import Any

from auditor.catalog.encoders import Encoder, encoder_layers, linear, matrix, projector, vector
from auditor.theory.tensors import Tensor

__all__ = ["AUDIO"]

_Facts = Mapping[str, Any]


def _whisper(own: _Facts, config: _Facts, text: _Facts) -> list[Tensor]:
    """Whisper's encoder (keys have no bias), projected by one matrix (Qwen2-Audio) or by two from four frames at once
    (Voxtral).
    """
    width, inner = own["d_model"], own["encoder_ffn_dim"]
    encoder = Encoder(
        layers=own["encoder_layers"], width=width, inner=inner, heads=own["encoder_attention_heads"], vectors=-width
    )
    return [
        *linear(width, own["num_mel_bins"] * 3),
        *linear(width, width * 3),
        matrix(1, own["max_source_positions"], width),
        *encoder_layers(encoder),
        vector(1, 2 * width),
        *_frames(own, config, text),
    ]


def _frames(own: _Facts, config: _Facts, text: _Facts) -> list[Tensor]:
    if config.get("model_type") == "voxtral":
        return projector(own.get("intermediate_size", 4 * own["d_model"]), text["hidden_size"], biased=False)
    return linear(text["hidden_size"], own["d_model"])


def _voxtral(own: _Facts, config: _Facts, text: _Facts) -> list[Tensor]:
    """The same encoder under Llama's names."""
    renamed = {
        "d_model": own["hidden_size"],
        "encoder_ffn_dim": own["intermediate_size"],
        "encoder_layers": own["num_hidden_layers"],
        "encoder_attention_heads": own["num_attention_heads"],
    }
    return _whisper({**own, **renamed}, config, text)


def _gemma4(own: _Facts, _: _Facts, text: _Facts) -> list[Tensor]:
    """A conformer behind two convolutions that halve the spectrum, a whole copy on every device (Gemma4AudioModel)."""
    width, layers, (first, second) = own["hidden_size"], own["num_hidden_layers"], own["subsampling_conv_channels"]
    out = own["output_proj_dims"]
    return [
        *linear(first, 9, biased=False),
        *linear(second, 9 * first, biased=False),
        *linear(width, second * (first // 4), biased=False),
        matrix(5 * layers, width, width),  # queries, keys, values, relative positions, output
        matrix(2 * layers, 4 * width, width),
        matrix(2 * layers, width, 4 * width),
        matrix(layers, 2 * width, width),  # the light convolution's gate, its kernel and its end
        matrix(layers, width, own["conv_kernel_size"]),
        matrix(layers, width, width),
        vector(layers, 9 * width + width // own["num_attention_heads"]),
        *linear(out, width),
        *linear(text["hidden_size"], out, biased=False),
    ]


AUDIO: Mapping[str, Callable[[_Facts, _Facts, _Facts], list[Tensor]]] = {
    "gemma4_audio": _gemma4,
    "qwen2_audio_encoder": _whisper,
    "voxtral_encoder": _voxtral,
    "whisper": _whisper,
}
