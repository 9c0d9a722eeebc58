"""Every way to misbehave, each beside its healthy twin."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from raw_client import ask, chat, completion, emulated

from auditor.emulator.clock import run_virtual
from auditor.emulator.spec import Faults, Spec

BOTH = [Spec(), Spec(flavour="sglang", version="0.5.23", block_size=1)]


def send(spec, bodies, path="/v1/completions", patience=3600.0, pause=0.0):
    """The bodies, one after the other if there is a pause, else at one moment."""

    async def main():
        async with emulated(spec) as emulator:
            if pause:
                seen = []
                for body in bodies:
                    seen.append(await ask(emulator.port, path, body, patience=patience))
                    await asyncio.sleep(pause)
            else:
                seen = await asyncio.gather(*(ask(emulator.port, path, body, patience=patience) for body in bodies))
            page = await ask(emulator.port, "/metrics", patience=5)
            return seen, emulator.record, page

    return run_virtual(main())


def one(spec, body, **more):
    return send(spec, [body], **more)[0][0]


@pytest.mark.parametrize("spec", BOTH)
def test_buffered(spec):
    twin = one(spec, chat("hi", 20), path="/v1/chat/completions")
    seen = one(replace(spec, faults=Faults(buffered=True)), chat("hi", 20), path="/v1/chat/completions")
    assert [data.get("usage") for data in seen.data] == [data.get("usage") for data in twin.data]
    assert len({at for at, _ in twin.events}) >= 18
    assert {at for at, _ in seen.events} == {seen.head_at} == {twin.events[-1][0]}


@pytest.mark.parametrize("spec", BOTH)
def test_not_streamed(spec):
    seen = one(replace(spec, faults=Faults(not_streamed=True)), completion("hi", 5))
    assert seen.headers["content-type"] == "application/json"
    assert seen.json["usage"]["completion_tokens"] == 5


def test_short_replies():
    seen = one(Spec(faults=Faults(short_replies=7)), completion("hi", 50))
    assert seen.usage["completion_tokens"] == 7
    assert seen.data[-2]["choices"][0]["finish_reason"] == "stop"


def test_min_tokens_ignored():
    seen, _, _ = send(Spec(eos_tokens=20, faults=Faults(ignore_min_tokens=True)), [completion("hi", 500)] * 10)
    assert max(reply.usage["completion_tokens"] for reply in seen) < 200
    forced = one(Spec(faults=Faults(ignore_min_tokens=True)), completion("hi", 500, ignore_eos=True))
    assert forced.usage["completion_tokens"] == 500


def test_quota_is_a_gateways_429_and_renews():
    seen, record, _ = send(Spec(faults=Faults(quota=2, quota_window=10)), [completion("hi", 2)] * 6, pause=3)
    assert [reply.status for reply in seen] == [200, 200, 429, 429, 200, 200]
    refused = seen[2]
    assert refused.headers["x-ratelimit-limit-requests"] == "2"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert int(refused.headers["retry-after"]) == 4  # asked after 6 s and a little, the window is 10 s
    assert refused.json["error"]["code"] == "rate_limit_exceeded"
    assert [request.status for request in record.requests] == [200, 200, 429, 429, 200, 200]


@pytest.mark.parametrize("spec", BOTH)
def test_queue_limit(spec):
    """Streams are refused inside a 200, others by a real 503; the twin takes all."""
    small = replace(spec, max_num_seqs=4, faults=Faults(queue_limit=6))
    seen, record, page = send(small, [completion("hi", 20)] * 16)
    refused = [reply for reply in seen if "error" in reply.data[0]]
    assert len(refused) == record.refused == 10  # a queue of six, and at first nobody runs
    assert {reply.status for reply in seen} == {200}
    assert refused[0].data[0]["error"]["code"] == 503
    assert refused[0].events[-1][1] == "[DONE]"
    assert refused[0].ended
    if spec.flavour == "sglang":
        assert refused[0].data[0]["error"]["message"] == "The request queue is full."
        assert refused[0].usage == {
            "prompt_tokens": 0, "total_tokens": 0, "completion_tokens": 0, "reasoning_tokens": 0,
        }  # fmt: skip
    else:
        assert "currently busy" in refused[0].data[0]["error"]["message"]
        assert 'vllm:admission_rejections_total{engine="0",model_name' in page.body.decode()
    plain = {"prompt": "hi", "max_tokens": 20, "ignore_eos": True}
    seen, _, _ = send(small, [plain] * 16)
    assert sorted(reply.status for reply in seen) == [200] * 6 + [503] * 10
    seen, _, _ = send(replace(small, faults=Faults()), [plain] * 16)
    assert {reply.status for reply in seen} == {200}


@pytest.mark.parametrize("spec", BOTH)
def test_dropped_streams(spec):
    seen, record, _ = send(replace(spec, faults=Faults(drop_every=3)), [completion("hi", 40)] * 6)
    assert [reply.ended for reply in seen] == [True, True, False] * 2
    assert 15 <= len(seen[2].token_times) < 20
    assert [request.fault for request in record.requests] == [None, None, "drop"] * 2


def test_a_dropped_stream_counts_once():
    """Four requests, every second one cut halfway: two end by length, two are aborted, none is both."""
    _, _, page = send(Spec(faults=Faults(drop_every=2)), [completion("hi there", 10)] * 4, pause=1.0)
    ended = [line for line in page.body.decode().splitlines() if line.startswith("vllm:request_success_total{")]
    counts = {line.split('finished_reason="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in ended}
    assert {reason: count for reason, count in counts.items() if count} == {"length": 2.0, "abort": 2.0}


@pytest.mark.parametrize("spec", BOTH)
def test_stalled_streams(spec):
    seen, record, _ = send(replace(spec, faults=Faults(stall_every=2)), [completion("hi", 40)] * 2, patience=600)
    assert seen[0].ended
    assert not seen[1].ended
    assert len(seen[1].token_times) < 20
    assert record.requests[1].fault == "stall"


@pytest.mark.parametrize("spec", BOTH)
def test_errors_inside_a_stream(spec):
    seen, _, _ = send(replace(spec, faults=Faults(error_in_stream_every=2)), [completion("hi", 40)] * 2)
    assert "error" not in seen[0].data[-1]
    assert seen[1].status == 200
    assert seen[1].data[-1]["error"]["code"] == 500
    assert seen[1].events[-1][1] == "[DONE]"
    assert seen[1].ended


@pytest.mark.parametrize("fault", ["drop_every", "stall_every", "error_in_stream_every"])
def test_faults_hit_json_replies_too(fault):
    plain = {"prompt": "hi", "max_tokens": 20, "ignore_eos": True}
    seen = one(Spec(faults=Faults(**{fault: 1})), plain, patience=600)
    assert seen.status == (500 if fault == "error_in_stream_every" else 0)


@pytest.mark.parametrize("spec", BOTH)
def test_no_usage(spec):
    options = {"include_usage": True, "continuous_usage_stats": True}
    seen = one(replace(spec, faults=Faults(no_usage=True)), completion("hi", 10, stream_options=options))
    assert seen.usage is None
    assert seen.ended
    plain = {"prompt": "hi", "max_tokens": 2, "ignore_eos": True}
    assert one(replace(spec, faults=Faults(no_usage=True)), plain).json["usage"] is None


def test_lies_in_usage():
    assert one(Spec(faults=Faults(lies_usage=True)), completion("hi", 10)).usage["completion_tokens"] == 20


def test_foreign_traffic_shows_on_the_metrics_page_and_in_the_step_times():
    def gaps(faults):
        seen, record, page = send(Spec(jitter=0.0, faults=faults), [completion("hi", 400)])
        return seen[0].gaps, record, page.body.decode()

    quiet, record, _ = gaps(Faults())
    assert not [request for request in record.requests if request.foreign]
    busy, record, _ = gaps(Faults(foreign_rate=20, foreign_tokens=(1000, 100)))
    foreign = [request for request in record.requests if request.foreign]
    assert len(record.own) == 1
    assert 20 <= len(foreign) <= 150
    assert sum(busy) > 1.3 * sum(quiet)
    assert max(busy) > 2 * max(quiet)


def test_foreign_traffic_comes_at_its_rate():
    async def main():
        async with emulated(Spec(faults=Faults(foreign_rate=5, foreign_tokens=(50, 10)))) as emulator:
            await asyncio.sleep(200)
            return [request.arrival for request in emulator.record.requests]

    arrivals = run_virtual(main())
    assert 850 < len(arrivals) < 1150
    assert min(b - a for a, b in pairwise(arrivals)) < 0.01  # random, not regular


def test_cold_first_token():
    seen, _, _ = send(Spec(faults=Faults(cold_first_token=5.0)), [completion("hi", 5)] * 2, pause=1)
    waits = [reply.token_times[0] - reply.sent for reply in seen]
    assert waits[0] > 5
    assert waits[1] < 0.1


def test_drifted_settings_are_served():
    spec = Spec(faults=Faults(drifted={"max_model_len": 1024, "max_num_seqs": 2}))

    async def main():
        async with emulated(spec) as emulator:
            bodies = [completion(f"{index}", 30) for index in range(4)]
            await asyncio.gather(*(ask(emulator.port, "/v1/completions", body) for body in bodies))
            models = await ask(emulator.port, "/v1/models")
            return models.json["data"][0]["max_model_len"], max(step.decodes for step in emulator.record.steps)

    assert run_virtual(main()) == (1024, 2)


@pytest.mark.parametrize("spec", BOTH)
def test_no_metrics(spec):
    _, _, page = send(replace(spec, faults=Faults(no_metrics=True)), [completion("hi", 2)])
    assert page.status == 404


def test_html_errors():
    seen, record, _ = send(Spec(faults=Faults(html_errors=True)), [completion("hi", 2)])
    assert seen[0].status == 502
    assert seen[0].headers["content-type"] == "text/html"
    assert seen[0].body.startswith(b"<html>")
    assert record.requests[0].status == 502

    async def main():
        async with emulated(Spec(faults=Faults(html_errors=True))) as emulator:
            return await ask(emulator.port, "/props"), await ask(emulator.port, "/version")

    missing, fine = run_virtual(main())
    assert (missing.status, missing.headers["content-type"]) == (404, "text/html")
    assert fine.status == 200


def test_an_endpoint_that_dies():
    async def main():
        async with emulated(Spec(faults=Faults(dies_after=3))) as emulator:
            first = [await ask(emulator.port, "/v1/completions", completion("hi", 2)) for _ in range(2)]
            halfway = asyncio.create_task(ask(emulator.port, "/v1/completions", completion("hi", 2000)))
            await asyncio.sleep(0.5)
            last = await ask(emulator.port, "/v1/completions", completion("hi", 2))
            cut = await halfway
            with pytest.raises(ConnectionRefusedError):
                await ask(emulator.port, "/v1/models")
            return first, cut, last

    first, cut, last = run_virtual(main())
    assert all(reply.ended for reply in first)
    assert not cut.ended
    assert cut.token_times
    assert (last.status, last.ended) == (0, False)
