"""Whether vLLM can divide experts that are quantised in blocks: one that cannot never gets to its pool."""

from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.releases import release
from auditor.theory.settings import Settings

__all__ = ["divided"]

_FINER_BLOCKS = (0, 29)  # refine_fp8_moe_block_shape in vllm/model_executor/layers/fused_moe/oracle/fp8.py


def divided(geometry: Geometry, settings: Settings) -> None:
    """Raise ValueError where a device's part of an fp8 expert is no whole number of the checkpoint's blocks.

    Fp8MoEMethod.create_weights in vllm/model_executor/layers/quantization/fp8.py, up to 0.28. Without expert
    parallelism experts are divided over tensor and data parallel ranks alike. A pool that is told proves a start.
    """
    block, width = geometry.extra.get("expert_block"), geometry.expert_size or geometry.intermediate_size
    shares = settings.tensor_parallel * settings.data_parallel
    told = settings.pins_pool or settings.expert_parallel > 1
    if not block or not width or told or shares == 1 or geometry.formats.get("experts") != "fp8":
        return
    if release(settings.engine_version) >= _FINER_BLOCKS or width % (shares * block) == 0:
        return
    raise ValueError(
        f"this release of vLLM cannot divide experts of {width:,} in blocks of {block} over {shares} devices: "
        "take --enable-expert-parallel, or fewer devices"
    )
