"""Rules M411 to M429 on what a live Prometheus says: each passes, warns and fails where it should, and is skipped
without one.
"""

from dataclasses import replace

import pytest

from auditor.evidence import Coverage, CoverageItem, Evidence, Finding
from auditor.measurement import MetricsPage
from auditor.testing import make_evidence, make_served, run_check
from auditor.watch import Answer, Flaw, Query, Target, Watch
from checks.monitoring import CHECK

DAY = 86_400.0
LIVE = ["M411", "M422", "M423", "M425", "M429"]


def target(
    health: str = "up", *, serves: bool = True, interval: float | None = 15.0, error: str | None = None
) -> Target:
    return Target(job="llm", url="http://h/metrics", health=health, serves=serves, interval=interval, error=error)


def query(text: str = "q", **rest: object) -> Query:
    given = {"where": "d.json: p", "concepts": ("ttft",), "names": ("a",), **rest}
    return Query(text=text, **given)  # type: ignore[arg-type]


def evidence(
    *targets: Target, queries: tuple[Query, ...] = (), flaws: tuple[Flaw, ...] = (), note: str = "", **watch: object
) -> Evidence:
    items = (CoverageItem(concept="ttft", rung="parses", names=("a",), note=note),)
    coverage = Coverage(items=items, files=("d.json",), queries=queries, flaws=flaws)
    facts = {"url": "http://prom:9090", "retention": 30 * DAY, "targets": targets, "active": 5, **watch}
    return replace(make_evidence(), coverage=coverage, watch=Watch(**facts))  # type: ignore[arg-type]


def only(rule: str, given: Evidence) -> Finding:
    (finding,) = run_check(CHECK, given, rule)
    return finding


@pytest.mark.parametrize("rule", LIVE)
def test_without_a_prometheus_nothing_passes(rule):
    finding = only(rule, replace(evidence(target()), watch=None))
    assert (finding.status, finding.deciding) == ("skip", False)
    assert "Prometheus" in (finding.missing or "")


# ------------------------------------------------------------------------------------------------------------- scraping


@pytest.mark.parametrize("error", [None, 'Get "http://10.0.0.5:8401/metrics": connection refused', "HTTP status 404"])
def test_other_errors_want_no_key(error):
    assert only("M411", evidence(target("down", error=error))).status == "pass"


def test_a_target_that_wants_a_key():
    refused = target("down", error="server returned HTTP status 401 Unauthorized")
    finding = only("M411", evidence(target(), refused))
    assert (finding.status, finding.deciding) == ("fail", False)
    assert "credentials_file" in finding.remedies[0]
    assert only("M411", evidence(target("down", error="connection refused"))).status == "pass"
    assert only("M411", evidence(replace(refused, serves=False))).status == "skip"


def test_a_page_that_only_a_key_opens_is_told_before_anything_scrapes_it():
    def paged(needs_key: bool | None) -> Evidence:
        page = MetricsPage(url="http://h/metrics", types={}, needs_key=needs_key)
        return replace(evidence(), watch=None, served=make_served(engine="vllm", pages=(page,)))

    finding = only("M411", paged(True))
    assert (finding.status, finding.deciding) == ("warn", False)
    assert "http://h/metrics" in finding.why
    assert "credentials_file" in finding.remedies[0]
    assert only("M411", paged(False)).status == "pass"
    assert only("M411", paged(None)).status == "skip"


def test_several_api_servers_on_the_launch_line():
    def launched(line: str) -> Evidence:
        made = replace(evidence(), served=None)
        deployment = replace(made.profile.deployment, launch=line)
        return replace(made, profile=replace(made.profile, deployment=deployment))

    assert only("M412", launched("vllm serve m --api-server-count 4")).status == "warn"
    assert only("M412", launched("vllm serve m --api-server-count=1")).status == "skip"
    assert only("M412", launched("vllm serve m")).status == "skip"


def test_a_page_of_several_processes():
    def paged(page: MetricsPage) -> Evidence:
        return replace(evidence(), served=make_served(engine="vllm", pages=(page,)))

    finding = only("M412", paged(MetricsPage(url="u", types={}, ranks={"pid": ("7", "8")})))
    assert (finding.status, "2 processes" in finding.why) == ("warn", True)
    assert "PROMETHEUS_MULTIPROC_DIR" in finding.remedies[0]
    assert only("M412", paged(MetricsPage(url="u", types={}))).status == "pass"
    assert only("M412", paged(MetricsPage(url="u", types={}, ranks={"pid": ("7",)}))).status == "pass"
    exporter = MetricsPage(url="u", types={}, exporter="nvidia_gpu_exporter", ranks={"pid": ("7",)})
    assert only("M412", paged(exporter)).status == "skip"


def test_a_service_that_nobody_scrapes():
    finding = only("M423", evidence(target(serves=False), dropped=2))
    assert (finding.status, finding.deciding) == ("fail", True)
    assert "5 targets, 2 dropped, and none has the engine's series" in finding.why


def test_a_prometheus_that_does_not_answer_leaves_it_open():
    assert only("M423", evidence(active=None, labels={"job": ("llm",)})).status == "pass"
    silent = evidence(active=None, problems=("http://prom:9090: connection refused",))
    finding = only("M423", silent)
    assert (finding.status, finding.deciding, finding.missing) == (
        "skip",
        False,
        "http://prom:9090: connection refused",
    )
    monitoring = replace(silent.profile.monitoring, prometheus="http://prom:9090")
    declared = replace(silent, profile=replace(silent.profile, monitoring=monitoring))
    assert (only("M423", declared).status, only("M423", declared).deciding) == ("skip", True)


@pytest.mark.parametrize(
    ("targets", "status", "deciding"),
    [
        ((target("up"),), "pass", False),
        ((target("down", error="timeout"),), "fail", True),
        ((target("up"), target("down")), "warn", False),
        ((target("unknown"),), "warn", False),  # not scraped yet
        ((target("unknown"), target("down")), "warn", False),
    ],
)
def test_targets_that_are_down(targets, status, deciding):
    finding = only("M423", evidence(*targets))
    assert (finding.status, finding.deciding) == (status, deciding)


def test_fewer_targets_than_replicas():
    given = evidence(target())
    profile = replace(given.profile, deployment=replace(given.profile.deployment, replicas=3))
    assert only("M423", replace(given, profile=profile)).status == "warn"


@pytest.mark.parametrize("active", [5, None])
def test_a_prometheus_that_watches_another_model(active):
    served = make_served(model="mine")
    other = replace(evidence(target(), labels={"model_name": ("theirs",)}, active=active), served=served)
    found = only("M423", other)
    assert (found.status, found.deciding) == ("warn", True)
    assert "theirs" in found.why
    assert "mine" in found.why
    declared = replace(other.profile, endpoint=replace(other.profile.endpoint, model="mine"))
    assert only("M423", replace(other, served=None, profile=declared)).status == "warn"
    both = replace(evidence(target(), labels={"model_name": ("mine", "theirs")}, active=active), served=served)
    assert only("M423", both).status == "pass"


@pytest.mark.parametrize(
    ("panels", "status"),
    [(("theirs",), "fail"), (("mine",), "pass"), (("theirs", "mine"), "pass"), (("theirs", None), "pass")],
)
def test_panels_that_all_ask_for_another_model(panels, status):
    asked = tuple(
        query(f"q{i}", matchers={} if model is None else {"model_name": model}) for i, model in enumerate(panels)
    )
    live = evidence(target(), queries=asked, labels={"model_name": ("mine",)})
    assert only("M401", live).status == status
    unknown = evidence(target(), queries=asked)
    assert only("M401", unknown).status == "pass"


# -------------------------------------------------------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("window", "status"),
    [(15.0, "fail"), (29.0, "fail"), (30.0, "warn"), (59.0, "warn"), (60.0, "pass"), (300.0, "pass")],
)
def test_windows_of_few_scrapes(window, status):
    finding = only("M422", evidence(target(), queries=(query(windows=(300.0, window)),)))
    assert finding.status == status
    assert finding.measured is not None
    assert finding.measured.value == 15.0


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (15.0, "every 15 s: there is never a rate"),  # (t-15 s, t] holds one scrape
        (20.0, "every 15 s: often only one falls in it, and there is no rate"),  # two of three times: 20 = 15 + 5
        (30.0, "every 15 s: one lost scrape, and the panel has a gap"),
    ],
)
def test_how_often_a_window_holds_too_few_scrapes(window, words):
    assert words in only("M422", evidence(target(), queries=(query(windows=(window,)),))).why


def test_the_slowest_of_the_service_s_targets_counts():
    others = (target(interval=60.0), target(interval=15.0), target(interval=600.0, serves=False))
    assert only("M422", evidence(*others, queries=(query(windows=(200.0,)),))).status == "warn"
    assert only("M422", evidence(*others, queries=(query(windows=(240.0,)),))).status == "pass"
    assert only("M422", evidence(target(interval=None), queries=(query(windows=(1.0,)),))).status == "skip"


def test_grafana_s_interval_warns_without_a_prometheus():
    flaw = Flaw(kind="interval_variable", concept="ttft", where="d.json: p", query="q", note="too short")
    finding = only("M422", replace(evidence(flaws=(flaw,)), watch=None))
    assert (finding.status, finding.subject) == ("warn", "$__interval")
    assert "$__rate_interval" in finding.remedies[0]
    both = run_check(CHECK, evidence(target(), flaws=(flaw,)), "M422")
    assert [f.status for f in both] == ["warn", "pass"]


# --------------------------------------------------------------------------------------------------------------- alerts


def fires(kind: str) -> Flaw:
    return Flaw(
        kind=kind, concept="kv_usage", where="a.yaml: alert A", query="q", note="odd limit", instead="max(x) > 0.95"
    )


def test_alerts_that_never_fire():
    finding = only("M424", evidence(flaws=(fires("never_fires"),)))
    assert (finding.status, finding.deciding) == ("fail", False)
    assert finding.remedies[0] == "a.yaml: alert A: write max(x) > 0.95"
    dead = only("M424", evidence(note="alert Full can never fire: vllm:gpu_cache_usage_perc is gone; x is gone"))
    assert (dead.status, dead.why) == ("fail", "alert Full can never fire: vllm:gpu_cache_usage_perc is gone.")
    assert "promtool" in dead.remedies[0]


def test_alerts_that_always_fire():
    finding = only("M424", evidence(flaws=(fires("always_fires"),)))
    assert (finding.status, finding.subject) == ("warn", "always")


def test_alerts_that_can_fire_and_none_at_all():
    assert only("M424", evidence(queries=(query(alert="A"),))).status == "pass"
    assert only("M424", evidence(queries=(query(),))).status == "skip"


# ------------------------------------------------------------------------------------------------------------- no data


def test_a_panel_without_data_whose_series_are_there():
    given = evidence(
        queries=(query(matchers={"container": "tgi", "job": "llm"}),),
        answers=(Answer(query="q", series=0),),
        labels={"container": ("engine",), "job": ("llm",)},
    )
    finding = only("M425", given)
    assert (finding.status, finding.subject) == ("warn", "empty")
    assert finding.why.endswith('no series has container="tgi" (container is engine).')


@pytest.mark.parametrize(
    ("answer", "statuses"),
    [
        (Answer(query="q", series=1), ["pass"]),
        (Answer(query="q", series=0, absent=("a",)), ["pass"]),
        (Answer(query="q", error="many-to-many matching not allowed"), ["warn"]),
        (Answer(query="other", series=0), ["skip"]),
    ],
)
def test_answers(answer, statuses):
    found = run_check(CHECK, evidence(queries=(query(),), answers=(answer,)), "M425")
    assert [finding.status for finding in found] == statuses


def test_a_window_that_is_too_short_is_told_once():
    given = evidence(target(), queries=(query(windows=(15.0,)),), answers=(Answer(query="q", series=0),))
    assert only("M425", given).status == "pass"
    assert only("M422", given).status == "fail"


def test_labels_come_first():
    queries = (query("a"), query("b", where="d.json: labelled", matchers={"job": "x"}))
    answers = (Answer(query="a", series=0), Answer(query="b", series=0))
    finding = only("M425", evidence(queries=queries, answers=answers, labels={"job": ("llm",)}))
    assert finding.why.startswith("d.json: labelled returns nothing")
    assert "d.json: p returns nothing" in finding.why


def test_alerts_are_not_panels():
    given = evidence(queries=(query(alert="A"),), answers=(Answer(query="q", series=0),))
    assert only("M425", given).status == "skip"


# ------------------------------------------------------------------------------------------------------------ retention


@pytest.mark.parametrize(
    ("facts", "interval", "found"),
    [
        ({"retention": 30 * DAY}, 15.0, [("pass", None)]),
        ({"retention": 2 * DAY}, 15.0, [("warn", "retention")]),
        ({"retention": 15 * DAY}, 15.0, [("pass", None)]),
        ({"retention": 30 * DAY}, 600.0, [("warn", "lookback")]),
        ({"retention": 30 * DAY, "lookback": 900.0}, 600.0, [("pass", None)]),
        ({"retention": 2 * DAY}, 600.0, [("warn", "retention"), ("warn", "lookback")]),
        ({"retention": None}, 15.0, [("pass", None)]),
        ({"retention": None}, None, [("skip", None)]),
    ],
)
def test_retention_and_lookback(facts, interval, found):
    findings = run_check(CHECK, evidence(target(interval=interval), **facts), "M429")
    assert [(finding.status, finding.subject) for finding in findings] == found


@pytest.mark.parametrize(
    ("facts", "interval", "words"),
    [
        ({}, 15.0, "Samples are kept long enough to review, and taken often enough to draw."),
        ({"retention": None}, 15.0, "Samples are taken often enough to draw. Nothing tells how long they are kept."),
        ({}, None, "Samples are kept long enough to review. Nothing tells how often they are taken."),
    ],
)
def test_what_nothing_tells_of_samples_is_not_passed(facts, interval, words):
    assert only("M429", evidence(target(interval=interval), **facts)).why == words
