"""W107: declared lengths beside the engine's histograms of what users sent."""

from dataclasses import replace

import pytest

from auditor.measurement import Histogram
from auditor.profile import Lengths, Traffic, TrafficClass
from auditor.testing import make_evidence, make_profile, run_check
from auditor.watch import Observed
from checks import workload_shape

INF = float("inf")


def traffic(p50, p95, top):
    """One class with these prompts and replies."""
    lengths = Lengths(p50=p50, p95=p95, max=top)
    cls = TrafficClass(name="chat", prompt_tokens=lengths, output_tokens=lengths)
    return Traffic(target_concurrency=4, classes=(cls,))


# 1,000 requests, mean 500: half up to 500, 95 % up to 1,000.
SEEN = Histogram(sum=500_000.0, count=1000.0, buckets=((200.0, 100.0), (500.0, 500.0), (1000.0, 950.0), (INF, 1000.0)))


def judged(declared, histogram=SEEN, window=None):
    observed = Observed(source="http://engine/metrics", window=window, histograms={"prompt_len": histogram})
    evidence = make_evidence(profile=make_profile(traffic=declared), observed=observed)
    return {f.subject: f for f in run_check(workload_shape.CHECK, evidence, "W107")}["prompts"]


def test_lengths_as_declared_pass():
    found = judged(traffic(480, 950, 1200))
    assert (found.status, found.deciding) == ("pass", False)
    assert found.why == (
        "Declared prompts are as long as those of 1,000 requests of users (since the engine started, "
        "http://engine/metrics)."
    )
    names = [n.name for n in found.numbers]
    assert names[2:4] == ["prompts, p50 observed, at most", "prompts, p50 declared"]


def test_shorter_prompts_than_users_send_make_all_too_good():
    found = judged(traffic(100, 150, 200), window=7 * 86_400.0)
    assert (found.status, found.severity) == ("warn", "high")
    assert "p50 100 against 200 to 500, p95 150 against 500 to 1,000 (over 168 h" in found.why
    assert "What is measured with them is too good." in found.why


def test_longer_prompts_cost_money():
    found = judged(traffic(2000, 4000, 8000))
    assert (found.status, found.severity) == ("warn", "low")


@pytest.mark.parametrize(("p50", "status"), [(134, "pass"), (133, "warn"), (750, "pass"), (751, "warn")])
def test_within_half_as_much_again_of_the_bucket_is_as_observed(p50, status):
    """The median lies in (200, 500]; mean and p95 are kept within theirs."""
    flat = Histogram(sum=1000.0 * (p50 + 0.0), count=1000.0, buckets=((200.0, 0.0), (500.0, 1000.0), (INF, 1000.0)))
    cls = TrafficClass(name="c", prompt_tokens=Lengths(p50=p50, p95=p50, max=p50), output_tokens=Lengths(p50=10))
    assert judged(Traffic(target_concurrency=1, classes=(cls,)), flat).status == status


def test_shares_of_classes_count():
    """A tenth of the requests have 5,000 tokens: the p95 of all is theirs."""

    def cls(name, share, tokens):
        lengths = Lengths(p50=tokens, p95=tokens, max=tokens)
        return TrafficClass(name=name, share=share, prompt_tokens=lengths, output_tokens=lengths)

    mixed = Traffic(target_concurrency=4, classes=(cls("short", 0.9, 300), cls("long", 0.1, 5000)))
    found = judged(mixed)
    assert "p95 5,000 against 500 to 1,000" in found.why
    assert [n.value for n in found.numbers if n.name == "prompts, mean declared"] == [pytest.approx(770)]


def test_a_p95_above_the_highest_bound_is_longer_than_that():
    top = Histogram(sum=900_000.0, count=1000.0, buckets=((500.0, 500.0), (1000.0, 900.0), (INF, 1000.0)))
    assert "p95 500 against more than 1,000" in judged(traffic(450, 500, 2000), top).why


def test_few_requests_or_no_histograms_are_skipped():
    few = replace(SEEN, count=199.0)
    found = judged(traffic(480, 950, 1200), few)
    assert (found.status, found.deciding) == ("skip", False)
    assert found.missing == "200 requests of users (199 requests in the engine's histogram of prompts)"
    for evidence in (make_evidence(), make_evidence(profile=make_profile(traffic=Traffic(target_concurrency=4)))):
        assert [f.status for f in run_check(workload_shape.CHECK, evidence, "W107")] == ["skip"]
