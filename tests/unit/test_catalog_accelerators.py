"""Accelerators by every name people and nvidia-smi write, with figures from their data sheets."""

import pytest

from auditor.catalog import accelerators
from auditor.errors import UsageError

NAMES = [
    ("h100", "h100-sxm"),
    ("H100 SXM5", "h100-sxm"),
    ("H100SXM5", "h100-sxm"),
    ("H100_SXM5", "h100-sxm"),
    ("GB300 NVL72", "gb300"),
    ("gb200-nvl72", "gb200"),
    ("H100 NVL", "h100-nvl"),
    ("h100-80gb", "h100-sxm"),
    ("NVIDIA H100 80GB HBM3", "h100-sxm"),
    ("NVIDIA H100 PCIe", "h100-pcie"),
    ("H200-141G", "h200-sxm"),
    ("rtx4090", "rtx-4090"),
    ("NVIDIA GeForce RTX 4090", "rtx-4090"),
    ("4090", "rtx-4090"),
    ("A100 80GB", "a100-sxm-80"),
    ("NVIDIA A100-SXM4-40GB", "a100-sxm-40"),
    ("NVIDIA A100 80GB PCIe", "a100-pcie-80"),
    ("V100-32G", "v100-sxm2-32"),
    ("GB10-128G", "gb10"),
    ("DGX Spark", "gb10"),
    ("L40", "l40"),
    ("NVIDIA L40S", "l40s"),
    ("A6000", "rtx-a6000"),
    ("RTX A5000-24G", "rtx-a5000"),
    ("RX7900XTX-24G", "rx-7900-xtx"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-bw"),
    ("AMD Instinct MI300X OAM", "mi300x"),
    ("Intel Gaudi 3", "gaudi3"),
    ("M5 Max 128GB", "apple-m5-max-128gb"),
    ("apple-m1-max-64gb", "apple-m1-max-64gb"),
    ("H100-80G", "h100-sxm"),
    ("A40-48GB", "a40"),
    ("Apple M4 Max 128GB", "apple-m4-max-128gb"),
    ("Apple M1 Max 32c 64GB", "apple-m1-max-64gb"),
    ("M1 Max, 24-core GPU, 32 GB", "apple-m1-max-24-32gb"),
    ("p5en.48xlarge", "h200-sxm"),
    ("g5.12xlarge", "a10g"),
    ("a3-highgpu", "h100-sxm"),
    ("a2-ultragpu-8g", "a100-sxm-80"),
    ("g2-standard-8", "l4"),
    ("Standard_ND96isr_H100_v5", "h100-sxm"),
    ("Standard_NC40ads_H100_v5", "h100-nvl"),
    ("BM.GPU.H100.8", "h100-sxm"),
    ("v5litepod-8", "tpu-v5e"),
    ("v5p-16", "tpu-v5p"),
    ("MacBook Pro M2 Max 96GB", "apple-m2-max-96gb"),
    ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "strix-halo"),
    ("Tesla P40", "p40"),
    ("Quadro RTX 8000", "quadro-rtx-8000"),
    ("H800 PCIe", "h800-pcie"),
    ("NVIDIA H800", "h800-sxm"),
    ("h800", "h800-sxm"),
    ("Orin NX", "jetson-orin-nx-16"),
    ("Jetson Orin NX 16GB", "jetson-orin-nx-16"),
    ("Radeon 890M", "radeon-890m"),
    ("AMD Ryzen AI 9 HX 370 w/ Radeon 890M", "radeon-890m"),
]


@pytest.mark.parametrize(("written", "key"), NAMES)
def test_names_are_forgiven(written, key):
    assert accelerators.find(written).key == key


AMBIGUOUS = [
    ("a100", "a100-sxm-40, a100-sxm-80"),
    ("v100", "v100-sxm2-16, v100-sxm2-32"),
    ("RTX 3060", "rtx-3060-8, rtx-3060-12"),
    ("GeForce RTX 3080", "rtx-3080-10, rtx-3080-12"),
    ("RTX 5000", "rtx-5000-ada, rtx-pro-5000-bw, quadro-rtx-5000"),
    ("M5 Max", "apple-m5-max-48gb, apple-m5-max-64gb, apple-m5-max-128gb"),
    ("apple-m1-max", "apple-m1-max-32gb, apple-m1-max-64gb"),
    ("Apple M1 Pro", "apple-m1-pro-14-16gb, apple-m1-pro-14-32gb, apple-m1-pro-16gb, apple-m1-pro-32gb"),
    ("gfx942", "mi300x, mi325x"),
]


@pytest.mark.parametrize(("written", "choices"), AMBIGUOUS)
def test_ambiguity_is_refused_with_the_choices(written, choices):
    with pytest.raises(UsageError, match="is ambiguous, say which") as caught:
        accelerators.find(written)
    assert choices in str(caught.value)


ANY_MEMORY = [  # written, the part that stands for all memories it is sold with
    ("apple-m1-max", "apple-m1-max-32gb"),
    ("Apple M1 Max 32c", "apple-m1-max-32gb"),
    ("v100-pcie", "v100-pcie-16"),
    ("h100", "h100-sxm"),
]


@pytest.mark.parametrize(("written", "key"), ANY_MEMORY)
def test_memory_may_be_left_open_where_only_speed_matters(written, key):
    assert accelerators.find(written, any_memory=True).key == key


@pytest.mark.parametrize("written", ["a100", "Apple M1 Max", "gfx942"])
def test_parts_of_different_speed_stay_ambiguous(written):
    with pytest.raises(UsageError, match="is ambiguous, say which"):
        accelerators.find(written, any_memory=True)


def test_the_unknown_is_refused_with_neighbours():
    with pytest.raises(UsageError, match=r"unknown accelerator 'h1000', did you mean h100-sxm"):
        accelerators.find("h1000")
    for nothing in ("", "NVIDIA", "16G"):
        with pytest.raises(UsageError, match="unknown accelerator"):
            accelerators.find(nothing)


@pytest.mark.parametrize("written", ["8xH100", "8 x NVIDIA H100 80GB HBM3", "2*h100-sxm"])
def test_a_number_of_them_is_told_apart(written):
    with pytest.raises(UsageError, match=r"names several: name one, h100-sxm, and their number apart \(count\)"):
        accelerators.find(written)


OTHER_PARTS = [  # written, its own key, and a part whose name goes on
    ("RTX 4070", "rtx-4070", "rtx-4070-ti"),
    ("NVIDIA GeForce RTX 5070", "rtx-5070", "rtx-5070-ti"),
    ("RTX 2080", "rtx-2080", "rtx-2080-ti"),
    ("4070Ti", "rtx-4070-ti", "rtx-4070-ti-super"),
    ("RX 7900 XT", "rx-7900-xt", "rx-7900-xtx"),
    ("RX 9070", "rx-9070", "rx-9070-xt"),
]


@pytest.mark.parametrize(("written", "key", "longer"), OTHER_PARTS)
def test_a_name_is_no_part_whose_name_goes_on(written, key, longer):
    assert accelerators.find(written).key == key
    assert accelerators.find(longer).key == longer


@pytest.mark.parametrize("written", ["RTX 4080 Laptop", "RX 7900", "rtx 5060 super"])
def test_a_part_that_is_not_listed_is_taken_for_no_other(written):
    with pytest.raises(UsageError, match="unknown accelerator"):
        accelerators.find(written)


SHEETS = [  # key, GB/s, TFLOP/s dense by dtype, GiB
    ("v100-sxm2-32", 900, {"fp16": 125}, 32),
    ("t4", 320, {"fp16": 65}, 16),
    ("a100-sxm-80", 2039, {"bf16": 312, "int8": 624}, 80),
    ("l4", 300, {"bf16": 121, "fp8": 242}, 24),
    ("l40s", 864, {"bf16": 362, "fp8": 733}, 48),
    ("h100-sxm", 3350, {"bf16": 989, "fp8": 1979}, 80),
    ("h200-sxm", 4800, {"bf16": 989, "fp8": 1979}, 141),
    ("b200-sxm", 7700, {"bf16": 2250, "fp8": 4500, "fp4": 9000}, 180),
    ("gb200", 8000, {"bf16": 2500, "fp4": 10000}, 186),
    ("rtx-3090", 936, {"bf16": 71}, 24),
    ("rtx-4090", 1008, {"bf16": 165, "fp8": 330}, 24),
    ("rtx-5090", 1792, {"bf16": 209.5}, 32),
    ("rtx-pro-4500-bw", 896, {"bf16": 219.7, "fp8": 439.5, "fp4": 879}, 32),  # 4, 8 and 16 x 54.9 of fp32
    ("rtx-2080-ti", 616, {"fp16": 53.8, "int8": 215.2}, 11),
    ("rtx-3080-10", 760, {"bf16": 59.54, "int8": 238.2}, 10),
    ("p40", 347, {"int8": 47}, 24),
    ("mi100", 1229, {"bf16": 92.3, "fp16": 184.6}, 32),
    ("mi250x", 1638.5, {"bf16": 191.5}, 64),
    ("mi300x", 5300, {"bf16": 1307, "fp8": 2615}, 192),
    ("mi355x", 8000, {"bf16": 2517}, 288),
    ("gaudi2", 2460, {"bf16": 432}, 96),
    ("gb10", 273, {"fp4": 500}, 128),
    ("apple-m5-max-128gb", 614, {"fp16": 70}, 128),
]


@pytest.mark.parametrize(("key", "bandwidth", "tflops", "memory"), SHEETS)
def test_data_sheets(key, bandwidth, tflops, memory):
    device = accelerators.find(key)
    assert device.bandwidth == pytest.approx(bandwidth * 1e9)
    assert {dtype: device.flops[dtype] / 1e12 for dtype in tflops} == pytest.approx(tflops)
    assert device.memory_bytes == memory << 30


def test_every_entry_is_sane():
    assert len(accelerators.names()) == len(set(accelerators.names())) == len(accelerators.devices()) > 120
    for device in accelerators.devices():
        assert accelerators.find(device.key) is device
        assert device.confidence in {"A", "B", "C"}
        assert device.sources
        assert device.usable_bytes is None or 0.85 * device.memory_bytes < device.usable_bytes <= device.memory_bytes
        assert 50e9 < device.bandwidth < 20e12
        assert all(1e12 < rate < 20e15 for rate in device.flops.values())
        rates = device.flops
        # Halving the width never slows the units.
        assert rates.get("fp8", 1e30) >= rates.get("bf16", 0)
        assert rates.get("fp4", 1e30) >= rates.get("fp8", 0)


def test_projections_are_marked():
    projected = accelerators.find("apple-m5-max-128gb")
    assert projected.confidence == "C"
    # Apple gives memory and bandwidth, and no FLOP/s.
    assert [projected.certainty(figure) for figure in ("memory", "bandwidth", "flops")] == ["A", "A", "C"]
    assert accelerators.find("mi308x").certainty("bandwidth") == "C"
    assert accelerators.find("h100").confidence == "A"
