"""The GEMM-against-GEMV table in every format, with numbers worked by hand.

Llama-3.1-8B (32 layers, 32 heads and 8 KV heads of 128, 6.98e9 parameters in layers, 0.525e9 in the head) on an H100,
64 streams of 3,000 prompt and 150 output tokens: context 3,075.
"""

import json
from dataclasses import replace

import pytest

from auditor import verdict
from auditor.evidence import Evidence
from auditor.profile import Lengths, Traffic, TrafficClass
from auditor.report import json as as_json
from auditor.report import markdown, products, terminal
from auditor.testing import H100, make_evidence, make_settings
from checks.bottleneck import CHECK


def evidence(**changes: object) -> Evidence:
    made = make_evidence()
    cls = TrafficClass(name="rag", prompt_tokens=Lengths(p50=3000), output_tokens=Lengths(p50=150))
    profile = replace(made.profile, traffic=Traffic(target_concurrency=64, classes=(cls,)))
    return replace(made, profile=profile, measurements=(), **changes)  # type: ignore[arg-type]


def cells(found: Evidence) -> dict[str, list[str]]:
    table = products.of_evidence(found)
    assert table is not None
    return {label.strip(): row for label, row in products.rows(table) if "FLOP" not in label and "bytes" not in label}


def test_the_table_says_what_is_multiplied_in_each_phase() -> None:
    shown = cells(evidence())
    assert shown["products of one step"] == ["prefill, one prompt", "decode, 64 at once"]
    assert shown["Q (N x d)"] == ["3,000 x 4,096", "1 x 4,096 each"]
    assert shown["K, V (M x d)"] == ["3,000 x 1,024", "3,075 x 1,024 each"]
    assert shown["Q times K"] == ["matrix x matrix (GEMM)", "vector x matrix (GEMV)"]
    assert shown["which binds"] == ["compute", "bandwidth (KV cache)"]


def test_the_numbers_are_those_of_the_traffic() -> None:
    """Prefill: 2 x 6.98e9 x 3,000 + 2 x 0.525e9 = 41.9 TFLOP over 15.0 GB. Decode: 64 x 2 x 7.505e9 = 961 GFLOP, the
    cache 64 x 3,075 x 131,072 B = 25.8 GB. The ridge: 989 TFLOP/s over 3.35 TB/s = 295.
    """
    table = products.of_evidence(evidence())
    assert table is not None
    shown = products.data(table)
    assert shown["prefill"]["weights"]["flops"] == pytest.approx(41.88e12, rel=0.002)
    assert shown["prefill"]["weights"]["bytes"] == pytest.approx(15.01e9, rel=0.002)
    assert shown["decode"]["weights"]["flops"] == pytest.approx(961e9, rel=0.002)
    assert shown["decode"]["attention"]["bytes"] == pytest.approx(25.79e9, rel=0.002)
    assert shown["decode"]["weights"]["intensity"] == pytest.approx(961 / 15.01, rel=0.004)
    assert shown["decode"]["ridge"] == pytest.approx(295.2, abs=0.1)
    assert shown["compute_bound_from"] == pytest.approx(295.2, abs=0.1)  # tokens: ridge x 2 bytes / 2
    assert (shown["prefill"]["binds"], shown["decode"]["binds"]) == ("compute", "KV cache")


def test_eight_bit_weights_turn_compute_bound_from_the_same_tokens() -> None:
    """w8a8: twice the peak, half the bytes: 1,979 / 3.35 x 1 / 2 = 295 tokens."""
    settings = make_settings(weight_bits=8.0, quantization="fp8", compute_dtype="fp8")
    table = products.of_evidence(evidence(settings=settings))
    assert table is not None
    assert table.critical == pytest.approx(295.4, abs=0.1)


def test_a_cpu_s_ridge_is_that_of_where_the_bytes_lie() -> None:
    """16 GB of a prompt's weights and cache in caches of 20 GB at 10 TB/s: 989 / 10 = 98.9."""
    cached = replace(H100, caches=((20_000_000_000, 10e12),), figures={"flops": "C"})
    table = products.of_evidence(evidence(device=cached))
    assert table is not None
    assert table.ridges[0] == pytest.approx(98.9)
    assert table.ridges[1] > 98.9  # decode's 40.8 GB go beyond them
    assert table.provisional
    assert "(provisional)" in products.summary(table)


def test_every_format_shows_it() -> None:
    report = verdict.decide([], (CHECK,), evidence().profile, evidence(), today="2026-01-01")
    text = terminal.render(report)
    assert "  Q times K             matrix x matrix (GEMM)    vector x matrix (GEMV)" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "<summary>Products of both phases: GEMM against GEMV</summary>" in markdown.render(report)
    assert json.loads(as_json.render(report))["products"]["decode"]["q"] == {"n": 1, "width": 4096}


@pytest.mark.parametrize("missing", ["device", "geometry", "settings"])
def test_without_the_inputs_there_is_no_table(missing: str) -> None:
    bare = evidence(**{missing: None})
    assert products.of_evidence(bare) is None
    report = verdict.decide([], (CHECK,), bare.profile, bare, today="2026-01-01")
    assert "GEMM" not in terminal.render(report)
    assert "GEMM" not in markdown.render(report)
    assert json.loads(as_json.render(report))["products"] is None
