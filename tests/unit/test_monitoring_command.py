"""`audit coverage`: the set as a table or JSON, each file as a line, and errors in one line."""

import json
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from auditor.cli.coverage import command
from auditor.errors import NothingMeasured, UsageError

KV = "max(vllm:kv_cache_usage_perc)"


@pytest.fixture
def board(tmp_path: Path) -> Path:
    path = tmp_path / "board.json"
    path.write_text(json.dumps({"panels": [{"title": "memory", "targets": [{"expr": KV}, {"expr": "sum("}]}]}))
    return path


def test_the_set_as_a_table(board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command([board], engine="vllm", engine_version="0.18.0")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["ttft", "missing", "-"]
    assert lines[3].split() == ["memory", "valid", "vllm:kv_cache_usage_perc"]
    assert lines[4].startswith("unreadable      ")
    assert lines[-2].endswith("0.18.0)")
    assert lines[-1].strip() == "audit coverage --fix prints them, and the alerts"


def test_the_set_as_json_beside_a_saved_page(board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.txt"
    page.write_text("# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 0.5\n")
    command([board], engine="vllm", metrics=[str(page)], as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["concepts"]["memory"]["rung"] == "parses"
    assert found["offered"] == {"kv_usage": ["vllm:kv_cache_usage_perc"]}
    assert found["pages"] == {str(page): "vLLM 0.9.2 or later"}
    assert set(found["remedies"]) == {"ttft", "tps"}


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_what_an_engine_cannot_show_is_said_with_what_can(board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command([board], engine="llamacpp")
    text = said(capsys)
    assert "llama.cpp has no metric of it: put a gateway that measures it in front and draw" in text
    assert "llama.cpp shows no KV usage: run a GPU exporter" in text
    assert "add a panel with sum(rate(llamacpp:tokens_predicted_total[5m])) (for llama.cpp)" in text
    command([board], engine="tgi")
    assert "until then the sum of tgi_request_queue_duration and tgi_batch_inference_duration" in said(capsys)


def test_a_page_tells_the_engine_and_its_names_are_those_advised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, empty = tmp_path / "page.txt", tmp_path / "empty.json"
    page.write_text("vllm:gpu_cache_usage_perc 0.5\nvllm:avg_generation_throughput_toks_per_s 9\n")
    empty.write_text('{"panels": []}')
    command([empty], metrics=[str(page)])
    text = said(capsys)
    assert "page.txt: vLLM before 0.7.0" in text
    assert "add a panel with max(vllm:gpu_cache_usage_perc) (for vLLM)" in text


def test_each_file_is_a_line_and_an_error_is_an_answer(
    board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = tmp_path / "helm.yaml"
    template.write_text("{{- range .Values.x }}\n")
    command([board, template, tmp_path / "none.json"], each=True)
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["ttft"], first["tps"], first["memory"]) == ("missing", "missing", "covered")
    assert first["evidence"]["memory"]["names"] == ["vllm:kv_cache_usage_perc"]
    assert second["memory"] == "unreadable"
    assert third["error"].endswith("none.json: there is no such file")


def test_mistakes_are_one_line(board: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file"):
        command([tmp_path / "none.json"])
    with pytest.raises(UsageError, match="known: vllm"):
        command([board], engine="vlm")
    with pytest.raises(UsageError, match="no metrics page"):
        command([board], metrics=[str(board)])
    with pytest.raises(NothingMeasured, match=r"127\.0\.0\.1:1"):
        command([board], metrics=["http://127.0.0.1:1/metrics"])


def test_a_page_that_never_ends_is_not_waited_for(board: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
            while True:
                connection.sendall(b"a")
                time.sleep(0.02)

    monkeypatch.setattr("auditor.cli.coverage._TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dripping = threading.Thread(target=drip, args=(listener,))
        dripping.start()
        with pytest.raises(NothingMeasured, match=r"the page did not end within 0\.4 s"):
            command([board], metrics=[f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"])
        dripping.join(5)
    assert not dripping.is_alive()


def test_who_has_no_dashboard_gets_one_to_begin_with(capsys: pytest.CaptureFixture[str]) -> None:
    command(engine="vllm", engine_version="0.18.0", fix=True, as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed["dashboard"]["panels"][0]["title"] == "Time to first token"
    assert printed["rules"]["groups"][0]["rules"][0]["alert"] == "TimeToFirstTokenHigh"
    with pytest.raises(UsageError, match="name dashboards and rule files"):
        command(engine="vllm")
