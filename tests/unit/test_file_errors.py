"""Damaged files end in one line that speaks of the file, not of the functions that read it."""

import json
import struct

import pytest

from auditor.catalog.gguf_header import read_header
from auditor.catalog.safetensors import index_bytes, tensor_sizes
from auditor.errors import UsageError
from auditor.instruments.batch import answered
from auditor.instruments.inputs import inputs

DEEP = "[" * 100_000


def header(content):
    written = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(written)) + written


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it ends in its first 8 bytes"),
        (b"\5\0\0", "it ends in its first 8 bytes"),
        (header([1]), "the header is no JSON object"),
        (header({"a": None}), "tensor 'a' has no data_offsets"),
        (header({"a": {}}), "tensor 'a' has no data_offsets"),
        (header({"a": {"data_offsets": 1}}), "tensor 'a' has no data_offsets"),
        (header({"a": {"data_offsets": [1, 2, 3]}}), "tensor 'a' has no data_offsets"),
        (header({"a": {"data_offsets": [2, 1]}}), "a tensor's data_offsets are out of order"),
        (header(DEEP.encode()), "nested too deeply"),
        (header(b'{"\xff": 1}'), "no UTF-8 text"),
    ],
)
def test_a_damaged_safetensors_file(tmp_path, content, why):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(UsageError) as told:
        tensor_sizes(tmp_path)
    assert str(told.value) == f"{tmp_path / 'model.safetensors'}: not a safetensors file ({why})"


def test_a_damaged_index(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(DEEP)
    with pytest.raises(UsageError, match=r"index.json: not JSON \(nested too deeply\)"):
        index_bytes(tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b"nonsense", "it does not begin with GGUF"),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<IIQQ", 9, 8, 10_000, 3) + b"abc",
            "it ends in the middle of its header",
        ),
    ],
)
def test_a_damaged_gguf_file(tmp_path, content, why):
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(UsageError) as told:
        read_header(tmp_path / "m.gguf")
    assert str(told.value) == f"{tmp_path / 'm.gguf'}: not a readable GGUF file ({why})"


def test_a_config_nested_too_deeply(tmp_path):
    (tmp_path / "config.json").write_text(DEEP)
    with pytest.raises(UsageError, match=r"not a readable config.json \(nested too deeply\)"):
        inputs({"model": str(tmp_path)})


def test_a_name_that_no_file_has():
    with pytest.raises(UsageError, match=r"model_config: x+: cannot be read \(File name too long\)"):
        inputs({"model_config": "x" * 300})


def test_a_row_nested_too_deeply():
    (found,) = answered([DEEP], lambda _: {})
    assert json.loads(found) == {"id": 1, "error": "line 1: no JSON (nested too deeply)"}
