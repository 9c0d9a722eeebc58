"""The files for pipelines: each fits its published schema, and the steps of the action do what it promises."""

import json
import lzma
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from auditor.cli.app import COMMANDS
from auditor.loading import shipped_profiles
from tests.e2e.scenario import HEALTHY
from tests.published import SCHEMAS, problems

ROOT = Path(__file__).parents[2]
PIPELINES = ROOT / "profiles" / "pipelines"
ACTION = yaml.safe_load((ROOT / ".github/actions/audit/action.yml").read_text())
GITLAB = yaml.safe_load((PIPELINES / "gitlab-ci.yml").read_text())
KUBERNETES = {
    f"{path.name} {data['kind']}": data
    for path in sorted(PIPELINES.glob("kubernetes-*.yaml"))
    for data in yaml.safe_load_all(path.read_text())
}
GROUPS = {"Job": "batch.v1", "CronJob": "batch.v1", "PersistentVolumeClaim": "core.v1"}


def schema(name: str) -> dict[str, Any]:
    return json.loads(lzma.decompress((SCHEMAS / f"{name}.json.xz").read_bytes()))


# ------------------------------------------------------------------------------------------------------------- schemas


def test_the_action_is_one() -> None:
    assert problems(ACTION, schema("github-action")) == []


def test_the_gitlab_template_is_one() -> None:
    assert problems({**GITLAB, "audit": {"extends": ".serving-audit"}}, schema("gitlab-ci")) == []


@pytest.mark.parametrize("name", KUBERNETES)
def test_kubernetes_takes_it(name: str) -> None:
    kind = KUBERNETES[name]["kind"]
    strict = schema("kubernetes-1.37-strict")
    rooted = {**strict, "$ref": f"#/$defs/io.k8s.api.{GROUPS[kind]}.{kind}"}
    assert problems(KUBERNETES[name], rooted) == []
    assert problems({**KUBERNETES[name], "sepc": {}}, rooted) != []


def pods() -> list[dict[str, Any]]:
    specs = [data["spec"] for data in KUBERNETES.values() if data["kind"] in ("Job", "CronJob")]
    return [spec.get("jobTemplate", {}).get("spec", spec)["template"]["spec"] for spec in specs]


def test_pods_run_with_no_more_rights_than_they_need_and_never_again_until_green() -> None:
    """After kubernetes.io, Pod Security Standards, "Restricted"."""
    assert len(pods()) == 2
    for pod in pods():
        own = pod["containers"][0]["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert (own["allowPrivilegeEscalation"], own["capabilities"]) == (False, {"drop": ["ALL"]})
        assert own["readOnlyRootFilesystem"] is True
        assert pod["automountServiceAccountToken"] is False
        assert pod["restartPolicy"] == "Never"
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    retries = [
        d["spec"].get("jobTemplate", d)["spec"]["backoffLimit"] for d in KUBERNETES.values() if "Job" in d["kind"]
    ]
    assert retries == [0, 0]


def test_pipelines_are_no_profiles() -> None:
    assert not set(shipped_profiles()) & {path.stem for path in PIPELINES.iterdir()}


# ---------------------------------------------------------------------------------------------------------- their steps


@pytest.fixture(name="audit")
def _audit(tmp_path: Path) -> Path:
    """A folder for PATH whose `audit` notes its arguments and judges offline, without the runs it cannot know."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "audit"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os, pathlib, subprocess, sys\n"
        "pathlib.Path(os.environ['NOTED']).write_text(json.dumps(sys.argv[1:]))\n"
        "kept = [a for i, a in enumerate(sys.argv[1:]) if 'baseline' not in a and '--baseline' not in sys.argv[i]]\n"
        "command = [sys.executable, '-m', 'auditor', kept[0], '--offline', *kept[1:]]\n"
        "sys.exit(subprocess.run(command, env={**os.environ, 'PYTHONPATH': os.environ['ROOT']}).returncode)\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (folder / "python").symlink_to(sys.executable)
    return folder


def run(script: str, folder: Path, audit: Path, environ: Mapping[str, str], *, shell: str) -> tuple[int, list[str]]:
    """Run a script as the pipeline would; its exit code and what `audit` was called with."""
    noted = folder / "noted.json"
    noted.unlink(missing_ok=True)
    path = f"{audit}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "NOTED": str(noted), "ROOT": str(ROOT), **environ}
    done = subprocess.run(
        [*shlex.split(shell), script], check=False, cwd=folder, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (0, 1, 2, 3, 4), done.stderr
    return done.returncode, json.loads(noted.read_text())


BASH = "bash --noprofile --norc -eo pipefail -c"  # as GitHub's runner calls it


def audit_step() -> dict[str, Any]:
    (step,) = [step for step in ACTION["runs"]["steps"] if step.get("id") == "audit"]
    return step


def given(folder: Path, **inputs: str) -> dict[str, str]:
    """The environment of the step for these inputs, the others as they are by default."""
    values = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()} | inputs
    names = {key: re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text) for key, text in audit_step()["env"].items()}
    assert all(names.values())
    files = {name: str(folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    return {**{key: values[match[1]] for key, match in names.items() if match}, **files}


def profile(folder: Path, **changes: Any) -> Path:
    path = folder / "my audit.yaml"
    path.write_text(yaml.safe_dump({**HEALTHY, **changes}))
    return path


def test_the_action_writes_every_report_and_passes_the_exit_code_on(tmp_path: Path, audit: Path) -> None:
    code, arguments = run(
        audit_step()["run"], tmp_path, audit, given(tmp_path, profile=str(profile(tmp_path))), shell=BASH
    )
    outputs = dict(line.split("=", 1) for line in (tmp_path / "GITHUB_OUTPUT").read_text().splitlines())
    assert (code, outputs) == (4, {"exit-code": "4", "verdict": "INCONCLUSIVE"})
    review = (tmp_path / "serving-audit" / "report.md").read_text()
    assert (tmp_path / "GITHUB_STEP_SUMMARY").read_text().strip() == review.strip()  # the program's own doing
    written = {path.name for path in (tmp_path / "serving-audit").iterdir()}
    assert written == {"run", "report.json", "report.md", "report.html", "report.sarif", "junit.xml"}
    assert arguments[-2:] == ["--", str(tmp_path / "my audit.yaml")]
    assert "--baseline" not in arguments
    assert "--preset" not in arguments


def test_the_action_takes_hostile_inputs_as_data(tmp_path: Path, audit: Path) -> None:
    hostile = f"{tmp_path}/$(touch gone); touch gone.yaml"
    code, arguments = run(audit_step()["run"], tmp_path, audit, given(tmp_path, profile=hostile), shell=BASH)
    outputs = (tmp_path / "GITHUB_OUTPUT").read_text().splitlines()
    assert (code, arguments[-1], outputs) == (2, hostile, ["exit-code=2", "verdict="])
    assert not list(tmp_path.glob("gone*"))
    scripts = [step["run"] for step in ACTION["runs"]["steps"] if "run" in step]
    assert len(scripts) == 2
    assert not [script for script in scripts if "${{" in script]


def test_the_action_passes_each_choice_on(tmp_path: Path, audit: Path) -> None:
    inputs = {"baseline": "runs/a\nruns/b c\n", "preset": "ci", "fail-on": "high", "on-inconclusive": "warn"}
    code, arguments = run(
        audit_step()["run"], tmp_path, audit, given(tmp_path, profile=str(profile(tmp_path)), **inputs), shell=BASH
    )
    assert code == 0
    pairs = list(pairwise(arguments))
    for pair in (("--baseline", "runs/a"), ("--baseline", "runs/b c"), ("--preset", "ci"), ("--fail-on", "high")):
        assert pair in pairs
    assert arguments[0] in COMMANDS


def test_the_action_installs_what_lies_beside_it() -> None:
    (script,) = [step["run"] for step in ACTION["runs"]["steps"] if step.get("name") == "Install serving-audit"]
    root = (ROOT / ".github/actions/audit" / re.search(r'GITHUB_ACTION_PATH/([./]+)"', script)[1]).resolve()  # type: ignore[index]
    assert (root / "constraints.txt").is_file()
    assert (root / "pyproject.toml").is_file()


def test_the_gitlab_job_leaves_the_reports_that_it_names(tmp_path: Path, audit: Path) -> None:
    job = GITLAB[".serving-audit"]
    environ = {
        **job["variables"],
        "AUDIT_PROFILE": str(profile(tmp_path)),
        "AUDIT_ARGUMENTS": "--only H --fail-on high",
    }
    code, arguments = run("\n".join(job["script"]), tmp_path, audit, environ, shell=BASH)
    assert code in (0, 1, 4)
    assert arguments[:5] == ["run", "--only", "H", "--fail-on", "high"]
    for report in job["artifacts"]["reports"].values():
        assert (tmp_path / report).is_file()
    assert job["allow_failure"] == {"exit_codes": [4]}


@pytest.mark.parametrize("ready", [True, False])
def test_the_cron_job_holds_each_run_against_the_last_ready_one(tmp_path: Path, audit: Path, ready: bool) -> None:
    (pod,) = [p for p in pods() if "command" in p["containers"][0]]
    container = pod["containers"][0]
    path = profile(tmp_path, monitoring={"required": False})
    environ = {**{e["name"]: e["value"] for e in container["env"]}, "RUNS": str(tmp_path), "PROFILE": str(path)}
    if ready:
        (tmp_path / "ready").mkdir()
    assert container["command"] == ["/bin/sh", "-euc"]
    code, arguments = run(container["args"][0], tmp_path, audit, environ, shell="/bin/sh -euc")
    assert code == 4
    assert (f"--baseline={tmp_path}/ready/run" in arguments) == ready
    assert (tmp_path / "ready").exists() == ready  # nothing that is not READY becomes the baseline
    (today,) = [p for p in tmp_path.iterdir() if re.fullmatch(r"\d{4}-\d\d-\d\d-\d{6}", p.name)]
    assert (today / "run" / "run.json").is_file()


# ------------------------------------------------------------------------------------------------------ image and hook


def dockerfile() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(" ", 1)) for line in lines]  # type: ignore[misc]


def test_the_image_is_small_and_runs_as_nobody() -> None:
    steps = dockerfile()
    assert [name for name, _ in steps].count("FROM") == 2
    last = steps[[i for i, (name, _) in enumerate(steps) if name == "FROM"][-1] :]
    assert "slim" in last[0][1]
    assert not [rest for name, rest in last if name == "RUN"]  # no compiler, no cache, no package list
    assert dict(last)["USER"] == "65532:65532"
    assert json.loads(dict(last)["ENTRYPOINT"]) == ["audit"]


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    copied = [rest.split()[:-1] for name, rest in dockerfile() if name == "COPY" and "--from" not in rest]
    names = [name for each in copied for name in each]
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(names) == sorted(allowed)
    assert all((ROOT / name).exists() for name in names)


def test_pods_and_image_agree_on_who_runs() -> None:
    user, _, group = dict(dockerfile())["USER"].partition(":")
    assert {(p["securityContext"]["runAsUser"], p["securityContext"]["runAsGroup"]) for p in pods()} == {
        (int(user), int(group))
    }


def test_the_hook_lints_the_profiles_that_git_names(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["language"] == "python"
    wanted = re.compile(hook["files"])
    assert wanted.search("deploy/audit.yaml")
    assert wanted.search("chat-audit.yml")
    assert not wanted.search("audit/values.yaml")
    assert not wanted.search("deploy/prod.yaml")
    command = [sys.executable, "-m", "auditor", *hook["entry"].split()[1:]]
    (tmp_path / "good.yaml").write_text(yaml.safe_dump({**HEALTHY, "monitoring": {"required": False}}))
    (tmp_path / "bad.yaml").write_text("version: 1\n")
    codes = [
        subprocess.run([*command, *files], cwd=tmp_path, check=False, capture_output=True, timeout=60).returncode
        for files in (["good.yaml"], ["good.yaml", "bad.yaml"])
    ]
    assert codes == [0, 2]
