"""Pitfalls of the whole program: keys, models, servers that are not ready, exit codes, and what must not be shown."""

import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from auditor.profile import Slo
from auditor.report.renderers import RENDERERS
from tests.e2e.scenario import HEALTHY, changed
from tests.wire import naive
from tests.wire.benches import evidence_of, report_of
from tests.wire.byteserver import Request, Script
from tests.wire.endpoint import Endpoint
from tests.wire.pitfalls import Row, Scripted, check, measure, naive_bench
from tests.wire.programs import Said, audit, json_reply, serving
from tests.wire.test_pitfalls_bases import REFUSED, every

ASKED = ("--prompt-tokens", 16, "--output-tokens", 2, "--concurrency", 2)
MODELS = '{"data": [{"id": "a"}, {"id": "b"}]}'
KEY = "sk-canary-123"


def _naive(script: Scripted, requests: int) -> dict[str, Any]:
    """What its program would end with: a table, or a traceback."""
    answers, _, _ = naive_bench(script, requests=requests, concurrency=2, output_tokens=2)
    naive.summary(answers)
    return {"exit": naive.exit_code(answers), "ok": len(answers)}


def _seen(said: Said) -> dict[str, Any]:
    told = json.loads(said.out) if said.out.startswith("{") else {}
    counts = told.get("requests", {})
    line = said.err.strip().splitlines()[-1] if said.err.strip() else ""
    return {
        "exit": said.code,
        "detail": line,
        "ok": counts.get("ok"),
        "failed": counts.get("failed"),
        "errors": told.get("errors"),
        "estimated": told.get("tokens_estimated"),
        "traceback": "Traceback" in said.err,
    }


def probe_row(
    name: str,
    source: str,
    script: Scripted,
    *more: object,
    requests: int = 4,
    environ: Mapping[str, str] | None = None,
    stays: str = "",
    **want: Any,
) -> Row:
    """`audit probe` on a scripted endpoint: `want` in the names of `_seen`."""

    def ours() -> Mapping[str, Any]:
        with serving(script) as server:
            command = ("probe", "--url", server.url, *ASKED, "--requests", requests, "--json", *more)
            return _seen(audit(*command, folder=Path(os.curdir), environ=environ))

    return Row(
        name=name,
        source=source,
        want={"traceback": False} | want,
        ours=ours,
        naive=lambda: _naive(script, requests),
        stays=stays,
    )


def _keyed(request: Request, number: int) -> Script:
    """Nothing without the key."""
    if request.header("authorization") != f"Bearer {KEY}":
        return json_reply('{"error": "Unauthorized"}', "401 Unauthorized")
    return Endpoint()(request, number)


def _named(request: Request, number: int) -> Script:
    """Serves a and b, and says so."""
    if request.path == "/v1/models":
        return json_reply(MODELS)
    if json.loads(request.body or b"{}").get("model") in ("a", "b"):
        return Endpoint()(request, number)
    return json_reply('{"error": {"message": "The model does not exist.", "code": 404}}', "404 Not Found")


ROWS: list[Row] = [
    probe_row(
        "no key: one line with what to do, and no table of zeros",
        "https://github.com/MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks/issues/117",
        _keyed,
        exit=3,
        detail="--api-key-env: the server wants a key .401.",
    ),
    probe_row(
        "a wrong key is named by its variable",
        "https://github.com/SeraphimSerapis/tool-eval-bench/issues/36",
        _keyed,
        *("--api-key-env", "LLM_KEY"),
        environ={"LLM_KEY": "wrong"},
        exit=3,
        detail="refuses the key in LLM_KEY",
    ),
    probe_row(
        "the key goes along everywhere",
        "https://github.com/vllm-project/guidellm/issues/504",
        _keyed,
        *("--api-key-env", "LLM_KEY"),
        environ={"LLM_KEY": KEY},
        exit=0,
        ok=4,
    ),
    probe_row(
        "a model that is not served: the names of those that are",
        "https://github.com/vllm-project/vllm/issues/13117",
        _named,
        *("--model", "c"),
        exit=3,
        detail="has no model c .*a, b",
    ),
    probe_row(
        "several models and none named: which ones",
        "https://github.com/vllm-project/vllm/issues/19047",
        _named,
        exit=3,
        detail="a, b",
    ),
    probe_row(
        "half of the requests fail: counted, told, exit 1",
        "https://github.com/gpustack/gpustack/issues/1677",
        Endpoint(lambda number: "ok" if number % 2 else "fail"),
        exit=1,
        ok=2,
        failed=2,
        errors={"http_5xx": 2},
    ),
    probe_row(
        "a stream that stands still ends, and is a failure",
        "https://github.com/kubernetes-sigs/inference-perf/issues/148",
        Endpoint(lambda number: "stall" if number == 2 else "ok"),
        *("--stall", "300ms"),
        exit=1,
        ok=3,
        errors={"stalled": 1},
    ),
    probe_row(
        "no usage: tokens are estimates, and it says so",
        "https://github.com/ray-project/llmperf/pull/81",
        Endpoint(usage=False),
        exit=0,
        ok=4,
        estimated=4,
        stays="a table of four replies is all that it promises",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_program_tells_and_exits_as_it_should(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(row)


# --------------------------------------------------------------------------------------------------------------- others


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def test_an_endpoint_that_never_was_is_one_line_and_exit_3(tmp_path: Path) -> None:
    """A harness that ends with no result and exit 0: https://github.com/llm-d/llm-d-benchmark/issues/1231."""
    said = audit("probe", "--url", f"http://127.0.0.1:{_free_port()}/v1", *ASKED, "--requests", 4, folder=tmp_path)
    assert (said.code, said.out) == (3, "")
    assert "connection refused" in said.err
    assert len([line for line in said.err.splitlines() if line.startswith("audit: ")]) == 1


def test_a_server_that_still_starts_is_waited_for(tmp_path: Path) -> None:
    """20 connection errors, none completed, then a division by zero: https://github.com/llm-d/llm-d-benchmark/pull/680.

    The server is there after 0.3 s; a model that loads answers 503 once more.
    """
    port, asked = _free_port(), []

    def loading(request: Request, number: int) -> Script:
        asked.append(request.path)
        if len(asked) == 1:
            return json_reply('{"error": "loading"}', "503 Service Unavailable")
        return Endpoint()(request, number)

    with ExitStack() as later:
        timer = threading.Timer(0.3, lambda: later.enter_context(serving(loading, port=port)))
        timer.start()
        url = f"http://127.0.0.1:{port}/v1"
        said = audit("probe", "--url", url, *ASKED, "--requests", 4, "--wait", "20s", "--json", folder=tmp_path)
        timer.join()
    assert (said.code, _seen(said)["ok"]) == (0, 4)
    assert "waiting up to 20 s" in said.err


def _echo(request: Request, number: int) -> Script:
    """Every fourth generation fails, with all the credentials that it was given in its message."""
    if request.path.endswith("completions") and number % 4 == 3:
        given = f"{request.header('authorization')} {request.header('x-api-key')}"
        body = json.dumps({"error": {"message": f"rejected: {given}", "code": 500}})
        return json_reply(body, "500 Internal Server Error")
    return Endpoint()(request, number)


def test_no_credential_is_shown_or_written(tmp_path: Path) -> None:
    """Keys in argument dumps, logs and metadata.

    https://github.com/vllm-project/vllm/pull/56662, https://github.com/triton-inference-server/perf_analyzer/pull/414,
    https://github.com/ai-dynamo/aiperf/pull/972; a redaction that broke the request itself:
    https://github.com/NVIDIA-NeMo/Guardrails/pull/1501
    """
    for flags in (("--json",), ()):
        with serving(_echo) as server:
            said = audit(
                *("probe", "--url", server.url.replace("//", "//user:pw-canary-4@"), *ASKED, "--requests", 12),
                *("--api-key-env", "LLM_KEY", "--header", "x-api-key: sk-header-5", "--requests-out", "rows.jsonl"),
                *flags,
                folder=tmp_path,
                environ={"LLM_KEY": KEY},
            )
            sent = {(r.header("authorization"), r.header("x-api-key")) for r in server.requests if r.body}
        assert sent == {(f"Bearer {KEY}", "sk-header-5")}
        assert "rejected" in said.everything
        shown = [secret for secret in (KEY, "pw-canary-4", "sk-header-5") if secret in said.everything]
        assert shown == []
        (tmp_path / "rows.jsonl").unlink()


def test_an_slo_that_does_not_exist_is_an_error_and_never_a_pass(tmp_path: Path) -> None:
    """A threshold on a metric that is not there never fails: https://github.com/grafana/k6/issues/1526."""
    for wrong, near in (({"ttft_p59": "200ms"}, "ttft"), ({"ttfft": {"p95": "1s"}}, "ttft")):
        (tmp_path / "p.json").write_text(json.dumps(changed(HEALTHY, {"slo": wrong})))
        said = audit("run", "p.json", folder=tmp_path)
        assert (said.code, said.out) == (2, "")
        assert f"did you mean '{near}'" in said.err


@pytest.mark.skipif(sys.platform == "win32", reason="files are not counted there")
def test_too_few_open_files_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    """A third of 1,500 requests failed silently: https://github.com/vllm-project/vllm/pull/21938."""
    with serving(Endpoint()) as server:
        command = ["probe", "--url", server.url, "--prompt-tokens", "16", "--output-tokens", "2", "--requests", "100"]
        done = subprocess.run(
            [sys.executable, "-m", "auditor", *command, "--concurrency", "100"],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
        )
        generations = [r for r in server.requests if "completions" in r.path]
    assert done.returncode == 2
    assert "open files" in done.stderr
    assert generations == []


def test_every_format_tells_one_verdict() -> None:
    """FAIL in the text and exit 0: https://github.com/EntityProcess/agentv/issues/882."""
    got, _ = measure(every(2, REFUSED), requests=100, concurrency=10)
    report = report_of(evidence_of(got, Slo(ttft={"p95": 0.2})))
    assert (report.verdict, report.exit_code) == ("NOT READY", 1)
    for name, render in RENDERERS.items():
        told = {"csv": ",http_5xx,", "gitlab": '"severity": "blocker"'}.get(name, "NOT READY")
        assert told in render(report), name
