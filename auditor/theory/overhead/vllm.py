"""vLLM's memory beside weights and KV cache, by the version that measures it.

A worker loads the weights, runs the largest step with a sampler on dummy requests, and gives the pool what is left of
gpu_memory_utilization x total memory: determine_available_memory in vllm/v1/worker/gpu_worker.py and memory_profiling
in vllm/utils/mem_utils.py, read in releases 0.8.5 to 0.32; determine_num_available_blocks in vllm/worker/worker.py
before. What changed, and when:

0.6.5   the device context is no longer counted; it is again by the V1 engine of 0.8.0 to 0.9.0
0.8.0   V1: prompts are always cut to max_num_batched_tokens; V0 ran a prompt of max_model_len up to 32,768 tokens
0.9.1   the snapshot before start is subtracted; from 0.11 on it is taken after NCCL has come up
0.11.1  FlashInfer samples only where it is asked to; from 0.9 on it did where it was installed
0.14    experts keep their workspaces (vllm/v1/worker/workspace.py), so they add to the sampler's peak
0.17    top-k and top-p need no sorted copy of the logits (vllm/v1/sample/ops/topk_topp_triton.py)
0.18    graphs are captured on trial while memory is measured (profile_cudagraph_memory), and leave something behind
0.20    the graphs' estimated memory is subtracted (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS); from 0.26 on ROCm too
0.29    the second model runner, whose trial skips top-k and top-p; for models without experts from 0.25 on

Logs are those of github.com/ashishkamra/vllm-memory-estimator (test_data/validation_db.json) and of llm-d-planner
(llm-d-incubation, docs/empirical-vllm-memory-results.md).
"""

import math
import re
from dataclasses import replace

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.releases import NEWEST, release, releases
from auditor.theory.overhead import activations
from auditor.theory.overhead.share import NOTHING, USUAL_FRACTION, Band, Share, gib
from auditor.theory.settings import Settings
from auditor.theory.widths import bits_of
from auditor.units import GIB

__all__ = ["share"]

_Version = tuple[int, int, int]
_ERAS = ("0.16.0", "0.19.1", "0.25.0")  # one release of each way of measuring, for versions that are not known

_WHOLE_PROMPT = 32768  # V0 ran shorter contexts whole (create_engine_config in vllm/engine/arg_utils.py of 0.6 and 0.7)
_IMAGE_TOKENS = 5120
_EXPERT_ROWS = 16384  # up to 0.17 experts worked in chunks of so many tokens (VLLM_FUSED_MOE_CHUNK_SIZE)
_GGUF = re.compile(r"i?q\d.*|gguf")  # quantisation words of GGUF files
_LARGE = 70 * GIB  # devices of servers, by their memory


def share(geometry: Geometry, settings: Settings, device: Device, usable: float) -> Share:
    """Budget and overhead of one worker; what is not known widens the ranges and is noted. Of a range of releases it is
    the middle of what its ends take.
    """
    found = _of(release(settings.engine_version), geometry, settings, device, usable)
    span = releases(settings.engine_version)
    if span is not None:
        return _between(found, _of(release(span[1]), geometry, settings, device, usable))
    if settings.engine_version is None:
        others = [_of(release(era), geometry, settings, device, usable).overhead for era in _ERAS]
        spare = Band(
            min(0.0, *(other.low - found.overhead.low for other in others)),
            0.0,
            max(0.0, *(other.high - found.overhead.high for other in others)),
        )
        note = "the engine's version is not known: its newest overhead is assumed"
        found = replace(found, other=found.other + spare, notes=(note, *found.notes))
    return found


def _between(first: Share, last: Share) -> Share:
    return replace(
        first,
        activations=first.activations.middle(last.activations),
        graphs=first.graphs.middle(last.graphs),
        other=first.other.middle(last.other),
        beyond=first.beyond.middle(last.beyond),
        notes=tuple(dict.fromkeys((*first.notes, *last.notes))),
    )


def _of(version: _Version, geometry: Geometry, settings: Settings, device: Device, usable: float) -> Share:
    peak, told = _activations(version, geometry, settings, device)
    inside, outside = _graphs(version, geometry, settings, device)
    doubts = _doubts(geometry, settings, device)
    return Share(
        budget=(settings.memory_fraction or USUAL_FRACTION) * usable,
        activations=peak,
        graphs=inside,
        other=_libraries(version, geometry, settings, device, usable) + sum((band for band, _ in doubts), NOTHING),
        beyond=outside,
        notes=told + tuple(note for _, note in doubts),
    )


# ---------------------------------------------------------------------------------------------------------- activations


def _activations(
    version: _Version, geometry: Geometry, settings: Settings, device: Device
) -> tuple[Band, tuple[str, ...]]:
    """Peak of the trial step: that of the layers, or that of the sampler while the last hidden states still stand."""
    tokens, sequences = _step(version, geometry, settings)
    logits = _logit_bytes(version, geometry, settings, device).scaled_by(sequences * geometry.vocab_size)
    kept = activations.hidden(geometry, settings, tokens + sequences)
    work = _expert_work(version, geometry, settings, tokens)
    stays = _keeps_workspaces(version, geometry, settings, device)
    layers = activations.forward(geometry, settings, tokens)
    likely = max(layers + work, logits.likely + kept + (work if stays else 0.0))
    low = 0.9 * layers if settings.pipeline_parallel > 1 else max(0.9 * layers, logits.low + kept)
    high = max(1.15 * layers + work, logits.high + kept + work)
    notes: tuple[str, ...] = ()
    if version < (0, 8, 0):
        low, high = 0.6 * likely, high + 2 * GIB
        notes += ("before vLLM 0.8 a prompt of max_model_len was run whole: 2 to 9.4 GiB of activations on an 8B",)
    if _may_use_flashinfer(version, device):
        notes += ("the sampler is taken to sort: where FlashInfer is installed it leaves more, up to the band's end",)
    if geometry.vision:
        likely, high, told = _with_encoder(version, geometry, settings, likely, high)
        notes += (told,)
    return Band(low, likely, high), notes


def _with_encoder(
    version: _Version, geometry: Geometry, settings: Settings, likely: float, high: float
) -> tuple[float, float, str]:
    """The peak with a vision encoder, which runs first and leaves its output while the layers run; its end of the band
    and what is assumed. Pixtral-12B took 8.27 GiB (github.com/dphnAI/sonar/pull/1320).
    """
    images = geometry.images
    if images is None or version < (0, 8, 0):
        told = "a vision encoder's trial run takes 1 to 10 GiB and more by model and version: the band is that wide"
        return max(likely + 0.25 * GIB, 2 * GIB), max(high + 0.5 * GIB, 10 * GIB), told
    peak, left = activations.encoder(geometry, settings, _step(version, geometry, settings)[0])
    told = (
        f"the vision encoder's trial run is computed for images of {images.tokens:,} tokens: "
        "other limits of its processor, or --limit-mm-per-prompt, change it"
    )
    return max(likely + left, peak), max(high + left, 1.5 * peak), told


def _step(version: _Version, geometry: Geometry, settings: Settings) -> tuple[int, int]:
    """Tokens and sequences of the trial step; vLLM's smallest where the settings leave them open.

    V0 ran as many sequences as whole images would fill, which is one or a few (profile_run in
    vllm/worker/model_runner.py of 0.6 and 0.7), over at least 5,120 tokens.
    """
    tokens, sequences = settings.max_num_batched_tokens or 2048, settings.max_num_seqs or 256
    if version < (0, 8, 0):
        whole = settings.max_model_len if (settings.max_model_len or NEWEST) <= _WHOLE_PROMPT else 0
        tokens = max(tokens, whole or 0, _IMAGE_TOKENS if geometry.vision else 0)
        sequences = 1 if geometry.vision else sequences
    return tokens, min(tokens, sequences)


def _first_engine(version: _Version, geometry: Geometry, settings: Settings) -> bool:
    """Whether the V0 engine runs: before 0.8, and up to 0.10.1 what V1 left to it (_is_v1_supported_oracle in
    vllm/engine/arg_utils.py of 0.8.5 to 0.10.2): devices older than Ampere, models with states, a cache of 8 bits off
    Hopper (and Blackwell from 0.10 on); up to 0.9.1 32-bit weights; up to 0.8.5 GGUF files, drafts and pipelines.
    """
    if version < (0, 8, 0) or version >= (0, 10, 2):
        return version < (0, 8, 0)
    capability = settings.capability or (8, 0)
    eight = (9, 10) if version >= (0, 10, 0) else (9,)
    if capability < (8, 0) or geometry.recurrent or (settings.kv_bytes < 2 and capability[0] not in eight):
        return True
    if version < (0, 9, 2) and settings.plain_dtype == "fp32":
        return True
    drafts = settings.speculative_tokens > 0 or settings.pipeline_parallel > 1
    return version < (0, 9, 0) and (drafts or _GGUF.fullmatch((settings.quantization or "").lower()) is not None)


def _logit_bytes(version: _Version, geometry: Geometry, settings: Settings, device: Device) -> Band:
    """Bytes that one logit costs at the sampler's peak.

    Sorting (up to 0.16): 2 for the model's logit, 4 for its fp32 copy, 12 for the sorted value and its int64 index, 8
    for indices before the sort and 12 for the second buffer of CUB's segmented radix sort: 38, and masks. Logs: 7.38
    GiB for 1,024 x 201,088 logits and 1.40 for 256 x 151,936 are 38.3 each once hidden states are off. Up to 0.11.0
    FlashInfer sampled instead where it was installed. Triton (0.17) and FlashInfer (0.21) need no sort: 2 and 4, then
    4 of probabilities and 4 of noise (random_sample in vllm/v1/sample/ops/topk_topp_sampler.py). The second runner
    samples from the logits as they are (vllm/v1/worker/gpu/sample/sampler.py). Drafts are judged on further logits.
    """
    dense = geometry.experts is None and not geometry.recurrent
    drafts = 8.0 if settings.speculative_tokens else 0.0
    if version >= (0, 29, 0) or (version >= (0, 25, 0) and dense):
        return Band(2.0, 6.0, 14.0 + drafts)
    if version >= (0, 17, 0):
        return Band(14.0, 14.0, 15.0 + drafts)
    return Band(14.0 if _may_use_flashinfer(version, device) else 38.0, 38.25, 39.5)


def _may_use_flashinfer(version: _Version, device: Device) -> bool:
    """Whether FlashInfer samples where it is installed, which no setting tells (topk_topp_sampler.py of 0.11.0)."""
    return (0, 9, 0) <= version <= (0, 11, 0) and device.vendor == "nvidia"


def _expert_work(version: _Version, geometry: Geometry, settings: Settings, tokens: int) -> float:
    """Workspaces of the experts, for the tokens of all data-parallel ranks: each runs its trial at the same time."""
    rows = tokens * settings.data_parallel
    return activations.expert_workspace(
        geometry, settings, rows if version >= (0, 18, 0) else max(tokens, min(rows, _EXPERT_ROWS))
    )


def _keeps_workspaces(version: _Version, geometry: Geometry, settings: Settings, device: Device) -> bool:
    """Whether the experts' workspaces stay allocated after the step (vllm/v1/worker/workspace.py, from 0.14 on).

    Triton's and CUTLASS's experts ask for them, Marlin's and FlashInfer's do not (fused_moe/oracle of 0.16 to 0.32).
    Marlin takes formats below 8 bits, and fp8 before Ada; FlashInfer takes quantised experts on Blackwell, and on
    Hopper ModelOpt's fp8 and, in 0.15 and 0.16 or with expert parallelism, fp8 in blocks.
    """
    bits = bits_of(geometry.formats.get("experts") or settings.quantization or "") or settings.weight_bits
    if version < (0, 14, 0) or bits < 8:
        return False
    capability, word = settings.capability, settings.quantization or ""
    if device.vendor != "nvidia" or bits >= 16 or capability is None:
        return True
    if not (8, 9) <= capability < (10, 0):
        return False
    in_blocks = word == "fp8" and ((0, 15, 0) <= version < (0, 17, 0) or settings.expert_parallel > 1)
    by_flashinfer = capability >= (9, 0) and version >= (0, 15, 0) and (in_blocks or word.startswith("modelopt"))
    return not by_flashinfer


# ---------------------------------------------------------------------------------- what PyTorch does not account for


def _libraries(version: _Version, geometry: Geometry, settings: Settings, device: Device, usable: float) -> Band:
    """Memory that is not PyTorch's: communicators, libraries' workspaces, what graphs on trial leave behind.

    Read off start-up logs (non_torch_memory, and available memory less the peak): NVIDIA alone 0.05 to 0.28 GiB; two,
    four and eight devices on NVLink 0.54, 0.67 and 0.98, on PCIe 0.2 for four; MI300X alone 1.3, eight 3.4.
    """
    devices = max(settings.devices, settings.tensor_parallel * settings.pipeline_parallel, 1)
    steps = math.log2(devices)
    linked = _linked(device, usable)
    if device.vendor == "amd":
        alone = gib(1.0, 1.35, 1.8) if usable >= _LARGE else gib(0.3, 0.55, 0.9)
        return alone + gib(0.45 * steps, 0.68 * steps, 1.1 * steps)
    band = gib(0.0, 0.12, 0.4)
    if devices > 1:
        band += gib(0.05, 0.18, 0.5) if linked else NOTHING
        band += gib(0.15 * steps, 0.22 * steps, 0.35 * steps) if linked else gib(0.0, 0.05 * steps, 0.15 * steps)
    if version < (0, 6, 5):
        band += gib(0.1, 0.25, 0.5)  # the device context
    elif (0, 8, 0) <= version <= (0, 9, 0) and not _first_engine(version, geometry, settings):
        band += gib(0.0, 0.4, 0.7)  # the device context, counted by V1 until it took a snapshot before start
    if not settings.enforce_eager:
        band += _left_by_trial(version, devices, linked)
    return band


def _linked(device: Device, usable: float) -> bool:
    """Whether devices are joined all to all (NVLink switches), by the memory where nothing is said of it."""
    said = (device.interconnect or "").lower()
    return "nvlink" in said and "bridge" not in said if said else usable >= _LARGE


def _left_by_trial(version: _Version, devices: int, linked: bool) -> Band:
    """What stays of the graphs captured on trial: counted as long as the trial lay inside the measurement.

    Custom all-reduce opens the trial's buffers in every peer and closes them only at the end (register_graph_buffers in
    vllm/distributed/device_communicators/custom_all_reduce.py, ipc_handles_ in csrc/custom_all_reduce.cuh), so they
    stay allocated once the trial is over. It needs switches, or a pair of cards whose PCIe lets them reach each other,
    which consumer cards' does not.
    """
    if version < (0, 18, 0):
        return NOTHING
    if version >= (0, 27, 0):
        return gib(0.0, 0.1, 0.6)
    if devices > 1 and linked:
        return gib(1.1, 1.6, 2.1)
    return gib(0.1, 0.25, 2.1 if devices == 2 else 0.6)


def _graphs(version: _Version, geometry: Geometry, settings: Settings, device: Device) -> tuple[Band, Band]:
    """Graphs inside the budget and beyond it: estimated and subtracted from 0.20 on, from 0.26 on ROCm too.

    Logs of 0.20 gave 0.3 to 0.6 GiB less than 0.19 on one H200, 0.9 on four (Llama-3.3-70B), 1.6 on eight
    (DeepSeek-R1); logs of MI300X say that capture took 2.6 to 8.4 GiB beyond the budget.
    """
    if settings.enforce_eager:
        return NOTHING, NOTHING
    several = settings.tensor_parallel > 1
    if device.vendor == "amd":
        band, counted = gib(1.0, 4.0, 8.5), version >= (0, 26, 0)
    else:
        band = gib(0.4, 0.95, 1.7) if several else gib(0.15, 0.45, 1.2)
        band += gib(0.0, 0.5, 0.8) if several and geometry.experts else NOTHING
        counted = version >= (0, 20, 0) and device.vendor == "nvidia"
    captured = settings.captured_batch
    band = band.scaled_by(max(0.2, min(1.0, captured / 512))) if captured else band
    return (band, NOTHING) if counted else (NOTHING, band)


def _doubts(geometry: Geometry, settings: Settings, device: Device) -> list[tuple[Band, str]]:
    """What widens the range without moving the likely figure, each with its sentence."""
    doubts = []
    if device.vendor not in {"nvidia", "amd"}:
        note = f"vLLM's overhead on {device.vendor} devices is not known: NVIDIA's is assumed"
        doubts.append((gib(-0.5, 0.0, 2.0), note))
    if device.kind == "unified":
        # MemorySnapshot.measure in vllm/utils/mem_utils.py asks for the host's available memory on such devices
        note = "memory is shared with the host: what the host frees or takes meanwhile counts as vLLM's"
        doubts.append((gib(-6.0, 0.0, 4.0), note))
    if geometry.architecture.startswith("DeepseekV4"):
        doubts.append((gib(-2.0, 0.0, 4.0), "DeepSeek-V4's workspaces are not known: the band is 6 GiB wider"))
    if settings.data_parallel > 1 and settings.expert_parallel > 1:
        note = "buffers that carry tokens between data-parallel ranks (DeepEP) take up to 3 GiB by backend"
        doubts.append((gib(0.0, 0.0, 3.0), note))
    if settings.disaggregated:
        # kv_buffer_size, 1e9 bytes by default (vllm/config/kv_transfer.py); connectors that register the pool need none
        doubts.append(
            (Band(0.0, 0.0, 1e9), "a connector between prefill and decode instances may hold 1 GB of buffers")
        )
    if settings.pipeline_parallel > 1:
        note = "only the last pipeline stage samples: the fullest stage is taken for it, the band's end for another"
        doubts.append((NOTHING, note))
    return doubts
