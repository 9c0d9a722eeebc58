"""This machine's CPU as a device: what Linux tells of it, peaks by hand, and a short measurement."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from auditor.catalog.instruction_sets import per_cycle
from auditor.errors import ToolError, UsageError
from auditor.probe import bandwidth, machine
from auditor.probe.machine import Facts, Speeds, described, facts
from auditor.theory.device import Device

XEON = """processor\t: {cpu}
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8480+
cpu MHz\t\t: 2000.000
physical id\t: 0
core id\t\t: {core}
flags\t\t: fpu sse2 avx fma avx2 avx512f avx512_bf16 amx_bf16 amx_int8
"""
GRAVITON = "processor\t: {cpu}\nFeatures\t: fp asimd asimdhp sve i8mm bf16\nCPU part\t: 0xd4f\n"
MEMINFO = "MemTotal:       16777216 kB\nMemFree:         1000000 kB\nMemAvailable:    8388608 kB\n"


@pytest.fixture
def two_cpus(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1}, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 2)


def system(root: Path, block: str, cores: tuple[int, ...] = (0, 1), **files: str) -> Path:
    """A root folder with the files that Linux shows; `files` by path with __ for the slash."""
    text = "\n".join(block.format(cpu=cpu, core=core) for cpu, core in enumerate(cores))
    written = {"proc__cpuinfo": text, "proc__meminfo": MEMINFO} | files
    for name, content in written.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def cache(cpu: int, index: int, level: int, size: str, shared: str, kind: str = "Unified") -> dict[str, str]:
    folder = f"sys__devices__system__cpu__cpu{cpu}__cache__index{index}"
    told = {"level": str(level), "size": size, "shared_cpu_list": shared, "type": kind}
    return {f"{folder}__{name}": f"{value}\n" for name, value in told.items()}


# ----------------------------------------------------------------------------------------------------- instruction sets


@pytest.mark.parametrize(
    ("flags", "rates"),
    [
        ("sse2", {"fp32": 8, "bf16": 8, "fp16": 8, "int8": 32}),
        ("sse2 avx", {"fp32": 16, "bf16": 16, "fp16": 16, "int8": 64}),
        ("avx fma avx2", {"fp32": 32, "bf16": 32, "fp16": 32, "int8": 128}),
        ("fma avx512f avx512_bf16", {"fp32": 64, "bf16": 128, "fp16": 64, "int8": 256}),
        ("fma avx512f avx512_bf16 amx_bf16 amx_int8", {"fp32": 64, "bf16": 1024, "fp16": 64, "int8": 2048}),
        ("asimd", {"fp32": 32, "bf16": 32, "fp16": 32, "int8": 128}),
        ("asimd asimdhp bf16 i8mm", {"fp32": 32, "bf16": 128, "fp16": 64, "int8": 256}),
        ("rv64gc", {}),
    ],
)
def test_a_core_multiplies_what_its_instruction_set_allows(flags, rates):
    """Two units of 8 (AVX2) or 16 lanes (AVX-512), two FLOPs each; a tile of 16 x 16 x 32 every 16 cycles."""
    assert per_cycle(frozenset(flags.split())) == rates


# ----------------------------------------------------------------------------------------------------- what Linux tells


@pytest.mark.usefixtures("two_cpus")
def test_facts_are_read_from_proc_and_sys(tmp_path):
    caches = cache(0, 0, 1, "48K", "0", "Data") | cache(0, 1, 1, "32K", "0", "Instruction")
    caches |= cache(0, 2, 2, "2048K", "0") | cache(1, 2, 2, "2048K", "1")
    caches |= cache(0, 3, 3, "100M", "0-1") | cache(1, 3, 3, "100M", "0-1")
    clock = {"sys__devices__system__cpu__cpu0__cpufreq__cpuinfo_max_freq": "3800000\n"}
    found = facts(system(tmp_path, XEON, **caches, **clock, sys__fs__cgroup__memory__max="unused"))
    assert (found.name, found.vendor, found.cpus, found.cores) == ("Intel Xeon Platinum 8480+", "intel", (0, 1), 2)
    assert (found.clock, found.boost) == (3.8e9, False)
    assert found.caches == (4 << 20, 100 << 20)
    assert (found.memory, found.usable, found.free) == (16 << 30, 16 << 30, 8 << 30)


@pytest.mark.usefixtures("two_cpus")
def test_a_control_group_bounds_the_memory(tmp_path):
    root = system(tmp_path, XEON)
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/memory.max").write_text(f"{4 << 30}\n")
    found = facts(root)
    assert (found.memory, found.usable, found.free) == (16 << 30, 4 << 30, 4 << 30)
    (root / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert facts(root).usable == 16 << 30


@pytest.mark.usefixtures("two_cpus")
def test_without_a_highest_clock_the_base_clock_may_be_exceeded(tmp_path):
    """2.0 GHz base: 1.6 times that is 3.2 GHz."""
    found = facts(system(tmp_path, XEON))
    assert (found.clock, found.boost, found.caches) == (pytest.approx(3.2e9), True, None)


@pytest.mark.usefixtures("two_cpus")
def test_threads_of_one_core_share_its_units(tmp_path):
    assert facts(system(tmp_path, XEON, cores=(0, 0))).cores == 1


@pytest.mark.usefixtures("two_cpus")
def test_arm_tells_less(tmp_path):
    found = facts(system(tmp_path, GRAVITON))
    assert (found.vendor, found.cores, found.clock, found.boost) == ("arm", 2, 3.8e9, True)


def test_a_system_that_does_not_tell_is_refused_in_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"this-cpu: only Linux tells what is needed .* name a part of the catalogue"):
        facts(tmp_path)
    with pytest.raises(UsageError, match="instruction set is not known"):
        facts(system(tmp_path, "processor\t: {cpu}\nisa\t: rv64gc\n"))


# -------------------------------------------------------------------------------------------------------------- device

FACTS = Facts(
    name="Intel Xeon",
    vendor="intel",
    cpus=(0, 1),
    cores=2,
    flags=frozenset({"fma", "avx512f"}),
    clock=3e9,
    boost=False,
    caches=(4 << 20, 60 << 20),
    memory=16 << 30,
    usable=8 << 30,
    free=4 << 30,
)


def test_the_device_says_what_was_measured_and_what_computed():
    """2 cores x 3 GHz x 64 FLOPs a cycle: 384 GFLOP/s."""
    device = described(FACTS, Speeds(200e9, 60e9, 40e9))
    assert (device.key, device.kind, device.here) == ("this-cpu", "cpu", True)
    assert device.flops["fp32"] == pytest.approx(384e9)
    assert device.bandwidth == 40e9
    assert device.caches == ((4 << 20, 200e9), (64 << 20, 60e9))
    assert (device.certainty("bandwidth"), device.certainty("flops"), device.confidence) == ("B", "C", "C")
    assert (device.memory_bytes, device.usable_bytes) == (16 << 30, 8 << 30)
    assert device.sources[0] == "measured here"


def test_an_unmeasured_or_slower_cache_is_none():
    assert described(FACTS, Speeds(200e9, 0.0, 40e9)).caches == ((4 << 20, 200e9),)
    assert described(replace(FACTS, caches=(4 << 20, 0)), Speeds(30e9, 0.0, 40e9)).caches == ()


def test_what_other_programs_took_is_added():
    """A core that had 60 % of the time shared memory too: 40 GB/s may be 60 once it is alone."""
    device = described(FACTS, Speeds(200e9, 60e9, 40e9, share=0.6))
    assert device.bandwidth == 60e9
    assert device.caches == ((4 << 20, 300e9), (64 << 20, 90e9))
    assert any("1.5 times what was measured" in note and "60 %" in note for note in device.notes)
    assert not any("times what was" in note for note in described(FACTS, Speeds(200e9, 60e9, 40e9, share=0.95)).notes)


def test_where_caches_are_not_told_the_fastest_speed_stands_for_memory():
    device = described(replace(FACTS, caches=None), Speeds(200e9, 0.0, 40e9))
    assert (device.bandwidth, device.caches) == (200e9, ())
    assert any("does not tell its caches" in note for note in device.notes)


def sheet(**fields: object) -> Device:
    return replace(described(FACTS, Speeds(200e9, 60e9, 40e9)), **fields)  # type: ignore[arg-type]


def test_what_a_cache_holds_is_read_at_its_speed():
    """2 MB at 200 GB/s: 10 us. 24 MiB: 25.2 MB at 200 GB/s are 126 us, the 21.0 MB beyond 4 MiB at 60 GB/s 350 us."""
    device = sheet()
    assert device.reading(2e6) == pytest.approx(10e-6)
    assert device.reading(24 << 20) == pytest.approx((20 << 20) / 60e9)
    assert device.at(2e6).bandwidth == pytest.approx(200e9)
    assert device.at(24 << 20).bandwidth == pytest.approx(24 / 20 * 60e9)


def test_what_no_cache_holds_is_read_from_memory():
    """8 GiB, of which 64 MiB may stay: 8.52 GB at 40 GB/s. Without caches all of it: 8.59 GB."""
    assert sheet().reading(8 << 30) == pytest.approx(8522825728 / 40e9)
    assert sheet(caches=()).reading(8 << 30) == pytest.approx(8589934592 / 40e9)
    assert sheet(caches=()).at(1e6) == sheet(caches=())


# --------------------------------------------------------------------------------------------------------- measurement


@pytest.mark.skipif(not hasattr(__import__("os"), "sched_getaffinity"), reason="Linux tells its CPUs")
def test_a_short_measurement_is_plausible():
    """No memory of today reads slower than 0.2 GB/s, no core's caches faster than 2 TB/s."""
    cpus = machine.facts().cpus[:1]
    with bandwidth.readers(cpus) as started:
        for size in (1 << 20, 1 << 24):
            speed = bandwidth.fastest(started, size, rounds=1, seconds=0.02)
            assert 0.2e9 < speed.rate < 2e12
            assert 0 < speed.share <= 1
    assert all(process.poll() is not None for process in started)


def test_the_process_answers_each_line(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["bandwidth", "0"])
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: None, raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO("65536 0.01\ngo\n65536 0.01\ngo\n"))
    bandwidth.main()
    first, told, again, _ = capsys.readouterr().out.splitlines()
    rate, share = map(float, told.split())
    assert (first, again) == ("ready", "ready")
    assert 0.2e9 < rate < 2e12
    assert 0 < share <= 1


def test_a_process_that_ended_is_said_in_one_line():
    with bandwidth.readers((0,)) as started:
        started[0].kill()
        started[0].wait()
        with pytest.raises(ToolError, match="memory could not be measured"):
            bandwidth.fastest(started, 1 << 16, rounds=1)
