"""Models of GGUF files and repositories that are not at hand, by their names."""

import os
from pathlib import Path

import pytest

from auditor.catalog import gguf_names
from auditor.errors import UsageError
from auditor.instruments.inputs import inputs
from auditor.loading import read_model


@pytest.mark.parametrize(
    ("name", "model", "word"),
    [
        ("gemma-3-27b-it-Q4_K_M.gguf", "gemma-3-27b-it", "q4_k_m"),
        ("/models/Meta-Llama-3.1-8B-Instruct-Q8_0-00001-of-00002.gguf", "Meta-Llama-3.1-8B-Instruct", "q8_0"),
        ("qwen3-8b.IQ4_XS.gguf", "qwen3-8b", "iq4_xs"),
        ("qwen3-8b-f16.gguf", "qwen3-8b", "f16"),
        ("model.gguf", "model", None),
        ("ggml-org/gemma-3-27b-it-GGUF:Q4_K_M", "ggml-org/gemma-3-27b-it", "q4_k_m"),
        ("unsloth/Qwen3-30B-A3B-GGUF:UD-Q4_K_XL", "unsloth/Qwen3-30B-A3B", "q4_k_xl"),
        ("ggml-org/gpt-oss-20b-GGUF", "ggml-org/gpt-oss-20b", "q4_k_m"),
        ("Qwen/Qwen3-8B:q6_k", "Qwen/Qwen3-8B", "q6_k"),
    ],
)
def test_names_tell_model_and_format(name, model, word):
    assert gguf_names.told(name) == (model, word)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "Qwen/Qwen3-8B-FP8", "folder/x", ""])
def test_other_names_tell_nothing(name):
    assert gguf_names.told(name) is None
    assert gguf_names.find(name) is None


def test_a_file_that_is_not_at_hand_is_the_model_of_its_name(tmp_path: Path):
    found = read_model("gemma-3-27b-it-Q4_K_M.gguf", tmp_path)
    assert (found.name, found.quantization) == ("google/gemma-3-27b-it", "q4_k_m")
    assert found.notes[-1].endswith("by its name it is google/gemma-3-27b-it with q4_k_m weights")
    with pytest.raises(UsageError, match=r"zzz-Q4_K_M.gguf is not at hand, and by its name: unknown model 'zzz'"):
        read_model("zzz-Q4_K_M.gguf", tmp_path)


def test_the_repository_of_a_launch_line_tells_the_format():
    line = "llama-server -hf ggml-org/gemma-3-27b-it-GGUF:Q8_0 -c 32768 -np 4"
    for row in ({}, {"model": "gemma-3-27b-it"}):
        found = inputs({**row, "launch": line, "accelerator": "h100-sxm"})
        assert found.geometry.name == "google/gemma-3-27b-it"
        assert (found.settings.quantization, found.settings.weight_bits) == ("q8_0", 8.5)


def test_what_is_no_model_is_told_in_one_line(tmp_path: Path):
    (tmp_path / "bare").mkdir()
    (tmp_path / "odd").mkdir()
    os.mkfifo(tmp_path / "odd" / "config.json")
    os.mkfifo(tmp_path / "x.gguf")
    for name, said in {
        "bare": r"bare: this folder has no config\.json",
        "odd": r"odd/config\.json: not a plain file",
        "x.gguf": r"x\.gguf: not a plain file",
        "n" * 5000: r"^n{60}: cannot be read \(File name too long\)",
    }.items():
        with pytest.raises(UsageError, match=said) as caught:
            read_model(name, tmp_path)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match=r"^~no-such-user/x: no such home folder$"):
        read_model("~no-such-user/x", Path())
