"""`audit fit`, what to change as text, and what requests fill of llama.cpp's slots."""

from typing import Any

import pytest
from model_shapes import LLAMA_8B

from auditor.instruments.document import document
from auditor.instruments.fit import Fit, fit
from auditor.instruments.inputs import inputs
from auditor.instruments.question import Question, one_class
from auditor.instruments.ruling import ruling
from auditor.report.fit import render

CHAT = one_class("1500", "100")


def answer(target: int | None = None, replicas: int = 1, classes: bool = True, **keys: Any) -> Fit:
    row = {"model_config_inline": LLAMA_8B, "model": "llama", "engine": "vllm", "engine_version": "0.18.0"}
    return fit(inputs(row | keys), Question(classes=(CHAT,) if classes else (), target=target, replicas=replicas))


def table(found: Fit) -> list[str]:
    text = render(found, ruling(found))
    assert all(len(line) <= 80 for line in text.splitlines())
    return text[text.index("what to change") :].partition("\n\n")[0].splitlines()


def test_each_row_has_its_verdict():
    rows = table(answer(target=64, accelerator="h100-sxm", max_num_seqs=16, max_model_len=32768))
    assert [row.split()[-1] for row in rows] == ["then", "no", "fits", "fits"]
    assert rows[1].split()[:4] == ["(as", "it", "is)", "16"]
    assert any(row.split()[:3] == ["--max-num-seqs", "64", "64"] for row in rows)


def test_factors_are_those_of_the_figures_beside_them():
    """61 blocks hold 1.9 requests of 32 blocks, shown as 1; an 8-bit cache 122 blocks and 3.8, shown as 3."""
    rows = table(answer(kv_pool_gib=0.12, max_model_len=512, classes=False))
    eight = next(row for row in rows if "--kv-cache-dtype" in row)
    assert (rows[1].split()[3], eight.split()[2:4]) == ("1", ["3", "x3.00"])


def test_another_checkpoint_is_no_flag():
    found = answer(target=200, accelerator="l40s", max_model_len=8192, engine="trtllm", engine_version=None)
    assert any(row.startswith("  a checkpoint in awq") for row in table(found))
    shown = {change["field"]: change for change in document(found, ruling(found))["changes"]}
    assert (shown["checkpoint"]["flag"], shown["kv_cache_dtype"]["value"]) == (None, "fp8")
    assert shown["kv_cache_dtype"]["verdict"] in {"fits", "may fit", "does not fit"}


def test_counts_of_all_replicas_are_named_so():
    assert "requests, all replicas" in table(answer(target=500, replicas=2, accelerator="l40s", max_model_len=8192))[0]


def test_slots_fill_as_requests_grow():
    """4 slots of 2,048 cells, 2 requests: prompts of 1,500 fill 37 % of 8,192 cells, 1,600 at their end 39 %."""
    keys = {"engine": "llamacpp", "engine_version": "b9000", "launch": "llama-server -m x -c 8192 -np 4"}
    found = answer(target=2, accelerator="rtx-4090", **keys)
    assert [stage.share for stage in found.stages] == pytest.approx([3000 / 8192, 3100 / 8192, 3200 / 8192], abs=0.001)
