"""`audit catalog`: lists, entries, JSON."""

import json
from dataclasses import replace
from functools import partial

import pytest

from auditor.catalog import accelerators
from auditor.report.entries import device
from auditor.theory.device import THIS_CPU


@pytest.fixture
def catalog(program):
    """Run `audit catalog ...`; gives (exit code, stdout, stderr)."""
    return partial(program, "catalog")


def test_without_a_kind_it_counts(catalog):
    code, out, _ = catalog("--json")
    assert code == 0
    counts = json.loads(out)
    assert counts["engines"] == 6
    assert catalog()[1].splitlines()[-1] == "engines: 6"


def test_engines_say_what_their_rules_were_checked_on(catalog):
    rows = {line.split()[0]: line for line in catalog("engines")[1].splitlines()}
    assert rows["vllm"].endswith("a running engine")
    assert rows["lmdeploy"].endswith("its source")
    assert rows["trtllm"].endswith("its source")


def test_accelerators_show_what_serving_depends_on(catalog):
    _, out, _ = catalog("accelerators")
    row = next(line for line in out.splitlines() if line.startswith("h100-sxm "))
    # NVIDIA H100 data sheet: 80 GB, 3.35 TB/s, 989 TFLOP/s dense bf16, 1979 dense fp8.
    assert row.split() == ["h100-sxm", "80", "3,350", "989", "1,979", "1,979", "A"]


def test_uncertain_figures_are_marked(catalog):
    _, out, _ = catalog("accelerators")
    row = next(line for line in out.splitlines() if line.startswith("apple-m5-max-128gb "))
    # Apple's newsroom gives memory and 614 GB/s; its compute is projected.
    assert row.split() == ["apple-m5-max-128gb", "128", "614", "70?", "C"]


@pytest.mark.parametrize("kind", ["accelerators", "models", "engines"])
def test_lists_fit_a_terminal(catalog, kind):
    _, out, _ = catalog(kind)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    "entry",
    [
        ("models", "gpt-oss-120b"),
        ("models", "deepseek-v3.2"),
        ("models", "gemma-3-27b-it"),
        ("models", "qwen3-next-80b-a3b-instruct"),
        ("accelerators", "apple-m5-max-128gb"),
        ("engines", "vllm"),
    ],
)
def test_an_entry_is_read_without_scrolling_sideways(catalog, entry):
    code, out, _ = catalog(*entry)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert len(out.splitlines()) < 60


def test_figures_of_this_machine_are_not_recalled():
    shown = device(replace(accelerators.find("apple-m5-max-128gb"), key=THIS_CPU, confidence="C", figures={}))
    assert "fp16: 70 TFLOP/s (computed, not measured)" in shown["dense rates"]


def test_figures_of_an_accelerator_have_units(catalog):
    _, out, _ = catalog("accelerators", "apple-m5-max-128gb")
    assert "memory: 128 GiB, usable not known\n" in out
    assert "bandwidth: 614 GB/s\n" in out
    assert "  fp16: 70 TFLOP/s (recalled or in dispute)\n" in out


def test_models_are_sized(catalog):
    _, out, _ = catalog("models")
    row = next(line for line in out.splitlines() if line.startswith("meta-llama/Llama-3.1-8B-Instruct "))
    assert row.split()[1:] == ["8.03", "6.98", "full", "128Ki"]


def test_one_entry_in_full(catalog):
    _, out, _ = catalog("models", "meta-llama/Llama-3.1-8B-Instruct")
    assert "    32 full: 8 KV heads of 128\n" in out
    assert "vocabulary: 128,256 tokens\n" in out
    assert "KV cache: 128 KiB a token in 16 bit" in out  # 2 x 8 heads x 128 x 2 bytes x 32 layers
    assert json.loads(catalog("accelerators", "h100-sxm", "--json")[1])["bandwidth"] == 3.35e12


def test_an_engine_tells_its_flags_but_no_code(catalog):
    _, out, _ = catalog("engines", "vllm", "--json")
    data = json.loads(out)
    assert data["flags"]["max_num_seqs"] == ["--max-num-seqs"]
    assert "recognise" not in data
    assert catalog("engines")[1].splitlines()[1].startswith("vllm")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("accelerators", "h100-sxn"), "did you mean h100-sxm"),
        (("engines", "vlm"), "unknown engine 'vlm'; engines: vllm, sglang"),
    ],
)
def test_an_unknown_name_is_2(catalog, arguments, words):
    code, out, err = catalog(*arguments)
    assert (code, out) == (2, "")
    assert words in err
