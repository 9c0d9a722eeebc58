"""How vLLM's pool is cut, as data: what `vllm_groups` and `vllm_compressed` find and `vllm` counts with."""

from dataclasses import dataclass

from auditor.theory.kv.vllm_specs import FULL, Spec

__all__ = ["Kind", "Layout"]


@dataclass(frozen=True, slots=True)
class Kind:
    """Layers of one spec in `groups` groups; 0 for layers that lie in the blocks of the kind before them."""

    spec: Spec
    layers: int
    groups: int


@dataclass(frozen=True, slots=True)
class Layout:
    """How the pool is cut: `block_bytes` of one block on the fullest pipeline stage, `group_size` layers in a group.

    No kinds: a model without attention and state, which needs no pool.
    """

    kinds: tuple[Kind, ...]
    group_size: int
    block_bytes: int

    @property
    def tables(self) -> int:
        """Block tables of one request."""
        return sum(kind.groups for kind in self.kinds)

    @property
    def block(self) -> int:
        """Tokens of a block of the layers that keep every token, else of the first."""
        full = (kind.spec.block for kind in self.kinds if kind.spec.kind in FULL)
        return next(full, self.kinds[0].spec.block if self.kinds else 1)
