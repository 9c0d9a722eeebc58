"""Transformer encoders as weight matrices: what vision and audio towers are made of."""

from dataclasses import dataclass

from auditor.theory.tensors import Tensor

__all__ = ["Encoder", "encoder_layers", "linear", "matrix", "projector", "vector"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """A transformer encoder of `layers`: attention, an MLP of two matrices (`gated`: three), two norms.

    `biased`: every projection has one. `vectors` are further values of a layer.
    """

    layers: int
    width: int
    inner: int
    heads: int
    gated: bool = False
    biased: bool = True
    norm_bias: bool = True
    attention: int | None = None
    vectors: int = 0
    split: bool = True


def matrix(count: int, outputs: int, inputs: int, units: int = 0) -> Tensor:
    """On every device, or divided by its outputs in `units`."""
    return Tensor(
        part="tower", count=count, outputs=outputs, inputs=inputs, split="outputs" if units else "none", units=units
    )


def vector(count: int, size: int) -> Tensor:
    """Norms and biases."""
    return Tensor(part="tower", count=count, outputs=size)


def encoder_layers(encoder: Encoder) -> list[Tensor]:
    """All layers of an encoder; vLLM divides the wide ones by TP as it does the language model's."""
    count, width, inner = encoder.layers, encoder.width, encoder.inner
    heads = encoder.heads if encoder.split else 0
    wide, ups = encoder.attention or width, 2 if encoder.gated else 1
    biases = 3 * wide + width + ups * inner + width if encoder.biased else 0
    norms = 2 * width * (2 if encoder.norm_bias else 1)
    return [
        matrix(count, 3 * wide, width, heads),
        matrix(count, wide, width, heads),
        matrix(count * (ups + 1), inner, width, inner if heads else 0),
        vector(count, biases + norms + encoder.vectors),
    ]


def linear(outputs: int, inputs: int, *, biased: bool = True) -> list[Tensor]:
    """One matrix and its bias."""
    return [matrix(1, outputs, inputs), vector(1, outputs if biased else 0)]


def projector(width: int, hidden: int, *, biased: bool = True) -> list[Tensor]:
    """LLaVA's: two matrices into the language model's hidden size."""
    return [*linear(hidden, width, biased=biased), *linear(hidden, hidden, biased=biased)]
