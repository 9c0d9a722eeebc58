"""The nearest load that passes, on the emulator's law in virtual time."""

import asyncio
from dataclasses import replace

import pytest
from virtual_levels import evidence, levels, share_late, source

from auditor import judgement, nearest, run, store
from auditor.evidence import Evidence
from auditor.points import Level, Nearest, Point
from auditor.profile import Slo
from auditor.report.renderers import RENDERERS
from auditor.testing import make_evidence


def _audited(of: Evidence, **emulated) -> Evidence:
    """The evidence with its target's loads measured, and then the search for a lighter one that passes."""

    async def both() -> Evidence:
        found = levels(of, nearest.RULES, source(of, **emulated))
        target = of.profile.traffic.target_concurrency or 1
        await found.measure(Level(flight=target), purpose="slo")
        found.points.clear()
        found.evidence = replace(of, measurements=tuple(found.measured))
        return await nearest.seek(found)

    return asyncio.run(both())


@pytest.fixture(scope="module")
def failed() -> Evidence:
    """64 in flight with an E2E p95 of 120 ms: by the law 96 % of requests are later, 2 % or none at 8 in flight."""
    return _audited(evidence(64))


def test_a_level_is_found_that_the_law_confirms(failed: Evidence) -> None:
    found = nearest.judged(failed)
    assert found is not None
    assert found.found is not None
    assert share_late(evidence(64), found.found.level.flight or 0, 0.12) <= 0.05
    assert 1 <= len(found.points) <= 3
    assert all(point.level.value < 64 for point in found.points)
    assert found.found.requests >= 124  # two misses of a p95 are borne by no fewer
    start = f"at {found.found.level.flight} in flight every SLO is met and nothing queues (measured, n = "
    assert found.sentence.startswith(f"{start}{found.found.requests}")


def test_it_changes_no_verdict_and_no_other_finding(failed: Evidence) -> None:
    alone = tuple(m for m in failed.measurements if m.load.purpose != "nearest")
    without = run.conclude(replace(failed, measurements=alone, nearest=None), run.Options())
    report = run.conclude(failed, run.Options())
    assert (report.verdict, report.exit_code) == (without.verdict, without.exit_code) == ("NOT READY", 1)
    assert [f for f in report.findings if f.rule != "W130"] == list(without.findings)
    assert report.questions == without.questions


def test_it_is_told_in_every_format(failed: Evidence) -> None:
    report = run.conclude(failed, run.Options())
    [finding] = [f for f in report.findings if f.rule == "W130"]
    assert finding.status == "pass"
    assert not finding.deciding
    assert finding.why.startswith("At ")
    assert {number.provenance for number in finding.numbers} == {"measured"}
    assert "  nearest pass: at " in RENDERERS["terminal"](report)
    assert "\nNearest pass: at " in RENDERERS["markdown"](report)
    assert '"nearest": {' in RENDERERS["json"](report)


def test_a_saved_run_gives_it_back(failed: Evidence, tmp_path) -> None:
    loaded = type("Loaded", (), {"text": "x", "secrets": ()})()
    with store.recording(tmp_path / "run", loaded, failed, {}) as keep:
        clean = keep.redact(failed)
        report = run.conclude(clean, run.Options())
        keep.finish(clean, report)
    again = run.judge(tmp_path / "run", profile=None, options=run.Options())
    for name, render in RENDERERS.items():
        assert render(again) == render(report), name


def test_a_target_that_passes_is_not_searched() -> None:
    of = _audited(evidence(4))
    assert of.nearest is None
    assert {m.load.purpose for m in of.measurements} == {"slo"}


def test_where_the_budget_has_no_room_it_says_so() -> None:
    """A closed loop of 64 that fails takes 192 requests and 64 of warm-up: of 300 are 44 left, too few for any p95."""

    async def both() -> Evidence:
        found = levels(evidence(64), nearest.RULES)
        await found.measure(Level(flight=64), purpose="slo")
        found.points.clear()
        found.evidence = replace(found.evidence, measurements=tuple(found.measured))
        found.budget = replace(found.budget, requests=300)
        return await nearest.seek(found)

    of = asyncio.run(both())
    found = nearest.judged(of)
    assert found is not None
    assert found.points == ()
    assert found.sentence.startswith("no lower load was tried: ")
    assert " 44 requests " in found.sentence
    assert "probe.budget" in found.sentence
    report = run.conclude(of, run.Options())
    [finding] = [f for f in report.findings if f.rule == "W130"]
    assert (finding.status, finding.missing) == (
        "inconclusive",
        "a level that passes: raise probe.budget, or run audit capacity",
    )


def test_where_the_first_guess_is_too_dear_a_smaller_one_is_measured() -> None:
    """The guess for 64 is 22 in flight, which takes 7 x 22 = 154 requests: 150 are left."""

    async def both() -> Evidence:
        found = levels(evidence(64), nearest.RULES)
        await found.measure(Level(flight=64), purpose="slo")
        found.points.clear()
        found.evidence = replace(found.evidence, measurements=tuple(found.measured))
        found.budget = replace(found.budget, requests=256 + 150)
        return await nearest.seek(found)

    found = nearest.judged(asyncio.run(both()))
    assert found is not None
    assert found.points
    assert (found.points[0].level.flight or 0) < 22
    assert sum(p.requests for p in found.points) <= 150


def test_a_rate_is_lowered_as_a_rate() -> None:
    of = evidence(None, Slo(e2e={"p95": 0.12}, error_rate=0.1), request_rate=400.0)

    async def both() -> Evidence:
        found = levels(of, nearest.RULES)
        await found.measure(Level(rate=400.0), purpose="slo")
        found.points.clear()
        found.evidence = replace(of, measurements=tuple(found.measured))
        return await nearest.seek(found)

    found = nearest.judged(asyncio.run(both()))
    assert found is not None
    assert found.points
    assert all(point.level.rate is not None and point.level.rate < 400 for point in found.points)


def test_a_queue_at_the_batch_limit_is_searched_at_that_limit() -> None:
    """Eight may run at once: the arithmetic looks there first, whatever the cache carries."""
    of = evidence(32, Slo(e2e={"p95": 0.15}, error_rate=0.1))
    assert of.settings is not None
    of = replace(of, settings=replace(of.settings, max_num_seqs=8), served=None)
    found = nearest.judged(_audited(of, max_num_seqs=8))
    assert found is not None
    assert found.points[0].level.flight == 8


def test_files_alone_start_no_search() -> None:
    """The batch limit on paper fails K303; nothing that was measured does."""
    of = make_evidence()
    assert of.settings is not None
    served = replace(of.served, max_num_seqs=8) if of.served else None
    of = replace(of, settings=replace(of.settings, max_num_seqs=8), served=served)
    target = judgement.point(of, Level(flight=16), of.loads("slo"), nearest.RULES, of.plan)
    assert target.broken == ("K303",)

    async def seek() -> Evidence:
        return await nearest.seek(levels(of, nearest.RULES))

    assert asyncio.run(seek()).nearest is None


def _point(flight, status):
    return Point(level=Level(flight=flight), status=status, requests=93, failed=0, readings=())


def test_sentences_tell_measured_from_computed() -> None:
    levers = ("--kv-cache-dtype fp8 (TPS p05 31 tok/s)",)
    found = Nearest(points=(_point(48, "pass"), _point(56, "fail")), computed=levers)
    assert found.sentence == (
        "at 48 in flight every SLO is met and nothing queues (measured, n = 93; 56 in flight fails too); "
        "or, computed, not measured: --kv-cache-dtype fp8 (TPS p05 31 tok/s)."
    )
    assert Nearest(points=(_point(8, "fail"), replace(_point(4, "inconclusive"), voided_by=("T514",)))).sentence == (
        "not found: 8 in flight fails too and 4 in flight decides nothing (T514)."
    )


def test_a_pass_above_a_fail_is_not_the_nearest() -> None:
    assert Nearest(points=(_point(48, "pass"), _point(40, "fail"))).found is None
