"""`-o FORMAT=PATH`: checked early, written whole, stdout clean."""

import errno
import io
import os
import sys
from pathlib import Path

import pytest
from made_reports import REPORT

from auditor.cli.output import Target, deliver, targets, write
from auditor.errors import UsageError
from auditor.report.renderers import RENDERERS


def test_the_terminal_report_is_the_default(tmp_path):
    file = tmp_path / "report.json"
    assert targets(()) == (Target("terminal"),)
    assert targets([f"json={file}"]) == (Target("json", file), Target("terminal"))
    assert targets([f"json={file}"], always_print=False) == (Target("json", file),)
    assert targets(["json=-"]) == (Target("json"),)


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        (["json"], "needs FORMAT=PATH"),
        (["json="], "needs FORMAT=PATH"),
        (["jsom=x"], "did you mean json?"),
        (["pdf=x"], "formats: csv, github, gitlab, html, json, junit, markdown, prometheus, sarif, terminal"),
        (["json=-", "markdown=-"], "two reports for stdout"),
        (["json=nowhere/deep/x.json"], "does not exist; create it first"),
        (["json=."], "cannot be written (Is a directory)"),
    ],
)
def test_mistakes_are_one_line(specs, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        targets(specs)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_two_reports_for_one_file(tmp_path):
    with pytest.raises(UsageError, match="two reports for"):
        targets([f"json={tmp_path}/a", f"markdown={tmp_path}/b/../a"])


def test_the_check_leaves_nothing_and_changes_nothing(tmp_path):
    old = tmp_path / "old.json"
    old.write_text("kept")
    targets([f"json={old}", f"markdown={tmp_path / 'new.md'}"])
    assert old.read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]


def test_every_report_is_written(tmp_path, capsys):
    file = tmp_path / "report.md"
    deliver(REPORT, (Target("markdown", file), Target("json")))
    assert file.read_text().startswith("# NOT READY")
    assert capsys.readouterr().out.startswith('{\n  "schema_version": 1')


def test_a_full_disk_loses_no_other_report(tmp_path, capsys):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    file = tmp_path / "report.md"
    with pytest.raises(UsageError, match=r"/dev/full .*the verdict was: NOT READY"):
        deliver(REPORT, (Target("json", type(file)("/dev/full")), Target("markdown", file), Target("terminal")))
    assert file.exists()
    assert "NOT READY" in capsys.readouterr().out


def test_colour_only_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Terminal())
    deliver(REPORT, (Target("terminal"),))
    assert "\x1b[" in sys.stdout.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", Terminal())
    deliver(REPORT, (Target("terminal"),))
    assert "\x1b[" not in sys.stdout.getvalue()


def test_a_reader_that_went_away_is_no_error(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        write("nobody reads this\n")
        write("nor this\n")


# ---------------------------------------------------------------------------------------------------- a page for others


def test_a_page_of_metrics_is_replaced_as_a_whole(tmp_path):
    page, link = tmp_path / "audit.prom", tmp_path / "link.prom"
    page.write_text("old")
    link.symlink_to(page)
    with page.open() as reader:  # a collector that began to read
        deliver(REPORT, (Target("prometheus", link),))
        assert reader.read() == "old"
    assert page.read_text() == RENDERERS["prometheus"](REPORT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.prom", "link.prom"]


def test_a_page_of_metrics_that_cannot_be_written_stays_what_it_was(tmp_path, monkeypatch):
    page = tmp_path / "audit.prom"
    page.write_text("old")

    def full(path, *_, **__):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(UsageError, match="No space left on device"):
        deliver(REPORT, (Target("prometheus", page),))
    assert page.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["audit.prom"]


def test_a_page_of_metrics_in_a_folder_that_takes_no_new_file(tmp_path, monkeypatch):
    page = tmp_path / "audit.prom"
    page.write_text("old")

    def refused(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("pathlib.Path.replace", refused)
    deliver(REPORT, (Target("prometheus", page),))
    assert page.read_text() == RENDERERS["prometheus"](REPORT)
    assert [path.name for path in tmp_path.iterdir()] == ["audit.prom"]


def test_metrics_may_go_into_a_pipe():
    deliver(REPORT, (Target("prometheus", Path("/dev/null")),))
    assert not Path("/dev/null").is_file()


# ----------------------------------------------------------------------------------------------------- GitHub's summary


def test_annotations_bring_the_summary_of_the_step(tmp_path, monkeypatch, capsys):
    page = tmp_path / "summary.md"
    page.write_text("what was there\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    deliver(REPORT, targets(["github=-"]))
    assert capsys.readouterr().out == RENDERERS["github"](REPORT)
    assert page.read_text() == "what was there\n" + RENDERERS["markdown"](REPORT)


@pytest.mark.parametrize("specs", [["json=-"], ["github=-", "markdown=summary.md"], ["github=-", "html=summary.md"]])
def test_the_summary_is_left_alone_without_annotations_or_where_it_has_a_report(specs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    deliver(REPORT, targets(specs))
    written = (tmp_path / "summary.md").read_text() if len(specs) > 1 else None
    assert written == (RENDERERS[specs[1].partition("=")[0]](REPORT) if len(specs) > 1 else None)
    assert (tmp_path / "summary.md").exists() == (len(specs) > 1)


def test_without_a_page_there_is_no_summary(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "")
    deliver(REPORT, targets([f"github={tmp_path / 'x'}", f"json={tmp_path / 'y'}"]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


def test_a_summary_page_holds_a_megabyte(tmp_path, monkeypatch):
    page = tmp_path / "summary.md"
    page.write_bytes(b"x" * 999_000)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    deliver(REPORT, targets(["github=-"]))
    added = page.read_bytes()[999_000:]
    assert 0 < len(added) <= 1000
    assert added.endswith(b"\n")
    assert RENDERERS["markdown"](REPORT).encode().startswith(added)


def test_a_summary_that_cannot_be_written_is_said_with_the_verdict(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "summary.md"))
    with pytest.raises(UsageError, match=r"summary\.md cannot be written .*the verdict was: NOT READY"):
        deliver(REPORT, targets(["github=-"]))


@pytest.mark.parametrize(
    "name", ["run.json", "profile.yaml", "evidence.json", "measurements.jsonl", "samples-00.jsonl"]
)
def test_no_report_is_written_over_what_a_saved_run_is_judged_from(tmp_path, name):
    file = tmp_path / name
    file.write_text("kept")
    with pytest.raises(UsageError, match="is a part of the saved run; choose another path"):
        targets([f"json={tmp_path}/../{tmp_path.name}/{name}"], keep=tmp_path)
    assert file.read_text() == "kept"
    assert targets([f"json={tmp_path / 'page.json'}"], keep=tmp_path)[0] == Target("json", tmp_path / "page.json")
