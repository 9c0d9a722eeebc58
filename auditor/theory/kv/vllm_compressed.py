"""How vLLM cuts its pool for DeepSeek-V4: compressed caches, windows and the compressors' states in blocks of one size.

Specs are those of vllm/models/deepseek_v4/attention.py, compressor.py and vllm/v1/attention/backends/mla/sparse_swa.py
(vllm/model_executor/layers/deepseek_v4_attention.py and deepseek_compressor.py up to 0.21), groups those of
vllm/v1/core/kv_cache_utils.py. Caches that compress keep every entry of a request; windows and states slide. Every
cache is whole on every device.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from auditor.theory.kv.compressed import entry_bytes, packed, states
from auditor.theory.kv.geometry import Layers
from auditor.theory.kv.releases import release
from auditor.theory.kv.vllm_layout import Kind, Layout
from auditor.theory.kv.vllm_specs import Model, Spec, on_stages
from auditor.theory.settings import Settings

__all__ = ["compresses", "layout"]

# First releases of rules.
_SERVED = (0, 20)
_PLAIN_ROWS = (0, 25)  # 16-bit rows with pages aligned as FlashInfer asks; 0.23 and 0.24 served them with other pages
_PACKED = (0, 23)  # a block holds as many pages of a size as the group that has most of them
_OVERLAID = (0, 27)  # ... and since then no more bytes than the largest group
_ALIKE_SPLIT = (0, 29)  # only kinds with equally many layers a page size decide how the others are split

_BLOCK, _WINDOW_BLOCK = 256, 64  # get_preferred_block_size and DeepseekV4SWACache
_STATE_BLOCKS = {4: 4, 128: 8}  # CompressorStateCache
_FLASHMLA, _FLASHINFER = 576, 512  # bytes that pages are rounded up to


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Layers that share a block table: pages of (bytes, pipeline stage) in order, by page size."""

    kind: str
    block: int
    window: int | None
    pages: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def repeats(self) -> int:
        """Layers of the page size that has most (get_num_layer_tuples, get_max_layers_per_page_size)."""
        return max(len(stages) for _, stages in self.pages)

    @property
    def alike(self) -> bool:
        """Whether every page size has equally many layers."""
        return len({len(stages) for _, stages in self.pages}) == 1

    @property
    def spec(self) -> Spec:
        return Spec(self.kind, self.block, sum(page for page, _ in self.pages), self.window)


def compresses(model: Model) -> bool:
    """Whether the model's caches are DeepSeek-V4's."""
    return any(group.kind == "compressed" for group in model.layers)


def layout(model: Model, settings: Settings) -> Layout:
    """The groups and the bytes of a block. Raises ValueError for settings that this model is not served with."""
    version = release(settings.engine_version)
    _check(settings, version)
    whole, *sliding = _buckets(model, settings, version)
    repeats = _repeats([whole, *sliding], version)
    groups = [[whole], *(_split(bucket, repeats) for bucket in sliding)]
    kinds = tuple(
        Kind(bucket.spec, sum(len(stages) for _, stages in bucket.pages), len(parts))
        for bucket, parts in zip([whole, *sliding], groups, strict=True)
    )
    flat = [part for parts in groups for part in parts]
    stages = range(settings.pipeline_parallel)
    return Layout(kinds, repeats, max(_block_bytes([_on(part, stage) for part in flat], version) for stage in stages))


def _check(settings: Settings, version: tuple[int, ...]) -> None:
    if version < _SERVED:
        raise ValueError("vLLM serves DeepSeek-V4 from 0.20 on")
    if not packed(settings) and version < _PLAIN_ROWS:
        raise ValueError("this release of vLLM keeps DeepSeek-V4's cache in fp8 (--kv-cache-dtype fp8)")
    if settings.kv_cache_dtype.startswith("nvfp4"):
        raise ValueError("pages of DeepSeek-V4's cache in 4 bits are not known")
    if settings.decode_context_parallel > 1:
        raise ValueError("vLLM does not divide DeepSeek-V4's windows by decode context parallelism")
    if not settings.hybrid_kv_manager:
        raise ValueError("DeepSeek-V4's caches need vLLM's hybrid KV cache manager")


def _block(model: Model, settings: Settings) -> int:
    """Tokens of a block of the compressed caches. Servers report the smallest table's, which holds no whole entry."""
    said = settings.block_size or _BLOCK
    return said if all(said % group.compression == 0 for group in model.layers) else _BLOCK


# ---------------------------------------------------------------------------------------------------------------- pages


def _buckets(model: Model, settings: Settings, version: tuple[int, ...]) -> list[_Bucket]:
    """Layers by the table that they share: compressed caches with the indexer's keys, windows, states by ratio."""
    block, entry = _block(model, settings), entry_bytes(settings)
    align = _FLASHMLA if packed(settings) else _FLASHINFER
    stages = {
        group.compression: on_stages(group.count, model.depth, settings.pipeline_parallel) for group in model.layers
    }
    compressed = [group for group in model.layers if group.kind == "compressed"]
    whole: list[tuple[int, list[int]]] = [
        (_rounded(block // group.compression * entry, align), stages[group.compression]) for group in compressed
    ]
    keys = model.indexer
    if keys is not None:
        whole.append((_rounded(block // keys.compression * keys.token_bytes, align), stages[keys.compression]))
    largest = tuple(sorted(page for page, _ in whole))
    last = [settings.pipeline_parallel - 1] * model.drafts
    windows = sorted(stage for group in model.layers for stage in stages[group.compression]) + last
    found = [
        _bucket("mla", block, None, whole),
        _bucket("sliding", _WINDOW_BLOCK, model.layers[0].window, [(_rounded(_WINDOW_BLOCK * entry, align), windows)]),
        *(_states(group, stages[group.compression], model, align) for group in compressed),
    ]
    if version >= _OVERLAID:
        return found
    return [found[0], *(_padded(bucket, largest) for bucket in found[1:])]


def _states(group: Layers, stages: list[int], model: Model, align: int) -> _Bucket:
    """What a layer's compressors keep of tokens that no entry stands for yet, of the indexer's keys too."""
    block = _STATE_BLOCKS[group.compression]
    own = states(group, model.indexer)
    pages = [(_rounded(block * width, align), stages) for width in own.widths]
    return _bucket("sliding", block, own.window, pages)


def _bucket(kind: str, block: int, window: int | None, pages: Iterable[tuple[int, Sequence[int]]]) -> _Bucket:
    merged: dict[int, list[int]] = {}
    for page, stages in pages:
        merged.setdefault(page, []).extend(stages)
    return _Bucket(kind, block, window, tuple((page, tuple(stages)) for page, stages in merged.items() if stages))


def _padded(bucket: _Bucket, sizes: tuple[int, ...]) -> _Bucket:
    """Pages made as large as the next that a compressed cache has."""
    fitting = {page: next((size for size in sizes if size >= page), None) for page, _ in bucket.pages}
    if None in fitting.values():
        raise ValueError(
            "this release of vLLM needs larger blocks for DeepSeek-V4's windows and states: take 256 tokens"
        )
    pages = [(fitting[page] or page, stages) for page, stages in bucket.pages]
    return _bucket(bucket.kind, bucket.block, bucket.window, pages)


def _rounded(size: float, step: int) -> int:
    return -(-round(size) // step) * step


# --------------------------------------------------------------------------------------------------------------- groups


def _repeats(buckets: Sequence[_Bucket], version: tuple[int, ...]) -> int:
    """Layers of a group: the number that pads least over all kinds, the largest of equals (_approximate_gcd)."""
    if version >= _ALIKE_SPLIT:
        counted = [bucket for bucket in buckets if bucket.alike]
        least = max((bucket.repeats for bucket in counted if len(bucket.pages) > 1), default=0)
        if not least:
            return max(bucket.repeats for bucket in buckets)
    else:
        counted, least = list(buckets), buckets[0].repeats
    counts = [bucket.repeats for bucket in counted]
    sizes = range(least, max(*counts, least) + 1)
    return min(sizes, key=lambda size: (sum(-count % size for count in counts), -size))


def _split(bucket: _Bucket, repeats: int) -> list[_Bucket]:
    """Groups of at most `repeats` layers; group i has every n-th layer from the i-th on."""
    groups = -(-bucket.repeats // repeats)
    return [
        _bucket(bucket.kind, bucket.block, bucket.window, [(page, stages[i::groups]) for page, stages in bucket.pages])
        for i in range(groups)
    ]


def _on(group: _Bucket, stage: int) -> Counter[int]:
    """How many pages of each size a pipeline stage has of a group."""
    return Counter({page: stages.count(stage) for page, stages in group.pages if stage in stages})


def _block_bytes(groups: Sequence[Counter[int]], version: tuple[int, ...]) -> int:
    """Bytes of a block, which every group lays its own pages in."""
    if version >= _OVERLAID:
        return max(sum(page * count for page, count in group.items()) for group in groups)
    most = Counter[int]()
    for group in groups:
        most |= group
    if version >= _PACKED:
        return sum(page * count for page, count in most.items())
    return sum(groups[0]) * max(most.values(), default=0)
