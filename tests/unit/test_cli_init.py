"""`audit init` as a person runs it: what is written, what is said, and that the next commands work on it."""

from pathlib import Path

import pytest
import yaml

from auditor.cli.app import COMMANDS

KEY = "sk-live-0123456789abcdef"
LAUNCH = f"HF_TOKEN={KEY} vllm serve meta-llama/Llama-3.1-8B-Instruct --api-key {KEY} --max-model-len 32k"


@pytest.fixture
def audit(monkeypatch, tmp_path, program):
    """Run the program in an empty folder; gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLM_API_KEY", "some-key-of-mine")

    return program


def test_the_profile_passes_lint_and_can_be_planned(audit):
    code, out, err = audit("init", "--launch", LAUNCH, "--accelerator", "H100 SXM", "-o", "prod.yaml")
    assert (code, out) == (0, "")
    assert err == "prod.yaml: written; next: audit lint prod.yaml, audit plan prod.yaml, audit run prod.yaml\n"
    assert KEY not in Path("prod.yaml").read_text()
    code, out, err = audit("lint", "prod.yaml")
    assert code == 0
    assert "warning" not in err
    assert err.startswith("prod.yaml: ok: llama-3.1-8b-instruct at its endpoint, 1 traffic class, 16 in flight")
    code, out, _ = audit("plan", "prod.yaml")
    assert code == 0
    assert "requests" in out
    assert "cannot decide" not in out


def test_the_first_line_is_for_editors_and_the_next_steps_name_the_file(audit):
    audit("init", "--launch", LAUNCH, "-o", "prod.yaml")
    lines = Path("prod.yaml").read_text().splitlines()
    assert lines[0] == "# yaml-language-server: $schema=profile.schema.json"
    assert "#   audit plan prod.yaml                       shows what an audit would send" in lines


def test_stdout_has_the_profile_alone_and_stderr_what_to_look_after(audit):
    code, out, err = audit("init", "--launch", LAUNCH)
    assert code == 0
    assert out.startswith("# yaml-language-server")
    assert err.startswith("note: deployment.accelerator: nothing names it")
    assert "#   - deployment.accelerator: nothing names it" in out
    assert KEY not in out + err


def test_a_file_that_is_there_stays_unless_forced(audit):
    Path("prod.yaml").write_text("mine")
    code, _, err = audit("init", "--launch", LAUNCH, "-o", "prod.yaml")
    assert (code, err) == (
        2,
        "audit: -o prod.yaml: is there already; choose another name, or --force to write over it\n",
    )
    assert Path("prod.yaml").read_text() == "mine"
    assert audit("init", "--launch", LAUNCH, "-o", "prod.yaml", "--force")[0] == 0


@pytest.mark.parametrize(("given", "name"), [("a: b\\n- c", "a: b - c"), ("\\n", "service")])
def test_a_name_that_a_file_spreads_over_lines_becomes_one(audit, given, name):
    model = f'- name: "{given}"\n    repository: vllm/vllm-openai\n    modelURL: meta-llama/Llama-3.1-8B-Instruct\n'
    Path("values.yaml").write_text(f"servingEngineSpec:\n  modelSpec:\n  {model}")
    assert audit("init", "values.yaml", "-o", "prod.yaml")[0] == 0
    assert audit("lint", "prod.yaml")[0] == 0
    assert yaml.safe_load(Path("prod.yaml").read_text())["name"] == name


def test_a_preset_becomes_the_budget(audit):
    _, out, _ = audit("init", "--launch", LAUNCH, "--preset", "ci")
    assert "budget: {duration: 5m, requests: 600, tokens: 2M}" in out
    _, out, _ = audit("init", "--launch", LAUNCH, "--preset", "launch")
    assert "budget: {duration: 60m, requests: 20000, tokens: 100M}" in out
    assert "confidence: 0.99" in out


def test_a_preset_changes_what_is_planned(audit):
    whole = audit("plan", "embedded")[1]
    short = audit("plan", "embedded", "--preset", "ci")[1]
    assert "budget    1,300 requests" in whole
    assert "budget    600 requests, 2,000,000 tokens, 85 s" in short


def test_flags_that_the_engine_refuses_are_told_and_exit_2(audit):
    code, _, err = audit("init", "--launch", "vllm serve m --max-num-seqs many", "-o", "p.yaml")
    assert code == 2
    assert "correct this in it" in err
    assert err.splitlines()[-1].startswith("p.yaml:")
    assert "--max-num-seqs many" in err
    assert Path("p.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "init: nothing to read; give a file, --url or --launch (audit init --help)"),
        (("none.yaml",), "none.yaml: there is no such file"),
        (("--url", "localhost:8000"), "--url: needs an address with its scheme, such as http://127.0.0.1:8000/v1"),
        (("--launch", "python app.py"), "--launch: no engine is started here that is known"),
        (("--launch", "vllm serve m", "--api-key-env", KEY), "--api-key-env: this looks like a key itself"),
        (("--launch", "vllm serve m", "--accelerator", "h1000"), "unknown accelerator 'h1000'"),
        (("--launch", "vllm serve m", "--prometheus-key-env", "TOKEN"), "--prometheus-key-env: is the token of"),
        (("--launch", "vllm serve m", "--pick", "vllm"), "--pick vllm: chooses among the deployments of a file"),
        (("--launch", "vllm serve m", "-o", "no/such/p.yaml"), "the folder no/such does not exist"),
        (("--url", "http://127.0.0.1:9/v1", "--api-key-env", "NOT_SET"), "--api-key-env NOT_SET: no such environment"),
    ],
)
def test_mistakes_get_one_line_and_exit_2(audit, arguments, message):
    code, out, err = audit("init", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert KEY not in err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_s_help_has_an_example(audit, name):
    code, out, _ = audit(name, "--help")
    assert code == 0
    assert f"\n  audit {name}" in out
