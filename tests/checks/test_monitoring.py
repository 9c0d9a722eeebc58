"""Question M on hand-made coverage: each rule passes, warns and fails where it should, and names the way out."""

from dataclasses import replace
from typing import get_args

import pytest

from auditor.catalog import metrics as catalogue
from auditor.evidence import Coverage, CoverageItem, Evidence, Finding
from auditor.measurement import MetricsPage, Served
from auditor.profile import Deployment, Endpoint, EngineName, Profile, Slo
from auditor.testing import make_evidence, make_served
from auditor.watch import Flaw, Target, Watch
from checks.monitoring import CHECK
from checks.monitoring_terms import title

NAMES = {
    "ttft": ("vllm:time_to_first_token_seconds",),
    "tpot": ("vllm:inter_token_latency_seconds",),
    "generation_tokens": ("vllm:generation_tokens_total",),
    "kv_usage": ("vllm:kv_cache_usage_perc",),
}
PAGE = MetricsPage(url="http://h/metrics", types={"vllm:kv_cache_usage_perc": "gauge"})
SERVED = Served(engine="vllm", api="chat", engine_version="0.18.0", pages=(PAGE,))


def concept(name: str, rung: str = "parses", names: tuple[str, ...] | None = None, **rest: object) -> CoverageItem:
    carriers = (f"{name}_series",) if names is None and rung != "missing" else names or ()
    return CoverageItem(concept=name, rung=rung, names=carriers, **rest)  # type: ignore[arg-type]


GOOD = tuple(concept(name, where=("d.json: p",), alerts=("A",)) for name in ("ttft", "tps", "memory"))


def evidence(*items: CoverageItem, slo: Slo | None = None, **rest: object) -> Evidence:
    """Evidence with these concepts, the rest of the three covered, and whatever `rest` changes."""
    named = {item.concept: item for item in (*GOOD, *items)}
    coverage = Coverage(items=tuple(named.values()), offered=NAMES, files=("d.json",))
    profile = Profile(
        version=1,
        name="test",
        endpoint=Endpoint(url="http://h/v1"),
        deployment=Deployment(engine_version="0.18.0"),
        slo=slo or Slo(),
    )
    made = Evidence(profile=profile, today="2026-01-01", coverage=coverage, served=SERVED, metric_names=NAMES)
    return replace(made, **rest)  # type: ignore[arg-type]


def judge(rule: str, given: Evidence) -> list[Finding]:
    return list(next(r for r in CHECK.rules if r.id == rule).judge(given))


def only(rule: str, given: Evidence) -> Finding:
    (finding,) = judge(rule, given)
    return finding


def covering(given: Evidence, **changes: object) -> Evidence:
    assert given.coverage is not None
    return replace(given, coverage=replace(given.coverage, **changes))  # type: ignore[arg-type]


ASKED = [("M401", "ttft"), ("M402", "tps"), ("M403", "memory")]


@pytest.mark.parametrize(("rule", "name"), ASKED)
@pytest.mark.parametrize(
    ("rung", "status"),
    [
        ("missing", "fail"),
        ("proxy", "warn"),
        ("named", "warn"),
        ("valid", "pass"),
        ("on_page", "pass"),
        ("parses", "pass"),
        ("returns_data", "pass"),
        ("alerted", "pass"),
    ],
)
def test_the_rung_decides(rule: str, name: str, rung: str, status: str) -> None:
    finding = only(rule, evidence(concept(name, rung)))
    assert (finding.status, finding.deciding) == (status, True)
    assert bool(finding.remedies) == (status != "pass")
    for other, _ in ASKED:
        if other != rule:
            assert only(other, evidence(concept(name, rung))).status == "pass"


@pytest.mark.parametrize(
    ("rule", "query"),
    [
        ("M401", "histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))"),
        ("M402", "sum(rate(vllm:generation_tokens_total[5m]))"),
        ("M403", "max(vllm:kv_cache_usage_perc)"),
    ],
)
def test_the_remedy_is_the_query_for_the_engine_in_use(rule: str, query: str) -> None:
    finding = only(rule, evidence(*(concept(name, "missing") for _, name in ASKED)))
    assert finding.remedies == (f"add a panel with {query} (for vLLM 0.18.0)",)


def test_the_remedy_is_at_the_slo_s_percentile_and_has_a_name_of_the_page() -> None:
    given = evidence(concept("ttft", "missing"), slo=Slo(ttft={"p99": 2.0}))
    given = covering(given, offered={"ttft": ("vllm:second",)})
    given = replace(given, metric_names={"ttft": ("vllm:first", "vllm:second")})
    query = "histogram_quantile(0.99, sum by (le) (rate(vllm:second_bucket[5m])))"
    assert only("M401", given).remedies == (f"add a panel with {query} (for vLLM 0.18.0)",)


@pytest.mark.parametrize(("rule", "name"), ASKED)
def test_panels_that_prometheus_answers_with_nothing_fail(rule: str, name: str) -> None:
    silent = concept(name, names=("a", "b"), silent=("a", "b"))
    assert only(rule, evidence(silent)).status == "fail"
    assert "answers none of them" in only(rule, evidence(silent)).why
    assert only(rule, evidence(silent)).remedies == ("M425 says what leaves the panels empty: audit explain M425",)
    assert only(rule, evidence(concept(name, names=("a", "b"), silent=("a",)))).status == "pass"


@pytest.mark.parametrize(("rule", "name"), ASKED)
def test_panels_of_names_that_prometheus_stores_otherwise_are_sent_to_their_rule(rule: str, name: str) -> None:
    series = {"ttft": "ttft", "tps": "generation_tokens", "memory": "kv_usage"}[name]
    renamed = Flaw(kind="renamed_prefix", where="d.json: x", query="a:b", note="n", concept=series, instead="a_b")
    given = covering(evidence(concept(name, names=("a:b",), silent=("a:b",))), flaws=(renamed,))
    (remedy,) = only(rule, given).remedies
    assert remedy.startswith("M410 says how Prometheus names these series; audit coverage --")
    assert remedy.endswith(" --fix prints panels and alerts to begin with")


def test_without_a_scraped_target_panels_without_data_are_sent_to_its_rule() -> None:
    silent = concept("ttft", names=("a",), silent=("a",))
    watch = Watch(url="http://prom:9090", targets=(Target(job="j", url="u", health="up", serves=False),))
    assert only("M401", replace(evidence(silent), watch=watch)).remedies[0].startswith("M423 says that Prometheus")


@pytest.mark.parametrize(("rule", "name"), ASKED)
def test_names_that_one_kind_of_prometheus_alone_stores_are_no_pass(rule: str, name: str) -> None:
    for rung in ("parses", "alerted"):
        finding = only(rule, evidence(concept(name, rung, one_reader=True, note="some get a, some b")))
        assert finding.status == "warn"
        assert "some get a, some b" in finding.why
        assert finding.remedies[0].startswith("give monitoring.prometheus")
    assert only(rule, evidence(concept(name, one_reader=True, silent=(f"{name}_series",)))).status == "fail"


def test_an_engine_without_the_metric_gets_what_works() -> None:
    names = {
        "generation_tokens": ("llamacpp:tokens_predicted_total",),
        "gateway_ttft": ("litellm_llm_api_time_to_first_token_metric",),
        "exporter_memory": ("DCGM_FI_DEV_FB_USED",),
    }
    served = replace(SERVED, engine="llamacpp", engine_version="b5000")
    given = evidence(concept("ttft", "missing"), concept("memory", "missing"), metric_names=names, served=served)
    assert "gateway" in only("M401", given).remedies[0]
    assert "litellm_llm_api_time_to_first_token_metric" in only("M401", given).remedies[0]
    assert "llama.cpp b5000 shows no KV usage: run a GPU exporter" in only("M403", given).remedies[0]


def test_no_dashboards_fail_all_three() -> None:
    given = covering(evidence(*(concept(name, "missing") for _, name in ASKED)), files=())
    assert [only(rule, given).status for rule, _ in ASKED] == ["fail"] * 3
    assert "No dashboards are given" in only("M401", given).why
    first, second, *_ = only("M401", given).remedies
    assert first.startswith("name what you have: monitoring.dashboards")
    assert second == "audit coverage --metrics http://h/metrics --fix prints panels and alerts to begin with"


def test_only_dead_names_fail_and_decide() -> None:
    dead = concept("memory", "named", (), dead=("vllm:gpu_cache_usage_perc",), note="vllm:gpu_cache_usage_perc is gone")
    assert only("M403", evidence(dead)).status == "fail"
    finding = only("M404", evidence(dead))
    assert (finding.status, finding.deciding, finding.subject) == ("fail", True, "memory")
    assert "max(vllm:kv_cache_usage_perc)" in finding.remedies[0]


@pytest.mark.parametrize("name", ["memory", "preemptions", "other"])
def test_dead_names_elsewhere_only_warn(name: str) -> None:
    dead = concept(name, "parses", ("alive",) if name == "memory" else (), dead=("gone",))
    finding = only("M404", evidence(dead))
    assert (finding.status, finding.deciding) == ("warn", False)
    assert finding.remedies


def test_no_dead_names_pass() -> None:
    assert only("M404", evidence()).status == "pass"


@pytest.mark.parametrize(
    ("engine", "flag"), [("vllm", "--disable-log-stats"), ("sglang", "--enable-metrics"), ("llamacpp", "--metrics")]
)
def test_a_page_that_is_off_fails_with_the_flag(engine: str, flag: str) -> None:
    given = covering(evidence(served=replace(SERVED, engine=engine, pages=())), offered={})
    finding = only("M405", given)
    assert (finding.status, finding.deciding) == ("fail", True)
    assert flag in finding.remedies[0]


def test_a_page_of_an_unknown_engine_only_warns() -> None:
    given = covering(evidence(served=replace(SERVED, engine="generic", pages=())), offered={})
    assert (only("M405", given).status, only("M405", given).deciding) == ("warn", False)


def test_a_page_without_series_of_an_engine_fails() -> None:
    assert only("M405", covering(evidence(), offered={})).status == "fail"


def test_what_the_page_cannot_show() -> None:
    assert only("M405", evidence()).status == "pass"
    lacking = only("M405", covering(evidence(), offered={k: v for k, v in NAMES.items() if k != "ttft"}))
    assert lacking.status == "warn"
    assert "TTFT" in lacking.why
    gpu = {**NAMES, "kv_usage": (), "gpu_memory": ("DCGM_FI_DEV_FB_USED",)}
    assert only("M405", covering(evidence(), offered=gpu)).status == "pass"


def test_offline_the_page_is_not_asked_for() -> None:
    assert (only("M405", evidence(served=None)).status, only("M405", evidence(served=None)).deciding) == ("skip", False)


def test_unreadable_files_and_queries_warn() -> None:
    given = covering(evidence(), unreadable=("a.json: not JSON",), invalid_queries=("b: bad",))
    assert [(f.status, f.subject) for f in judge("M406", given)] == [("warn", "file"), ("warn", "query")]
    assert only("M406", evidence()).status == "pass"


def test_unwatched_concepts_warn() -> None:
    finding = only("M407", evidence(concept("tps")))
    assert (finding.status, finding.deciding) == ("warn", False)
    assert "No alert watches TPS" in finding.why
    assert "sum(rate(vllm:generation_tokens_total[5m]))" in finding.remedies[0]
    assert only("M407", evidence()).status == "pass"


BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5)


@pytest.mark.parametrize(
    ("limit", "status", "words"),
    [
        (0.3, "warn", "between the bounds 0.25 s and 0.5 s"),
        (0.5, "pass", "on a bound"),
        (0.05, "warn", "between the bounds 0 s and 0.1 s"),
        (5.0, "fail", "above the highest bound, 2.5 s"),
    ],
)
def test_bounds_around_the_slo(limit: float, status: str, words: str) -> None:
    given = evidence(concept("ttft", buckets=BOUNDS), slo=Slo(ttft={"p95": limit}))
    finding = only("M408", given)
    assert (finding.status, finding.deciding, finding.subject) == (status, False, "p95")
    assert words in finding.why


def test_narrow_buckets_around_the_slo_are_fine() -> None:
    given = evidence(concept("ttft", buckets=(0.95, 1.04)), slo=Slo(ttft={"p95": 1.0}))
    assert only("M408", given).status == "pass"


def test_class_objectives_and_unknown_bounds() -> None:
    slo = Slo(ttft={"p95": 0.5}, classes={"rag": Slo(ttft={"p95": 0.3})})
    findings = judge("M408", evidence(concept("ttft", buckets=BOUNDS), slo=slo))
    assert [(f.subject, f.status) for f in findings] == [("p95", "pass"), ("rag p95", "warn")]
    assert only("M408", evidence(slo=Slo(ttft={"p95": 0.5}))).status == "skip"
    assert judge("M408", evidence()) == []


def test_activity_alone_fails_and_beside_occupancy_does_not() -> None:
    activity = concept("memory_activity", "named", ("DCGM_FI_PROF_DRAM_ACTIVE",))
    finding = only("M409", evidence(activity, concept("memory", "missing")))
    assert (finding.status, finding.deciding) == ("fail", False)
    assert only("M409", evidence(activity)).status == "pass"
    assert only("M409", evidence()).status == "pass"


@pytest.mark.parametrize("rule", ["M404", "M406", "M409"])
def test_without_files_nothing_passes(rule: str) -> None:
    assert only(rule, covering(evidence(), files=())).status == "skip"


@pytest.mark.parametrize("rule", [rule.id for rule in CHECK.rules if rule.id not in ("M408", "M412", "M426")])
def test_without_coverage_nothing_passes(rule: str) -> None:
    finding = only(rule, evidence(coverage=None))
    assert finding.status == "skip"
    assert finding.deciding == (rule in {"M401", "M402", "M403"})
    assert finding.missing


@pytest.mark.parametrize("engine", sorted(set(get_args(EngineName)) - {"auto", "generic"}))
def test_engines_are_called_as_the_catalogue_calls_them(engine: str) -> None:
    assert title(make_evidence(served=make_served(engine=engine, engine_version=None))) == catalogue.title(engine)
