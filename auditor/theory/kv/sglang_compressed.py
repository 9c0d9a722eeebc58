"""SGLang's pools for DeepSeek-V4: entries by ratio, windows and the compressors' states, sized by full tokens.

DSV4PoolConfigurator in srt/model_executor/pool_configurator.py (from 0.5.12), get_compress_state_ring_size in
srt/mem_cache/deepseek_v4_memory_pool.py. Every cache is whole on every device of a tensor-parallel group.
"""

from dataclasses import dataclass

from auditor.theory.kv.cells import KvPool, attention_parallel
from auditor.theory.kv.compressed import entry_bytes, states
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.kv.releases import release
from auditor.theory.kv.sglang_state import asked_requests
from auditor.theory.settings import Settings

__all__ = ["capacity", "pool"]

# First releases of rules.
_SERVED = (0, 5, 12)
_STATES_BY_REQUEST = (0, 5, 15)  # states of the largest ratio follow the requests, not the tokens
_PADDED_PAGES = (0, 5, 21)  # pages are padded to 576 bytes, states of ratio 4 follow pages instead of windows
_CAP = (0, 5, 21)  # --max-running-requests sizes the windows where --swa-full-tokens-ratio does not

_PAGE, _ALIGN = 256, 576
_RINGS = {4: (8, 16), 128: (128, 256)}  # tokens whose states are kept, without and with drafts
_FEWEST, _MOST, _SPECULATIVE = 2048, 4096, 48  # requests where no flag limits them
_DEFAULT_RATIO = 0.1
_EVICTION_INTERVAL = 128  # SGLANG_SWA_EVICTION_INTERVAL
_TAILS = 4  # cached prefixes a request that keep their windows


@dataclass(frozen=True, slots=True)
class _Cell:
    """Bytes on one device: of a full token without its windows, of a window's token, and of a request's states."""

    full: float
    sliding: float
    request: float
    spare: float


def pool(geometry: Geometry, settings: Settings, pool_bytes: float | None) -> KvPool:
    """full tokens = (memory - states of requests) / bytes of a full token with its share of windows, in whole pages.

    Raises ValueError where no size is known, or this release does not serve the model.
    """
    version, page = release(settings.engine_version), settings.block_size or _PAGE
    _check(settings, version, page)
    cell = _cell(geometry, settings, version, page)
    fixed = _cap(geometry, settings, version, page)
    counts = [] if settings.kv_pool_tokens is None else [settings.kv_pool_tokens]
    ratio = 0.0 if fixed is not None else settings.swa_full_tokens_ratio
    token = cell.full + ratio * cell.sliding
    if pool_bytes is not None:
        room = pool_bytes - (fixed or 0) * cell.sliding
        requests = _requests(geometry, settings, pool_bytes / token)
        counts.append(int(max(0.0, room - requests * cell.request - (cell.spare if cell.request else 0.0)) / token))
    if not counts:
        raise ValueError("SGLang's pool needs its bytes or its number of tokens")
    tokens = min(counts) // page * page
    sliding = fixed if fixed is not None else int(tokens * ratio) // page * page
    return KvPool(
        tokens=tokens,
        blocks=tokens // page,
        block_size=page,
        bytes=tokens * cell.full + sliding * cell.sliding,
        bytes_per_token=cell.full,
        rule=f"SGLang: pool / {token:,.0f} bytes a token (windows hold {sliding:,} tokens) = {tokens:,} tokens",
        sliding_tokens=sliding,
        refusal=_refusal(geometry, sliding, page),
    )


def capacity(geometry: Geometry, settings: Settings, kv: KvPool, length: int) -> float:
    """Requests of `length` tokens that fit in one rank: by full tokens in pages, and by windows of a page more."""
    page, tokens = settings.block_size or _PAGE, max(1, length)
    fits = kv.tokens / _up(tokens, page)
    held = min(_up(tokens, page), _up(_window(geometry), page) + page)
    sliding = kv.sliding_tokens if kv.sliding_tokens is not None else kv.tokens * settings.swa_full_tokens_ratio
    return min(fits, sliding / held)


def _check(settings: Settings, version: tuple[int, ...], page: int) -> None:
    if version < _SERVED:
        raise ValueError("SGLang serves DeepSeek-V4 from 0.5.12 on")
    if settings.vendor == "amd":
        raise ValueError("SGLang's pools for DeepSeek-V4 on AMD devices are not known")
    if page % 128:
        raise ValueError(f"SGLang serves DeepSeek-V4 in pages of a multiple of 128 tokens, not of {page}")


def _cell(geometry: Geometry, settings: Settings, version: tuple[int, ...], page: int) -> _Cell:
    """Compressed entries and index keys count by full tokens, windows and states of ratio 4 by the windows' tokens."""
    drafted, padded = settings.speculative_tokens > 0, version >= _PADDED_PAGES
    layers = {group.compression: _stage(group, settings) for group in geometry.layers}
    depth = sum(layers.values())
    full = sliding = request = spare = 0.0
    sliding += depth * _entry(settings, page, padded=padded)
    for group in geometry.layers:
        ratio, count = group.compression, layers[group.compression]
        if ratio not in _RINGS:
            continue
        full += count * _entry(settings, page // ratio, padded=padded) / ratio
        ring, state = _RINGS[ratio][drafted], count * sum(states(group, geometry.indexer).widths)
        if ratio == 4 or version < _STATES_BY_REQUEST:
            sliding += state * ring / (page if padded else _window(geometry))
        else:
            request, spare = state * ring, state * (ring + 1)
    keys = geometry.indexer
    if keys is not None:
        full += -(-keys.count // settings.pipeline_parallel) * keys.token_bytes / keys.compression
    share = (depth + 1) / depth if drafted else 1.0  # a draft of one layer is reserved as the mean layer
    return _Cell(full * share, sliding * share, request, spare)


def _entry(settings: Settings, page: int, *, padded: bool) -> float:
    size = entry_bytes(settings)
    return _up(page * size, _ALIGN) / page if padded else float(size)


def _stage(group: Layers, settings: Settings) -> int:
    return -(-group.count // settings.pipeline_parallel)


def _requests(geometry: Geometry, settings: Settings, tokens: float) -> int:
    """Slots of requests, one of them padding: as a flag says, else by how many contexts the tokens hold."""
    asked = _asked(settings)
    if asked is None:
        context = settings.max_model_len or geometry.max_position or 1
        asked = min(max(_FEWEST, min(_MOST, int(tokens / context * 512))), int(tokens) // 2)
    return asked + 1


def _asked(settings: Settings) -> int | None:
    asked = asked_requests(settings) or (_SPECULATIVE if settings.speculative_tokens else None)
    ranks = settings.data_parallel if attention_parallel(settings) < settings.tensor_parallel else 1
    return max(1, asked // ranks) if asked else None


def _cap(geometry: Geometry, settings: Settings, version: tuple[int, ...], page: int) -> int | None:
    """Tokens of windows for the requests that a flag allows and the prefixes that stay cached
    (_resolve_swa_cap_tokens); None where the ratio decides.
    """
    asked, chunk = _asked(settings), settings.max_num_batched_tokens
    if version < _CAP or asked is None or not chunk or settings.swa_full_tokens_ratio != _DEFAULT_RATIO:
        return None
    if settings.speculative_tokens or settings.disaggregated == "decode":
        return None
    window = _window(geometry)
    each = window + _EVICTION_INTERVAL + 2 * page
    tails = _TAILS * asked * (window + page) if settings.prefix_caching else 0
    return _up(each * asked + 2 * chunk + page + tails, page)


def _refusal(geometry: Geometry, sliding: int, page: int) -> str | None:
    floor = _window(geometry) + page
    if sliding > floor:
        return None
    return f"SGLang refuses windows of {sliding:,} tokens: one request needs more than {floor:,}"


def _window(geometry: Geometry) -> int:
    return max(group.window or 0 for group in geometry.layers)


def _up(tokens: int, page: int) -> int:
    return -(-tokens // page) * page
