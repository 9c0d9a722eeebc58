"""SGLang's token pool: one slot per token and layer, handed out in pages (srt/model_executor/model_runner.py)."""

import math

from auditor.theory.kv.cells import KvPool, all_bytes_per_token, bytes_per_token
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

__all__ = ["capacity", "pool"]

# is_hybrid_swa_model in srt/configs/model_config.py: all other models keep sliding layers in full.
_HYBRID_ARCHITECTURES = frozenset(
    {
        "GptOssForCausalLM",
        "Llama4ForConditionalGeneration",
        "MiMoV2FlashForCausalLM",
        "Step3p5ForCausalLM",
    }
)


def pool(geometry: Geometry, settings: Settings, pool_bytes: float | None) -> KvPool:
    """tokens = pool / bytes of one token, floored to whole pages; --max-total-tokens caps it.

    Hybrids keep `swa_full_tokens_ratio` times as many tokens in sliding layers as in full ones, so that a token costs
    full + ratio x sliding bytes; the reported count is the full layers'. Raises ValueError where no size is known.
    """
    page = settings.block_size or 1
    cell = _cell(geometry, settings)
    found = [settings.kv_pool_tokens] if settings.kv_pool_tokens is not None else []
    if pool_bytes is not None:
        found.append(max(0, int(pool_bytes // cell)))
    if not found:
        raise ValueError("SGLang's pool needs its bytes or its number of tokens")
    tokens = min(found) // page * page
    hybrid = _is_hybrid(geometry, settings)
    return KvPool(
        tokens=tokens,
        blocks=tokens // page if page > 1 else None,
        block_size=page,
        bytes=tokens * cell,
        bytes_per_token=all_bytes_per_token(geometry, settings),
        rule=f"SGLang: pool / {cell:,.0f} bytes a token"
        + (f" (sliding layers hold {settings.swa_full_tokens_ratio:g} of the tokens)" if hybrid else "")
        + f" = {tokens:,} tokens in pages of {page}",
    )


def capacity(geometry: Geometry, settings: Settings, kv: KvPool, length: int) -> float:
    """How many requests of `length` tokens fit at once in one rank, each in whole pages.

    Hybrids have two pools: a request also takes min(length, window) sliding tokens; the scarcer pool decides.
    """
    page = settings.block_size or 1
    paged = math.ceil(max(1, length) / page) * page
    fits = kv.tokens / paged
    if _is_hybrid(geometry, settings):
        window = max(group.window or 0 for group in geometry.layers)
        sliding = math.ceil(min(max(1, length), window) / page) * page
        fits = min(fits, kv.tokens * settings.swa_full_tokens_ratio / sliding)
    return fits


def _is_hybrid(geometry: Geometry, settings: Settings) -> bool:
    kinds = {group.window is not None for group in geometry.layers}
    return settings.hybrid_kv_manager and len(kinds) > 1 and geometry.architecture in _HYBRID_ARCHITECTURES


def _cell(geometry: Geometry, settings: Settings) -> float:
    if not _is_hybrid(geometry, settings):
        return all_bytes_per_token(geometry, settings)
    full = sum(bytes_per_token(group, settings) for group in geometry.layers if group.window is None)
    sliding = sum(bytes_per_token(group, settings) for group in geometry.layers if group.window is not None)
    return full + settings.swa_full_tokens_ratio * sliding
