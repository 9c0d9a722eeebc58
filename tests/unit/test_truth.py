"""Both accounts of one load worked out by hand: where they agree, and in words where the difference lies."""

from dataclasses import replace

import pytest

from auditor.loads import Load, Shape
from auditor.measurement import Histogram, Measurement, Sample, Snapshot
from auditor.monitoring.truth import Frame, agreements, gained
from auditor.profile import Objective

INF = float("inf")
P95 = Objective(metric="ttft", share=0.95, limit=0.3, path="slo.ttft.p95", percentile="p95")


def sample(index, ttft=0.4, **rest):
    """100 prompt tokens, 11 output tokens 20 ms apart."""
    arrivals = tuple(ttft + 0.02 * i for i in range(11)) if ttft is not None else ()
    fields = {
        "load": "slo",
        "index": index,
        "cls": "chat",
        "start": float(index),
        "asked_prompt_tokens": 100,
        "asked_output_tokens": 11,
        "ttft": ttft,
        "e2e": arrivals[-1] if arrivals else None,
        "prompt_tokens": 100 if arrivals else None,
        "output_tokens": 11 if arrivals else None,
        "arrivals": arrivals,
    }
    return Sample(**(fields | rest))


def histogram(count, mean, *buckets):
    return Histogram(sum=count * mean, count=count, buckets=(*buckets, (INF, count)))


def load(samples=None, *, before=None, after=None, during=(), counters=None, **rest):
    """20 requests; the server's histograms and counters start at 0."""
    samples = tuple(sample(i) for i in range(20)) if samples is None else tuple(samples)
    shapes = rest.pop("shapes", (Shape(cls="chat", prompt_tokens=100, output_tokens=11),) * len(samples))
    return Measurement(
        load=Load(id="slo", purpose=rest.pop("purpose", "slo"), concurrency=1, shapes=shapes),
        samples=samples,
        snapshots=(
            Snapshot(at=0.0, phase="before", values=dict.fromkeys(counters or {}, 0.0), histograms=before or {}),
            *during,
            Snapshot(at=30.0, phase="after", values=counters or {}, histograms=after or {}),
        ),
        **rest,
    )


def told(measurement, frame=None, name="mean TTFT"):
    return {a.quantity: a for a in agreements([measurement], frame or Frame())}[name]


def test_the_same_requests_with_the_same_mean_agree():
    found = told(load(after={"ttft": histogram(20, 0.395)}))
    assert (found.server, found.client, found.unit, found.verdict) == (0.395, pytest.approx(0.4), "s", "agrees")


def test_what_stood_on_the_page_before_is_no_part_of_it():
    before, after = (
        histogram(100, 2.0, (0.5, 0.0)),
        Histogram(sum=208.0, count=120.0, buckets=((0.5, 20.0), (INF, 120.0))),
    )
    measurement = load(before={"ttft": before}, after={"ttft": after})
    assert gained(measurement, "ttft") == Histogram(sum=8.0, count=20.0, buckets=((0.5, 20.0), (INF, 20.0)))
    assert told(measurement).verdict == "agrees"


def test_a_histogram_that_was_reset_counts_from_nothing():
    after = histogram(20, 0.4)
    assert gained(load(before={"ttft": histogram(100, 2.0)}, after={"ttft": after}), "ttft") == after
    assert gained(load(), "ttft") is None


def test_time_that_no_panel_shows_is_told_with_its_parts():
    """0.4 s here: 0.1 s in the queue, 0.15 s until the token, 0.15 s on the way."""
    found = told(load(after={"ttft": histogram(20, 0.25), "queue_time": histogram(20, 0.1)}))
    assert found.verdict == "differs"
    assert (
        found.note
        == "100 ms in its queue, 150 ms until the token, 150 ms between engine and client, which no panel of it shows"
    )


def test_without_queue_times_the_engine_is_one_part():
    assert told(load(after={"ttft": histogram(20, 0.25)})).note.startswith("250 ms in the engine, 150 ms between")


def test_a_server_that_is_slower_than_what_was_seen_counts_something_else():
    found = told(load(after={"ttft": histogram(20, 0.9)}))
    assert (found.verdict, "not the same requests" in found.note) == ("differs", True)


@pytest.mark.parametrize(
    ("server", "frame", "verdict", "words"),
    [
        (20, Frame(), "agrees", ""),
        (21, Frame(), "agrees", ""),
        (0, Frame(), "differs", "another replica, engine or model"),
        (10, Frame(), "differs", "only 50 % of the requests: another replica"),
        (10, Frame(replicas=2), "differs", "1 of 2 replicas are read"),
        (50, Frame(), "differs", "30 requests more than were sent"),
    ],
)
def test_who_counted_which_requests(server, frame, verdict, words):
    measurement = load(after={"ttft": histogram(server, 0.4)})
    found = told(measurement, frame, "requests")
    assert (found.server, found.client, found.verdict) == (server, 20, verdict)
    assert words in found.note
    if verdict == "differs" and server:
        assert (told(measurement, frame).verdict, told(measurement, frame).note) == ("unknown", "not the same requests")


def test_a_request_that_failed_here_may_have_got_its_token_there():
    samples = [sample(i, *([None] if i < 5 else []), **({"error": "timeout"} if i < 5 else {})) for i in range(20)]
    for server in (15, 20):
        assert told(load(samples, after={"ttft": histogram(server, 0.4)}), name="requests").verdict == "agrees"
    assert told(load(samples, after={"ttft": histogram(20, 0.4)})).verdict == "unknown"


def test_nothing_that_came_here_compares_with_nothing():
    samples = [sample(i, None, error="connect") for i in range(20)]
    found = agreements([load(samples, after={"ttft": histogram(0, 0.0)})], Frame())
    assert [a.verdict for a in found] == ["unknown"]


@pytest.mark.parametrize(
    ("server", "verdict"), [(2000.0, "agrees"), (2030.0, "agrees"), (2100.0, "differs"), (1000.0, "differs")]
)
def test_prompt_tokens_are_counted_by_both(server, verdict):
    assert told(load(counters={"prompt_tokens": server}), name="prompt tokens").verdict == verdict


def test_tokens_that_a_cache_held_may_be_left_out_by_the_server():
    samples = [sample(i, cached_tokens=64) for i in range(20)]
    found = told(load(samples, counters={"prompt_tokens": 720.0}), name="prompt tokens")
    assert (found.client, found.verdict) == (720.0, "agrees")
    assert found.note == "without 1,280 tokens that came from its cache"


def test_tokens_that_no_reply_told_are_not_observed():
    samples = [sample(i, prompt_tokens=None) for i in range(20)]
    found = told(load(samples, counters={"prompt_tokens": 2000.0}), name="prompt tokens")
    assert (found.client, found.verdict) == (None, "unknown")


def test_kv_usage_of_other_users_is_theirs():
    measurement = load(during=[reading(0.5, 0.4)], after={"ttft": histogram(50, 0.4)})
    assert told(measurement, Frame(pool=1120, block=16), "mean KV usage").verdict == "unknown"


def test_output_tokens_that_were_counted_from_events_compare_with_nothing():
    samples = [sample(i, estimated=True) for i in range(20)]
    assert told(load(samples, counters={"generation_tokens": 400.0}), name="output tokens").verdict == "unknown"
    assert told(load(counters={"generation_tokens": 220.0}), name="output tokens").verdict == "agrees"


def test_times_per_token_are_compared_as_the_server_counts_them():
    after = {"ttft": histogram(20, 0.4), "tpot": histogram(20, 0.02)}
    assert told(load(after=after), name="mean time per token").verdict == "agrees"
    late = told(load(after=after | {"tpot": histogram(200, 0.01)}), name="mean time per token")
    assert (late.server, late.client) == (pytest.approx(0.01), pytest.approx(0.02))
    assert (late.verdict, late.note) == ("differs", "tokens are held up on the way to the client, or read late there")


def test_times_per_token_of_replies_that_did_not_end_are_on_one_side_only():
    """The engine counts a request's time per token once it has ended: 16 of the 20 here."""
    name, first = "mean time per token", {"ttft": histogram(20, 0.4)}
    assert told(load(after=first | {"tpot": histogram(16, 0.01)}), name=name).verdict == "unknown"
    cut = [sample(i, **({"error": "cut_off"} if i < 4 else {})) for i in range(20)]
    assert told(load(cut, after=first | {"tpot": histogram(200, 0.01)}), name=name).verdict == "unknown"


def reading(at, usage, waiting=0.0):
    return Snapshot(at=at, phase="during", values={"kv_usage": usage, "waiting": waiting})


# At 0.5 s the first request has 100 prompt tokens and 6 of its own: 7 blocks of 16 tokens of a pool of 1,120, 10 %.
@pytest.mark.parametrize(
    ("usage", "verdict", "words"),
    [(0.1, "agrees", ""), (0.12, "agrees", ""), (10.0, "differs", "in percent"), (0.4, "differs", "not the share")],
)
def test_kv_usage_beside_the_tokens_in_flight(usage, verdict, words):
    found = told(load(during=[reading(0.5, usage)]), Frame(pool=1120, block=16), "mean KV usage")
    assert (found.client, found.verdict) == (pytest.approx(0.1), verdict)
    assert words in found.note


def test_kv_usage_is_not_compared_where_nobody_knows_who_holds_it():
    quiet, pool = [reading(0.5, 0.1)], Frame(pool=1120, block=16)
    shared = (Shape(cls="chat", prompt_tokens=100, output_tokens=11, prefix_tokens=50),) * 20
    for measurement, frame in (
        (load(during=quiet), Frame()),
        (load(during=quiet), replace(pool, replicas=2)),
        (load(during=quiet, shapes=shared), pool),
    ):
        assert told(measurement, frame, "mean KV usage").verdict == "unknown"
    assert not agreements([load(during=[reading(0.5, 0.1, waiting=3.0)])], pool)


@pytest.mark.parametrize(
    ("buckets", "drawn", "verdict", "words"),
    [
        (((0.25, 0.0), (0.4, 20.0)), 0.3925, "agrees", ""),
        (((0.2, 0.0), (0.5, 20.0)), 0.485, "differs", "through its bucket, 0.2 s to 0.5 s"),
        (((0.1, 0.0), (0.25, 20.0)), 0.2425, "differs", "the rest passes outside of it; the limit of 0.3 s"),
        (((0.05, 0.0), (0.1, 0.0)), 0.1, "differs", "above the highest bound, 0.1 s"),
    ],
)  # fmt: skip
def test_what_a_panel_would_have_drawn(buckets, drawn, verdict, words):
    measurement = load(after={"ttft": histogram(20, 0.4, *buckets)})
    found = told(measurement, Frame(objectives=(P95,)), "TTFT p95 on a panel")
    assert (found.server, found.client, found.verdict) == (pytest.approx(drawn), 0.4, verdict)
    assert words in found.note


def test_only_loads_at_the_target_with_both_pages_are_compared():
    measurement = load(after={"ttft": histogram(20, 0.4)})
    assert agreements([replace(measurement, snapshots=measurement.snapshots[1:])], Frame()) == ()
    assert agreements([load(after={"ttft": histogram(20, 0.4)}, purpose="decode")], Frame()) == ()
