"""Dashboards, rules, models and accelerators that a profile names."""

import json
import os
from pathlib import Path

import pytest

from auditor.errors import ProfileError, UsageError
from auditor.loading import TextFile, files, load_monitoring, load_profile, resolve_device, resolve_model
from auditor.loading.files import FileError, read_text

HEAD = "version: 1\nname: t\nendpoint: {url: 'http://127.0.0.1:8000/v1'}\n"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def load(tmp_path):
    def load(text: str):
        path = tmp_path / "p.yaml"
        path.write_text(HEAD + text)
        return load_profile(path, {})

    return load


# ---------------------------------------------------------------------------------------------------------- monitoring


def test_globs_are_relative_to_the_profile_and_sorted(load, tmp_path):
    (tmp_path / "grafana").mkdir()
    for name in ("b.json", "a.json", "c.txt"):
        (tmp_path / "grafana" / name).write_text(name)
    (tmp_path / "alerts.yaml").write_text("groups: []")
    loaded = load("monitoring: {dashboards: ['grafana/*.json', grafana/a.json], rules: [alerts.yaml]}")
    assert load_monitoring(loaded) == (
        TextFile("grafana/a.json", "a.json", "dashboard"),
        TextFile("grafana/b.json", "b.json", "dashboard"),
        TextFile("alerts.yaml", "groups: []", "rules"),
    )


def test_absolute_patterns_and_files_outside_the_folder(load, tmp_path):
    (tmp_path / "x.json").write_text("x")
    loaded = load(f"monitoring: {{dashboards: ['{tmp_path}/*.json']}}")
    assert [file.name for file in load_monitoring(loaded)] == ["x.json"]
    outside = tmp_path.parent / f"{tmp_path.name}-outside.json"
    outside.write_text("y")
    loaded = load(f"monitoring: {{dashboards: ['{outside}']}}")
    assert [file.name for file in load_monitoring(loaded)] == [outside.as_posix()]


def test_every_missing_or_unreadable_file_is_a_problem_with_its_line(load, tmp_path):
    (tmp_path / "bad.json").write_bytes(b"{\n\xff}")
    loaded = load("monitoring:\n  dashboards: [none.json, bad.json, '']\n  rules: ['*.rules', '**x/y']\n")
    with pytest.raises(ProfileError) as caught:
        load_monitoring(loaded)
    path = loaded.path
    assert [str(p) for p in caught.value.problems] == [
        f"{path}:5:16: monitoring.dashboards.0: no file matches none.json",
        f"{path}:5:37: monitoring.dashboards.2: no file matches ",
        f"{path}:6:11: monitoring.rules.0: no file matches *.rules",
        f"{path}:6:22: monitoring.rules.1: no file matches **x/y",
        "bad.json:2:1: is not UTF-8 (byte 0xff)",
    ]


def test_no_monitoring_no_files(load):
    assert load_monitoring(load("")) == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    path = tmp_path / "x"
    path.write_text("x")
    path.chmod(0)
    with pytest.raises(FileError, match="cannot be read"):
        read_text(path)


def test_a_name_that_no_file_can_have(tmp_path):
    with pytest.raises(FileError, match="cannot be read"):
        read_text(tmp_path / "a\0b")


# ---------------------------------------------------------------------------------------------- models and accelerators


def test_models_come_from_the_catalogue_a_folder_or_a_config(load, tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(CONFIG))
    for name in ("tiny", "tiny/config.json", str(tmp_path / "tiny")):
        geometry, reason = resolve_model(load(f"deployment: {{model: '{name}'}}"))
        assert reason is None
        assert geometry is not None
        assert (geometry.hidden_size, geometry.layer_count, geometry.vocab_size) == (64, 2, 256)
    geometry, _ = resolve_model(load("deployment: {model: meta-llama/Llama-3.1-8B-Instruct}"))
    assert geometry is not None
    assert geometry.hidden_size == 4096


def test_the_launch_lines_model_stands_in_and_the_explicit_one_wins(load):
    launch = "launch: 'vllm serve meta-llama/Llama-3.1-8B-Instruct'"
    assert resolve_model(load(f"deployment: {{{launch}}}"))[0] is not None
    assert resolve_model(load(f"deployment: {{model: no-such-model, {launch}}}"))[0] is None


@pytest.mark.parametrize("model", ["no-such-model", "none.gguf", "none/config.json", "~nobody/x.json"])
def test_a_model_that_is_not_there_is_one_line(load, model):
    geometry, reason = resolve_model(load(f"deployment: {{model: {model}}}"))
    assert geometry is None
    assert reason is not None
    assert reason.startswith("deployment.model: ")
    assert "\n" not in reason


def test_a_file_that_is_no_gguf(load, tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"not a model")
    geometry, reason = resolve_model(load("deployment: {model: x.gguf}"))
    assert geometry is None
    assert reason is not None
    assert reason.startswith("deployment.model: ")


def test_nothing_declared_says_so(load):
    assert resolve_model(load("")) == (None, "no model is declared (deployment.model)")
    assert resolve_device(load("")) == (None, "no accelerator is declared (deployment.accelerator)")


def test_accelerators_come_from_the_catalogue(load):
    device, reason = resolve_device(load("deployment: {accelerator: h100-sxm}"))
    assert reason is None
    assert device is not None
    assert device.memory_bytes > 70e9
    device, reason = resolve_device(load("deployment: {accelerator: h1000}"))
    assert device is None
    assert reason is not None
    assert reason.startswith("deployment.accelerator: ")


def test_a_pipe_is_read_to_its_end_and_not_waited_for_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PIPE_WAIT", 0.2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileError, match=r"is a pipe from which nothing came for 0\.2 s"):
        read_text(pipe)
    held = os.open(pipe, os.O_RDWR)  # so that the writer finds a reader
    os.write(held, "version: 1 \u00e9".encode())
    with pytest.raises(FileError, match="nothing came"):  # a writer that never ends
        read_text(pipe)
    os.close(held)
    read_end, write_end = os.pipe()
    os.write(write_end, b"name: x")
    os.close(write_end)
    assert read_text(Path(f"/dev/fd/{read_end}")) == "name: x"
    os.close(read_end)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_a_name_that_no_file_can_have_is_one_line(name):
    with pytest.raises(UsageError) as caught:
        load_profile(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 800


def test_a_pattern_that_matches_thousands_is_refused(tmp_path):
    (tmp_path / "many").mkdir()
    for number in range(501):
        (tmp_path / "many" / f"{number}.json").write_text("{}")
    profile = tmp_path / "p.yaml"
    profile.write_text(
        "version: 1\nname: t\nendpoint: {url: http://127.0.0.1:1/v1}\nmonitoring:\n  dashboards: [many/*.json]\n"
        f"  rules: [{'y' * 5000}]\n"
    )
    with pytest.raises(ProfileError) as caught:
        load_monitoring(load_profile(profile))
    first, second = caught.value.problems
    assert (first.line, first.message) == (5, "monitoring.dashboards.0: many/*.json matches more than 500 files")
    assert (second.line, second.message[:46]) == (6, "monitoring.rules.0: no file matches yyyyyyyyyy")
