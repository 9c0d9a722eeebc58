"""How vLLM cuts its pool: groups of layers whose blocks are equal in bytes (vllm/v1/core/kv_cache_utils.py).

A request takes blocks from one pool for every group; layers of a group share its block numbers.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from auditor.theory.kv import vllm_compressed
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.releases import release
from auditor.theory.kv.vllm_layout import Kind, Layout
from auditor.theory.kv.vllm_specs import FULL, Kept, Model, Spec, layers_kept, on_stages
from auditor.theory.settings import Settings

__all__ = ["layout"]

# First releases of rules.
_V1 = (0, 8)  # before, one block table served all layers
_GROUPS = (0, 9, 1)  # before, sliding layers were kept in full beside full ones
_CHUNKED_GROUPS = (0, 14)  # VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE is on by default
_EVENED_PAGES = (0, 12)  # smaller pages are made equal by larger blocks
_PADDED_PAGES = (0, 24)  # ... or padded where they do not divide the largest
_PADDED_STATES = (0, 26)  # ... states too
_FALLBACK = (0, 27)  # MLA beside sliding layers with pages that cannot be made equal
_STAGE_PAGES = (0, 17)  # layers of unequal pages count on their own pipeline stage only
_PADDED_GROUPS = (((0, 18), 1.5), ((0, 12), 1.25))  # how much larger a kind may be for the smaller to be padded up


def layout(geometry: Geometry, settings: Settings) -> Layout:
    """The layout that this release gives the model.

    Raises ValueError where it cannot manage the model's kinds of layers with these settings.
    """
    return _layout(Model.of(geometry, settings), settings)


@lru_cache(maxsize=4096)
def _layout(model: Model, settings: Settings) -> Layout:
    version = release(settings.engine_version)
    if vllm_compressed.compresses(model):
        return vllm_compressed.layout(model, settings)
    kept = layers_kept(model, settings)
    if not kept:
        return Layout((), 0, 0)
    if version < _V1:
        whole = _merged(_in_full(layer, layer.spec.block) for layer in kept)
        return _in_one_group(whole, model, settings, version)
    if not _grouped(kept, settings, version):
        kept = _promoted(kept)
    kept = kept if _alike(kept) else _evened(kept, version)
    return (_in_one_group if _alike(kept) else _in_groups)(_merged(kept), model, settings, version)


def _in_one_group(kept: list[Kept], model: Model, settings: Settings, version: tuple[int, ...]) -> Layout:
    """One block table for all; pages may differ (UniformTypeKVCacheSpecs)."""
    kinds = tuple(Kind(layer.spec, layer.count, int(i == 0)) for i, layer in enumerate(kept))
    stages = settings.pipeline_parallel
    if stages == 1 or (len(kept) > 1 and _V1 <= version < _STAGE_PAGES):
        size = sum(layer.count * layer.spec.page for layer in kept)
    else:
        counts = [_stages_of(layer, model.depth, stages) for layer in kept]
        size = max(
            sum(count.count(stage) * layer.spec.page for count, layer in zip(counts, kept, strict=True))
            for stage in range(stages)
        )
    return Layout(kinds, sum(layer.count for layer in kept), size)


def _in_groups(kept: list[Kept], model: Model, settings: Settings, version: tuple[int, ...]) -> Layout:
    """Groups of equally many layers with equal pages, the last of a kind padded up
    (_get_kv_cache_groups_uniform_page_size).
    """
    group_size = _group_size([layer.count for layer in kept], version)
    kinds = tuple(Kind(layer.spec, layer.count, -(-layer.count // group_size)) for layer in kept)
    most, stages = group_size, settings.pipeline_parallel
    if stages > 1:
        most = max(
            _fullest(_stages_of(layer, model.depth, stages), kind.groups, stages)
            for layer, kind in zip(kept, kinds, strict=True)
        )
    return Layout(kinds, group_size, most * kept[0].spec.page)


def _group_size(counts: list[int], version: tuple[int, ...]) -> int:
    """Layers of a group: the smallest kind's, or the largest's where padding the others up costs little."""
    least, most = min(counts), max(counts)
    slack = next((factor for since, factor in _PADDED_GROUPS if version >= since), 1.0)
    return most if most < slack * least else least


# -------------------------------------------------------------------------------------------------------------- kinds


def _grouped(kept: list[Kept], settings: Settings, version: tuple[int, ...]) -> bool:
    """Whether the hybrid manager is on (VllmConfig.__post_init__: off for chunked attention with a draft)."""
    kinds = {layer.spec.kind for layer in kept}
    if "chunked" in kinds and (version < _CHUNKED_GROUPS or any(layer.drafts for layer in kept)):
        return False
    return settings.hybrid_kv_manager and version >= _GROUPS


def _promoted(kept: list[Kept]) -> list[Kept]:
    """Layers with a reach kept in full where there are full ones (unify_hybrid_kv_cache_specs)."""
    full = next((layer.spec for layer in kept if layer.spec.kind in FULL), None)
    if full is None:
        return kept
    changed = [_in_full(layer, full.block) for layer in kept]
    if not _alike(changed):
        raise ValueError("vLLM does not serve this model without its hybrid KV cache manager: its states need blocks")
    return changed


def _in_full(layer: Kept, block: int) -> Kept:
    if layer.spec.window is None:
        return layer
    return replace(layer, spec=_scaled(replace(layer.spec, kind="full", window=None), block))


def _alike(kept: list[Kept]) -> bool:
    """Whether all layers need equally many tokens, so that one block table serves them."""
    first = kept[0].spec
    if any(layer.spec.block != first.block for layer in kept):
        return False
    if first.kind in FULL:
        return all(layer.spec.kind in FULL for layer in kept)
    if first.window is not None:
        return all((layer.spec.kind, layer.spec.window) == (first.kind, first.window) for layer in kept)
    return all(
        layer.spec.kind not in FULL and not layer.spec.window and layer.spec.page == first.page for layer in kept
    )


def _evened(kept: list[Kept], version: tuple[int, ...]) -> list[Kept]:
    """Pages made equal (unify_kv_cache_spec_page_size); where MLA's would need padding, sliding layers are kept in full
    instead (_try_get_full_allocation_fallback_groups).
    """
    largest = max(layer.spec.page for layer in kept)
    latent = any(layer.spec.kind == "mla" and largest % layer.spec.page for layer in kept)
    if latent and version >= _FALLBACK and {layer.spec.kind for layer in kept} <= FULL | {"sliding"}:
        return _promoted(kept)
    return [replace(layer, spec=_as_large(layer.spec, largest, version)) for layer in kept]


def _as_large(spec: Spec, page: int, version: tuple[int, ...]) -> Spec:
    if spec.page == page:
        return spec
    attention = spec.kind in FULL or spec.window is not None
    if attention and page % spec.page == 0 and version >= _EVENED_PAGES:
        return _scaled(spec, spec.block * (page // spec.page))
    if version >= (_PADDED_PAGES if attention else _PADDED_STATES) and spec.kind not in ("mla", "indexer"):
        return replace(spec, page=page)
    raise ValueError(
        f"this release of vLLM cannot manage pages of {spec.page:,} and {page:,} bytes together: "
        f"{spec.kind} layers would need a page that is neither scaled nor padded"
    )


def _scaled(spec: Spec, block: int) -> Spec:
    return replace(spec, block=block, page=spec.page * block // spec.block)


def _merged(kept: Iterable[Kept]) -> list[Kept]:
    """Layers of equal specs together, in order of appearance."""
    found: dict[Spec, Kept] = {}
    for layer in kept:
        same = found.setdefault(layer.spec, replace(layer, layers=0, drafts=0))
        found[layer.spec] = replace(same, layers=same.layers + layer.layers, drafts=same.drafts + layer.drafts)
    return list(found.values())


# ------------------------------------------------------------------------------------------------------------- stages


def _stages_of(kept: Kept, depth: int, stages: int) -> list[int]:
    """The pipeline stage of each layer of a kind; drafts lie on the last."""
    return on_stages(kept.layers, depth, stages) + [stages - 1] * kept.drafts


def _fullest(stages_of: list[int], groups: int, stages: int) -> int:
    """Layers of the fullest group on any stage; group i has every `groups`-th layer from the i-th on."""
    parts = [stages_of[first::groups] for first in range(groups)]
    return max(part.count(stage) for part in parts for stage in range(stages))
