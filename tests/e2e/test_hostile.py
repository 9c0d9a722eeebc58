"""The program in a hostile place: streams that are closed or full, servers that lie, files that are of no such kind."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from auditor.__main__ import main
from tests.e2e.scenario import HEALTHY, changed

pytestmark = pytest.mark.slow  # each starts the program


def shell(line: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """A line of shell in which `audit` is the program."""
    script = f'audit() {{ "{sys.executable}" -m auditor "$@"; }}\n{line}'
    env = {**os.environ, **environ}
    return subprocess.run(
        ["bash", "-c", script], check=False, capture_output=True, text=True, timeout=60, cwd=cwd, env=env
    )


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """A folder with an emulated deployment, and an endpoint that is down."""
    (tmp_path / "emulated.yaml").write_text(yaml.safe_dump(HEALTHY))
    down = changed(HEALTHY, {"endpoint.url": "http://127.0.0.1:9/v1"})
    (tmp_path / "down.yaml").write_text(yaml.safe_dump(down))
    return tmp_path


FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")


@FULL
@pytest.mark.parametrize("command", ["run down.yaml --offline", "schema", "--help"])
def test_a_full_stdout_is_one_line(command: str, folder: Path) -> None:
    done = shell(f"audit {command} > /dev/full", folder)
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("audit: stdout cannot be written (No space left on device); send it to another place")
    assert ("; the verdict was: INCONCLUSIVE" in line) == command.startswith("run")


@FULL
@pytest.mark.parametrize(("command", "code"), [("lint emulated.yaml", 0), ("run down.yaml", 3), ("lint none.yaml", 2)])
@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-"])
def test_stderr_may_be_full_or_closed(command: str, code: int, where: str, folder: Path) -> None:
    done = shell(f"audit {command} {where}", folder)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_closed_stdout_changes_no_exit_code(folder: Path) -> None:
    done = shell("audit run emulated.yaml --offline --save kept >&- <&-", folder)
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "")
    assert (folder / "kept" / "report.json").is_file()


def test_a_reader_that_leaves_changes_no_exit_code(folder: Path) -> None:
    done = shell("audit run emulated.yaml --offline | head -1; exit ${PIPESTATUS[0]}", folder)
    assert done.returncode == 4, done.stderr
    assert done.stdout.startswith("INCONCLUSIVE: scenario")


def test_a_current_folder_that_is_gone_is_one_line(folder: Path) -> None:
    (folder / "gone").mkdir()
    done = shell("cd gone; rmdir ../gone; audit run ../down.yaml --offline -o json=x.json", folder)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "internal error" not in done.stderr


def test_a_run_that_cannot_be_saved_says_so_with_its_verdict(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[int] = []

    def fsync(number: int) -> None:
        written.append(number)
        if len(written) > 3:  # run.json, profile.yaml and evidence.json fit, nothing after them
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fsync)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["audit", "run", "down.yaml", "--offline", "--save", "kept", "-o", "json=x.json"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert "audit: kept: the run cannot be saved (No space left on device); the verdict was: INCONCLUSIVE" in said.err
    assert said.out.startswith("INCONCLUSIVE: scenario")
    assert json.loads((folder / "x.json").read_text())["verdict"] == "INCONCLUSIVE"


def test_a_run_tells_what_lint_warns_of(folder: Path) -> None:
    keyed = changed(HEALTHY, {"endpoint.url": "http://127.0.0.1:9/v1", "endpoint.api_key_env": "NO_SUCH_KEY"})
    (folder / "keyed.yaml").write_text(yaml.safe_dump(keyed))
    done = shell("audit run keyed.yaml", folder)
    assert done.returncode == 3
    assert "keyed.yaml:" in done.stderr
    assert "endpoint.api_key_env: the environment variable NO_SUCH_KEY is not set" in done.stderr


SECRETS = {"user": "pass-in-the-url-1", "page": "token-of-the-page-2", "launch": "key-on-the-line-3"}


@pytest.mark.parametrize(
    "command", ["lint", "plan", "run --save kept -o json=x.json", "run --offline -o markdown=x.md"]
)
def test_no_command_shows_what_an_address_or_a_launch_line_holds(command: str, folder: Path) -> None:
    told = changed(
        HEALTHY,
        {
            "endpoint.url": f"http://somebody:{SECRETS['user']}@127.0.0.1:9/v1",
            "endpoint.metrics": [f"http://127.0.0.1:9/metrics?token={SECRETS['page']}"],
            "deployment.launch": f"vllm serve meta-llama/Llama-3.1-8B-Instruct --api-key {SECRETS['launch']}",
        },
    )
    (folder / "profile.yaml").write_text(yaml.safe_dump(told))
    done = shell(f"audit {command} profile.yaml", folder)
    assert done.returncode in (0, 3, 4), done.stderr
    written = [path.read_text() for path in folder.rglob("*") if path.is_file() and path.name != "profile.yaml"]
    if "--save" in command:
        written.append((folder / "kept" / "profile.yaml").read_text())
        assert "somebody" not in written[-1]
    shown = "".join([done.stdout, done.stderr, *written])
    assert [name for name, secret in SECRETS.items() if secret in shown] == []
    assert "127.0.0.1:9" in shown
