"""The commands and their exit codes, with the pipeline behind them replaced: what they parse, print and exit with."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from made_reports import EVIDENCE, PROFILE, READY, REPORT

import auditor.report.renderers  # noqa: F401  what it imports must be there before the stand-ins for it
from auditor.cli.app import COMMANDS
from auditor.cli.exits import EXITS
from auditor.cli.plan import describe
from auditor.errors import NothingMeasured, Problem, ProfileError
from auditor.evidence import Check
from auditor.options import Options

CHECKS = (
    Check(question="W", title="Workload shape", rules=()),
    Check(question="K", title="KV capacity", rules=(), pages="made_pages/rules"),
)


@pytest.fixture
def pipeline(monkeypatch):
    """A stand-in for auditor.run, auditor.loading and auditor.plugins; `report` is what an audit gives."""
    seen = SimpleNamespace(report=READY, error=None, options=None, events=None, judged=None, profile=None)

    async def audit(loaded, options, events):
        seen.options, seen.events = options, events
        if seen.error:
            raise seen.error
        return seen.report

    def judge(folder, *, profile, options):
        seen.judged, seen.options = (folder, profile), options
        return seen.report

    def load_profile(source):
        seen.profile = source
        if seen.error and isinstance(seen.error, ProfileError):
            raise seen.error
        return SimpleNamespace(profile=PROFILE, secrets=())

    modules = {
        "auditor.run": {
            "audit": audit,
            "judge": judge,
            "Options": Options,
            "plan_offline": lambda _: EVIDENCE.plan,
            "unsaved": lambda _: None,
        },
        "auditor.loading": {"load_profile": load_profile},
        "auditor.plugins": {"load_checks": lambda: CHECKS},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    return seen


@pytest.fixture
def audit(program):
    """Run the program in this process; gives (exit code, stdout, stderr)."""

    return program


# ----------------------------------------------------------------------------------------------------------- exit codes


@pytest.mark.parametrize("code", [0, 1, 4, 130])
def test_the_verdict_is_the_exit_code(pipeline, audit, code):
    pipeline.report = replace(REPORT, exit_code=code)
    assert audit("run", "chat.yaml")[0] == code
    assert audit("judge", "folder")[0] == code
    assert audit("report", "folder")[0] == 0


def test_nothing_measured_is_3_and_one_line(pipeline, audit):
    pipeline.error = NothingMeasured("http://127.0.0.1:1/v1: nobody answers; start the server")
    assert audit("run", "x.yaml") == (3, "", "audit: http://127.0.0.1:1/v1: nobody answers; start the server\n")


def test_what_a_server_sent_cannot_steer_the_terminal(pipeline, audit):
    pipeline.error = NothingMeasured("http://x/v1: 500 \x1b[2J<html>\r\naudit: READY" + "x" * 1_000_000)
    code, _, err = audit("run", "x.yaml")
    assert code == 3
    assert err.startswith("audit: http://x/v1: 500 <html> audit: READYxxx")
    assert err.count("\n") == 1
    assert len(err) < 1200


def test_profile_problems_are_2_and_a_line_each(pipeline, audit):
    pipeline.error = ProfileError((Problem("a.yaml", 3, 5, "unknown key 'sloo'"), Problem("a.yaml", 9, 1, "no unit")))
    code, out, err = audit("run", "a.yaml")
    assert (code, out) == (2, "")
    assert "a.yaml:3:5: unknown key 'sloo'\na.yaml:9:1: no unit" in err


def test_an_unexpected_error_is_3_and_names_the_way_to_its_traceback(pipeline, audit, monkeypatch):
    pipeline.error = ZeroDivisionError("division\nby zero")
    code, out, err = audit("run", "x.yaml")
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    assert "internal error: ZeroDivisionError: division by zero" in err
    assert "AUDIT_TRACEBACK=1" in err
    monkeypatch.setenv("AUDIT_TRACEBACK", "1")
    code, _, err = audit("run", "x.yaml")
    assert code == 3
    assert "Traceback" in err


def test_a_broken_connection_is_not_mistaken_for_a_closed_pipe(pipeline, audit):
    pipeline.error = BrokenPipeError("socket")
    code, _, err = audit("run", "x.yaml")
    assert code == 3
    assert "internal error" in err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("runn",),
        ("run",),
        ("run", "x.yaml", "--bogus"),
        ("run", "x.yaml", "-o", "json"),
        ("run", "x.yaml", "-o", "json=missing/folder/x.json"),
        ("run", "x.yaml", "--only", "Q"),
        ("run", "x.yaml", "--only", ""),
        ("run", "x.yaml", "--today", "tomorrow"),
        ("run", "x.yaml", "--on-inconclusive", "maybe"),
        ("run", "x.yaml", "--passive", "--offline"),
        ("run", "x.yaml", "--window", "24h"),
        ("run", "x.yaml", "--passive", "--window", "0s"),
        ("run", "x.yaml", "--passive", "--window", "a day"),
        ("explain", "K999"),
        ("catalog", "planets"),
        ("judge",),
    ],
)
def test_usage_errors_are_2_and_leave_stdout_empty(pipeline, audit, arguments, tmp_path, monkeypatch):
    _pages(tmp_path, monkeypatch)
    code, out, err = audit(*arguments)
    assert code == 2
    assert not out
    assert err
    assert pipeline.events is None


def test_ctrl_c_before_anything_was_measured_is_130(pipeline, audit):
    pipeline.error = KeyboardInterrupt()
    assert audit("run", "x.yaml")[0] == 130


def test_every_exit_code_is_reached_here():
    assert sorted(EXITS) == [0, 1, 2, 3, 4, 130]


# ----------------------------------------------------------------------------------------------------------------- run


def test_options_reach_the_pipeline(pipeline, audit):
    flags = "--save kept --offline --only k,w --on-inconclusive pass --today 2026-01-31"
    audit("run", "p.yaml", *flags.split())
    assert pipeline.profile == "p.yaml"
    assert pipeline.options == Options(
        only=("W", "K"), offline=True, save=Path("kept"), on_inconclusive="pass", today="2026-01-31"
    )


def test_a_passive_audit_looks_back_a_day_unless_told(pipeline, audit):
    audit("run", "p.yaml")
    assert pipeline.options.passive is None
    audit("run", "p.yaml", "--passive")
    assert pipeline.options.passive == 86_400
    audit("run", "p.yaml", "--passive", "--window", "7d")
    assert pipeline.options.passive == 604_800


def test_json_on_stdout_is_alone_there(pipeline, audit):
    _, out, _ = audit("run", "p.yaml", "-o", "json=-")
    assert json.loads(out)["verdict"] == "READY"


def test_report_writes_only_what_was_asked_for(pipeline, audit, tmp_path):
    file = tmp_path / "review.md"
    assert audit("report", "folder", "-o", f"markdown={file}") == (0, "", "")
    assert file.read_text().startswith("# READY")
    assert audit("report", "folder")[1].startswith("READY")


def test_judge_takes_another_profile(pipeline, audit):
    audit("judge", "folder", "--profile", "other.yaml", "--only", "K")
    assert pipeline.judged == (Path("folder"), Path("other.yaml"))
    assert pipeline.options.only == ("K",)


@pytest.fixture
def signals():
    """After a signal a program keeps its handlers to its end; these tests go on."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_sigterm_before_anything_was_measured_is_130(pipeline, audit, monkeypatch):
    async def uninterested(loaded, options, events):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(5)

    monkeypatch.setattr(sys.modules["auditor.run"], "audit", uninterested)
    assert audit("run", "x.yaml")[:2] == (130, "")


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_ends_like_ctrl_c_and_twice_at_once_is_once(pipeline, audit, monkeypatch, number):
    async def interrupted(loaded, options, events):
        os.kill(os.getpid(), number)
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            os.kill(os.getpid(), number)
            return replace(REPORT, exit_code=130, interrupted="stopped after 3 requests")

    monkeypatch.setattr(sys.modules["auditor.run"], "audit", interrupted)
    code, out, _ = audit("run", "x.yaml")
    assert code == 130
    assert "stopped early: stopped after 3 requests" in out


def test_a_run_without_a_signal_leaves_them_as_they_were(pipeline, audit):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert audit("run", "x.yaml")[0] == 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


# ------------------------------------------------------------------------------------------------- plan, explain, help


def test_plan_shows_addresses_loads_sums_cost_and_gaps(pipeline, audit):
    code, out, _ = audit("plan", "p.yaml")
    assert code == 0
    assert "endpoint  http://127.0.0.1:8000/v1" in out
    assert "5 requests, 15,750 tokens, about 120 s" in out
    assert "about 0.08 at 2.5 per hour" in out  # 120 s of 2.50 an hour
    assert "- the p99 of e2e needs 299 requests, the budget allows 200 (W112)" in out
    row = next(line for line in out.splitlines() if line.startswith("  slo"))
    assert row.split() == ["slo", "4", "4+1", "3000/150", "15,750", "slo"]


def test_plan_tells_what_is_sent_by_the_clock_and_what_only_if_needed():
    plan = EVIDENCE.plan
    bursts = replace(plan.loads[0], id="bursts", arrivals=(0.0, 1.0), rate=None)
    both = replace(plan, loads=(plan.loads[0], bursts), reserve=(replace(plan.loads[0], id="slo-2"),))
    lines = describe(both, PROFILE).splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line.startswith("  ")}
    assert rows["bursts"][1] == "~4"
    assert rows["slo-2"][-2:] == ["slo,", "reserve"]
    assert "  ~         sent at the rate that the load before reaches, whatever is in flight" in lines
    assert "  reserve   5 requests, 15,750 tokens, only where the SLO loads leave something undecided" in lines
    declared = describe(replace(plan, loads=(replace(bursts, rate=5.0),)), PROFILE)
    assert "sent at 5 requests a second" in declared
    assert "reserve" not in declared


def test_plan_claims_no_time_that_nothing_tells():
    lines = describe(replace(EVIDENCE.plan, seconds=0.0), PROFILE)
    assert "  in all    5 requests, 15,750 tokens, no time known without model and accelerator" in lines
    assert "  cost " not in lines


def test_plan_prices_all_replicas_and_gives_each_metrics_page_a_line():
    endpoint = replace(PROFILE.endpoint, metrics=("http://a/metrics", "http://b/metrics"))
    profile = replace(PROFILE, endpoint=endpoint, deployment=replace(PROFILE.deployment, replicas=6))
    out = describe(EVIDENCE.plan, profile)
    assert "\n  metrics   http://a/metrics\n            http://b/metrics\n" in out
    assert "about 0.50 at 15 per hour of the deployment" in out  # 120 s of 6 x 2.50 an hour


def _pages(tmp_path, monkeypatch):
    folder = tmp_path / "made_pages" / "rules"
    folder.mkdir(parents=True)
    (tmp_path / "made_pages" / "__init__.py").write_text("")
    (folder / "K302.md").write_text("# K302 Target against the pool\n\n## Why\n\nBecause.\n")
    (folder / "T501.md").write_text("# T501 Cached prompts\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "made_pages", None)
    monkeypatch.delitem(sys.modules, "made_pages")
    pages = (replace(CHECKS[1], pages="made_pages/rules"),)
    monkeypatch.setattr(sys.modules["auditor.plugins"], "load_checks", lambda: pages)


def test_explain_prints_the_page(pipeline, audit, tmp_path, monkeypatch):
    _pages(tmp_path, monkeypatch)
    assert audit("explain", "k302") == (0, "# K302 Target against the pool\n\n## Why\n\nBecause.\n", "")


def test_explain_lists_rules_by_question(pipeline, audit, tmp_path, monkeypatch):
    _pages(tmp_path, monkeypatch)
    _, out, _ = audit("explain")
    assert out.splitlines()[:5] == [
        "K  KV capacity",
        "  K302  Target against the pool",
        "",
        "T  Measurement validity",
        "  T501  Cached prompts",
    ]


def test_explain_suggests(pipeline, audit, tmp_path, monkeypatch):
    _pages(tmp_path, monkeypatch)
    assert audit("explain", "K320")[2] == "audit: no rule 'K320'; did you mean K302?\n"
    assert audit("explain", "hello")[2] == "audit: no rule 'hello'; `audit explain` lists all rules\n"


def test_a_missing_page_folder_is_named(pipeline, audit, monkeypatch):
    broken = (replace(CHECKS[1], pages="no_such_package/rules"),)
    monkeypatch.setattr(sys.modules["auditor.plugins"], "load_checks", lambda: broken)
    code, _, err = audit("explain")
    assert code == 2
    assert "no_such_package/rules" in err


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_its_summary(audit, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = audit(name, "--help")
    assert code == 0
    assert out.startswith(f"Usage: audit {name}")


def test_version(audit):
    code, out, _ = audit("--version")
    assert code == 0
    assert out.startswith("serving-audit 0.")


def test_head_gets_its_lines_and_no_noise():
    """A reader that leaves early, as `audit --help | head -1` does."""
    program = [sys.executable, "-m", "auditor", "--help"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
