"""Settings that move to another accelerator."""

from auditor.catalog import accelerators
from auditor.engines.elsewhere import moved
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
