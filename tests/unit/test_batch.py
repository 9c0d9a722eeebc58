"""JSON lines in, JSON lines out: whatever a line holds, it gets one answer and stops no other."""

import io
import json

import pytest
from model_shapes import LLAMA_8B

from auditor.instruments.batch import MOST, answered, bounded
from auditor.instruments.brief import brief

ROW = {"id": "a", "engine": "vllm", "model_config_inline": LLAMA_8B, "kv_pool_gib": 10, "max_model_len": 8192}
LONG = int("9" * 400)


def answers(*lines, answer=brief):
    return [
        json.loads(line, parse_constant=pytest.fail)
        for line in answered([x if isinstance(x, str) else json.dumps(x) for x in lines], answer)
    ]


@pytest.mark.parametrize("key", ["gpu_memory_gib", "weights_gib", "kv_pool_gib", "weight_file_bytes", "count"])
def test_a_number_of_400_digits_is_refused_in_its_row_alone(key):
    first, second = answers({**ROW, key: LONG}, {**ROW, "id": "b"})
    assert first["id"] == "a"
    assert first["error"].startswith(f"{key}: 999")
    assert len(first["error"]) < 160
    assert second["num_blocks"] == 5120


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kv_bytes_per_element", 1e-320),
        ("kv_bytes_per_element", 1e9),
        ("gpu_memory_gib", 1e-12),
        ("kv_pool_gib", 5e-324),
        ("weights_gib", 1e-300),
        ("weight_file_bytes", 0.25),
        ("ssm_bytes", 1e-300),
        ("memory_fraction", 1e-300),
        ("swa_full_tokens_ratio", 1e300),
        ("mamba_full_ratio", 1e-300),
    ],
)
def test_amounts_that_no_deployment_has_are_refused(key, value):
    (found,) = answers({**ROW, key: value})
    assert set(found) == {"id", "error"}
    assert found["error"].startswith(f"{key}: {value!r}, ")


def test_a_defect_of_the_program_is_the_answer_of_its_row():
    def broken(row):
        return {"x": 1 / row["n"]}

    first, second = answers({"id": "r", "n": 0}, {"n": 2}, answer=broken)
    assert first == {
        "id": "r",
        "error": "line 1: internal error: ZeroDivisionError: division by zero (please report it)",
    }
    assert second == {"id": 2, "x": 0.5}


def test_answers_are_json_whatever_was_computed():
    """Python's NaN and Infinity are no JSON: a number that is none is left out of an answer by its name."""
    (found,) = answers({"id": 1}, answer=lambda _: {"x": float("nan"), "y": float("inf"), "z": 1.0})
    assert found == {
        "id": 1,
        "error": "line 1: x, y: no finite number comes of this row: check the sizes of its values",
    }


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_json_is_not_read(word):
    (found,) = answers(f'{{"id": {word}}}')
    assert found == {"id": 1, "error": f"line 1: no JSON ({word} is no number of JSON)"}


def test_an_id_that_overflows_is_not_echoed():
    (found,) = answers('{"id": 1e999}')
    assert found["id"] == 1


@pytest.mark.parametrize("identity", [[], {}, None, True, "x" * 2000, LONG])
def test_an_id_that_names_nothing_gives_way_to_the_line(identity):
    (found,) = answers({**ROW, "id": identity})
    assert found["id"] == 1


def test_a_key_given_twice_is_refused():
    (found,) = answers('{"id": "a", "count": 1, "count": 8}')
    assert found["error"] == "line 1: no JSON (the key 'count' stands in it twice)"


def test_a_byte_order_mark_is_no_part_of_the_first_line():
    assert answers("\ufeff" + json.dumps(ROW))[0]["num_blocks"] == 5120


def test_errors_are_short_however_long_the_line_is():
    (found,) = answers(json.dumps({**ROW, "model": "x" * 10_000_000, "model_config_inline": None}))
    assert len(found["error"]) < 700
    (found,) = answers(json.dumps({**ROW, "y" * 1_000_000: 1}))
    assert len(found["error"]) < 700


def test_a_line_of_no_end_is_not_kept():
    """Of a line longer than 16 MiB only the length is told; the next is answered."""
    stream = io.StringIO("x" * (MOST + 5) + "\n" + json.dumps({"id": 5}) + "\n")
    found = [json.loads(line) for line in answered(bounded(stream), lambda _: {})]
    assert found == [{"id": 1, "error": "line 1: longer than 16 MiB"}, {"id": 5}]


def test_lines_without_end_end_the_batch():
    class Zero(io.StringIO):
        read = 0

        def readline(self, size=-1):
            self.read += size
            assert self.read < MOST * 40
            return "\0" * size

    found = [json.loads(line) for line in answered(bounded(Zero()), lambda _: {})]
    assert found == [{"id": 1, "error": "line 1: longer than 16 MiB"}]


def test_the_last_line_may_lack_its_end():
    assert list(bounded(io.StringIO("a\nb"))) == ["a\n", "b"]


def test_a_password_in_a_url_is_not_echoed():
    found = answers(
        {"id": 1, "model": "https://user:passw0rd@host/m"},
        {"id": 2, "launch": "vllm serve https://user:passw0rd@host/m"},
        {"id": 3, "https://user:passw0rd@host/m": 1},
    )
    assert "passw0rd" not in str(found)
    assert all("***@host" in row["error"] for row in found)
