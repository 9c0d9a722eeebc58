"""`--batch`: where lines come from, and what ends them."""

import io
import json
import os
import subprocess
import sys

import pytest
from model_shapes import LLAMA_8B

from auditor.cli.batches import answer_lines
from auditor.errors import UsageError

ROW = {"engine": "vllm", "model_config_inline": LLAMA_8B, "kv_pool_gib": 10, "max_model_len": 8192}


def test_nobody_reads_the_answers_so_no_more_are_computed(monkeypatch, tmp_path):
    (tmp_path / "rows.jsonl").write_text("{}\n" * 100)
    reader, writer = os.pipe()
    os.close(reader)
    asked = []
    with open(writer, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        answer_lines(str(tmp_path / "rows.jsonl"), lambda row: asked.append(row) or {})
    assert asked == [{}]


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_a_stream_without_end_ends_with_its_reader(command):
    """As in `yes ROW | audit fit --batch - | head -1`: the first answer is read, then the pipe is closed."""
    row = json.dumps({"id": 1, **ROW} if command == "fit" else {"id": 1}) + "\n"
    feeder = subprocess.Popen(
        [sys.executable, "-c", f"while True: print({row.strip()!r})"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    program = [sys.executable, "-m", "auditor", command, "--batch", "-"]
    audit = subprocess.Popen(program, stdin=feeder.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        feeder.stdout.close()
        assert json.loads(audit.stdout.readline())["id"] == 1
        audit.stdout.close()
        assert audit.wait(timeout=30) == 0
        assert audit.stderr.read() == ""
    finally:
        feeder.kill()
        feeder.wait()
        audit.kill()
        audit.wait()
        audit.stderr.close()


def test_stdin_is_utf_8_whatever_the_terminal_speaks(monkeypatch, capsys):
    lines = io.TextIOWrapper(io.BytesIO(b'{"id": "\xc3\xa9"}\n{"id": "\xff"}\n'), encoding="ascii")
    monkeypatch.setattr(sys, "stdin", lines)
    answer_lines("-", lambda _: {})
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == ["\u00e9", "\ufffd"]


@pytest.mark.parametrize(
    ("name", "why"),
    [("absent", "No such file or directory"), (".", "Is a directory"), ("x" * 300, "File name too long")],
)
def test_what_cannot_be_read_is_named(tmp_path, name, why):
    with pytest.raises(UsageError, match=rf"cannot be read \({why}\)"):
        answer_lines(str(tmp_path / name), lambda _: {})
