"""M430 and M431: the engine's page beside what users felt, on loads with a page before and after."""

from dataclasses import replace

from auditor.evidence import Evidence
from auditor.measurement import Histogram, Snapshot
from auditor.monitoring.truth import compared
from auditor.testing import make_evidence, make_measurement, make_sample, run_check, with_slo
from checks import monitoring

INF = float("inf")


def load(*, count: int = 100, mean: float = 0.4, bounds: tuple[float, ...] = (0.25, 0.4), queue: float | None = None):
    """100 requests whose first token came after 0.4 s here; the page counts `count` with `mean`, all in the bucket that
    ends at the last bound.
    """
    samples = [make_sample(i, ttft=0.4) for i in range(100)]
    buckets = (*((bound, 0.0) for bound in bounds[:-1]), (bounds[-1], float(count)), (INF, float(count)))
    histograms = {"ttft": Histogram(sum=count * mean, count=count, buckets=buckets)}
    if queue is not None:
        histograms["queue_time"] = Histogram(sum=count * queue, count=count)
    snapshots = (
        Snapshot(at=0.0, phase="before", values={"generation_tokens": 0.0}),
        Snapshot(at=9.0, phase="after", values={"generation_tokens": 10_000.0}, histograms=histograms),
    )
    return replace(make_measurement(samples), snapshots=snapshots)


def evidence(**rest: object) -> Evidence:
    found = with_slo(make_evidence(), load(**rest))
    return replace(found, truth=compared(found))


def findings(rule: str, found: Evidence):
    return {f.subject: f for f in run_check(monitoring.CHECK, found, rule)}


def test_both_accounts_agree():
    (passed,) = findings("M430", evidence()).values()
    assert (passed.status, passed.deciding) == ("pass", False)
    assert passed.why == "The engine's page and the client agree: requests, output tokens, mean TTFT."
    (shown,) = findings("M431", evidence()).values()
    assert shown.status == "pass"


def test_time_between_engine_and_users_is_named_with_the_queue():
    found = findings("M430", evidence(mean=0.25, queue=0.1))["mean TTFT in slo"]
    assert found.status == "warn"
    assert found.why == (
        "Mean TTFT: 250 ms by the server, 400 ms here: 100 ms in its queue, 150 ms until the token, "
        "150 ms between engine and client, which no panel of it shows."
    )
    assert [n.provenance for n in found.numbers] == ["served", "measured"]
    assert found.remedies == ("measure TTFT where users are: a gateway's own histogram, or a probe beside them",)


def test_another_replicas_page_warns_and_its_means_prove_nothing():
    found = findings("M430", evidence(count=0))
    assert list(found) == ["requests in slo"]
    assert "another replica, engine or model" in found["requests in slo"].why
    assert [f.status for f in findings("M431", evidence(count=0)).values()] == ["skip"]


def test_a_panel_on_the_other_side_of_the_slo_weighs_more():
    """p95 in (0.2, 2.0]: the panel draws 1.91 s, users waited 0.4 s, and may wait 1.5 s."""
    (wide,) = findings("M431", evidence(bounds=(0.2, 2.0))).values()
    assert (wide.status, wide.severity) == ("warn", "high")
    assert "1.91 s by the server, 400 ms here" in wide.why
    (narrow,) = findings("M431", evidence(bounds=(0.2, 0.6))).values()
    assert (narrow.status, narrow.severity) == ("warn", "low")


def test_nothing_to_compare_is_skipped_never_passed():
    for rule in ("M430", "M431"):
        (found,) = findings(rule, make_evidence(measurements=())).values()
        assert found.status == "skip"
    samples = [make_sample(i, ttft=None, error="timeout") for i in range(100)]
    silent = with_slo(make_evidence(), replace(load(), samples=tuple(samples)))
    found = findings("M430", replace(silent, truth=compared(silent)))
    assert [f.status for f in found.values()] == ["skip"]
