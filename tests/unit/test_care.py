"""When a load does harm, worked by hand."""

import asyncio

import pytest

from auditor.measurement import Sample, Snapshot
from auditor.plan.care import guarded, pressed
from auditor.probe.care import Care
from auditor.profile import Endpoint, Guard, Probe, Profile


def samples(count: int, ttft: float = 0.5, e2e: float = 2.0, error: str | None = None) -> list[Sample]:
    facts = {"cls": "a", "start": 0.0, "asked_prompt_tokens": 1, "asked_output_tokens": 1}
    return [Sample(load="slo", index=i, ttft=ttft, e2e=e2e, error=error, **facts) for i in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (samples(19, ttft=9.0), None),  # too few to tell
        (samples(20, ttft=9.0), "the guard: half of the last 20 requests have ttft above 5 s"),
        (samples(10) + samples(10, ttft=9.0), None),
        (samples(9) + samples(11, ttft=9.0), "the guard: half of the last 20 requests have ttft above 5 s"),
        (samples(20, e2e=31.0), "the guard: half of the last 20 requests have e2e above 30 s"),
        (samples(18) + samples(2, error="http_5xx"), None),
        (samples(17) + samples(3, error="http_5xx"), "the guard: 3 of the last 20 requests failed"),
        (samples(20, error="http_5xx") + samples(20), None),  # long ago
    ],
)
def test_the_guard(seen: list[Sample], reason: str | None) -> None:
    assert guarded(Guard(ttft=5.0, e2e=30.0, error_rate=0.1), seen) == reason


def test_a_guard_without_limits_ends_nothing() -> None:
    assert guarded(Guard(), samples(20, ttft=1e9, error="timeout")) is None


def page(usage: float, waiting: float) -> Snapshot:
    return Snapshot(at=0.0, phase="during", values={"kv_usage": usage, "waiting": waiting})


def test_a_full_cache_with_a_queue_that_lasts() -> None:
    assert pressed([page(0.97, 12)] * 3) == "the KV cache is 97 % full and 12 requests wait: others use this endpoint"
    assert pressed([page(0.97, 12)] * 2) is None
    assert pressed([page(0.97, 12), page(0.97, 0), page(0.97, 12)]) is None
    assert pressed([page(0.9, 12)] * 3) is None
    assert pressed([Snapshot(at=0.0, phase="during", values={"kv_usage": 1.0})] * 3) is None


@pytest.mark.parametrize(("url", "spared"), [("http://10.1.2.3:8000/v1", True), ("http://127.0.0.1:8000/v1", False)])
def test_only_an_endpoint_that_others_may_use_is_spared(url: str, *, spared: bool) -> None:
    async def snap(_at: float, _phase: str) -> Snapshot:
        return page(1.0, 5)

    care = Care(Profile(version=1, name="t", endpoint=Endpoint(url=url)))
    watched = care.watching(snap)
    assert watched is not None
    for phase in ("before", "during", "during", "during"):
        assert asyncio.run(watched(0.0, phase)) == page(1.0, 5)  # type: ignore[arg-type]
    assert (care.harm([]) is not None) == spared
    assert care.watching(None) is None


def test_the_guard_of_a_profile_counts_everywhere() -> None:
    profile = Profile(
        version=1, name="t", endpoint=Endpoint(url="http://127.0.0.1:1/v1"), probe=Probe(guard=Guard(ttft=1.0))
    )
    assert Care(profile).harm(samples(20, ttft=2.0)) is not None
    assert Care(profile).harm(samples(20, ttft=0.5)) is None
