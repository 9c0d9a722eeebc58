"""SGLang's memory beside weights and KV cache: a fraction of what is free before loading is static, the rest is not."""

from auditor.theory.device import Device
from auditor.theory.kv.cells import attention_parallel
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.releases import release
from auditor.theory.kv.sglang_state import asked_requests
from auditor.theory.overhead.share import NOTHING, Band, Share, gib
from auditor.theory.settings import Settings

__all__ = ["automatic_fraction", "share", "step_limits"]

_MIB = float(1 << 20)
_IMAGES_RESERVED = (0, 5, 18)
_Version = tuple[int, int, int]


def share(geometry: Geometry, settings: Settings, device: Device, usable: float) -> Share:
    """pool = available after loading - available before x (1 - mem_fraction_static).

    profile_max_num_token in srt/model_executor/model_runner.py (from 0.3), _profile_available_bytes in
    srt/mem_cache/kv_cache_configurator.py (0.5.23). Available before is what the device context and the communicators
    leave (init_torch_distributed), so the pool is fraction x before - weights; activations and graphs live in the rest.
    Logs of sgl-project/sglang ("Load weight begin. avail mem"): 137.3 of 139.8 GiB on eight H200 (pull request 11716),
    175.3 of 178.4 on eight B200 (5390), 94.0 of 95.0 on four RTX PRO 6000 without NVLink (issue 40558).
    """
    devices = max(settings.devices, settings.tensor_parallel * settings.pipeline_parallel)
    taken = gib(0.3, 0.7, 1.5) if devices <= 1 else gib(0.8, 1.8, 3.5)
    notes: tuple[str, ...] = ()
    fraction = settings.memory_fraction
    if fraction is None:
        fraction = automatic_fraction(geometry, settings, usable)
        notes += (f"mem_fraction_static is not set: {fraction:g} by SGLang's own rule for this memory and these flags",)
        if settings.engine_version is None:
            notes += ("the engine's version is not known: its newest rule is assumed",)
    if device.vendor not in {"nvidia", "amd"}:
        taken += gib(0.0, 0.0, 1.0)
        notes += (f"what SGLang leaves free on {device.vendor} devices is not known: NVIDIA's figures are assumed",)
    free = (1 - fraction) * (usable - taken.likely)
    images = _for_images(geometry, settings)
    if images.likely:
        notes += ("embeddings of images have 100 MiB, features that are handed over on the GPU would take 1 GiB more",)
    # activations and graphs live in what is not static, and may fill it
    other = taken.softened(fraction) + images
    return Share(budget=usable - free, other=other, beyond=Band(0.0, free / 2, free), notes=notes)


def _for_images(geometry: Geometry, settings: Settings) -> Band:
    """Kept out of the pool for multimodal models: the cache of embeddings (SGLANG_VLM_CACHE_SIZE_MB) and, with
    --mm-feature-transport cuda_ipc, pools of features (SGLANG_MM_FEATURE_CACHE_MB). mm_runtime_reservation_gb in
    srt/mem_cache/kv_cache_configurator.py.
    """
    if not geometry.vision or release(settings.engine_version) < _IMAGES_RESERVED:
        return NOTHING
    return Band(0.0, 100 * _MIB, 1124 * _MIB)


def automatic_fraction(geometry: Geometry, settings: Settings, usable: float) -> float:
    """mem_fraction_static where no flag sets it, by version, memory and flags."""
    version = release(settings.engine_version)
    memory = usable / _MIB
    if version < (0, 4, 6):
        fraction = _by_devices(settings.tensor_parallel, version)
    elif version < (0, 4, 8):
        fraction = _by_devices_and_memory(settings, memory, version)
    else:
        reserved = _by_class if version < (0, 5, 3) else _by_step
        fraction = round((memory - reserved(version, geometry, settings, memory)) / memory, 3)
    # adjust_mem_fraction_for_vlm: 0.95 with an encoder like ViT-L, less with a larger one
    return fraction * 0.95 if geometry.vision and version >= (0, 4, 8) else fraction


# ------------------------------------------------------------------- MiB kept free, by release of srt/server_args.py


def _by_devices(devices: int, version: _Version) -> float:
    """0.3.6 to 0.4.7."""
    steps = ((16, 0.79), (8, 0.82 if version < (0, 4, 0) else 0.81), (4, 0.85), (2, 0.87))
    return next((fraction for least, fraction in steps if devices >= least), 0.88)


def _by_devices_and_memory(settings: Settings, memory: float, version: _Version) -> float:
    """0.4.6 and 0.4.7: large devices keep 18 GiB free."""
    del version
    if memory <= 81920:
        return _by_devices(settings.tensor_parallel * settings.pipeline_parallel, (0, 4, 6))
    if memory <= 96 * 1024:
        return 0.88
    return min(0.88 + 48 * 1024 * 0.12 / memory, (memory - 18 * 1024) / memory)


def _by_class(version: _Version, geometry: Geometry, settings: Settings, memory: float) -> float:
    """0.4.9 to 0.5.2: by classes of devices."""
    del version, geometry
    devices = settings.tensor_parallel * settings.pipeline_parallel
    steps = ((35, 2.8 + devices / 10), (90, 9.5 + devices / 2), (160, 12 + devices / 2))
    kept = next((kept for below, kept in steps if memory < below * 1024), 32.0)
    return 1024 * (kept + (2 if settings.speculative_tokens else 0) + (4 if _shares_attention(settings) else 0))


def _by_step(version: _Version, geometry: Geometry, settings: Settings, memory: float) -> float:
    """0.5.3 to 0.5.23: by the largest step and the graphs (arg_groups/memory_hook.py in 0.5.23).

    512 MiB, 1.5 a token of the largest step, 2 a captured batch size, 128 a device; DP attention 3 a batch size and
    rank, 4.5 where more than 300 are captured; at least 10 GiB on devices above 60 GiB. Drafts took 2 GiB up to 0.5.9;
    since then graphs of prompts take 8 each, or 1.5 GiB with MLA.
    """
    newest = version >= (0, 5, 10)
    chunk, batch = _step(settings, memory)
    decodes, prompts = settings.disaggregated != "prefill", settings.disaggregated != "decode"
    if not prompts and newest:
        chunk = (asked_requests(settings) or batch) * max(1, settings.speculative_tokens)
    kept = 512 + 1.5 * max(chunk, 2048) + 128.0 * settings.tensor_parallel * settings.pipeline_parallel
    graphs = 0 if settings.enforce_eager or not decodes else batch
    kept += 2 * graphs
    if _shares_attention(settings) and decodes:
        kept += batch * settings.data_parallel * (4.5 if batch > 300 else 3)
    if newest and prompts and not settings.enforce_eager:
        latent = any(group.latent_dim is not None for group in geometry.layers)
        kept += 1.5 * 1024 if latent else 8 * _prompt_graphs(chunk)
    if memory > 60 * 1024:
        kept = max(kept, 10 * 1024)
    return kept + (2 * 1024 if settings.speculative_tokens and not newest else 0)


def _step(settings: Settings, memory: float) -> tuple[int, int]:
    """Tokens of the largest prefill and the largest captured batch, as set or as the release has them."""
    chunk, batch = step_limits(settings.engine_version, memory * _MIB, settings.tensor_parallel)
    return settings.max_num_batched_tokens or chunk, settings.captured_batch or batch


def step_limits(version: str | None, usable: float, tensor_parallel: int) -> tuple[int, int]:
    """Tokens of the largest prefill and the largest batch captured as a graph, of a device with `usable` bytes where no
    flag says so: handle_gpu_memory_settings in srt/server_args.py (from 0.5.3) and srt/arg_groups/memory_hook.py
    (0.5.23). Releases before are taken alike.
    """
    newest = release(version) >= (0, 5, 10)
    steps = (
        (20, 2048, 8, 8),
        (35, 4096 if newest else 2048, 48 if newest else 24, 160 if newest else 80),
        (60, 4096, 32, 160),
        (160, 8192, 256, 512),
    )
    gibibytes = usable / _MIB / 1024
    chunk, few, many = next((step[1:] for step in steps if gibibytes < step[0]), (16384, 512, 512))
    return chunk, few if tensor_parallel < 4 else many


def _prompt_graphs(largest: int) -> int:
    """How many sizes of prompts are captured (generate_prefill_cuda_graph_batch_sizes in cuda_graph_hook.py)."""
    ranges = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256), (4608, largest + 1, 512))
    return sum(size <= largest for bounds in ranges for size in range(*bounds))


def _shares_attention(settings: Settings) -> bool:
    """Whether data-parallel ranks attend on the tensor-parallel devices themselves (--enable-dp-attention)."""
    return attention_parallel(settings) < settings.tensor_parallel
