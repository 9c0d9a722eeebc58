"""Traffic logs of several tools and the user's own prompts."""

import json
from pathlib import Path

import pytest

from auditor.errors import ProfileError
from auditor.loading import load_profile
from auditor.loading.logs import busiest_rate, read_log
from auditor.loading.traffic import OBSERVED, observed_class, read_prompts
from auditor.loads import Logged
from auditor.profile import Lengths, TrafficClass

HEAD = "version: 1\nname: t\nendpoint: {url: 'http://127.0.0.1:8000/v1'}\n"


def read_lengths(text: str, name: str) -> tuple[tuple[tuple[int, int], ...], object]:
    log, problems = read_log(text, name)
    return tuple((row.prompt, row.output) for row in log), problems


def jsonl(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("row", "pair"),
    [
        ({"usage": {"prompt_tokens": 12, "completion_tokens": 34, "total_tokens": 46}}, (12, 34)),
        ({"prompt_tokens": 12, "completion_tokens": 34, "spend": 0.1}, (12, 34)),
        ({"response": {"body": {"usage": {"input_tokens": 12, "output_tokens": 34}}}}, (12, 34)),
        ({"num_prompt_tokens": 12, "num_generation_tokens": 34}, (12, 34)),
        ({"prompt_len": 12, "output_len": 34}, (12, 34)),
        ({"timestamp": 0, "input_length": 12, "output_length": 34, "hash_ids": [0]}, (12, 34)),
        ({"attributes": {"gen_ai.usage.input_tokens": 12, "gen_ai.usage.output_tokens": "34"}}, (12, 34)),
        ({"request": {"x": 1}, "response_obj": {"usage": {"prompt_tokens": 12.0, "completion_tokens": 34}}}, (12, 34)),
    ],
)
def test_json_lines_of_several_tools(row, pair):
    assert read_lengths(jsonl(row), "log") == ((pair,), [])


@pytest.mark.parametrize(
    "text",
    [
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,12,34\n",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,12,34,46,Conversation log\n",
        "prompt_tokens;completion_tokens\n12;34\n",
        'startTime\tprompt_tokens\tcompletion_tokens\n"a, b"\t12\t34\n',
    ],
)
def test_csv_of_several_tools(text):
    assert read_lengths(text, "log") == (((12, 34),), [])


def test_requests_without_a_reply_are_left_out():
    text = jsonl(
        {"prompt_tokens": 5, "completion_tokens": 0}, {"prompt_tokens": 5, "completion_tokens": 6}, {"error": "x"}
    )
    assert read_lengths(text, "log") == (((5, 6),), [])


def test_bad_lines_are_problems_with_their_line_and_at_most_five():
    text = (
        jsonl({"prompt_tokens": 5, "completion_tokens": 6}, {"prompt_tokens": "many", "completion_tokens": 6})
        + "{x\n[1]\n"
    )
    _, problems = read_lengths(text, "log.jsonl")
    assert [str(p) for p in problems] == [
        "log.jsonl:2:1: 'many' is no number of tokens",
        "log.jsonl:3:1: this line is not JSON",
        "log.jsonl:4:1: this line holds no JSON object",
    ]
    assert len(read_lengths("{x\n" * 100, "log")[1]) == 5


@pytest.mark.parametrize("value", [True, -1, 1.5, "nan", 1e13, [1], "1" * 400])
def test_what_is_no_number_of_tokens(value):
    pairs, problems = read_lengths(jsonl({"prompt_tokens": value, "completion_tokens": 1}), "log")
    assert pairs == ()
    assert problems[0].message.endswith("is no number of tokens")
    assert len(problems[0].message) < 80


def test_a_log_without_length_columns_says_what_it_needs():
    _, problems = read_lengths("a,b\n1,2\n", "log.csv")
    assert str(problems[0]).startswith("log.csv:1:1: no columns for the lengths; needs prompt_tokens")


def test_deep_nesting_ends():
    row: dict[str, object] = {"prompt_tokens": 1, "completion_tokens": 2}
    for _ in range(10):
        row = {"usage": row}
    assert read_lengths(jsonl(row), "log")[0] == ()


def test_the_observed_class_has_nearest_rank_percentiles():
    log = [Logged(None, n, 1000 + n) for n in range(1, 101)]
    assert observed_class(log) == TrafficClass(
        name=OBSERVED,
        prompt_tokens=Lengths(p50=50, p95=95, p99=99, max=100),
        output_tokens=Lengths(p50=1050, p95=1095, p99=1099, max=1100),
    )
    assert observed_class([Logged(None, 7, 3)]).prompt_tokens == Lengths(p50=7, p95=7, p99=7, max=7)


def test_a_log_fills_the_class_that_the_profile_leaves_out(tmp_path):
    (tmp_path / "log.jsonl").write_text(jsonl({"prompt_tokens": 5, "completion_tokens": 6}))
    path = tmp_path / "p.yaml"
    path.write_text(HEAD + "traffic: {log: log.jsonl}\nslo: {classes: {observed: {ttft: {p95: 1s}}}}\n")
    (cls,) = load_profile(path, {}).profile.traffic.classes
    assert (cls.name, cls.share, cls.prompt_tokens.p50) == ("observed", 1.0, 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("traffic: {log: none.jsonl}", "p.yaml:4:16: traffic.log: none.jsonl: there is no such file"),
        ("traffic: {log: empty}", "p.yaml:4:16: traffic.log: empty is empty"),
        ("traffic: {log: zero}", "p.yaml:4:16: traffic.log: zero holds no request with prompt and output tokens"),
        ("traffic: {log: bad}", "bad:1:1: this line is not JSON"),
        (
            "traffic: {log: good}\nslo: {classes: {observd: {}}}",
            "p.yaml:5:17: slo.classes.observd: there is no class 'observd', did you mean 'observed'",
        ),
        ("traffic: {prompts: none.txt}", "p.yaml:4:20: traffic.prompts: none.txt: there is no such file"),
        ("traffic: {prompts: bad}", "bad:1:1: this line is not JSON"),
    ],
)
def test_problems_of_the_files_stand_with_those_of_the_profile(tmp_path, monkeypatch, text, expected):
    monkeypatch.chdir(tmp_path)
    Path("empty").write_text(" \n")
    Path("zero").write_text(jsonl({"prompt_tokens": 5, "completion_tokens": 0}))
    Path("good").write_text(jsonl({"prompt_tokens": 5, "completion_tokens": 6}))
    Path("bad").write_text("{bad\n")
    Path("p.yaml").write_text(HEAD + text + "\nprobe: {seed: x}\n")
    with pytest.raises(ProfileError) as caught:
        load_profile("p.yaml", {})
    assert sorted(str(p) for p in caught.value.problems) == sorted(
        [expected, f"p.yaml:{5 + text.count(chr(10))}:15: probe.seed: needs a whole number"]
    )


@pytest.mark.parametrize(
    ("rows", "times"),
    [
        # Mooncake counts milliseconds
        ([{"timestamp": 27482, "input_length": 5, "output_length": 6}] * 2, [0, 0]),
        (
            [
                {"timestamp": 0, "input_length": 5, "output_length": 6, "hash_ids": [0]},
                {"timestamp": 2500, "input_length": 5, "output_length": 6, "hash_ids": [0]},
            ],
            [0, 2.5],
        ),
        # epochs in seconds and milliseconds; dates; out of order
        ([{"created": 1.7e9 + s, "prompt_tokens": 5, "completion_tokens": 6} for s in (1, 0.5)], [0, 0.5]),
        ([{"created": 1.7e12 + s, "prompt_tokens": 5, "completion_tokens": 6} for s in (0, 500)], [0, 0.5]),
        (
            [
                {"startTime": f"2024-05-01T10:00:0{s}Z", "prompt_tokens": 5, "completion_tokens": 6}
                for s in ("0", "1.5")
            ],
            [0, 1.5],
        ),
        # one without a time: none has
        (
            [{"created": 5, "prompt_tokens": 5, "completion_tokens": 6}, {"input_tokens": 5, "output_tokens": 6}],
            [None] * 2,
        ),
    ],
)
def test_times_are_seconds_from_the_first(rows, times):
    log, problems = read_log(jsonl(*rows), "log")
    assert problems == []
    assert [row.at for row in log] == times


def test_times_of_azures_traces():
    """As published: https://github.com/Azure/AzurePublicDataset (AzureLLMInferenceTrace_conv.csv)."""
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    log, _ = read_log(text, "log")
    assert [(row.prompt, row.output) for row in log] == [(374, 44), (396, 109)]
    assert log[1].at == pytest.approx(4.314579)


def test_shared_blocks_are_read():
    rows = [
        {"timestamp": 0, "input_length": 1100, "output_length": 6, "hash_ids": ids} for ids in ([0, 1, 2], "x", [-1])
    ]
    log, _ = read_log(jsonl(*rows), "log")
    assert [row.blocks for row in log] == [(0, 1, 2), (), ()]


def test_the_busiest_rate():
    """Ten minutes at one a second, then 300 s at two."""
    times = [*range(600), *(600 + n / 2 for n in range(600))]
    log = [Logged(float(at), 1, 1) for at in times]
    assert busiest_rate(log) == pytest.approx(2.0, rel=0.01)
    assert busiest_rate(log[:101]) == pytest.approx(1.0)
    assert busiest_rate(log[:1]) is None
    assert busiest_rate([Logged(None, 1, 1)] * 3) is None


def test_a_log_with_times_tells_the_rate_where_no_target_is_declared(tmp_path):
    rows = [{"timestamp": 500 * n, "input_length": 5, "output_length": 6} for n in range(5)]
    (tmp_path / "log.jsonl").write_text(jsonl(*rows))
    path = tmp_path / "p.yaml"
    path.write_text(HEAD + "traffic: {log: log.jsonl}\n")
    loaded = load_profile(path, {})
    assert loaded.profile.traffic.request_rate == pytest.approx(2.0)
    assert [row.at for row in loaded.log] == [0, 0.5, 1, 1.5, 2]
    path.write_text(HEAD + "traffic: {log: log.jsonl, target_concurrency: 4}\n")
    assert load_profile(path, {}).profile.traffic.request_rate is None


# ------------------------------------------------------------------------------------------------------------ prompts


def test_prompts_are_lines_or_json_lines():
    assert read_prompts("one\n\n two \n", "x") == (("one", "two"), [])
    text = jsonl(
        {"prompt": "a"},
        {"text": "b"},
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]},
        {"body": {"messages": [{"role": "user", "content": "batch"}]}},
    )
    assert read_prompts(text, "x") == (("a", "b", "s\nu", "batch"), [])


def test_json_lines_without_a_prompt_are_problems():
    text = (
        jsonl({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, {"other": 1}, {"messages": "x"}) + "{\n"
    )
    prompts, problems = read_prompts(text, "x.jsonl")
    assert prompts == ()
    assert [p.line for p in problems] == [1, 2, 3, 4]
    assert problems[0].message == "needs a text under 'prompt', or 'messages' with texts"
    assert problems[3].message == "this line is not JSON"
    assert len(read_prompts("{\n" * 50, "x")[1]) == 5


def test_prompts_come_with_the_profile(tmp_path):
    (tmp_path / "own.txt").write_text("hello\nworld\n")
    path = tmp_path / "p.yaml"
    path.write_text(HEAD + "traffic: {prompts: own.txt}\n")
    assert load_profile(path, {}).prompts == ("hello", "world")
