"""`audit compare`, and `--baseline` of `audit judge`: exit codes, tables, and what is saved."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from auditor import store
from auditor.evidence import Evidence
from auditor.loading import load_profile
from auditor.measurement import Sample
from auditor.options import Options, as_then, choices
from auditor.profile import Traffic
from auditor.run import conclude, judge
from auditor.testing import make_evidence, make_profile

EVIDENCE = make_evidence()


def slower(by: float, evidence: Evidence = EVIDENCE) -> Evidence:
    """All that users wait for takes `by` times as long."""

    def stretched(sample: Sample) -> Sample:
        arrivals = tuple(by * at for at in sample.arrivals)
        return replace(
            sample, start=by * sample.start, ttft=by * (sample.ttft or 0), e2e=arrivals[-1], arrivals=arrivals
        )

    measured = tuple(
        replace(m, samples=tuple(map(stretched, m.samples))) if m.load.purpose == "slo" else m
        for m in evidence.measurements
    )
    return replace(evidence, measurements=measured)


def save(folder: Path, evidence: Evidence) -> Path:
    """A run as the pipeline saves it."""
    path = folder.parent / "p.yaml"
    path.write_text("version: 1\nname: healthy\nendpoint: {url: 'http://127.0.0.1:8000/v1'}\n")
    with store.recording(folder, load_profile(path), replace(evidence, measurements=())) as keep:
        for measurement in evidence.measurements:
            keep.measurement(measurement)
        clean = keep.redact(evidence)
        keep.finish(clean, conclude(clean, Options()))
        assert keep.failure is None
    return folder


@pytest.fixture(name="audit")
def _audit(monkeypatch, tmp_path, program):
    """Run the program beside three saved runs; gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    for name, by in (("base", 1.0), ("again", 1.02), ("slow", 1.2)):
        save(tmp_path / name, slower(by))

    return program


def test_equal_runs_exit_with_0_and_a_slower_one_with_1(audit):
    code, out, err = audit("compare", "base", "again")
    assert (code, err) == (0, "")
    assert out.startswith("SAME: healthy: Nothing is slower by what counts than in base of ")
    code, out, _ = audit("compare", "base", "slow")
    assert code == 1
    assert out.startswith("WORSE: healthy: Slower than base of ")
    assert "+20 %" in out


def test_several_baselines_come_first_and_the_new_run_last(audit):
    code, out, _ = audit("compare", "base", "again", "slow")
    assert code == 1
    assert "and 1 more" in out
    assert "the baseline runs differ by up to 2 % among themselves" in " ".join(out.split())


def test_what_counts_can_be_chosen(audit):
    assert audit("compare", "base", "slow", "--min-effect", "30%")[0] == 0
    assert audit("compare", "base", "again", "--min-effect", "1%")[0] == 1
    assert audit("compare", "base", "again", "--min-effect", "many") == (
        2,
        "",
        "audit: --min-effect many: needs a share such as 1% or 0.01\n",
    )


def test_an_open_comparison_exits_with_4_or_as_the_policy_says(audit, tmp_path):
    (slo,) = EVIDENCE.loads("slo")
    other = replace(slo, load=replace(slo.load, concurrency=32))
    save(tmp_path / "wide", replace(EVIDENCE, measurements=(other,)))
    code, out, _ = audit("compare", "base", "wide")
    assert (code, out.partition(":")[0]) == (4, "UNCLEAR")
    assert audit("compare", "base", "wide", "--on-inconclusive", "fail")[0] == 1
    assert audit("compare", "base", "wide", "--on-inconclusive", "warn")[0] == 0
    assert audit("compare", "base", "slow", "--on-inconclusive", "warn")[0] == 1


def test_json_and_markdown_say_the_same(audit, tmp_path):
    code, out, _ = audit("compare", "base", "slow", "--json", "-o", "markdown=review.md")
    data = json.loads(out)
    assert (code, data["exit_code"], data["status"]) == (1, 1, "worse")
    assert data["baseline"] == [f"base of {EVIDENCE.today}"]
    assert "| TTFT (slo) |" in (tmp_path / "review.md").read_text()
    assert audit("compare", "base", "slow", "--json")[1] == out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("base",), "audit: audit compare: needs two folders of saved runs, the baseline and the new run"),
        (("none", "base"), "audit: none: there is no such folder; `audit run --save DIR` writes one"),
        (("base", "slow", "-o", "html=x.html"), "unknown format 'html'"),
        (("base", "empty"), "audit: empty: this run measured no request at the target load; choose another one"),
    ],
)
def test_mistakes_are_one_line(audit, tmp_path, arguments, said):
    save(tmp_path / "empty", replace(EVIDENCE, measurements=()))
    code, out, err = audit("compare", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_judge_holds_a_saved_run_against_another(audit):
    assert audit("judge", "slow", "--only", "W")[0] == 0
    code, out, _ = audit("judge", "slow", "--only", "W", "--baseline", "base")
    assert code == 1
    assert out.startswith("NOT READY: healthy: W fail (W140)")
    assert audit("judge", "again", "--only", "W", "--baseline", "base")[0] == 0
    assert audit("judge", "slow", "--only", "W", "--baseline", "base", "--min-effect", "30%")[0] == 0


def test_what_counts_needs_a_baseline(audit):
    assert audit("judge", "slow", "--min-effect", "30%") == (
        2,
        "",
        "audit: --min-effect: says what counts against a baseline; name it with --baseline\n",
    )


def test_other_traffic_is_no_baseline(audit, tmp_path):
    heavier = replace(EVIDENCE, profile=make_profile(traffic=Traffic(target_concurrency=32)))
    save(tmp_path / "heavy", heavier)
    code, _, err = audit("judge", "heavy", "--baseline", "base")
    assert code == 2
    assert err.startswith("audit: base: traffic.target_concurrency is not that of ")
    assert err.endswith("; choose a baseline of the same traffic\n")


def test_what_a_run_was_held_against_is_saved_and_judged_again_byte_for_byte(audit, tmp_path):
    compared = judge(tmp_path / "slow", profile=None, options=Options(baseline=(tmp_path / "base",)))
    save(tmp_path / "kept", compared.evidence)
    report = judge(tmp_path / "kept", profile=None, options=Options())
    assert report == compared
    assert [f.status for f in report.findings if f.rule == "W140"] == ["fail"]
    first, again = (audit("judge", "kept", "-o", "json=-")[1] for _ in range(2))
    assert first == again


def test_the_severity_that_fails_is_remembered_until_another_is_asked_for(audit, tmp_path):
    loaded = load_profile(tmp_path / "p.yaml")
    with store.recording(tmp_path / "spared", loaded, EVIDENCE, choices(Options(fail_on="high"))) as keep:
        keep.finish(EVIDENCE, conclude(EVIDENCE, Options()))
    saved = store.load_options(tmp_path / "spared")
    assert as_then(Options(), saved).fail_on == "high"
    assert as_then(Options(fail_on="low"), saved).fail_on == "low"
