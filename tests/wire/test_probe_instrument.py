"""`audit probe` against a server that tells what it did: every request counted as the server counted it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from auditor.emulator.clock import run_virtual
from auditor.errors import NothingMeasured, PreflightFailed
from auditor.instruments.probe import Probed, Question, document, failed_share, row
from auditor.probe.events import Event
from auditor.probe.instrument import measure
from auditor.probe.target import Deadlines
from auditor.profile import Endpoint as Declared
from tests.wire.byteserver import ByteServer, chunked, head, sse
from tests.wire.endpoint import Endpoint, Told
from tests.wire.habits import certified

WAITS = Deadlines(connect=5, first_token=30, gap=10, total=200)
WORDS = {"fail": "http_5xx", "stall": "stalled", "drop": "cut_off", "in_stream": "in_stream"}


def probe(endpoint: Endpoint, *, one_byte: bool = False, **asked: Any) -> Probed:
    question = Question(**{"concurrency": 4, "requests": 24, "prompt": (16, 64), "output": (12, 12)} | asked)

    async def run() -> Probed:
        async with ByteServer(endpoint, one_byte=one_byte) as server:
            return await measure(question, Declared(url=server.url), None, lambda event: None, WAITS)

    return run_virtual(run())


def every(n: int, outcome: str) -> Callable[[int], str]:
    return lambda number: "ok" if number % n else outcome


def rows_by_id(probed: Probed) -> dict[str, dict[str, Any]]:
    rows = [row(sample) for sample in probed.measurement.samples]
    return {one["server_id"]: one for one in rows if one["server_id"] is not None}


def agrees(told: Told, mine: dict[str, Any]) -> bool:
    counted = mine["prompt_tokens"] in (None, told.prompt_tokens) and mine["output_tokens"] == told.tokens
    return counted and mine["error"] == WORDS.get(told.outcome)


@pytest.mark.parametrize("one_byte", [False, True])
@pytest.mark.parametrize("outcome", ["ok", "fail", "stall", "drop", "in_stream", "early"])
def test_every_request_is_counted_as_the_server_counted_it(outcome: str, one_byte: bool) -> None:
    endpoint = Endpoint(every(3, outcome))
    probed = probe(endpoint, one_byte=one_byte)
    said = document(probed)
    bad = 8 if outcome in WORDS else 0  # every third of 24
    assert (said["requests"]["ok"], said["requests"]["failed"]) == (24 - bad, bad)
    assert said["errors"] == ({WORDS[outcome]: bad} if bad else {})
    assert said["requests"]["short"] == (8 if outcome == "early" else 0)
    assert failed_share(probed.measurement) == pytest.approx(bad / 24)
    assert said["output_tokens"] == sum(told.tokens for told in endpoint.told)
    mine = rows_by_id(probed)
    seen = [told for told in endpoint.told if told.outcome != "fail"]
    assert sorted(mine) == sorted(told.id for told in seen)
    assert all(agrees(told, mine[told.id]) for told in seen)


@pytest.mark.parametrize(
    "shape",
    [
        {"role_chunk": True},
        {"separate_finish": True},
        {"early_headers": True},
        {"role_chunk": True, "separate_finish": True, "a_chunk": 4},
        {"usage": False},
        {"a_chunk": 4},
        {"a_chunk": 5},
    ],
)
def test_times_and_counts_survive_every_shape_of_stream(shape: dict[str, Any]) -> None:
    said = document(probe(Endpoint(**shape)))
    assert said["requests"]["ok"] == 24
    assert said["output_tokens"] == 24 * 12
    assert said["tokens_estimated"] == (24 if shape.get("usage") is False else 0)
    assert said["ttft_ms"]["max"] == pytest.approx(100, abs=1)
    assert said["prompt_tokens"] == (None if shape.get("usage") is False else sum_of_prompts())


def sum_of_prompts() -> int:
    """16 to 64 in 24 even steps: their mean is 40."""
    return 24 * 40


def test_the_first_answer_comes_after_the_reasoning() -> None:
    said = document(probe(Endpoint(reasoning=5)))
    assert said["ttft_ms"]["p50"] == pytest.approx(100, abs=1)
    assert said["first_answer_ms"]["p50"] == pytest.approx(200, abs=1)  # five tokens of 20 ms later
    never = document(probe(Endpoint(reasoning=99)))
    assert never["ttft_ms"]["p50"] == pytest.approx(100, abs=1)
    assert never["first_answer_ms"]["p50"] == "inf"


def test_nothing_is_generated_but_what_was_asked_for_where_the_server_tokenizes() -> None:
    endpoint = Endpoint(template=9)
    probed = probe(endpoint, requests=7, warmup=3, concurrency=2)
    assert len(endpoint.told) == 10
    assert document(probed)["requests"] == {
        **{"asked": 7, "ok": 7, "failed": 0, "cancelled": 0, "not_sent": 0, "short": 0},
        "warmup": 3,
    }
    measured = [row(sample) for sample in probed.measurement.samples]
    assert [one["prompt_tokens"] for one in measured] == [one["asked_prompt_tokens"] for one in measured]
    assert sorted(one["asked_prompt_tokens"] for one in measured) == [16, 24, 32, 40, 48, 56, 64]


def test_short_requests_tell_the_lengths_of_words_elsewhere() -> None:
    endpoint = Endpoint(tokenizes=False, template=9)
    probed = probe(endpoint, requests=5)
    assert probed.counted == "usage of short requests"
    assert 3 <= len(endpoint.told) - 5 <= 10
    assert [s.prompt_tokens for s in probed.measurement.samples] == [
        s.asked_prompt_tokens for s in probed.measurement.samples
    ]


def test_percentiles_count_a_failed_request_as_never_answered() -> None:
    said = document(probe(Endpoint(every(4, "fail")), requests=20))
    assert said["ttft_ms"]["p50"] == pytest.approx(100, abs=1)
    assert said["ttft_ms"]["p90"] == "inf"  # 5 of 20 failed
    assert said["tpot_ms"]["p50"] == pytest.approx(20, abs=0.5)


def test_an_endpoint_that_goes_away_ends_the_load() -> None:
    endpoint = Endpoint()

    async def run() -> Probed:
        async with ByteServer(endpoint) as server:

            def leave(event: Event) -> None:
                if event.kind == "request" and event.done == 10:
                    asyncio.get_running_loop().create_task(server.stop())

            question = Question(concurrency=2, requests=5000, prompt=(16, 16), output=(4, 4))
            return await measure(question, Declared(url=server.url), None, leave, WAITS)

    said = document(run_virtual(run()))
    assert "reached nobody" in said["stopped"]
    assert said["requests"]["ok"] >= 10
    assert said["requests"]["not_sent"] > 4000


def test_an_endpoint_that_answers_no_request_is_not_measured() -> None:
    with pytest.raises(NothingMeasured, match="not one of 3 requests was answered"):
        probe(Endpoint(lambda number: "drop", early_headers=False), requests=3, output=(1, 1))


def test_nobody_there_is_told_in_the_words_of_the_command_line() -> None:
    async def run() -> Probed:
        question = Question(concurrency=1, requests=1, prompt=(16, 16), output=(4, 4))
        return await measure(question, Declared(url="http://127.0.0.1:9/v1"), None, lambda event: None, WAITS)

    with pytest.raises(PreflightFailed, match="--url: nothing listens") as raised:
        run_virtual(run())
    assert "127.0.0.1:9" in str(raised.value)
    assert "endpoint." not in str(raised.value)


def test_no_word_of_a_server_shows_a_secret() -> None:
    """A gateway may put the key into anything: an id, a reason to end, an error, a first line that is no HTTP."""
    key = "sesame-street-7"
    told = f'{{"id":"{key}","choices":[{{"delta":{{"content":"a"}},"finish_reason":"{key}"}}]}}'
    endpoint = Endpoint()

    async def run(*answer: bytes) -> Probed:
        async with ByteServer(
            lambda r, n: [(0.01, part) for part in answer] if "completions" in r.path else endpoint(r, n)
        ) as server:
            question = Question(concurrency=1, requests=1, prompt=(16, 16), output=(1, 1))
            return await measure(question, Declared(url=server.url), key, lambda event: None, WAITS)

    reply = sse(told) + sse("[DONE]") + chunked(b"")
    (mine,) = [row(sample) for sample in run_virtual(run(head(), reply)).measurement.samples]
    assert (mine["server_id"], mine["finish_reason"], mine["ok"]) == ("***", "***", True)
    with pytest.raises(NothingMeasured) as raised:
        run_virtual(run(f"{key} is no HTTP\r\n\r\n".encode()))
    assert key not in str(raised.value)


def test_errors_of_single_requests_name_flags() -> None:
    endpoint, moved = Endpoint(), b"HTTP/1.1 301 Moved\r\nlocation: /v2\r\ncontent-length: 0\r\n\r\n"

    async def run() -> Probed:
        async with ByteServer(lambda r, n: [(0.01, moved)] if "completions" in r.path else endpoint(r, n)) as server:
            question = Question(concurrency=1, requests=1, prompt=(16, 16), output=(1, 1))
            return await measure(question, Declared(url=server.url), None, lambda event: None, WAITS)

    (said,) = document(run_virtual(run()))["error_details"].values()
    assert "put the final address in --url" in said


def test_an_untrusted_certificate_is_refused_unless_the_user_takes_any() -> None:
    async def run(verify: bool) -> Probed:
        async with ByteServer(Endpoint(), tls=certified()) as server:
            question = Question(concurrency=1, requests=1, prompt=(16, 16), output=(1, 1))
            declared = Declared(url=server.url, verify_tls=verify)
            return await measure(question, declared, None, lambda event: None, WAITS)

    with pytest.raises(PreflightFailed, match=r"is not trusted .*set --insecure"):
        run_virtual(run(True))
    probed = run_virtual(run(False))
    assert (document(probed)["requests"]["ok"], len(probed.notes)) == (1, 1)
    assert "nobody checked the certificate" in probed.notes[0]
