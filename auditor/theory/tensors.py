"""A model's weight matrices, as far as memory and bandwidth need them. Data only; `catalog` fills it."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Part", "Split", "Tensor"]

Part = Literal[
    "embedding", "lookup", "head", "attention", "recurrent", "dense", "shared", "experts", "router", "norm", "tower"
]
Split = Literal["none", "outputs", "inputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """`count` matrices of `outputs` x `inputs` that are alike; a vector has one input.

    Parts: the token "embedding" (read by rows, and as the head where tied) and other tables read by rows ("lookup":
    positions, per-layer embeddings); "head"; "attention"; "recurrent" (mixers with a state); "dense" MLPs, "shared" and
    routed "experts"; "router"; "norm" (norms, biases and other small things); "tower" (vision, audio and what projects
    them into the language model; no decode step reads it).

    `split` is the side that tensor parallelism divides, in `units` that stay whole (heads; 0: any number), so that
    fewer units than devices are copied; "none": every device has it all. `plain`: a matrix that quantised checkpoints
    leave in the model's dtype. `single`: kept in fp32 whatever the model's dtype. `draft`: part of a
    multi-token-prediction layer, loaded only for speculation. `stored` are its bytes where a file told.
    """

    part: Part
    count: int
    outputs: int
    inputs: int = 1
    split: Split = "none"
    units: int = 0
    plain: bool = False
    single: bool = False
    draft: bool = False
    stored: int | None = None

    @property
    def parameters(self) -> int:
        """Values in all of them."""
        return self.count * self.outputs * self.inputs
