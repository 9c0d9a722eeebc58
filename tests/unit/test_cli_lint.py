"""`audit lint` and `audit schema`: where their words go, and their exit codes."""

import json
from pathlib import Path

import pytest

from auditor.loading import load_profile, resolve_device, resolve_model, shipped_profiles

HEAD = "version: 1\nname: t\nendpoint: {url: 'http://127.0.0.1:8000/v1'}\n"


@pytest.fixture
def audit(monkeypatch, tmp_path, program):
    """Run the program in an empty folder; gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    return program


def test_a_good_profile_says_what_will_be_audited(audit):
    Path("p.yaml").write_text(
        HEAD + "deployment: {model: meta-llama/Llama-3.1-8B-Instruct, accelerator: h100-sxm}\n"
        "traffic: {target_concurrency: 8}\nslo: {ttft: {p95: 2s}}\n"
    )
    line = "p.yaml: ok: t at its endpoint, 0 traffic classes, 8 in flight, SLOs for ttft, 0 monitoring files\n"
    assert audit("lint", "p.yaml") == (0, "", line)


def test_other_loads_and_questions_are_named(audit):
    Path("p.yaml").write_text(
        "version: 1\nname: t\nendpoint: {url: emulator}\n"
        "deployment: {model: meta-llama/Llama-3.1-8B-Instruct, accelerator: h100-sxm}\n"
        "traffic: {request_rate: 5/s, classes: [{name: a, prompt_tokens: {p50: 1}, output_tokens: {p50: 1}}]}\n"
        "monitoring: {required: false}\n"
    )
    line = "p.yaml: ok: t at the emulator, 1 traffic class, 5 requests/s, no SLO, monitoring not asked\n"
    assert audit("lint", "p.yaml") == (0, "", line)


def test_problems_go_to_stderr_all_at_once(audit):
    Path("p.yaml").write_text(HEAD + "slo: {ttft: {p95: 5}}\nfoo: 1\n")
    code, out, err = audit("lint", "p.yaml")
    assert (code, out) == (2, "")
    assert err.removeprefix("audit: ").splitlines() == [
        "p.yaml:4:19: slo.ttft.p95: needs its unit: write 5s for seconds or 5ms for milliseconds",
        "p.yaml:5:1: unknown key 'foo'",
    ]


def test_missing_dashboards_and_a_missing_profile_exit_2(audit):
    Path("p.yaml").write_text(HEAD + "monitoring: {dashboards: [x.json]}\n")
    code, out, err = audit("lint", "p.yaml")
    assert (code, out) == (2, "")
    assert "p.yaml:4:27: monitoring.dashboards.0: no file matches x.json" in err
    code, out, err = audit("lint", "none.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("audit: none.yaml: there is no such profile")


def test_warnings_name_both_places_of_a_conflict(audit):
    Path("p.yaml").write_text(
        HEAD + "deployment: {model: x-unknown, max_num_seqs: 8, launch: 'vllm serve x-unknown --max-num-seqs 16'}\n"
    )
    code, out, err = audit("lint", "p.yaml")
    assert (code, out) == (0, "")
    warnings = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert any(line.startswith("warning: p.yaml:4:21: deployment.model: ") for line in warnings)
    assert any("no accelerator is declared" in line for line in warnings)
    (conflict,) = [line for line in warnings if "max_num_seqs" in line]
    assert "p.yaml:4" in conflict
    assert "--max-num-seqs" in conflict
    assert "8" in conflict
    assert "16" in conflict


def test_schema_prints_json_on_stdout_alone(audit):
    for arguments, title in (((), "profile"), (("profile",), "profile"), (("report",), "report")):
        code, out, err = audit("schema", *arguments)
        assert (code, err) == (0, "")
        assert json.loads(out)["title"] == f"serving-audit {title}"


@pytest.mark.parametrize("name", sorted(shipped_profiles()))
def test_every_shipped_profile_is_clean(audit, name):
    code, out, err = audit("lint", name)
    assert (code, out) == (0, "")
    warnings = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert all("the environment variable" in line for line in warnings)
    loaded = load_profile(name, {})
    assert resolve_model(loaded)[0] is not None
    assert resolve_device(loaded)[0] is not None


def test_the_real_profiles_teach():
    for name in ("vllm-8b-h100", "deepseek-8xh200-sglang", "llamacpp-m5-max", "gateway-six-replicas"):
        lines = shipped_profiles()[name].read_text("utf-8").splitlines()
        assert lines[0] == "# yaml-language-server: $schema=profile.schema.json"
        assert sum("#" in line for line in lines) >= 10


def waivers(*lines: str) -> str:
    return HEAD + "waivers:\n" + "".join(f"  - {{rule: {line}}}\n" for line in lines)


def test_an_expired_waiver_is_an_error_at_its_line(audit):
    Path("p.yaml").write_text(
        waivers("M401, reason: r, expires: 2999-01-01", "M402, reason: r, expires: 2020-01-31, owner: team-x")
    )
    code, out, err = audit("lint", "p.yaml")
    assert (code, out) == (2, "")
    assert err == "p.yaml:6:38: waivers.1: the waiver of M402 expired on 2020-01-31; renew or remove it\n"


def test_a_waiver_of_no_rule_is_a_warning(audit):
    Path("p.yaml").write_text(waivers("M401, reason: r, expires: 2999-01-01", "M999, reason: r, expires: 2999-01-01"))
    code, _, err = audit("lint", "p.yaml")
    assert code == 0
    assert "warning: p.yaml:6:12: there is no rule M999" in err
    assert "M401" not in err.partition("there is no rule")[0]


def test_several_profiles_are_checked_and_the_problems_of_all_are_told(audit):
    Path("good.yaml").write_text(HEAD)
    Path("a.yaml").write_text(HEAD + "nmae: x\n")
    Path("b.yaml").write_text("name: t\n")
    code, out, err = audit("lint", "a.yaml", "good.yaml", "b.yaml")
    assert (code, out) == (2, "")
    told = [line.partition(":")[0] for line in err.splitlines() if not line.startswith("warning")]
    assert list(dict.fromkeys(told)) == ["good.yaml", "a.yaml", "b.yaml"]
