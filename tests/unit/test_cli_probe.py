"""`audit probe`: flags read and refused, what it prints and writes, and its exit codes."""

import json
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from auditor.instruments.probe import Probed, Question, document, load_of, row, spread
from auditor.loads import Load, Shape
from auditor.measurement import ClientHealth, Floor, Measurement, Sample
from auditor.probe import instrument
from auditor.report.probe import render

ASKED = ["--url", "http://127.0.0.1:1/v1", "--requests", "4", "--prompt-tokens", "10:20", "--output-tokens", "5"]
GOOD = Sample(
    load="probe",
    index=0,
    cls="probe",
    start=0.5,
    asked_prompt_tokens=20,
    asked_output_tokens=5,
    connect=0.001,
    ttft=0.1,
    first_answer=0.1,
    e2e=0.18,
    closed=0.2,
    prompt_tokens=20,
    output_tokens=5,
    arrivals=(0.1, 0.12, 0.14, 0.16, 0.18),
    status=200,
    finish_reason="length",
    server_id="chat-1",
)
QUESTION = Question(concurrency=2, requests=4, prompt=(10, 20), output=(5, 5))


def changed(sample: Sample, **fields) -> Sample:
    return replace(sample, **fields)


FAILED = changed(
    GOOD, index=1, ttft=None, first_answer=None, e2e=None, arrivals=(), output_tokens=None, prompt_tokens=None,
    status=500, error="http_5xx", detail="HTTP 500: out of memory", server_id=None,
)  # fmt: skip


def probed(*samples: Sample, **more) -> Probed:
    shapes = tuple(Shape(cls="probe", prompt_tokens=20, output_tokens=5) for _ in range(4))
    load = Load(id="probe", purpose="slo", concurrency=2, shapes=shapes)
    client = ClientHealth(peak_inflight=2, clock="kernel", cpu_share=0.25, floor=Floor(0.0001, 0.0003, 1e-5))
    measurement = Measurement(load=load, samples=samples, duration=2.0, client=client, **more)
    return Probed(question=QUESTION, url="u", model="m", api="chat", counted="/tokenize", measurement=measurement)


@pytest.fixture
def audit(program):
    """Run the program in this process; gives (exit code, stdout, stderr)."""
    return partial(program, "probe")


@pytest.fixture
def asked(monkeypatch):
    """What the command asks of the instrument, which answers with `answer`."""
    seen = {"answer": probed(GOOD, *(changed(GOOD, index=i) for i in (1, 2, 3)))}

    async def measure(question, endpoint, key, events, deadlines):
        seen.update(question=question, endpoint=endpoint, key=key, deadlines=deadlines)
        return seen["answer"]

    monkeypatch.setattr(instrument, "measure", measure)
    return seen


# ---------------------------------------------------------------------------------------------------------------- flags


def test_the_plain_question(audit, asked):
    code, out, _ = audit(*ASKED, "--concurrency", 3)
    assert code == 0
    assert asked["question"] == Question(concurrency=3, requests=4, prompt=(10, 20), output=(5, 5))
    assert (asked["endpoint"].url, asked["endpoint"].model, asked["key"]) == ("http://127.0.0.1:1/v1", "auto", None)
    assert out.startswith("4 of 4 requests good: m, chat, 2 streams at once")


def test_every_flag_reaches_the_instrument(audit, asked, monkeypatch):
    monkeypatch.setenv("D_KEY", "sesame")
    flags = ["--rate", "90/min", "--arrivals", "constant", "--warmup", 2, "--seed", 7, "--model", "x", "--stall", "5s"]
    flags += ["--api", "completions", "--api-key-env", "D_KEY", "--header", "X-A: b: c", "--extra-body", '{"top_p": 1}']
    assert audit(*ASKED, *flags)[0] == 0
    question, endpoint = asked["question"], asked["endpoint"]
    assert (question.rate, question.arrivals, question.warmup, question.seed) == (1.5, "constant", 2, 7)
    assert (endpoint.model, endpoint.api, asked["key"]) == ("x", "completions", "sesame")
    assert (endpoint.headers, endpoint.extra_body) == ({"X-A": "b: c"}, {"top_p": 1})
    assert asked["deadlines"].gap == 5.0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--prompt-tokens", "20:10"], "--prompt-tokens 20:10: needs a length of at least one token"),
        (["--prompt-tokens", "many"], "--prompt-tokens many: needs a whole number of tokens"),
        (["--output-tokens", "0"], "--output-tokens 0: needs a length of at least one token"),
        (["--requests", "0"], "--requests 0: 1 to 1,000,000 requests"),
        (["--requests", "1000000000"], "--requests 1000000000: 1 to 1,000,000 requests"),
        (["--warmup", "1000000000"], "--warmup 1000000000: 0 to 1,000,000 requests"),
        (["--prompt-tokens", "1:1000M"], "--prompt-tokens 1:1000M: no more than 20,000,000 tokens"),
        (["--url", "http://[::1/v1"], "--url: this is no valid address"),
        (["--url", "127.0.0.1:8000/v1"], "--url: needs an address with its scheme"),
        (["--url", ""], "--url: needs an address with its scheme"),
        (["--header", "X-A: b\r\nX-C: d"], "--header: HTTP cannot carry this header"),
        (["--header", "X-Ä: b"], "--header: HTTP cannot carry this header"),
        (["--header", "Content-Length: 5"], "--header: the audit sets this header itself"),
        (["--extra-body", '{"stream": false}'], "--extra-body: stream is set by other flags"),
        (["--api-key-env", "sk-1234567"], "--api-key-env: this looks like a key itself"),
        (["--rate", "5"], "--rate 5: needs its unit: write 5/s"),
        (["--rate", "0/s"], "--rate 0/s: more than 0 is needed"),
        (["--error-rate", "1.5"], "--error-rate 1.5: "),
        (["--stall", "5"], "--stall 5: needs its unit"),
        (["--stall", "0s"], "--stall 0s: more than 0 is needed"),
        (["--header", "nonsense"], "--header: write it as 'Name: value'"),
        (["--extra-body", "{"], "--extra-body: no JSON"),
        (["--extra-body", '{"a": NaN}'], "--extra-body: no JSON (NaN is no number of JSON)"),
        (["--extra-body", "[1]"], "--extra-body: needs a JSON object"),
        (["--api-key-env", "D_NO_SUCH_KEY"], "--api-key-env D_NO_SUCH_KEY: no such environment variable"),
        (["--requests-out", "/nowhere/at/all.jsonl"], "--requests-out /nowhere/at/all.jsonl: the folder /nowhere/at"),
    ],
)
def test_wrong_values_are_one_line_and_send_nothing(audit, asked, flags, said):
    code, out, err = audit(*ASKED, *flags)
    assert (code, out) == (2, "")
    assert err.startswith(f"audit: {said}")
    assert err.count("\n") == 1
    assert "question" not in asked


# ----------------------------------------------------------------------------------------------------------- exit codes


@pytest.mark.parametrize(
    ("failures", "allowed", "code"),
    [(0, "0%", 0), (1, "1%", 1), (1, "25%", 0), (2, "25%", 1), (4, "99%", 1), (1, "0.25", 0), (2, "0.25", 1)],
)
def test_more_failures_than_allowed_exit_with_1(audit, asked, failures, allowed, code):
    samples = [changed(FAILED if i < failures else GOOD, index=i) for i in range(4)]
    asked["answer"] = probed(*samples)
    assert audit(*ASKED, "--error-rate", allowed)[0] == code


def test_ctrl_c_exits_with_130_and_what_was_measured(audit, asked):
    cancelled = changed(GOOD, index=1, error="cancelled")
    asked["answer"] = probed(GOOD, cancelled, stopped="interrupted")
    code, out, _ = audit(*ASKED, "--json")
    assert code == 130
    assert json.loads(out)["requests"] == {
        **{"asked": 4, "ok": 1, "failed": 0, "cancelled": 1, "not_sent": 2, "short": 0, "warmup": 0}
    }


def test_what_the_user_interrupted_is_no_failure(audit, asked):
    asked["answer"] = probed(GOOD, changed(GOOD, index=1, error="cancelled"))
    assert audit(*ASKED)[0] == 0


# --------------------------------------------------------------------------------------------------------------- output


def test_json_is_alone_on_stdout_and_rows_go_to_their_file(audit, asked, tmp_path):
    rows = tmp_path / "rows.jsonl"
    code, out, _ = audit(*ASKED, "--json", "--requests-out", rows)
    assert code == 0
    said = json.loads(out)
    assert (said["model"], said["output_tokens"], said["peak_concurrency"]) == ("m", 20, 2)
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [line["index"] for line in lines] == [0, 1, 2, 3]
    assert (
        lines[0] | {"ok": True, "server_id": "chat-1", "ttft_ms": 100.0, "e2e_ms": 180.0, "tpot_ms": 20.0} == lines[0]
    )


def test_nothing_is_left_of_a_file_for_rows_that_never_came(audit, tmp_path):
    assert audit(*ASKED, "--requests-out", tmp_path / "rows.jsonl")[0] == 3
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_full_disk_costs_the_rows_and_not_the_answer(audit, asked):
    code, out, err = audit(*ASKED, "--json", "--requests-out", "/dev/full")
    assert (code, json.loads(out)["requests"]["ok"]) == (2, 4)
    assert err == "audit: --requests-out /dev/full: cannot be written (No space left on device)\n"


def test_numbers_by_hand():
    slow = changed(GOOD, index=2, ttft=0.3, first_answer=0.4, e2e=0.7, closed=0.7, arrivals=(0.3, 0.4, 0.5, 0.6, 0.7))
    said = document(probed(GOOD, FAILED, slow))
    assert said["ttft_ms"] == {"p50": 300.0, "p90": "inf", "p95": "inf", "p99": "inf", "max": "inf"}
    assert said["first_answer_ms"]["p50"] == 400.0
    assert said["tpot_ms"]["p50"] == 100.0  # 20 and 100 ms, and one that never came
    assert (said["prompt_tokens"], said["output_tokens"], said["cached_tokens"]) == (40, 10, None)
    # all three began together and the last token came after 0.7 s: 2 good requests and 10 tokens
    assert (said["requests_per_s"], said["output_tokens_per_s"]) == (pytest.approx(2.8571), pytest.approx(14.2857))
    assert (said["errors"], said["error_details"]) == ({"http_5xx": 1}, {"http_5xx": "HTTP 500: out of memory"})
    assert said["requests"]["not_sent"] == 1
    assert said["client"]["floor"] == {"ttft_ms": {"p50": 0.1, "p99": 0.3}, "cpu_us_per_event": 10.0}


def test_nothing_observed_is_null_and_not_0():
    said = document(probed())
    assert set(said["ttft_ms"].values()) == {None}
    assert (said["prompt_tokens"], said["output_tokens"], said["output_tokens_per_s"]) == (None, None, None)
    assert row(FAILED)["ttft_ms"] is None


def test_a_reply_of_estimated_length_is_not_called_short():
    assert document(probed(changed(GOOD, output_tokens=3)))["requests"]["short"] == 1
    assert document(probed(changed(GOOD, output_tokens=3, estimated=True)))["requests"]["short"] == 0


def test_the_text_says_what_failed_and_how_exact_it_is():
    slow = changed(GOOD, index=2, ttft=0.3, first_answer=0.4)
    text = render(probed(GOOD, FAILED, slow, stopped="the last 50 requests reached nobody"))
    assert "failed  1 http_5xx: HTTP 500: out of memory" in text
    assert "ended   the last 50 requests reached nobody (0 given up, 1 not sent)" in text
    assert "TTFT                300 ms       never" in text
    assert "first answer        400 ms       never" in text
    assert "at most 2 in flight, reads timed by the kernel, 25 % of a core" in text
    assert "TTFT off by 0.1 ms (p99 0.3 ms) in its self-check" in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())


def test_what_a_server_sent_cannot_steer_the_terminal():
    text = render(probed(GOOD, changed(FAILED, detail="\x1b[2Jbad\nnews\x07")))
    assert "bad news" in text
    assert "\x1b" not in text


# -------------------------------------------------------------------------------------------------------------- lengths


def test_lengths_are_spread_evenly_and_both_ends_come_up():
    load = load_of(Question(concurrency=2, requests=5, prompt=(16, 256), output=(8, 8), warmup=2))
    assert sorted(shape.prompt_tokens for shape in load.shapes) == [16, 76, 136, 196, 256]
    assert sorted(shape.prompt_tokens for shape in load.warmup) == [16, 256]
    assert {shape.output_tokens for shape in load.shapes} == {8}
    assert load.arrivals == ()


def test_the_seed_decides_the_order():
    assert spread(1, 100, 50, Random(1)) == spread(1, 100, 50, Random(1))
    assert spread(1, 100, 50, Random(1)) != spread(1, 100, 50, Random(2))
    assert spread(7, 9, 1, Random(1)) == [7]


def test_an_open_loop_has_a_time_for_every_request():
    question = Question(concurrency=1, requests=2000, prompt=(1, 1), output=(1, 1), rate=5.0, warmup=10)
    arrivals = load_of(question).arrivals
    assert len(arrivals) == 2010
    assert arrivals[0] == 0.0
    assert sorted(arrivals) == list(arrivals)
    assert arrivals[-1] / 2009 == pytest.approx(1.0, abs=0.1)  # gaps of one mean gap in the mean
    constant = load_of(Question(concurrency=1, requests=3, prompt=(1, 1), output=(1, 1), rate=5.0, arrivals="constant"))
    assert constant.arrivals == (0.0, 1.0, 2.0)


def test_an_endpoint_that_is_not_there_is_one_line_and_3(audit):
    code, out, err = audit(*ASKED)
    assert (code, out) == (3, "")
    assert "nothing listens at 127.0.0.1:1" in err.splitlines()[-1]
    assert "Traceback" not in err


def test_a_key_that_no_header_can_carry_is_refused(audit, asked, monkeypatch):
    monkeypatch.setenv("D_KEY", "sesame\r\nX-Admin: 1")
    assert audit(*ASKED, "--api-key-env", "D_KEY") == (
        2,
        "",
        "audit: --api-key-env D_KEY: the variable holds characters that no HTTP header can carry\n",
    )


def test_no_key_is_ever_shown(audit, monkeypatch):
    monkeypatch.setenv("D_KEY", "sesame-street-7")
    _, out, err = audit(*ASKED, "--api-key-env", "D_KEY", "--header", "X-Api-Key: sesame-street-8")
    assert "sesame" not in out + err


def test_a_certificate_need_not_be_checked(audit, asked):
    assert audit(*ASKED, "--insecure")[0] == 0
    assert asked["endpoint"].verify_tls is False
