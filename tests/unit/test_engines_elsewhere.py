"""Settings that move to another accelerator."""

from dataclasses import replace

from auditor.catalog import accelerators
from auditor.engines.elsewhere import following, moved
from auditor.instruments.inputs import inputs
from auditor.theory.settings import Settings

FP8 = Settings(engine="vllm", quantization="fp8", compute_dtype="fp8", vendor="nvidia", capability=(9, 0))


def test_a_device_brings_its_own_units_vendor_and_generation():
    """A100 has no fp8 units, L4 is of compute capability 8.9, MI300X is AMD's."""
    there = [moved(FP8, accelerators.find(name)) for name in ("a100-sxm-80", "l4", "mi300x")]
    assert [(s.compute_dtype, s.vendor, s.capability) for s in there] == [
        ("bf16", "nvidia", (8, 0)),
        ("fp8", "nvidia", (8, 9)),
        ("fp8", "amd", None),
    ]
    assert moved(there[0], accelerators.find("h100-sxm")) == FP8


def test_defaults_follow_the_device_and_the_batch_limit():
    """vLLM: 256 requests and 2,048 tokens a step on an L4, 1,024 and 8,192 from 70 GiB on; graphs twice the batch."""
    found = inputs({"model": "llama-3.1-8b", "accelerator": "l4", "engine": "vllm", "engine_version": "0.18.0"})
    settled = following(found.geometry, found.settings, found.device, found.sources)
    there = settled(found.settings, accelerators.find("h100-sxm"))
    assert (found.settings.max_num_seqs, found.settings.max_num_batched_tokens) == (256, 2048)
    assert (there.max_num_seqs, there.max_num_batched_tokens) == (1024, 8192)
    assert settled(replace(found.settings, max_num_seqs=16), found.device).captured_batch == 32


def test_what_is_declared_stays():
    row = {"model": "llama-3.1-8b", "accelerator": "l4", "engine": "vllm", "max_num_seqs": 256}
    found = inputs(row)
    settled = following(found.geometry, found.settings, found.device, found.sources)
    assert settled(found.settings, accelerators.find("h100-sxm")).max_num_seqs == 256
