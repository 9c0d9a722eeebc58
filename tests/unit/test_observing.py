"""What users sent, read before a load: from Prometheus, else from the engine's page; nothing where neither tells."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from fake_endpoint import reply, serving

from auditor.evidence import Evidence
from auditor.loading import Loaded
from auditor.measurement import MetricsPage
from auditor.probe import observing
from auditor.profile import Endpoint, Monitoring
from auditor.testing import make_evidence, make_profile, make_served

PAGE = b"""# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_bucket{model_name="m",le="100"} 3
vllm:request_prompt_tokens_bucket{model_name="m",le="+Inf"} 4
vllm:request_prompt_tokens_sum{model_name="m"} 500
vllm:request_prompt_tokens_count{model_name="m"} 4
"""
EMPTY = PAGE.replace(b" 3", b" 0").replace(b" 4", b" 0").replace(b" 500", b" 0")


def text(page: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(page) + page


def read(answers, **monitoring) -> Evidence:
    """The evidence once lengths were read of an engine whose page is /metrics; Prometheus stands at the same origin."""

    async def work() -> Evidence:
        async with serving(answers) as fake:
            page = MetricsPage(url=f"{fake.origin}/metrics", types={"vllm:request_prompt_tokens_count": "histogram"})
            where = dict.fromkeys(monitoring, fake.origin)
            profile = make_profile(endpoint=Endpoint(url=f"{fake.origin}/v1"), monitoring=Monitoring(**where))
            evidence = make_evidence(profile=profile, served=make_served(pages=(page,)), measurements=())
            return await observing.lengths(evidence, loaded(evidence))

    return asyncio.run(work())


def loaded(evidence: Evidence) -> Loaded:
    return Loaded(path=Path("profile.yaml"), text="", profile=evidence.profile, lines={})


def test_lengths_of_the_engines_page_are_since_it_started():
    observed = read({"GET /metrics": text(PAGE)}).observed
    assert observed.histograms["prompt_len"].buckets == ((100.0, 3.0), (float("inf"), 4.0))
    assert (observed.window, observed.passive, observed.source.endswith("/metrics")) == (None, False, True)
    assert "output_len" not in observed.histograms


@pytest.mark.parametrize("answer", [text(EMPTY), reply({}, 404), text(b"<html>")])
def test_a_page_without_requests_observes_nothing(answer):
    assert read({"GET /metrics": answer}).observed is None


def test_a_prometheus_that_does_not_answer_costs_nothing_but_itself():
    observed = read({"GET /metrics": text(PAGE)}, prometheus=True).observed
    assert observed.histograms["prompt_len"].count == 4


def test_an_endpoint_without_pages_observes_nothing():
    evidence = make_evidence(served=make_served(pages=()), measurements=())
    assert asyncio.run(observing.lengths(evidence, loaded(evidence))).observed is None
    assert asyncio.run(observing.lengths(replace(evidence, served=None), loaded(evidence))).observed is None
