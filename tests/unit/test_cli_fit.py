"""`audit fit` on the command line: questions by flags, profiles, batches, exit codes."""

import io
import json
import time
from functools import partial

import pytest
from model_shapes import LLAMA_8B

from auditor.instruments.batch import answered

QUESTION = [
    "--model",
    "llama-3.1-8b",
    "--accelerator",
    "h100-sxm",
    "--engine-version",
    "0.18.0",
    "--max-model-len",
    "16k",
]
LOAD = ["--prompt", "3000:6000", "--output", "300"]
ROW = {"id": "a", "engine": "vllm", "model_config_inline": LLAMA_8B, "kv_pool_gib": 10, "max_model_len": 8192}


@pytest.fixture
def fit(program):
    """Run `audit fit` in this process; gives (exit code, stdout, stderr)."""
    return partial(program, "fit")


@pytest.mark.parametrize(("flight", "code", "word"), [(32, 0, "FITS"), (5000, 1, "DOES NOT FIT")])
def test_the_exit_code_is_the_verdict(fit, flight, code, word):
    found, out, err = fit(*QUESTION, *LOAD, "--concurrency", flight)
    assert (found, err) == (code, "")
    assert out.startswith(f"{word}: it holds ")


def test_json_says_the_same(fit):
    code, out, _ = fit(*QUESTION, *LOAD, "--concurrency", 32, "--json")
    shown = json.loads(out)
    assert (code, shown["verdict"]["status"], shown["verdict"]["exit_code"]) == (0, "fits", 0)
    assert shown["settings"]["max_model_len"] == {"value": 16000, "unit": "tokens", "from": "declared"}


def test_the_target_is_shared_by_replicas(fit):
    _, out, _ = fit(*QUESTION, *LOAD, "--concurrency", 100, "--replicas", 3, "--json")
    shown = json.loads(out)
    assert [shown[key]["value"] for key in ("target_per_replica", "replicas")] == [34, 3]


def test_both_spellings_of_the_memory_fraction_mean_it(fit):
    for flag in ("--gpu-memory-utilization", "--mem-fraction-static"):
        shown = json.loads(fit(*QUESTION, flag, 0.5, "--json")[1])
        assert shown["settings"]["memory_fraction"] == {"value": 0.5, "unit": "share", "from": "declared"}


def test_a_launch_line_stands_for_flags(fit):
    line = "vllm serve llama-3.1-8b --max-model-len 8192 --max-num-seqs 7"
    code, out, _ = fit("--launch", line, "--accelerator", "h100", "--concurrency", 8, *LOAD)
    assert code == 1
    assert "--max-num-seqs lets only 7 run at once" in out


def test_without_an_accelerator_a_pool_that_a_flag_fixes_is_not_known_to_fit(fit):
    code, out, _ = fit("--launch", "llama-server -m llama-3.1-8b -c 8192 -np 1")
    assert code == 4
    told = "MAY FIT: whether a device has the memory is not judged (accelerator: none is named;"
    assert " ".join(out.split()).startswith(told)
    assert fit("--launch", "llama-server -m llama-3.1-8b -c 8192 -np 1", "--accelerator", "h100")[0] == 0


def test_a_profile_is_judged_class_by_class(fit):
    code, out, _ = fit("embedded", "--json")
    shown = json.loads(out)
    assert code == 0
    assert {count["class"] for count in shown["requests"]} == {"chat", "summary", "mix"}
    assert shown["target_per_replica"] == {"value": 64, "unit": "requests", "from": "declared"}


def test_a_profile_without_traffic_or_model_says_so(fit, tmp_path):
    (tmp_path / "p.yaml").write_text("version: 1\nname: x\nendpoint: {url: 'http://127.0.0.1:1/v1'}\n")
    code, _, err = fit(tmp_path / "p.yaml")
    assert code == 2
    assert "no model is declared (deployment.model)" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "model: none is given"),
        (["--model", "llama-3.1-8b"], "accelerator: none is named"),
        (["--model", "llama-3.1-8b", "--accelerator", "h1000"], "accelerator: unknown accelerator 'h1000'"),
        (["--launch", "llama-server -m llama-3.1-8b -c 8192", "--accelerator", "h100x"], "accelerator: unknown"),
        ([*QUESTION, "--prompt", "100"], "--prompt and --output: give both"),
        ([*QUESTION, *LOAD, "--shared-prefix", "x"], "--shared-prefix x: a number of tokens"),
        ([*QUESTION, "--shared-prefix", "10"], "--shared-prefix: is a part of --prompt"),
        ([*QUESTION, "--concurrency", "0"], "--concurrency: a whole number from 1"),
        ([*QUESTION, "--gpu-memory-utilization", "90"], "--gpu-memory-utilization: 90.0, a fraction"),
        (["embedded", "--tp", "2"], "PROFILE says it all: leave out --tensor-parallel"),
        (["embedded", "--batch", "x"], "PROFILE says it all: leave out --batch"),
        (["--batch", "/nowhere.jsonl"], "--batch /nowhere.jsonl: cannot be read (No such file or directory)"),
    ],
)
def test_a_mistake_is_one_line_and_exits_2(fit, arguments, told):
    code, out, err = fit(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"audit: {told}")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--concurrency", "9" * 400], "--concurrency: a whole number from 1 to 1000000000 is needed"),
        (["--replicas", "9" * 400, "--concurrency", 1], "--replicas: a whole number from 1 to 1000000000 is needed"),
        (["--concurrency", 0], "--concurrency: a whole number from 1 to 1000000000 is needed"),
        (["--gpu-memory-gib", "9" * 400], "--gpu-memory-gib: inf, a number of GiB from 0.000001 to 1000000 is needed"),
        (["--gpu-memory-gib", "1e-12"], "--gpu-memory-gib: 1e-12, a number of GiB from 0.000001"),
        (["--gpu-memory-utilization", "nan"], "--gpu-memory-utilization: nan, a fraction above 0"),
        (["--count", "9" * 400], "--count: 999"),
        (["--tp", 0], "--tensor-parallel: 0, a whole number from 1 to 65536 is needed"),
    ],
)
def test_a_number_that_none_has_is_refused_by_its_flag(fit, arguments, told):
    code, out, err = fit(*QUESTION, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"audit: {told}")


@pytest.mark.parametrize(
    "arguments", [["--model", "https://u:passw0rd@host/m"], ["--launch", "vllm serve https://u:passw0rd@host/m"]]
)
def test_a_password_in_a_url_is_not_printed(fit, arguments):
    code, out, err = fit(*arguments, "--accelerator", "h100-sxm")
    assert (code, out) == (2, "")
    assert "***@host/m" in err
    assert "passw0rd" not in err


# --------------------------------------------------------------------------------------------------------------- batch


@pytest.fixture
def batch(fit, tmp_path):
    """The answers to a file of these lines."""

    def call(*lines):
        file = tmp_path / "rows.jsonl"
        file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
        code, out, err = fit("--batch", file)
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    return call


def test_a_batch_answers_each_line_with_what_engines_log(batch):
    """10 GiB / (16 x 128 KiB) = 5,120 blocks; a request of 8,192 tokens takes 512."""
    (found,) = batch(ROW)
    assert found.pop("weights_gib") == pytest.approx(14.96, abs=0.1)  # 8.03e9 parameters of two bytes
    assert found == {"id": "a", "kv_pool_gib": 10, "num_blocks": 5120, "kv_tokens": 81_920, "max_concurrency": 10}


def test_a_pool_that_an_engine_logged_did_start(batch):
    """1 GiB / (6 layers x 2,096 tokens x 1,024 bytes) = 83 blocks: fewer than 256 requests' states need."""
    layers = [
        {"kind": "full", "layers": 6, "num_kv_heads": 2, "head_dim": 128},
        {"kind": "mamba2", "layers": 23, "num_heads": 64, "head_dim": 64, "state_size": 128, "n_groups": 8}
        | {"conv_kernel": 4, "ssm_bytes": 4},
    ]
    row = {"id": "a", "engine": "vllm", "engine_version": "0.20.0", "kv_layers": layers, "max_model_len": 8192}
    known, asked = batch(
        {**row, "max_num_seqs": 256, "kv_pool_gib": 1},
        {**row, "max_num_seqs": 256, "launch": "vllm serve m --kv-cache-memory-bytes 1073741824"},
    )
    why = "max_num_seqs 256 is more than the 83 blocks that can hold a request's state: lower it to those"
    assert (asked["num_blocks"], asked["refusal"]) == (83, why)
    assert "refusal" not in known
    assert f"{why} (it started with this pool, so fewer were asked)" in known["notes"]


L8 = {"engine": "vllm", "model": "llama-3.1-8b", "engine_version": "0.18.0"}


def test_a_context_limit_beyond_the_pool_is_a_refusal(batch):
    """131,072 tokens of 128 KiB are 16 GiB; 24 GB of an L4 leave less beside 15 GiB of weights."""
    (found,) = batch({**L8, "accelerator": "l4"})
    assert found["max_concurrency"] < 1
    assert found["refusal"].startswith("one request of 131,072 tokens (max_model_len) needs more than the pool: ")
    fits = int(found["refusal"].split(": ")[1].split()[0].replace(",", ""))
    assert fits == found["kv_tokens"] - 16  # vLLM keeps one block for itself
    below, above = batch(
        {**L8, "accelerator": "l4", "max_model_len": fits},
        {**L8, "accelerator": "l4", "max_model_len": fits + 16},
    )
    assert "refusal" not in below
    assert "refusal" in above


def test_weights_that_leave_no_pool_are_a_refusal(batch):
    """70.6e9 parameters of two bytes are 131 GiB; an H100 has 80 GB."""
    (found,) = batch({**L8, "model": "llama-3.1-70b", "accelerator": "h100-sxm"})
    assert found["kv_pool_gib"] < 0
    assert found["refusal"].startswith("131.4 GiB of weights and ")
    assert "leave no cache of the " in found["refusal"]


def test_a_batch_tells_what_it_assumed(batch):
    (found,) = batch({"model": "llama-3.1-8b", "accelerator": "h100-sxm"})
    assert "no engine is named: vLLM is assumed" in found["notes"]
    assert any("overhead is assumed" in note for note in found["notes"])


def test_without_a_pool_it_has_a_band(batch):
    row = {key: value for key, value in ROW.items() if key != "kv_pool_gib"} | {"accelerator": "H100-80G"}
    (found,) = batch(row)
    assert found["kv_pool_gib_low"] < found["kv_pool_gib"] < found["kv_pool_gib_high"]


def test_an_error_is_an_answer_and_stops_no_other(batch):
    wrong = {**ROW, "id": "b", "tensor_parallel": 0}
    nameless = {key: value for key, value in ROW.items() if key != "id"}
    found = batch("{", "", "[1]", wrong, nameless, {**ROW, "id": 7})
    assert [(row["id"], "error" in row) for row in found] == [(1, True), (3, True), ("b", True), (5, False), (7, False)]
    assert found[2]["error"] == "tensor_parallel: 0, a whole number from 1 to 65536 is needed"
    assert set(found[2]) == {"id", "error"}


def test_weights_are_told_where_the_pool_cannot_be(batch):
    row = {key: value for key, value in ROW.items() if key != "kv_pool_gib"} | {"accelerator": "no-such"}
    (found,) = batch(row)
    assert set(found) == {"id", "weights_gib", "error"}
    assert str(found["error"]).endswith("or give gpu_memory_gib")


def test_an_accelerator_that_is_not_known_is_an_error_where_the_context_fixes_the_pool(batch):
    """A pool that an engine had needs no device."""
    row = {"id": 1, "model": "llama-3.1-8b", "launch": "llama-server -m x -c 8192", "accelerator": "h100x"}
    asked, known = batch(row, {**row, "kv_pool_gib": 1})
    assert asked["error"].startswith("accelerator: unknown accelerator 'h100x'")
    assert "kv_tokens" not in asked
    assert known["kv_tokens"] == 8192


def test_a_batch_may_come_from_stdin(fit, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(ROW) + "\n"))
    code, out, _ = fit("--batch", "-")
    assert (code, json.loads(out)["num_blocks"]) == (0, 5120)


def test_a_file_that_is_no_text_is_answered_line_by_line(fit, tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(b'\xff\xfe{"id": 1}\n')
    code, out, _ = fit("--batch", tmp_path / "rows.jsonl")
    assert (code, json.loads(out)["id"]) == (0, 1)


def test_a_thousand_rows_take_no_more_than_a_second_of_cpu():
    from auditor.instruments.brief import brief

    lines = [json.dumps({**ROW, "id": i, "kv_pool_gib": 1 + i / 1000, "max_num_seqs": 1 + i}) for i in range(1000)]
    begin = time.process_time()
    assert sum(1 for _ in answered(lines, brief)) == 1000
    assert time.process_time() - begin < 1
