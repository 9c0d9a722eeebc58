"""`audit predict`: rows in, figures out; the answer in detail, as data and as text."""

import json
import re
import sys
from typing import Any

import pytest

from auditor.__main__ import main
from auditor.errors import UsageError
from auditor.instruments.forecast import forecast
from auditor.instruments.guess import guess
from auditor.instruments.load import asked
from auditor.instruments.predict import Predicted, predict
from auditor.instruments.question import one_class
from auditor.report.predict import render

ROW: dict[str, Any] = {
    "model": "llama-3.1-70b",
    "accelerator": "h100-sxm",
    "count": 2,
    "tensor_parallel": 2,
    "quantization": "fp8",
    "engine": "vllm 0.18.0",
    "batch": 32,
    "prompt_tokens": 4000,
    "output_tokens": 500,
}


def told(**changes: Any) -> Predicted:
    found, load = asked({**ROW, **changes})
    return predict(found, load)


# --------------------------------------------------------------------------------------------------------------- batch


def test_a_row_gets_the_metric_it_asks_for():
    answer = guess({**ROW, "metric": "tpot_ms", "context_tokens": 4250})
    assert set(answer) == {"tpot_ms", "low", "high", "limit", "bound"}
    assert answer["limit"] < answer["low"] < answer["tpot_ms"] < answer["high"]
    # 35.3 GB of weights and 32 x 4,250 tokens x 163,840 bytes a device over 3.35 TB/s
    assert answer["limit"] == pytest.approx((35.29e9 + 32 * 4250 * 163_840) / 3.35e9, rel=2e-3)


def test_rates_are_better_where_higher():
    row = {**ROW, "metric": "decode_tok_s", "prompt_tokens": None, "output_tokens": None, "context_tokens": 4250}
    answer = guess(row)
    assert answer["low"] < answer["decode_tok_s"] < answer["high"] < answer["limit"]
    step = guess({**row, "metric": "tpot_ms"})
    assert answer["decode_tok_s"] == pytest.approx(32 * 1000 / step["tpot_ms"])
    prompts = guess({**ROW, "metric": "prefill_tok_s", "batch": 4})
    alone = guess({**ROW, "metric": "ttft_ms"})
    assert prompts["prefill_tok_s"] > 4000 / alone["ttft_ms"] * 1000  # the fixed part is shared
    assert prompts["limit"] > prompts["prefill_tok_s"]


def test_without_a_metric_a_row_gets_what_its_lengths_tell():
    assert set(guess(ROW)) == {"ttft_ms", "tpot_ms"}
    assert set(guess({**ROW, "prompt_tokens": None, "context_tokens": 100})) == {"tpot_ms"}
    assert set(guess(ROW)["ttft_ms"]) == {"value", "low", "high", "limit", "bound"}


def test_provisional_figures_are_marked_where_they_are_used():
    row = {**ROW, "accelerator": "M5 Max 128GB", "count": 1, "tensor_parallel": 1, "engine": "llama.cpp"}
    assert guess({**row, "metric": "ttft_ms"})["provisional"] == ["flops"]
    assert "provisional" not in guess({**row, "metric": "tpot_ms"})  # 614 GB/s are Apple's own
    assert "provisional" not in guess({**ROW, "metric": "ttft_ms"})


def test_a_part_may_leave_its_memory_open():
    row = {**ROW, "accelerator": "apple-m1-max", "count": 1, "tensor_parallel": 1, "metric": "tpot_ms"}
    assert guess(row)["tpot_ms"] > 0


def test_a_row_beyond_the_context_limit_is_noted():
    """What was measured there was served: its row keeps its answer."""
    answer = guess({**ROW, "metric": "ttft_ms", "prompt_tokens": 200_000})
    assert answer["ttft_ms"] > 0
    assert "200,000 prompt, 500 output tokens is longer than the limit of 131,072 tokens" in answer["note"]
    assert "note" not in guess({**ROW, "metric": "ttft_ms"})
    odd = guess({**ROW, "quantization": "zip9", "metric": "ttft_ms"})
    assert odd["note"].startswith("quantization zip9 is not known: weights are counted in 16 bit")


def test_drafts_lower_the_limit():
    plain, drafted = (guess({**ROW, "metric": "tpot_ms", "num_speculative_tokens": n}) for n in (None, 3))
    assert drafted["limit"] == pytest.approx(plain["limit"] / 4)
    assert drafted["tpot_ms"] < plain["tpot_ms"]


WRONG = [
    ({"metric": "tpot"}, "metric: tpot is not known, did you mean 'tpot_ms'"),
    ({"metric": "ttft_ms", "prompt_tokens": None}, "prompt_tokens: needed"),
    ({"metric": "tpot_ms", "prompt_tokens": None}, "context_tokens: needed"),
    ({"prompt_tokens": None}, "prompt_tokens: or context_tokens is needed"),
    ({"metric": []}, "metric: [] is not known"),
    ({"batch": -1}, "batch: -1, a number of 0 or more and at most 1,000,000,000 is needed"),
    ({"batch": 0}, "batch: 0, at least 1 sequence is needed"),
    ({"batch": float("nan")}, "batch: nan, a number"),
    ({"prompt_tokens": 1e308}, "prompt_tokens: 1e+308, a number"),
    ({"context_tokens": 10**400}, "context_tokens: 1000"),
    ({"output_tokens": 1e-320}, "output_tokens: 1e-320, a number"),
    ({"prompt_tokens": "many"}, "prompt_tokens: 'many', a number"),
    ({"accelerator": "a100"}, "accelerator 'a100' is ambiguous, say which"),
    ({"accelerator": "h1000"}, "unknown accelerator 'h1000', did you mean h100-sxm"),
    ({"accelerator": "h1000", "gpu_memory_gib": 80}, "no speed is known of h1000"),
    ({"accelerator": "m3-maxx-128gb"}, "no speed is known of m3-maxx-128gb: unknown accelerator 'm3-maxx-128gb', did"),
    ({"accelerator": None}, "accelerator: none is named; name one"),
    ({"accelerator": "cpu"}, "accelerator: no speed is known of cpu; this-cpu is measured on the machine"),
    ({"metric": "x" * 9999}, "metric: " + "x" * 60 + " is not known"),
    ({"batches": 3}, "batches: unknown key"),
    ({"context_tokens": 5}, "context_tokens: 5 tokens held are fewer than the prompt's 4,000"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_mistakes_name_the_key(changes, words):
    with pytest.raises(UsageError) as caught:
        guess({**ROW, **changes})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "gpu_memory_gib" not in str(caught.value)  # it tells no speed
    assert len(str(caught.value)) < 300


# ---------------------------------------------------------------------------------------------------------------- ages

AGES = [  # the engine as it is written, fused attention, eager
    ("llama.cpp 2024-05", False, False),
    ("llama.cpp b6918 CUDA", True, False),
    ("llama.cpp b1550 Metal", False, False),
    ("llama.cpp b5000 CUDA FA", True, False),
    ("llama.cpp", True, False),
    ("vllm 2023", True, True),
    ("vllm 0.2.5", True, True),
    ("vllm 0.2.6", True, False),
    ("vllm", True, False),
]


@pytest.mark.parametrize(("written", "fused", "eager"), AGES)
def test_what_old_engines_could_not_do(written, fused, eager):
    found, _ = asked({"engine": written, "model": "llama-3.1-8b", "accelerator": "h100-sxm"})
    assert (found.settings.fused_attention, found.settings.enforce_eager) == (fused, eager)


# ------------------------------------------------------------------------------------------------------------ in detail


def test_an_answer_in_detail():
    found = told()
    assert found.decode is not None
    assert found.prefill is not None
    assert found.ridge == pytest.approx(1979 / 3.35)
    assert found.critical == pytest.approx(1979 / 3.35 / 2 * (1 + 4 / 128**2))  # bytes of an fp8 weight with its scale
    # A request is its prompt, 499 steps, and for its first token too the prompts that others bring; 32 run at once.
    waits = found.prefill.expected.seconds + found.decode.expected.prompts_s
    seconds = waits + 499 * found.decode.expected.seconds
    assert found.request_seconds == pytest.approx(seconds)
    assert found.requests_per_second == pytest.approx(32 / seconds)
    assert found.holds is not None
    assert found.holds > 32


@pytest.mark.parametrize("changes", [{}, {"data_parallel": 2, "count": 4}, {"pipeline_parallel": 2, "count": 4}])
@pytest.mark.parametrize("output", [1, 2, 16])
@pytest.mark.parametrize("batch", [1, 2, 64])
def test_no_replica_serves_more_prompts_than_it_can_multiply(batch, output, changes):
    """4,000 tokens of Llama-3.1-70B are 2 x 68.5e9 x 4,000 FLOPs and more; two H100 do 2 x 1,979e12 in fp8 at most."""
    found = told(batch=batch, output_tokens=output, **changes)
    devices = changes.get("count", 2)
    assert found.requests_per_second is not None
    assert found.requests_per_second < devices * 1979e12 / (2 * 68.45e9 * 4000)
    assert found.ranking[-1].request == pytest.approx(found.request_seconds)


def test_money_is_shared_by_device_time():
    found, load = asked(ROW)
    answer = predict(found, load, {"h100-sxm": 2.0}, request_rate=10.0)
    cost, rate = answer.cost, answer.requests_per_second
    assert cost is not None
    assert rate is not None
    # two devices at 2.00 an hour, spread over the requests of an hour
    each = 4.0 / 3600 / rate
    assert (4000 * cost.per_million_input + 500 * cost.per_million_output) / 1e6 == pytest.approx(each)
    assert answer.replicas == -(-10 // rate)
    alone, one = asked({**ROW, "batch": 1})
    single = predict(alone, one, {"h100-sxm": 2.0}).cost
    assert single is not None
    assert single.per_million_output > 10 * cost.per_million_output


def test_accelerators_are_ranked_for_the_load():
    found = told()
    keys = [row.key for row in found.ranking]
    assert keys[-1] == "h100-sxm"  # the one asked about is always there
    assert keys.index("b200-sxm") < keys.index("h200-sxm") < keys.index("h100-sxm")
    assert "rtx-4090" not in keys  # two of them do not hold 70B in fp8
    times = [row.request for row in found.ranking[:-1]]
    assert times == sorted(times)


def test_prices_rank_by_money():
    found, load = asked(ROW)
    answer = predict(found, load, {"h100-sxm": 2.0, "h200-sxm": 2.1, "b200-sxm": 40.0})
    keys = [row.key for row in answer.ranking]
    assert keys[:3] == ["h200-sxm", "h100-sxm", "b200-sxm"]
    assert "gb200" in keys[3:]  # without a price, but faster
    assert [row.cost for row in answer.ranking[3:]] == [None] * len(keys[3:])


def test_a_price_without_a_row_is_explained():
    """Two L40S hold 96 GB, of which 70B in fp8 leave 20: 32 x 4,250 tokens of 320 KiB need 41 GiB."""
    found, load = asked(ROW)
    answer = predict(found, load, {"h100-sxm": 2.0, "l40s": 0.9, "rtx-4090": 0.4})
    assert "not listed: 2 x l40s, 2 x rtx-4090: too small for 32 of these sequences at once" in answer.notes
    assert "l40s" not in {row.key for row in answer.ranking}
    unknown = predict(found, load, {"b100": 9.0}).notes  # its usable memory stands in no source
    assert any("not listed: 2 x b100: how many of these sequences fit is not known" in note for note in unknown)
    assert not any("not listed" in note for note in predict(found, load, {"h200-sxm": 3.0}).notes)


def test_money_without_a_reply_is_explained():
    found, load = asked({**ROW, "output_tokens": None})
    words = "cost, replicas and other accelerators are those of whole requests: give prompt and output tokens"
    assert words in predict(found, load, {"h100-sxm": 2.0}).notes
    assert words in predict(found, load, request_rate=1.0).notes
    assert words not in predict(found, load).notes


def test_every_price_has_its_row():
    found, load = asked({**ROW, "model": "llama-3.1-8b", "count": 1, "tensor_parallel": 1, "batch": 1})
    cards = ["l4", "l40s", "a10", "h100-sxm", "h200-sxm", "a100-sxm-80", "h100-nvl", "b200-sxm", "gb200", "mi300x"]
    keys = {row.key for row in predict(found, load, dict.fromkeys(cards, 1.0)).ranking}
    assert keys >= set(cards)


@pytest.mark.parametrize("key", ["apple-m2-ultra-60-192gb", "h100-sxm"])
def test_rows_stay_within_the_page(key):
    found, load = asked({**ROW, "accelerator": key, "batch": 900})
    text = render(predict(found, load, {key: 1e4}))
    assert f"  2 x {key}{'*' if key == 'h100-sxm' else ''} (asked)" in text
    assert ("note: * too small" in text) == (key == "h100-sxm")
    assert max(map(len, text.splitlines())) <= 80


def test_what_does_not_fit_is_said():
    large = told(model="llama-3.1-405b", count=1, tensor_parallel=1, quantization=None)
    assert any("of weights do not fit into one H100" in note for note in large.notes)
    crowded = told(batch=500)
    assert any("carries about" in note and "the others wait" in note for note in crowded.notes)


# 32 sequences take 44 ms here, 36.1 to 52.9 ms in 80 %, 17.2 ms by physics.
TARGETS = [
    (0.010, "ruled_out", "10 ms a token is ruled out by physics for 32 at once (17.2 ms at best)"),
    (0.030, "missed", "30 ms a token is not to be expected for 32 at once"),
    (0.045, "open", "45 ms a token may hold for 32 at once or not"),
    (0.080, "met", "80 ms a token is to be expected for 32 at once"),
]


@pytest.mark.parametrize(("seconds", "answer", "words"), TARGETS)
def test_a_time_a_token_is_held_against_the_band(seconds, answer, words):
    found, load = asked(ROW)
    target = predict(found, load, tpot=seconds).target
    assert target is not None
    assert target.answer == answer
    at, beyond = (told(batch=n).decode for n in (max(1, target.most), target.most + 1))
    assert at is not None
    assert beyond is not None
    assert beyond.expected.seconds > seconds
    assert target.most == 0 or at.expected.seconds <= seconds
    text = " ".join(render(predict(found, load, tpot=seconds)).split())
    assert words in text
    assert ("no load at all" in text) == (target.most == 0)
    assert forecast(predict(found, load, tpot=seconds))["target"]["answer"] == answer
    assert forecast(told())["target"] is None


def test_the_document_gives_units_and_origins():
    data = forecast(told())
    assert data["schema_version"] == 1
    assert data["decode"]["seconds"]["low"] < data["decode"]["seconds"]["value"] < data["decode"]["seconds"]["high"]
    assert data["decode"]["limit"]["unit"] == "s"
    assert data["ridge"] == {"value": pytest.approx(590.7, abs=0.1), "unit": "FLOP/byte", "from": "computed"}
    assert data["settings"]["quantization"] == {"value": "fp8", "from": "declared"}
    assert data["load"]["batch"] == {"value": 32, "unit": "sequences", "from": "declared"}
    assert forecast(told(batch=None))["load"]["batch"] == {"value": 1, "unit": "sequences", "from": "default"}
    assert data["settings"]["kv_bytes"]["unit"] == "bytes an element"
    parts = data["decode"]["parts"]
    whole = sum(part["value"] for name, part in parts.items() if not name.startswith("of_which"))
    assert whole == pytest.approx(data["decode"]["seconds"]["value"])
    assert json.loads(json.dumps(data)) == data


def test_one_bottleneck_of_a_step_is_named_everywhere():
    """64 x 4,125 tokens of 128 KiB over 3.35 TB/s take 10.3 ms at best, weights 4.5 ms: the KV cache binds a step; the
    63 prompts of 4,000 tokens that others bring in each 250 steps take over twice as long.
    """
    row = {**ROW, "model": "llama-3.1-8b", "count": 1, "tensor_parallel": 1, "quantization": None, "engine": "vllm"}
    found, load = asked({**row, "batch": 64, "output_tokens": 250})
    assert guess({**row, "batch": 64, "output_tokens": 250, "metric": "tpot_ms"})["bound"] == "kv"
    step = (answer := predict(found, load)).decode
    assert step is not None
    assert (step.expected.own.bound, step.expected.largest, step.phase.binds(step.ridge)) == ("kv", "prompts", "kv")
    assert 60.0e-3 * 63 / 250 < step.expected.prompts_s < step.expected.seconds
    text = " ".join(render(answer).split())
    assert "mostly others' prompts; the step itself is bound by KV cache" in text
    assert "faster units" not in text.partition("decode: where")[2]
    assert "would bind" not in text
    data = forecast(answer)["decode"]
    assert (data["bound"], data["largest"], data["limit_bound"], data["bound_at_peak"]) == ("kv", "prompts", "kv", "kv")


def test_what_a_busy_engine_adds_to_a_prompt_stands_apart():
    """8B on an H100: 25.4 ms of fixed time, of which 20.3 ms are spared where nothing else runs (5.1 beside 3.8 of
    weights); one device has none
    to leave out.
    """
    row = {**ROW, "model": "llama-3.1-8b", "count": 1, "tensor_parallel": 1, "quantization": None, "batch": 1}
    found, load = asked({**row, "prompt_tokens": 128})
    answer = predict(found, load)
    prefill = forecast(answer)["prefill"]
    assert prefill["parts"]["busy_engine"]["value"] == pytest.approx(20.29e-3, rel=1e-3)
    assert prefill["alone"]["value"] == pytest.approx(prefill["seconds"]["value"] - 20.29e-3, rel=1e-3)
    assert (prefill["largest"], guess({**row, "prompt_tokens": 128, "metric": "ttft_ms"})["bound"]) == (
        "busy",
        "overhead",
    )
    assert sum(p["value"] for n, p in prefill["parts"].items() if not n.startswith("of_which")) == pytest.approx(
        prefill["seconds"]["value"]
    )
    text = " ".join(render(answer).split())
    assert "to the first token in an engine that serves others" in text
    assert "in an idle one" in text
    assert "~ a busy engine 20.3 ms" in text
    assert "fewer devices" not in text
    assert "waiting in a busy engine takes most of it" in text


def test_fewer_devices_are_named_where_there_are_several(run):
    flags = ("--model", "llama-3.2-1b", "--accelerator", "h100-sxm", "--context", "100")
    assert "fewer devices" in " ".join(run(*flags, "--count", "4", "--tp", "4")[1].split())
    assert "launching kernels takes most of it" in " ".join(
        run(*flags[:2], "--accelerator", "b200-sxm", "--context", "100")[1].split()
    )


def test_a_local_engine_is_never_called_busy(run):
    flags = ("--model", "llama-3.1-8b", "--accelerator", "rtx-4090", "--engine", "llama.cpp", "--prompt", "512")
    text = " ".join(run(*flags)[1].split())
    assert "to the first token of a prompt alone" in text
    assert "busy" not in text


def test_a_part_is_never_larger_than_the_whole_it_stands_in():
    found = told()
    assert found.decode is not None
    own = found.decode.expected.own
    assert found.decode.expected.prompts_s > own.overhead_s > own.links_s > 0
    parts = own.weights_s + own.kv_s + own.compute_s + own.overhead_s
    assert parts + found.decode.expected.prompts_s == pytest.approx(found.decode.expected.seconds)
    text = " ".join(render(found).split())
    assert "o others' prompts" in text
    assert "of these" not in text


def test_counts_are_whole_and_name_one_thing_in_the_singular(run):
    row = ("--model", "gpt-oss-120b", "--accelerator", "h100-sxm", "--prompt", "4001", "--output", "251")
    text = " ".join(run(*row, "--rate", "0.01/s")[1].split())
    assert "1 replica for the rate asked" in text
    assert "sequences of 4,126 tokens at once" in text  # 4,001 and half of 251


def test_a_limit_at_a_faster_rate_than_the_ridges_is_explained(run):
    """vLLM multiplies mxfp4 weights in bf16 on Hopper (989 TFLOP/s), whose fp8 rate is 1,979."""
    text = " ".join(
        run("--model", "gpt-oss-120b", "--accelerator", "h100-sxm", "--prompt", "4001", "--output", "9")[1].split()
    )
    assert "at best, at the 1.979 PFLOP/s that the device reaches in a narrower format" in text
    assert "narrower format" not in run("--model", "llama-3.1-8b", "--accelerator", "h100-sxm", "--prompt", "4000")[1]


def test_a_peak_that_binds_elsewhere_is_explained():
    """One sequence on eight devices: launches take longer than reading an eighth of the weights."""
    small = told(model="llama-3.1-8b", count=8, tensor_parallel=8, batch=1)
    assert small.decode is not None
    assert small.decode.expected.own.bound == "overhead"
    text = " ".join(render(small).split())
    assert "If all ran at its peak (table above), weights would bind." in text


LONGER = [
    ({"prompt_tokens": 200_000}, "a request of 200,000 prompt, 500 output tokens is longer than the limit of 131,072"),
    ({"prompt_tokens": 131_000}, "131,072 tokens (--max-model-len): the engine refuses it or cuts it short"),
    ({"context_tokens": 131_073}, "4,000 prompt, 500 output, 131,073 context tokens is longer"),
    ({"prompt_tokens": 1900, "engine": "llamacpp", "launch": "llama-server -c 8192 -np 4"}, "limit of 2,048 tokens"),
]


@pytest.mark.parametrize(("changes", "words"), LONGER)
def test_requests_beyond_the_context_limit_are_refused(changes, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        told(**changes)


def test_a_tail_beyond_the_limit_is_told():
    """From 8,000 at p95 to 400,000 at most, 131,072 tokens are passed at 0.95 + 0.05 x 123 / 392 = 0.9657: what lies
    beyond are 3.5 % of the prompts, in thousandths.
    """
    found, load = asked(ROW)
    notes = predict(found, load, classes=(one_class("3000:8000:400000", "500"),)).notes
    assert any("3.5 % of the prompts of class requests exceed the limit of 131,072 tokens" in note for note in notes)


def test_an_engine_that_would_not_start_is_told():
    """Of 24 GB the weights of Llama-3.1-8B leave 4 to 6 GB: 131,072 tokens of 128 KiB need 16 GiB."""
    small = {"model": "llama-3.1-8b", "count": 1, "tensor_parallel": 1, "quantization": None, "accelerator": "l4"}
    notes = told(**small, batch=1, prompt_tokens=1000).notes
    assert any("refuses to start: a request of 131,072 tokens (--max-model-len) needs more" in note for note in notes)
    assert not any("start" in note for note in told(**small, batch=1, prompt_tokens=1000, max_model_len=8192).notes)
    full = told(**{**small, "accelerator": "h100-sxm", "model": "qwen3-32b", "gpu_memory_gib": 64.0}).notes
    assert any("does not start" in note and "exceed the" in note for note in full)


def test_a_batch_beyond_what_may_run_is_told():
    notes = told(max_num_seqs=16).notes
    assert any("--max-num-seqs lets only 16 of 32 sequences run at once" in note for note in notes)


# ----------------------------------------------------------------------------------------------------------------- cli


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `audit predict ...`; gives (exit code, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["audit", "predict", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return call


QUICK = ("--model", "llama-3.1-70b", "--accelerator", "h100-sxm", "--count", "2", "--tp", "2", "--quantization", "fp8")


def test_a_quick_question(run):
    code, out, _ = run(*QUICK, "--batch", "32", "--context", "4000", "--prompt", "4000", "--output", "500")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for line in ("1 x 8,192 each", "4,000 x 1,024 each", "matrix x matrix (GEMM)    vector x matrix (GEMV)"):
        assert line in out
    flat = " ".join(out.split())
    assert "physics allows" in flat
    assert "in 80 %" in flat
    assert "compute-bound from 295 tokens a step" in flat


def test_memory_and_limits_can_be_told_by_flags(run):
    flags = ("--max-model-len", "8k", "--max-num-seqs", "16", "--gpu-memory-gib", "70")
    code, out, _ = run(*QUICK, "--batch", "32", "--prompt", "4000", "--output", "500", *flags)
    assert code == 0
    assert "lets only 16 of 32 sequences run at once" in " ".join(out.split())
    code, _, err = run(*QUICK, "--prompt", "8000", "--output", "500", *flags)
    assert code == 2
    assert "longer than the limit of 8,000 tokens (--max-model-len)" in err


def test_money_and_replicas(run):
    arguments = ("--batch", "32", "--prompt", "4k", "--output", "500", "--price", "2.5", "--price", "h200=3.5")
    code, out, _ = run(*QUICK, *arguments, "--rate", "5/s")
    assert code == 0
    assert "a million prompt tokens" in " ".join(out.split())
    assert "replicas for the rate asked" in " ".join(out.split())
    assert "a token cost of 1000" in out
    assert [line.split()[2] for line in out.splitlines() if line.startswith("  2 x h")] == ["h100-sxm", "h200-sxm"]


def test_json_of_a_profile(run):
    code, out, _ = run("embedded", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["load"]["batch"]["value"] == 64
    assert data["accelerator"] == "rtx-4090"


def test_prices_of_a_profile_rank_others(run, tmp_path):
    traffic = "{target_concurrency: 8, classes: [{name: a, prompt_tokens: {p50: 1000}, output_tokens: {p50: 100}}]}"
    (tmp_path / "p.yaml").write_text(
        "version: 1\nname: a\nendpoint: {url: http://127.0.0.1:1/v1}\n"
        "deployment: {model: llama-3.1-8b, accelerator: h100-sxm, price_per_hour: 4, prices: {H200: 3.8, l40s: 0.9}}\n"
        f"traffic: {traffic}\n"
    )
    code, out, _ = run(str(tmp_path / "p.yaml"), "--json")
    costs = {row["accelerator"]: row["cost_per_request"] for row in json.loads(out)["ranking"]}
    assert code == 0
    assert {key for key, cost in costs.items() if cost is not None} == {"h100-sxm", "h200-sxm", "l40s"}
    rate = json.loads(out)["requests_per_second"]["value"]
    assert costs["h100-sxm"]["value"] == pytest.approx(4 / 3600 / rate)


def test_many_questions(run, tmp_path):
    rows = [{**ROW, "id": "a", "metric": "tpot_ms"}, {**ROW, "id": "b", "metric": "x"}, {**ROW, "metric": "ttft_ms"}]
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for flag in ("--batch", "--batch-file"):
        code, out, _ = run(flag, str(file))
        answers = [json.loads(line) for line in out.splitlines()]
        assert code == 0
        assert [answer["id"] for answer in answers] == ["a", "b", 3]
        assert "error" in answers[1]
        assert answers[0]["tpot_ms"] > answers[0]["limit"]


USAGE = [
    (("--batch", "missing.jsonl"), "--batch missing.jsonl: neither a number of sequences nor a file of questions"),
    (("--batch", "32.5", *QUICK), "--batch 32.5: neither a number of sequences nor a file of questions"),
    (("--batch-file", "missing.jsonl"), "--batch-file missing.jsonl: no such file"),
    ((*QUICK, "--batch", "9" * 5000, "--context", "10"), "--batch: at most 1,000,000,000 sequences"),
    ((*QUICK, "--context", "10", "--num-speculative-tokens", "9" * 400), "--num-speculative-tokens: 999"),
    ((*QUICK, "--context", "10", "--rate", "0/s"), "--rate 0/s: more than 0 is needed"),
    ((*QUICK,), "--prompt: give it with --output, or --context"),
    ((*QUICK, "--batch", "0", "--context", "10"), "--batch: at least 1 is needed"),
    ((*QUICK, "--context", "10", "--price", "much"), "--price much: an amount an hour is needed"),
    ((*QUICK, "--context", "10", "--price", "zz=3"), "--price zz=3: unknown accelerator 'zz'"),
    ((*QUICK, "--context", "10", "--price", "a100=3"), "--price a100=3: accelerator 'a100' is ambiguous, say which"),
    ((*QUICK, "--context", "10", "--price", "1e-300"), "--price 1e-300: an amount an hour is needed"),
    ((*QUICK, "--context", "10", "--price", "=3"), "--price =3: an amount an hour is needed"),
    ((*QUICK, "--context", "10", "--price", "2", "--price", "h100=3"), "--price h100=3: h100-sxm has a price, 2"),
    ((*QUICK, "--prompt", "4000", "--context", "100"), "--context: 100 tokens held are fewer than the prompt's 4,000"),
    ((*QUICK, "--context", "10", "--tpot", "50"), "--tpot 50: needs its unit"),
    ((*QUICK, "--context", "10", "--tpot", "0ms"), "--tpot 0ms: more than 0 is needed"),
    ((*QUICK, "--context", "10", "--rate", "5"), "--rate 5: needs its unit"),
    ((*QUICK[:2], "--accelerator", "h100x", "--context", "10"), "--accelerator: unknown accelerator 'h100x'"),
    (("embedded", "--model", "x"), "PROFILE says it all: leave out --model"),
    (("--batch-file", "x.jsonl", "--context", "3"), "--batch-file x.jsonl says it all: leave out --context"),
]


@pytest.mark.parametrize(("arguments", "words"), USAGE)
def test_usage_mistakes_are_2(run, arguments, words):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
