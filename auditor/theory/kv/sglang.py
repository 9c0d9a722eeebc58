"""SGLang's token pool: one slot per token and layer, handed out in pages.

Sources by version: profile_max_num_token and set_num_token_hybrid in srt/model_executor/model_runner.py (to 0.5.6),
model_runner_kv_cache_mixin.py (to 0.5.10), pool_configurator.py (from 0.5.12); is_hybrid_swa_model in
srt/configs/model_config.py.
"""

import math
from dataclasses import dataclass, replace

from auditor.theory.kv import sglang_compressed, sglang_state
from auditor.theory.kv.cells import KvPool, bytes_per_token, draft_layers, layer_bytes
from auditor.theory.kv.compressed import compressed
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.kv.releases import NEWEST, release
from auditor.theory.settings import Settings

__all__ = ["capacity", "pool"]

_Release = tuple[int, int, int]

# Architectures whose sliding layers have a pool of their own, from a release on; all others keep them in full.
_HYBRIDS: dict[str, _Release] = {
    "MiMoV2FlashForCausalLM": (0, 5, 7),
    "GptOssForCausalLM": (0, 5, 8),
    "Llama4ForConditionalGeneration": (0, 5, 8),
    "Step3p5ForCausalLM": (0, 5, 9),
    "Gemma4ForCausalLM": (0, 5, 11),
    "Gemma4ForConditionalGeneration": (0, 5, 11),
    "LagunaForCausalLM": (0, 5, 11),
    "MiMoV2ForCausalLM": (0, 5, 11),
    "Gemma4UnifiedForConditionalGeneration": (0, 5, 13),
    "Step3p7FlashForCausalLM": (0, 5, 13),
    "Step3p7ForCausalLM": (0, 5, 13),
    "Step3p7ForConditionalGeneration": (0, 5, 13),
    "UnlimitedOCRForCausalLM": (0, 5, 15),
    "InklingForConditionalGeneration": (0, 5, 16),
    "MellumForCausalLM": (0, 5, 16),
    "GraniteMoeSWAForCausalLM": (0, 5, 18),
    "GraniteSWAForCausalLM": (0, 5, 18),
    "MuseGlimmerForCausalLM": (0, 5, 18),
    "MuseGlimmerForConditionalGeneration": (0, 5, 18),
    "BeamForCausalLM": (0, 5, 21),
    "DiffusionGemmaForBlockDiffusion": (0, 5, 21),
    "Dots3NoteForCausalLM": (0, 5, 21),
    "EmbeddingGemma2Model": (0, 5, 21),
    "IQuestQ1ForCausalLM": (0, 5, 21),
    "MuseSparkForConditionalGeneration": (0, 5, 21),
}
_LAYERS_GIVEN: _Release = (0, 5, 8)  # for layers without an architecture: most hybrids came then

_RAW_LATENT = (0, 5, 10)  # Blackwell and AMD kernels read fp8 latents without scales
_CAP_AFTER_SPLIT = (0, 5, 10)  # --max-total-tokens caps full tokens; before, it capped the mean over all layers
_DRAFT_CHARGED = (0, 5, 14)  # draft layers count in a token's bytes; before, they came out of the slack
_PACKED_CHARGED = (0, 5, 17)  # packed latents (656 bytes) count as such; before, as 576
_SHARED_INDEXES = (0, 5, 18)  # layers that reuse another's top-k store no index keys
_FLOOR = (0, 5, 18)  # a sliding pool that admits no request stops the start
_REQUEST_CAP = (0, 5, 21)  # without prefix caching, sliding tokens follow --max-running-requests

_EVICTION_INTERVAL = 128  # SGLANG_SWA_EVICTION_INTERVAL
_CHUNKS_IN_FLIGHT = 2  # prefill chunks under the overlap schedule
_MXFP8 = 33 / 32  # one scale byte for 32 values


@dataclass(frozen=True, slots=True)
class _Cell:
    """Bytes of one token on one device: in full layers, in sliding layers, in the draft's; `ratio` of sliding tokens to
    full ones, None where there is one pool for all.
    """

    full: float
    sliding: float
    draft: float
    ratio: float | None

    @property
    def token(self) -> float:
        """Bytes of one reported token with the sliding ones that go with it."""
        if not self.full:
            return self.sliding + self.draft
        return self.full + (self.ratio or 0.0) * self.sliding + self.draft


def pool(geometry: Geometry, settings: Settings, pool_bytes: float | None) -> KvPool:
    """tokens = what states leave of the memory / bytes of one token, floored to pages; --max-total-tokens caps it.

    `pool_bytes` are the static memory that weights leave: states and drafts come off. `kv_pool_bytes`, where set, are
    the target's keys and values as SGLang logs them ("KV Cache is allocated"), with neither. The token count is the
    full layers'. Raises ValueError where no size is known.
    """
    if compressed(geometry):
        return sglang_compressed.pool(geometry, settings, pool_bytes)
    page = settings.block_size or 1
    cell = _cell(geometry, settings)
    found = sglang_state.states(geometry, settings, pool_bytes)
    fixed = _request_cap(geometry, settings, page)
    counts = [] if settings.kv_pool_tokens is None else [_capped(geometry, settings, settings.kv_pool_tokens)]
    if found.left is not None:
        counts.append(_held(found.left, _charged(geometry, settings, cell), fixed))
    if not cell.token:  # states only: the context is all that bounds tokens
        counts = [settings.kv_pool_tokens or settings.max_model_len or geometry.max_position or 0]
    if not counts:
        raise ValueError("SGLang's pool needs its bytes or its number of tokens")
    tokens = min(counts) // page * page
    sliding = _sliding_tokens(cell, tokens, page, fixed)
    size = tokens * (cell.full + cell.draft) + (sliding or 0) * cell.sliding + found.bytes
    return KvPool(
        tokens=tokens,
        blocks=tokens // page if page > 1 else None,
        block_size=page,
        bytes=size,
        bytes_per_token=cell.full + cell.sliding + cell.draft,
        rule=_rule(cell, tokens, page, sliding, found),
        sliding_tokens=sliding,
        state_slots=found.slots,
        state_bytes=found.bytes,
        refusal=_refusal(geometry, settings, sliding, found.slots),
    )


def capacity(geometry: Geometry, settings: Settings, kv: KvPool, length: int) -> float:
    """How many requests of `length` tokens fit at once in one rank, each in whole pages; the scarcest pool decides.

    A request holds the sliding tokens that its next token reaches and a page. States bound the requests.
    Decode context parallelism shares a request's tokens over its devices.
    """
    if compressed(geometry):
        return sglang_compressed.capacity(geometry, settings, kv, length)
    page = (settings.block_size or 1) * settings.decode_context_parallel
    tokens = max(1, length)
    fits = kv.tokens * settings.decode_context_parallel / _paged(tokens, page)
    sliding = _sliding_of(geometry, settings, kv)
    if sliding is not None:
        held = min(_paged(tokens, page), _paged(_reach(geometry), page) + page)
        full = any(group.window is None for group in geometry.layers)
        fits = min(fits, sliding / held) if full else sliding / held
    if kv.state_slots is not None:
        fits = min(fits, kv.state_slots // sglang_state.slots_per_request(geometry, settings))
    return fits


def _reach(geometry: Geometry) -> int:
    """Tokens before a new one that sliding layers see: window - 1, or the whole chunk
    (get_attention_sliding_window_size in srt/models).
    """
    reaches = (group.window - (group.kind == "sliding") for group in geometry.layers if group.window)
    return max(reaches, default=0)


def _sliding_of(geometry: Geometry, settings: Settings, kv: KvPool) -> float | None:
    """Sliding tokens of a pool; of one that the server told, which has none, by the ratio."""
    if kv.sliding_tokens is not None or not _is_hybrid(geometry, settings):
        return kv.sliding_tokens
    full = any(group.window is None for group in geometry.layers)
    return kv.tokens * settings.swa_full_tokens_ratio if full else kv.tokens


def _paged(tokens: int, page: int) -> int:
    return math.ceil(tokens / page) * page


# ----------------------------------------------------------------------------------------------------- bytes of a token


def _cell(geometry: Geometry, settings: Settings) -> _Cell:
    hybrid = _is_hybrid(geometry, settings)
    own = _layout(geometry, settings)
    scale = _MXFP8 if settings.kv_cache_dtype == "mxfp8" else 1.0
    full = scale * sum(bytes_per_token(g, own) for g in geometry.layers if not (hybrid and g.window is not None))
    sliding = scale * sum(bytes_per_token(g, own) for g in geometry.layers if hybrid and g.window is not None)
    index = _index_bytes(geometry, settings)
    draft = _draft_bytes(geometry, settings, full, hybrid)
    return _Cell(full + index, sliding, draft, settings.swa_full_tokens_ratio if hybrid else None)


def _layout(geometry: Geometry, settings: Settings) -> Settings:
    """Settings that count this engine's bytes: heads over the TP group's share of a context-parallel group, fp8 latents
    of sparse attention packed with their scales where the kernels want that (calculate_mla_kv_cache_dim).
    """
    own = settings
    if settings.decode_context_parallel > 1:
        own = replace(own, tensor_parallel=max(1, settings.tensor_parallel // settings.decode_context_parallel))
    if geometry.indexer is None or settings.kv_bytes != 1.0:
        return own
    raw = settings.vendor == "amd" or (settings.capability or (0, 0)) >= (10, 0)
    if raw and release(settings.engine_version) >= _RAW_LATENT:
        return own
    return replace(own, kv_cache_dtype="fp8_ds_mla")


def _charged(geometry: Geometry, settings: Settings, cell: _Cell) -> _Cell:
    """The cell by which memory is divided, which in older releases is not what a token then takes."""
    packed = geometry.indexer is not None and settings.kv_bytes == 1.0
    if not packed or settings.kv_pool_bytes is not None or release(settings.engine_version) >= _PACKED_CHARGED:
        return cell
    raw = replace(settings, kv_cache_dtype="fp8")
    latents = sum(bytes_per_token(group, raw) for group in geometry.layers)
    return replace(cell, full=latents + _index_bytes(geometry, settings))


def _index_bytes(geometry: Geometry, settings: Settings) -> float:
    """Index keys of sparse attention: on every device of a context-parallel group, so they count for each of its
    tokens.
    """
    if geometry.indexer is None:
        return 0.0
    layers = geometry.indexer.count
    if release(settings.engine_version) < _SHARED_INDEXES:
        layers = max(layers, sum(group.count for group in geometry.layers if group.kind == "mla"))
    stage = -(-layers // settings.pipeline_parallel)
    return float(stage * geometry.indexer.token_bytes * settings.decode_context_parallel)


def _draft_bytes(geometry: Geometry, settings: Settings, full: float, hybrid: bool) -> float:
    """MTP and EAGLE layers, each like one of the target's full layers, or those of a draft model, in a pool of their
    own.
    """
    layers = draft_layers(geometry, settings)
    logged = settings.kv_pool_bytes is not None
    if not (layers or settings.draft) or logged or release(settings.engine_version) < _DRAFT_CHARGED:
        return 0.0
    if settings.draft:
        return sum(group.count * layer_bytes(group, settings) for group in settings.draft)
    groups: list[Layers] = [g for g in geometry.layers if not (hybrid and g.window is not None)] or [*geometry.layers]
    count = sum(-(-group.count // settings.pipeline_parallel) for group in groups)
    index = geometry.indexer.token_bytes * settings.decode_context_parallel if geometry.indexer else 0
    return layers * (full / max(1, count) + index)


# ------------------------------------------------------------------------------------------------------ sliding windows


def _is_hybrid(geometry: Geometry, settings: Settings) -> bool:
    if not settings.hybrid_kv_manager or all(group.window is None for group in geometry.layers):
        return False
    mixed = any(group.window is None for group in geometry.layers)
    since = _HYBRIDS.get(geometry.architecture, (NEWEST, NEWEST, NEWEST + 1))
    if not geometry.architecture and mixed:
        since = _LAYERS_GIVEN
    return release(settings.engine_version) >= since


def _held(room: float, cell: _Cell, fixed: int | None) -> int:
    """Tokens that bytes hold; with a fixed number of sliding tokens those come off first."""
    if fixed is not None and cell.full:
        return max(0, int((room - fixed * cell.sliding) // (cell.full + cell.draft)))
    return max(0, int(room // cell.token)) if cell.token else NEWEST


def _capped(geometry: Geometry, settings: Settings, tokens: int) -> int:
    cell = _cell(geometry, settings)
    if cell.ratio is None or not cell.full or release(settings.engine_version) >= _CAP_AFTER_SPLIT:
        return tokens
    return int(tokens * (cell.full + cell.sliding) / (cell.full + cell.ratio * cell.sliding))


def _sliding_tokens(cell: _Cell, tokens: int, page: int, fixed: int | None) -> int | None:
    if cell.ratio is None:
        return None
    if not cell.full:
        return tokens
    return min(fixed, tokens) if fixed is not None else int(tokens * cell.ratio) // page * page


def _request_cap(geometry: Geometry, settings: Settings, page: int) -> int | None:
    """Sliding tokens for --max-running-requests (compute_swa_request_cap); None where the ratio decides.

    Reach, eviction interval and two pages for each request, the prefill chunks in flight and a page.
    """
    requests, chunk = sglang_state.asked_requests(settings), settings.max_num_batched_tokens
    if settings.prefix_caching or settings.speculative_tokens or release(settings.engine_version) < _REQUEST_CAP:
        return None
    if not requests or not chunk or not _is_hybrid(geometry, settings):
        return None
    each = _reach(geometry) + _EVICTION_INTERVAL + 2 * page
    return _paged(each * requests + _CHUNKS_IN_FLIGHT * chunk + page, page)


def _refusal(geometry: Geometry, settings: Settings, sliding: int | None, slots: int | None) -> str | None:
    """Why SGLang stops at start: a sliding pool that admits no request (validate_swa_pool_size), or too few states for
    one (resolve_max_num_reqs).
    """
    floor = _reach(geometry) + (settings.block_size or 1)
    full = any(group.window is None for group in geometry.layers)
    if sliding is not None and full and sliding <= floor and release(settings.engine_version) >= _FLOOR:
        return f"SGLang refuses a sliding pool of {sliding:,} tokens: one request needs more than {floor:,}"
    need = sglang_state.slots_per_request(geometry, settings)
    if slots is not None and slots < need:
        return f"SGLang refuses {slots:,} state slots: one request needs {need}"
    return None


def _rule(cell: _Cell, tokens: int, page: int, sliding: int | None, found: sglang_state.States) -> str:
    parts = [f"SGLang: pool / {cell.token:,.0f} bytes a token"]
    if sliding is not None:
        parts.append(f" (sliding layers hold {sliding:,} tokens)")
    if found.slots is not None:
        parts.append(f" after {found.slots:,} states of {found.bytes / (found.slots + 1):,.0f} bytes and one more")
    return "".join(parts) + f" = {tokens:,} tokens in pages of {page}"
