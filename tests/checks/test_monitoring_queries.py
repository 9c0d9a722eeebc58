"""Rules M410 to M428 on queries: each kind of flaw warns or fails, its twin passes, what is not known is skipped."""

from dataclasses import replace

import pytest

from auditor.evidence import Coverage, CoverageItem, Evidence, Finding
from auditor.measurement import MetricsPage
from auditor.testing import make_evidence, make_served, make_settings, run_check
from auditor.theory.kv.geometry import Layers
from auditor.watch import Flaw, Query, Watch
from checks.monitoring import CHECK

TTFT = "vllm:time_to_first_token_seconds"
KV = "vllm:kv_cache_usage_perc"
TOKENS = "vllm:generation_tokens_total"
NAMES = {"ttft": (TTFT,), "generation_tokens": (TOKENS,), "kv_usage": (KV,)}
FLAWED = [
    ("M410", "renamed_prefix", "warn"),
    ("M414", "summed_ratio", "warn"),
    ("M415", "summed_ranks", "warn"),
    ("M416", "average_only", "warn"),
    ("M417", "lifetime", "fail"),
    ("M418", "title", "warn"),
    ("M420", "gpu_memory_only", "warn"),
    ("M421", "unit", "warn"),
    ("M427", "sampled_gauge", "warn"),
]


def flaw(kind: str, concept: str = "ttft", where: str = "d.json: p", name: str = f"{TTFT}_sum") -> Flaw:
    return Flaw(kind=kind, concept=concept, where=where, query="q", note="it misleads", names=(name,), instead="better")


def shows(concept: str, where: str = "d.json: p", name: str = f"{TTFT}_sum", **rest: object) -> Query:
    return Query(text="q", where=where, concepts=(concept,), names=(name,), **rest)  # type: ignore[arg-type]


def evidence(
    *flaws: Flaw, queries: tuple[Query, ...] = (), ranks: dict[str, tuple[str, ...]] | None = None
) -> Evidence:
    page = MetricsPage(url="http://h/metrics", types={KV: "gauge"}, ranks=ranks or {})
    coverage = Coverage(items=(), files=("d.json",), flaws=flaws, queries=queries)
    made = make_evidence(served=make_served(pages=(page,)))
    return replace(made, coverage=coverage, metric_names=NAMES)


def only(rule: str, given: Evidence) -> Finding:
    (finding,) = run_check(CHECK, given, rule)
    return finding


@pytest.mark.parametrize(("rule", "kind", "status"), FLAWED)
def test_a_flaw_is_found_and_its_absence_passes(rule, kind, status):
    finding = only(rule, evidence(flaw(kind)))
    assert (finding.status, finding.deciding) == (status, False)
    assert "it misleads (d.json: p)" in finding.why
    assert "better" in finding.remedies[0]
    assert only(rule, evidence(flaw("another"))).status == "pass"


@pytest.mark.parametrize("rule", [*(rule for rule, _, _ in FLAWED), "M413", "M419", "M428"])
def test_without_files_nothing_passes(rule):
    given = evidence()
    assert given.coverage is not None
    for coverage in (None, replace(given.coverage, files=())):
        finding = only(rule, replace(given, coverage=coverage))
        assert finding.status == "skip"
        assert finding.missing


def test_a_spelling_that_no_page_alone_decides_waits_for_a_prometheus():
    finding = only("M410", evidence(replace(flaw("renamed_prefix"), instead=None)))
    assert finding.status == "warn"
    assert finding.remedies == ("give monitoring.prometheus: only what it stores tells which spelling is right",)


@pytest.mark.parametrize("rule", ["M410", "M415"])
def test_without_a_page_names_and_ranks_are_not_judged(rule):
    assert only(rule, replace(evidence(), served=None)).status == "skip"
    exporter = MetricsPage(url="u", types={}, exporter="dcgm")
    assert only(rule, replace(evidence(), served=make_served(pages=(exporter,)))).status == "skip"


def test_another_prefix_names_the_page_that_was_read():
    finding = only("M410", evidence(flaw("renamed_prefix", name="vllm_x")))
    assert finding.remedies[0] == "write better instead of vllm_x"
    assert "http://h/metrics" in finding.remedies[1]


def test_what_a_prometheus_stores_is_the_truth():
    stored = Watch(url="http://prom:9090", names=("better",))
    finding = only("M410", replace(evidence(flaw("renamed_prefix", name="vllm:x")), watch=stored, served=None))
    assert (finding.status, finding.deciding, finding.remedies) == ("fail", False, ("write better instead of vllm:x",))
    assert only("M410", replace(evidence(), watch=stored, served=None)).status == "pass"


def test_the_query_to_write_is_spelled_as_prometheus_stores_it():
    stored = Watch(url="http://prom:9090", names=("vllm_generation_tokens_total",))
    given = replace(evidence(), watch=stored)
    assert "sum(rate(vllm_generation_tokens_total[5m]))" in only("M402", given).remedies[0]


# ---------------------------------------------------------------------------------------------------------------- ranks


def test_bare_queries_over_several_ranks():
    bare = shows("memory", name=KV, bare=True)
    finding = only("M413", evidence(queries=(bare,), ranks={"engine": ("0", "1")}))
    assert (finding.status, finding.why[:8]) == ("warn", "2 ranks ")
    assert only("M413", evidence(queries=(bare,), ranks={"engine": ("0",)})).status == "pass"
    told = replace(bare, bare=False)
    assert only("M413", evidence(queries=(told,), ranks={"engine": ("0", "1")})).status == "pass"
    alert = replace(bare, alert="A")
    assert only("M413", evidence(queries=(alert,), ranks={"engine": ("0", "1")})).status == "pass"


def test_ranks_are_declared_where_no_page_tells_them():
    bare = (shows("memory", name=KV, bare=True),)
    declared = replace(evidence(queries=bare), served=None, settings=make_settings(data_parallel=4))
    assert only("M413", declared).why.startswith("4 ranks")
    assert only("M413", replace(declared, settings=None)).status == "skip"


def test_a_sum_of_shares_weighs_more_with_several_replicas():
    given = evidence(flaw("summed_ratio", "kv_usage"))
    assert only("M414", given).severity == "low"
    profile = replace(given.profile, deployment=replace(given.profile.deployment, replicas=3))
    assert only("M414", replace(given, profile=profile)).severity == "medium"


# ------------------------------------------------------------------------------------------------------------- lifetime


def test_lifetime_averages_decide_where_nothing_else_shows_the_concept():
    lifetime = flaw("lifetime")
    finding = only("M417", evidence(lifetime, queries=(shows("ttft"),)))
    assert (finding.status, finding.deciding, finding.subject) == ("fail", True, "ttft")
    beside = shows("ttft", where="d.json: other", name=f"{TTFT}_bucket")
    finding = only("M417", evidence(lifetime, queries=(shows("ttft"), beside)))
    assert (finding.status, finding.deciding) == ("fail", False)
    other = only("M417", evidence(flaw("lifetime", "e2e"), queries=(shows("e2e"),)))
    assert (other.deciding, other.subject) == (False, "other")


def test_lifetime_averages_are_told_concept_by_concept():
    flaws = (flaw("lifetime"), flaw("lifetime", "tpot", name="b"), flaw("lifetime", "kv_usage", name="c"))
    found = run_check(CHECK, evidence(*flaws), "M417")
    assert [finding.subject for finding in found] == ["ttft", "tps", "memory"]


# --------------------------------------------------------------------------------------------------------------- tokens


def test_mixed_tokens_warn_only_where_nothing_shows_generated_ones_alone():
    mixed = flaw("mixed_tokens", "tps", name=TOKENS)
    alone = shows("tps", name=TOKENS)
    assert only("M419", evidence(mixed, queries=(alone,))).status == "warn"
    beside = shows("tps", where="d.json: other", name=TOKENS)
    assert only("M419", evidence(mixed, queries=(alone, beside))).status == "pass"
    assert only("M419", evidence(queries=(alone,))).status == "pass"


# -------------------------------------------------------------------------------------------------------------- memory


def test_gpu_memory_alone_is_not_held_against_an_engine_without_a_kv_gauge():
    given = evidence(flaw("gpu_memory_only", "memory"))
    assert only("M420", replace(given, metric_names={"ttft": (TTFT,)})).status == "skip"


def test_several_pools_matter_to_a_model_with_several_kinds_of_layers():
    given = evidence(flaw("one_pool", "memory"))
    assert given.geometry is not None
    assert only("M428", given).status == "pass"
    (full, *_) = given.geometry.layers
    sliding = Layers(kind=full.kind, count=4, kv_heads=8, qk_head_dim=128, v_head_dim=128, window=1024)
    hybrid = replace(given.geometry, layers=(full, sliding))
    assert only("M428", replace(given, geometry=hybrid)).status == "warn"
    assert only("M428", replace(evidence(), geometry=hybrid)).status == "pass"
    assert only("M428", replace(given, geometry=None)).status == "skip"


# ------------------------------------------------------------------------------------------------ what an engine cannot


def test_what_the_engine_cannot_show():
    names = {"generation_tokens": ("llamacpp:tokens_predicted_total",), "gateway_ttft": ("g",)}
    served = make_served(engine="llamacpp", engine_version="b6000")
    given = replace(evidence(), served=served, metric_names=names)
    found = run_check(CHECK, given, "M426")
    assert [(f.subject, f.status) for f in found] == [("ttft", "warn"), ("memory", "warn")]
    assert "llama.cpp b6000 has no metric of TTFT" in found[0].why
    assert "gateway" in found[0].remedies[0]
    assert "GPU exporter" in found[1].remedies[0]


def test_what_another_source_shows_is_no_lack():
    names = {"generation_tokens": ("llamacpp:tokens_predicted_total",)}
    items = (CoverageItem(concept="memory", rung="parses", names=("DCGM_FI_DEV_FB_USED",)),)
    given = replace(evidence(), served=make_served(engine="llamacpp"), metric_names=names)
    assert given.coverage is not None
    given = replace(given, coverage=replace(given.coverage, items=items))
    statuses = {f.subject: f.status for f in run_check(CHECK, given, "M426")}
    assert statuses == {"ttft": "warn", "memory": "pass"}


def test_an_engine_with_all_three_and_one_that_is_not_known():
    assert only("M426", evidence()).status == "pass"
    assert only("M426", replace(evidence(), served=make_served(engine="generic"))).status == "skip"
    assert only("M426", replace(evidence(), metric_names={})).status == "skip"
