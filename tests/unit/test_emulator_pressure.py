"""KV pressure as users see it: thrash on vLLM, held-back admission on SGLang; prefixes, replicas, speculation."""

import asyncio
import re
from dataclasses import replace
from statistics import median

import pytest
from raw_client import WORDS, ask, completion, emulated

from auditor.emulator.clock import run_virtual
from auditor.emulator.spec import Faults, Spec

# The pools, lengths and batches with which real engines were brought under pressure.
SMALL_VLLM = Spec(pool_tokens=3072, max_model_len=2048, block_size=128, max_num_seqs=16, prefix_caching=False)
SMALL_SGLANG = Spec(
    flavour="sglang", version="0.5.23", pool_tokens=8192, max_model_len=2048, block_size=1, max_num_seqs=8
)


def unique(index):
    """A prompt of 100 tokens that no other request has."""
    return f"r{index} {WORDS.split(' ', 1)[1]}"


def value(page, name, **labels):
    """The sum over the samples of a name that carry these labels."""
    found = [
        float(line.rsplit(" ", 1)[1])
        for line in page.splitlines()
        if re.match(rf"{name}(\{{|\s)", line) and all(f'{key}="{want}"' in line for key, want in labels.items())
    ]
    return sum(found) if found else None


def load(spec, count, body, watch=0.0):
    """`count` requests at one moment; replies, the record, metrics pages taken every `watch` seconds and at the end."""

    async def main():
        async with emulated(spec) as emulator:
            pages = []

            async def watching():
                while True:
                    await asyncio.sleep(watch)
                    pages.append((await ask(emulator.port, "/metrics")).body.decode())

            task = asyncio.create_task(watching()) if watch else None
            seen = await asyncio.gather(*(ask(emulator.port, "/v1/completions", body(index)) for index in range(count)))
            if task:
                task.cancel()
            await asyncio.sleep(1)
            pages.append((await ask(emulator.port, "/metrics")).body.decode())
            return seen, emulator.record, pages

    return run_virtual(main())


# -------------------------------------------------------------------------------------------------------------- thrash


def test_vllm_thrashes_with_healthy_ttft_and_long_gaps():
    """16 streams of 100 + 400 on 3,072 tokens: TTFT and the median gap look well, the largest gap does not."""
    seen, record, pages = load(SMALL_VLLM, 16, lambda index: completion(unique(index), 400), watch=0.5)
    assert all(reply.ended for reply in seen)
    assert [reply.usage["completion_tokens"] for reply in seen] == [400] * 16
    ttfts = [reply.token_times[0] - reply.sent for reply in seen]
    steady = median(median(reply.gaps) for reply in seen)
    largest = max(max(reply.gaps) for reply in seen)
    assert max(ttfts) < 0.3
    assert largest > 100 * steady
    assert 8 <= record.preemptions <= 30
    assert value(pages[-1], "vllm:num_preemptions_total") == record.preemptions
    assert value(pages[-1], "vllm:num_requests_running") == 0
    # Live signs: waiting, the pool full, fewer running, and a counter that lags behind.
    full = [page for page in pages[:-1] if value(page, "vllm:num_requests_waiting") > 0]
    assert full
    assert all(value(page, "vllm:kv_cache_usage_perc") >= 0.8 for page in full)
    assert min(value(page, "vllm:num_requests_running") for page in full) < 10
    assert min(value(page, "vllm:num_preemptions_total") for page in full) < record.preemptions


def test_the_twin_with_a_large_pool_does_not_thrash():
    spec = replace(SMALL_VLLM, pool_tokens=16_384)
    seen, record, _ = load(spec, 16, lambda index: completion(unique(index), 400))
    assert record.preemptions == 0
    assert max(max(reply.gaps) for reply in seen) < 0.05


def test_sglang_holds_requests_back_and_decodes_well():
    """8 x (100 + 1,400) by ignore_eos on 8,192 tokens: five run, three wait for them to end; no retraction."""
    body = {"max_tokens": 1400, "ignore_eos": True, "stream": True}
    seen, record, pages = load(SMALL_SGLANG, 8, lambda index: {"prompt": unique(index), **body}, watch=1.0)
    ttfts = sorted(reply.token_times[0] - reply.sent for reply in seen)
    tpots = [request.tpot for request in record.requests]
    assert max(ttfts[:5]) < 0.2
    assert min(ttfts[5:]) > 5
    assert max(tpots) < 1.5 * min(tpots)
    assert max(max(reply.gaps) for reply in seen) < 0.1
    assert record.preemptions == 0
    assert value(pages[-1], "sglang:num_retracted_requests_total") is None  # absent means none yet
    assert value(pages[1], "sglang:num_running_reqs") == 5
    assert value(pages[1], "sglang:num_queue_reqs") == 3


def test_sglang_retracts_with_min_tokens_and_a_low_estimate():
    """4,096 tokens, conservativeness 0.05, min_tokens: seven run, some are retracted and wait long."""
    spec = replace(SMALL_SGLANG, pool_tokens=4096, schedule_conservativeness=0.05)
    seen, record, pages = load(spec, 8, lambda index: completion(unique(index), 900))
    assert all(reply.ended for reply in seen)
    assert 1 <= record.preemptions <= 8
    assert value(pages[-1], "sglang:num_retracted_requests_total") == record.preemptions
    assert max(max(reply.gaps) for reply in seen) > 1
    forced = {"max_tokens": 900, "ignore_eos": True, "stream": True}
    _, record, _ = load(spec, 8, lambda index: {"prompt": unique(index), **forced})
    assert record.preemptions == 0


def test_more_than_max_num_seqs_waits():
    seen, record, pages = load(Spec(max_num_seqs=4), 8, lambda index: completion(unique(index), 50), watch=0.2)
    assert max(step.decodes for step in record.steps) == 4
    ttfts = sorted(reply.token_times[0] - reply.sent for reply in seen)
    assert ttfts[4] > 5 * ttfts[3]
    assert value(pages[0], "vllm:num_requests_waiting") == 4


# --------------------------------------------------------------------------------------------------------- prefix cache


@pytest.mark.parametrize("flavour", ["vllm", "sglang"])
def test_a_prompt_seen_before_is_quick(flavour):
    """The same prompt of 6,000 tokens three times: slow, then quick twice; without the cache always slow."""

    async def main(spec):
        async with emulated(spec) as emulator:
            waits = []
            for _ in range(3):
                reply = await ask(emulator.port, "/v1/completions", completion("word " * 6000, 4))
                waits.append(reply.token_times[0] - reply.sent)
            page = (await ask(emulator.port, "/metrics")).body.decode()
            return waits, [request.cached_tokens for request in emulator.record.requests], page

    spec = Spec(flavour=flavour, block_size=16 if flavour == "vllm" else 1, jitter=0.0)
    waits, cached, page = run_virtual(main(spec))
    assert cached == [0, 5984, 5984]  # whole units of 16, never the whole prompt
    assert waits[0] > 4 * waits[1]
    assert waits[1] == pytest.approx(waits[2], rel=0.01)
    if flavour == "vllm":
        assert value(page, "vllm:prefix_cache_hits_total") == 2 * 5984
        assert value(page, "vllm:prefix_cache_queries_total") == 18_000
    else:
        assert value(page, "sglang:cached_tokens_total", cache_source="device") == 2 * 5984
        assert value(page, "sglang:cache_hit_rate") == pytest.approx(5984 / 6000)
    waits, cached, _ = run_virtual(main(replace(spec, prefix_caching=False)))
    assert cached == [0, 0, 0]
    assert waits[0] == pytest.approx(waits[2], rel=0.01)


def test_all_prompts_cached_is_a_fault_of_its_own():
    def ttft(faults):
        seen, record, _ = load(Spec(faults=faults), 1, lambda index: completion(unique(index) + " w" * 3000, 4))
        return seen[0].token_times[0] - seen[0].sent, record.requests[0].cached_tokens

    slow, fast = ttft(Faults()), ttft(Faults(prefix_cached=True))
    assert (slow[1], fast[1]) == (0, 3088)
    assert slow[0] > 3 * fast[0]


# ------------------------------------------------------------------------------------------ replicas and speculation


def test_replicas_take_turns_and_have_their_own_series():
    seen, record, pages = load(Spec(replicas=3), 6, lambda index: completion(unique(index), 20))
    assert [request.replica for request in record.requests] == [0, 1, 2, 0, 1, 2]
    for engine in "012":
        assert value(pages[-1], "vllm:generation_tokens_total", engine=engine) == 40
    assert len({reply.data[0]["id"] for reply in seen}) == 6
    _, _, pages = load(Spec(flavour="sglang", replicas=2, block_size=1), 4, lambda index: completion(unique(index), 5))
    assert value(pages[-1], "sglang:max_total_num_tokens", dp_rank="1") > 0


def test_speculation_brings_several_tokens_an_event():
    spec = Spec(speculative_tokens=3, faults=Faults(accept_length=2.5))
    seen, record, pages = load(spec, 4, lambda index: completion(unique(index), 400))
    assert [reply.usage["completion_tokens"] for reply in seen] == [400] * 4
    assert all(150 < len(reply.token_times) < 175 for reply in seen)  # 1 + 399 / 2.5 = 160.6
    drafts = value(pages[-1], "vllm:spec_decode_num_drafts_total")
    accepted = value(pages[-1], "vllm:spec_decode_num_accepted_tokens_total")
    assert 1 + accepted / drafts == pytest.approx(2.5, abs=0.1)
    assert value(pages[-1], "vllm:spec_decode_num_draft_tokens_total") == 3 * drafts
    assert sum(record.requests[0].counts) == 400


def test_replies_end_at_their_end_of_text_unless_forced():
    body = {"prompt": "a b c", "max_tokens": 2000, "stream": True, "stream_options": {"include_usage": True}}
    seen, record, _ = load(Spec(eos_tokens=50), 40, lambda _: body)
    lengths = [reply.usage["completion_tokens"] for reply in seen]
    assert len(set(lengths)) > 20
    assert 25 < sum(lengths) / 40 < 90
    assert {request.finish_reason for request in record.requests} == {"stop"}
    seen, _, _ = load(Spec(eos_tokens=50), 10, lambda _: {**body, "min_tokens": 100})
    assert min(reply.usage["completion_tokens"] for reply in seen) >= 100
    seen, _, _ = load(Spec(eos_tokens=50), 3, lambda _: {**body, "max_tokens": 300, "ignore_eos": True})
    assert [reply.usage["completion_tokens"] for reply in seen] == [300] * 3


# -------------------------------------------------------------------------------------------------------------- record


@pytest.mark.parametrize("flavour", ["vllm", "sglang"])
def test_the_record_agrees_with_what_a_client_saw(flavour):
    spec = Spec(flavour=flavour, block_size=16 if flavour == "vllm" else 1)
    seen, record, pages = load(spec, 12, lambda index: completion(unique(index), 48))
    for reply, request in zip(seen, record.requests, strict=True):
        assert request.arrival == reply.sent
        assert request.first == reply.token_times[0]
        assert request.finished == reply.token_times[-1]
        assert (request.prompt_tokens, request.output_tokens) == (100, 48)
        assert request.arrival < request.admitted < request.first
        assert request.largest_gap == pytest.approx(max(reply.gaps), rel=0.5)
    ttft = sum(reply.token_times[0] - reply.sent for reply in seen)
    assert value(pages[-1], f"{flavour}:time_to_first_token_seconds_sum") == pytest.approx(ttft)
    assert value(pages[-1], f"{flavour}:time_to_first_token_seconds_count") == 12
    assert value(pages[-1], f"{flavour}:generation_tokens_total") == 12 * 48
    assert value(pages[-1], f"{flavour}:prompt_tokens_total") == 1200
    assert record.steps[-1].kv_used > 0
    assert all(step.lag == pytest.approx(0, abs=1e-9) for step in record.steps)


def test_the_record_is_told_over_http():
    async def main():
        async with emulated(Spec()) as emulator:
            await ask(emulator.port, "/v1/completions", completion("a", 5))
            short = (await ask(emulator.port, "/emulator/record")).json
            return short, (await ask(emulator.port, "/emulator/record?times&steps=1")).json

    short, full = run_virtual(main())
    assert short["requests"][0]["output_tokens"] == 5
    assert "times" not in short["requests"][0]
    assert "steps" not in short
    assert len(full["requests"][0]["times"]) == 5
    assert len(full["steps"]) == short["step_count"] == 5
