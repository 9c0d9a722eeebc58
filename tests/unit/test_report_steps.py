"""Bars of the parts of a phase's time: what is certain, likely and possible, from the findings alone."""

from dataclasses import replace

from made_reports import REPORT

from auditor.evidence import Finding, Number
from auditor.report import steps


def part(name: str, low: float | None, value: float, high: float | None) -> Number:
    return Number(name=f"{name}, measured", value=value, unit="s", provenance="measured", low=low, high=high)


def told(*numbers: Number, status: str = "pass", subject: str = "decode") -> Finding:
    return Finding(rule="H202", status=status, title="t", subject=subject, numbers=numbers, why="w")  # type: ignore[arg-type]


def drawn(*findings: Finding) -> list[list[str]]:
    return steps.blocks(replace(REPORT, findings=findings))


def test_the_longest_part_is_drawn_first_and_certain_parts_full():
    """40 columns stand for 40 ms: 10 are certain, 20 likely, 40 possible; the cache takes 4."""
    (block,) = drawn(told(part("kv", None, 0.004, None), part("compute", 0.010, 0.020, 0.040)))
    assert block[0] == "where the time of a decode step at the target goes, measured"
    assert block[1] == f"  compute     {'10 ms to 40 ms':<22}{'#' * 10}{'=' * 10}{'.' * 20}"
    assert block[2] == f"  KV cache    {'4 ms':<22}{'#' * 4}"
    assert "may not add up" in " ".join(block[3:])
    assert max(map(len, block)) <= 78


def test_long_names_and_times_keep_their_distance():
    """19 characters of a name and 22 of an interval, two of distance each, leave 33 columns for the longest bar."""
    (block,) = drawn(told(part("weights or overhead", 6.85e-5, 7e-5, 8.42e-5), part("kv", None, 1e-5, None)))
    assert block[1].startswith("  weights or overhead  0.0685 ms to 0.0842 ms  #")
    assert block[2].startswith("  KV cache             0.01 ms                 #")
    assert max(map(len, block)) <= 78


def test_each_phase_has_a_block_and_the_legend_stands_once():
    found = drawn(told(part("compute", None, 0.2, None), subject="prefill"), told(part("kv", None, 0.01, None)))
    assert [block[0].split(" goes")[0] for block in found] == [
        "where the time of a prompt of the target",
        "where the time of a decode step at the target",
    ]
    assert sum("for certain" in line for block in found for line in block) == 1


def test_what_no_ladder_told_is_not_drawn():
    predicted = Number(name="compute, predicted", value=0.1, unit="s", provenance="computed")
    assert drawn(told(predicted)) == []
    assert drawn(told(part("compute", None, 0.1, None), status="inconclusive")) == []
    assert drawn() == []
