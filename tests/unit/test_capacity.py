"""The search for the highest load, on the emulator's law in virtual time and on points made by hand."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from virtual_levels import evidence, levels, share_late, source

from auditor import judgement
from auditor.__main__ import main
from auditor.capacity import Wanted, _limit, search
from auditor.evidence import Evidence
from auditor.judgement import SLO_RULES
from auditor.measurement import ClientHealth
from auditor.points import Capacity, Level, Point, Reading, Signs
from auditor.probe.load import INTERRUPTED
from auditor.profile import Slo
from auditor.report.capacity import RENDERERS
from auditor.testing import make_evidence
from auditor.theory.knee import Knee


def _searched(of: Evidence, stop=None, **wanted) -> Capacity:
    async def run() -> Capacity:
        found = levels(of, SLO_RULES)
        if stop is not None:
            found.ready = replace(found.ready, harm=stop)
        return await search(found, Wanted(**wanted), lambda _event: None)

    return asyncio.run(run())


# ------------------------------------------------------------------------------------------------------------- by law


@pytest.fixture(scope="module")
def found() -> Capacity:
    """E2E p95 of 120 ms on one H100: by the law 0 % of requests are later at 8 in flight, two in three at 32."""
    return _searched(evidence(16))


def test_it_brackets_what_the_law_gives(found: Capacity) -> None:
    """The share that may be late is 5 %: brute force says that it is kept where the search says so."""
    bracket = found.bracket
    assert bracket.passed is not None
    assert bracket.failed is not None
    assert share_late(evidence(16), int(bracket.passed), 0.12) <= 0.05
    assert share_late(evidence(16), int(bracket.failed), 0.12) > 0.05
    assert 8 <= bracket.passed < bracket.failed <= 32
    assert all(bracket.passed < level < bracket.failed for level in bracket.undecided)


def test_the_target_fails_so_that_the_exit_code_is_1(found: Capacity) -> None:
    assert found.enough is False
    assert found.exit_code == 1
    assert "the target of 16 in flight is not met" in found.verdict_line


def test_every_level_has_its_numbers_with_intervals(found: Capacity) -> None:
    data = json.loads(RENDERERS["json"](found))
    assert data["points"][0]["level"] == {"flight": 16, "rate": None}
    for point in data["points"]:
        [e2e, errors] = point["readings"]
        assert (e2e["path"], errors["path"]) == ("slo.e2e.p95", "slo.error_rate")
        assert e2e["low"] <= e2e["value"] <= e2e["high"]
        assert e2e["n"] == point["requests"] >= 124
    assert data["exit_code"] == 1
    assert data["bracket"]["failed"] == 16


def test_the_text_fits_in_80_columns_and_names_every_level_once(found: Capacity) -> None:
    text = RENDERERS["terminal"](found)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("FAIL") == 1
    assert text.count(" pass ") >= 1
    assert sum(line.endswith("#") for line in text.splitlines()) == len(found.points)
    assert RENDERERS["markdown"](found).startswith("# CAPACITY: healthy: every SLO is met at ")


def test_requests_never_exceed_the_budget() -> None:
    """448 requests are what 64 in flight take at least (5 turnovers and 2 of warm-up); then nothing is left for 128."""
    of = evidence(64, Slo(e2e={"p95": 5.0}, error_rate=0.1), requests=700)
    found = _searched(of)
    assert found.requests <= 700
    assert found.bracket.passed == 64
    assert found.bracket.failed is None
    assert found.exit_code == 0
    assert found.note.startswith("128 in flight takes 896 requests or more, ")
    assert found.note.endswith(" of probe.budget are left")


def test_what_is_left_measures_the_highest_level_it_can() -> None:
    """Of 1,000 requests 448 go to the target: 552 do for 78 in flight (7 x 78 = 546), which is a tenth more."""
    found = _searched(evidence(64, Slo(e2e={"p95": 5.0}, error_rate=0.1), requests=1000))
    assert [p.level.flight for p in found.points][:1] == [64]
    assert found.requests <= 1000
    assert found.bracket.passed is not None
    assert 70 < found.bracket.passed <= 78


def test_it_goes_no_higher_than_asked() -> None:
    found = _searched(evidence(4, Slo(e2e={"p95": 5.0}, error_rate=0.1)), most=8.0)
    assert [p.level.flight for p in found.points] == [4, 8]
    assert found.note == "the search goes no higher (--max)"
    assert found.exit_code == 0


def test_rates_are_searched_as_open_loops_from_the_rate_that_the_target_reaches() -> None:
    found = _searched(evidence(8), by_rate=True)
    first = found.points[0].level
    assert first.flight is None
    assert first.rate == pytest.approx(105, rel=0.1)  # 8 in flight that stay 76 ms each
    assert found.by == "rate"
    assert found.target is None
    assert found.bracket.passed is not None
    assert found.bracket.passed >= first.rate
    assert found.exit_code == 0


def test_a_declared_rate_is_the_target() -> None:
    found = _searched(evidence(None, request_rate=60.0), most=60.0)
    assert [p.level.rate for p in found.points] == [60.0]
    assert found.target == 60.0
    assert found.exit_code == 0


def test_an_interruption_tells_what_was_measured() -> None:
    seen = []

    def stop(samples):
        seen.append(len(samples))
        return INTERRUPTED if len(seen) > 500 else None

    found = _searched(evidence(4, Slo(e2e={"p95": 5.0}, error_rate=0.1)), stop=stop)
    assert found.interrupted
    assert found.exit_code == 130
    assert [p.level.flight for p in found.points] == [4, 8]
    assert found.points[0].status == "pass"
    assert found.points[1].status != "pass"


def test_a_level_that_fails_for_certain_is_spared_its_bursts() -> None:
    of = evidence(64, Slo(e2e={"p95": 0.05}, error_rate=0.1))
    found = _searched(of)
    assert found.points[0].status == "fail"
    assert found.points[0].requests == 192  # 3 turnovers of the closed loop; the bursts would be 128 more


# ------------------------------------------------------------------------------------------------------------- by hand


def _reading(status, metric="e2e", missing=None):
    return Reading(
        path=f"slo.{metric}.p95", metric=metric, percentile="p95", cls=None, value=1.0, low=0.9, high=1.1, limit=1.05,
        unit="s", n=100, bad=4, status=status, missing=missing,
    )  # fmt: skip


def _point(flight, status, **rest):
    fields = {"readings": (_reading(status),), "requests": 100, "failed": 0, **rest}
    return Point(level=Level(flight=flight), status=status, **fields)


def _capacity(*points, target=32.0, **rest):
    return Capacity(name="x", date="2026-01-01", by="flight", target=target, points=points, **rest)


@pytest.mark.parametrize(
    ("points", "code", "said"),
    [
        (
            [_point(32, "pass")],
            0,
            "every SLO is met at 32 in flight, missed nowhere that was measured; the target of 32",
        ),
        (
            [_point(32, "fail", broken=("W112",)), _point(16, "pass")],
            1,
            "met at 16 in flight, missed at 32 in flight (W",
        ),
        ([_point(32, "inconclusive"), _point(16, "pass")], 4, "met at 16 in flight, open at 32, missed nowhere"),
        ([_point(2, "fail"), _point(1, "fail")], 1, "no level met every SLO, missed at 1 in flight"),
        ([], 4, "no level met every SLO; the target of 32 in flight is undecided"),
    ],
)
def test_exit_codes(points, code, said) -> None:
    found = _capacity(*points)
    assert found.exit_code == code
    assert said in found.verdict_line


def test_an_empty_search_renders() -> None:
    for render in RENDERERS.values():
        assert render(_capacity(note="nothing was left of the budget"))


@pytest.mark.parametrize(
    ("at", "limit", "said"),
    [
        ({"voided_by": ("T504",)}, "client", "the client itself was at its limit at 64 in flight (T504)"),
        ({"signs": Signs(rate_limited=True)}, "rate limit", "a gateway refused requests"),
        (
            {"signs": Signs(kv_pressed=True, kv_usage=0.99, preemptions=7.0)},
            "KV cache",
            "99 % full at 64 in flight, 7 pre",
        ),
        ({"signs": Signs(kv_pressed=True)}, "KV cache", "the KV cache has no room at 64 in flight"),
        ({"signs": Signs(waiting=30.0, running=32.0)}, "batch limit", "32 run at once and never more"),
        ({"signs": Signs(waiting=3.0, running=64.0)}, "compute", "for their turn"),
        ({"signs": Signs(waiting=0.0)}, "time", "slo.e2e.p95 is missed at 64 in flight; the server shows no queue"),
        ({}, "time", "nothing tells of a queue"),
    ],
)
def test_what_limits_is_read_off_the_level_that_fails(at, limit, said) -> None:
    points = [_point(32, "pass"), _point(64, "fail", **at)]
    kind, why = _limit(make_evidence(), points, None)
    assert kind == limit
    assert said in why


def test_what_the_client_spoiled_elsewhere_does_not_explain_a_fail() -> None:
    """Replies of 80 ms might have been 10 ms to a client that read up to 70 ms late: undecided. Those of 64 fail."""
    of = evidence(8, Slo(e2e={"p95": 0.06}, tps={"p05": 1.0}))

    async def run(flight: int) -> Point:
        found = levels(of, SLO_RULES)
        await found.measure(Level(flight=flight))
        slow = ClientHealth(loop_lag_p99=0.02, loop_lag_max=0.02, peak_inflight=flight)
        loads = [replace(m, client=slow) for m in found.measured]
        return judgement.point(of, Level(flight=flight), loads, SLO_RULES)

    spoiled, failed = asyncio.run(run(8)), asyncio.run(run(64))
    assert (spoiled.status, spoiled.broken) == ("inconclusive", ("W112",))
    assert spoiled.voided_by == ("T504",)
    assert (failed.status, failed.voided_by) == ("fail", ())


def test_a_closed_loop_alone_passes_nothing() -> None:
    of = evidence(8, Slo(e2e={"p95": 5.0}, error_rate=0.1))

    async def run() -> tuple[Point, Point]:
        found = levels(of, SLO_RULES)
        await found.measure(Level(flight=8))
        closed = [m for m in found.measured if not m.load.arrivals]
        return found.points[0], judgement.point(of, Level(flight=8), closed, SLO_RULES)

    both, alone = asyncio.run(run())
    assert both.status == "pass"
    assert (alone.status, alone.missing) == ("inconclusive", "requests that arrive by chance at this level")


def test_the_batch_limit_is_named_by_its_flag() -> None:
    """256 may run at once on the healthy deployment."""
    points = [_point(256, "pass"), _point(512, "fail", signs=Signs(waiting=200.0, running=256.0))]
    assert _limit(make_evidence(), points, None) == (
        "batch limit",
        "200 of the requests wait in the mean at 512 in flight: --max-num-seqs lets 256 run at once",
    )


def test_beyond_the_knee_compute_limits() -> None:
    points = [_point(32, "pass"), _point(64, "fail")]
    kind, why = _limit(make_evidence(), points, Knee(32, 12.5, True))
    assert (kind, why) == ("compute", "beyond 32 in flight requests a second no longer grow (12.5/s)")


def test_nothing_limits_where_all_pass() -> None:
    assert _limit(make_evidence(), [_point(32, "pass")], None) == ("", "")


# --------------------------------------------------------------------------------------------------------- the command


PROFILE = """
version: 1
name: t
endpoint: {url: "http://127.0.0.1:9/v1"}
deployment: {model: meta-llama/Llama-3.1-8B-Instruct, accelerator: h100-sxm}
traffic: {target_concurrency: 4, classes: [{name: a, prompt_tokens: {p50: 10}, output_tokens: {p50: 10}}]}
slo: {ttft: {p95: 1s}}
"""


@pytest.mark.parametrize(
    ("change", "flags", "said"),
    [
        (("slo: {ttft: {p95: 1s}}", ""), [], "declares no limit that a higher load could break"),
        (("127.0.0.1", "llm.example"), [], "it is loaded only with probe.allow_load: true"),
        (("", ""), ["--max", "many"], "--max many: needs a whole number of requests in flight, such as 256"),
        (("", ""), ["--max", "0"], "--max 0: needs a whole number of requests in flight, such as 256"),
        (("", ""), ["--rate", "--max", "20"], "--max 20: "),
        (("{target_concurrency", "{arrivals: closed, target_concurrency"), ["--rate"], "--rate: traffic.arrivals is"),
        (("", ""), ["-o", "html=x"], "unknown format 'html'"),
    ],
)
def test_mistakes_are_told_in_one_line(change, flags, said, tmp_path: Path, capsys, monkeypatch) -> None:
    (tmp_path / "p.yaml").write_text(PROFILE.replace(*change) if change[0] else PROFILE)
    monkeypatch.setattr(sys, "argv", ["audit", "capacity", str(tmp_path / "p.yaml"), *flags])
    with pytest.raises(SystemExit) as ended:
        main()
    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_an_endpoint_that_is_down_measures_nothing(tmp_path: Path, capsys, monkeypatch) -> None:
    (tmp_path / "p.yaml").write_text(PROFILE)
    monkeypatch.setattr(sys, "argv", ["audit", "capacity", str(tmp_path / "p.yaml")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    assert capsys.readouterr().out == ""


def test_a_fresh_source_gives_the_same_bytes() -> None:
    """Virtual time, one seed: the search is a function of its profile."""
    one, two = (replace(_searched(evidence(4, requests=500)), seconds=0.0) for _ in range(2))
    assert source(evidence(4)).now == 0.0
    assert RENDERERS["json"](one) == RENDERERS["json"](two)
