"""The ladder: what files cover on an engine, in a version, beside a page; dead names, alerts, several files as one."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.measurement import MetricsPage
from auditor.monitoring.coverage import coverage
from auditor.watch import Answer, Coverage, CoverageItem, RuleState, Watch

TTFT = "histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))"
TPS = "sum(rate(vllm:generation_tokens_total[5m]))"
KV = "max(vllm:kv_cache_usage_perc)"
OLD_KV = "max(vllm:gpu_cache_usage_perc)"
PAGE = MetricsPage(
    url="http://127.0.0.1:8000/metrics",
    types={
        "vllm:time_to_first_token_seconds": "histogram",
        "vllm:generation_tokens_total": "counter",
        "vllm:kv_cache_usage_perc": "gauge",
        "vllm:num_requests_running": "gauge",
    },
    buckets={"vllm:time_to_first_token_seconds": (0.1, 0.5, 2.0, float("inf"))},
)


@dataclass(frozen=True)
class File:
    name: str
    text: str
    kind: str = "dashboard"


def board(*queries: str, name: str = "d.json", titles: tuple[str, ...] = ()) -> File:
    named = [*titles, *[f"panel {i}" for i in range(len(titles), len(queries))]]
    panels = [{"title": t, "targets": [{"expr": q}]} for t, q in zip(named, queries, strict=False)]
    return File(name, json.dumps({"title": "d", "panels": panels}))


def alerts(**expressions: str) -> File:
    rules = [{"alert": name, "expr": expr} for name, expr in expressions.items()]
    return File("a.yaml", json.dumps({"groups": [{"name": "g", "rules": rules}]}), "rules")


def item(found: Coverage, concept: str) -> CoverageItem:
    return next(i for i in found.items if i.concept == concept)


def rungs(found: Coverage) -> tuple[str, str, str]:
    return (item(found, "ttft").rung, item(found, "tps").rung, item(found, "memory").rung)


ALL = board(TTFT, TPS, KV)


@pytest.mark.parametrize(
    ("engine", "version", "pages", "rung"),
    [
        ("generic", None, (), "named"),
        ("auto", "0.18.0", (), "named"),
        ("vllm", None, (), "named"),
        ("vllm", "0.18.0", (), "valid"),
        ("vllm", None, (PAGE,), "parses"),
        ("vllm", "0.32.0+cpu", (PAGE,), "parses"),
        ("generic", None, (PAGE,), "parses"),
    ],
)
def test_the_rung_follows_the_evidence(
    engine: str, version: str | None, pages: tuple[MetricsPage, ...], rung: str
) -> None:
    assert rungs(coverage([ALL], engine, version, pages)) == (rung,) * 3


def test_nothing_covers_nothing() -> None:
    assert rungs(coverage([], "vllm", "0.18.0")) == ("missing",) * 3
    assert rungs(coverage([board("up")], "vllm", "0.18.0", [PAGE])) == ("missing",) * 3


def test_a_removed_name_is_dead_and_names_its_successor() -> None:
    memory = item(coverage([board(OLD_KV)], "vllm", "0.18.0"), "memory")
    assert (memory.rung, memory.names, memory.dead) == ("named", (), ("vllm:gpu_cache_usage_perc",))
    assert "use vllm:kv_cache_usage_perc" in memory.note
    assert item(coverage([board(OLD_KV)], "vllm", "0.8.5"), "memory").rung == "valid"


def test_the_page_beats_the_version() -> None:
    memory = item(coverage([board(OLD_KV)], "vllm", "0.8.5", [PAGE]), "memory")
    assert memory.dead == ("vllm:gpu_cache_usage_perc",)
    old_page = MetricsPage(url="u", types={"vllm:gpu_cache_usage_perc": "gauge"})
    assert item(coverage([board(OLD_KV)], "vllm", "0.18.0", [old_page]), "memory").rung == "parses"


def test_a_dead_name_beside_a_live_one_does_no_harm() -> None:
    memory = item(coverage([board(f"{OLD_KV} or {KV}")], "vllm", "0.18.0"), "memory")
    assert (memory.rung, memory.names) == ("valid", ("vllm:kv_cache_usage_perc",))
    assert memory.dead == ("vllm:gpu_cache_usage_perc",)


def test_another_engines_names_are_dead_only_where_nothing_else_shows_the_concept() -> None:
    foreign = board("sglang:token_usage")
    assert item(coverage([foreign], "vllm", "0.18.0"), "memory").dead == ("sglang:token_usage",)
    assert item(coverage([foreign, board(KV)], "vllm", "0.18.0"), "memory").dead == ()


def test_names_behind_a_gateway_are_not_the_engines_own() -> None:
    query = board("sglang_token_usage")
    assert item(coverage([query], "sglang", "0.5.18"), "memory").rung == "named"
    own = MetricsPage(url="u", types={"sglang:token_usage": "gauge"})
    dead = item(coverage([query], "sglang", "0.5.18", [own]), "memory")
    assert dead.dead == ("sglang_token_usage",)
    assert "use sglang:token_usage" in dead.note
    gateway = MetricsPage(url="u", types={"sglang_token_usage": "gauge"})
    assert item(coverage([query], "sglang", "0.5.18", [gateway]), "memory").rung == "parses"


def test_series_that_come_with_the_first_event_are_not_dead() -> None:
    found = coverage([board("rate(vllm:num_preemptions_total[5m])")], "vllm", "0.18.0", [PAGE])
    assert (item(found, "preemptions").rung, item(found, "preemptions").dead) == ("valid", ())


def test_an_exporter_is_believed_only_with_its_page() -> None:
    query = board("DCGM_FI_DEV_FB_USED")
    assert item(coverage([query], "vllm", "0.18.0", [PAGE]), "memory").rung == "named"
    exporter = MetricsPage(url="u", types={"DCGM_FI_DEV_FB_USED": "gauge"}, exporter="dcgm")
    assert item(coverage([query], "vllm", "0.18.0", [PAGE, exporter]), "memory").rung == "parses"


def test_what_is_divided_by_a_series_that_is_not_there_returns_nothing() -> None:
    exporter = MetricsPage(url="u", types=dict.fromkeys(("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"), "gauge"))
    total = board("DCGM_FI_DEV_FB_USED / DCGM_FI_DEV_FB_TOTAL")
    found = item(coverage([total], "vllm", "0.18.0", [PAGE, exporter]), "memory")
    assert (found.rung, found.dead) == ("named", ("DCGM_FI_DEV_FB_TOTAL",))
    assert "divided by DCGM_FI_DEV_FB_TOTAL" in found.note
    parts = board("DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)")
    assert item(coverage([parts, total], "vllm", "0.18.0", [PAGE, exporter]), "memory").rung == "parses"
    assert item(coverage([total], "vllm", "0.18.0", [PAGE]), "memory").rung == "named"


def test_the_best_name_comes_first() -> None:
    memory = item(coverage([board("DCGM_FI_DEV_FB_USED", KV)], "vllm", "0.18.0", [PAGE]), "memory")
    assert memory.names == ("vllm:kv_cache_usage_perc", "DCGM_FI_DEV_FB_USED")
    assert memory.where == ("d.json: panel 1", "d.json: panel 0")


def test_alerts_watch_and_dead_alerts_never_fire() -> None:
    rules = alerts(Slow=f"{TTFT} > 1", Full=f"{OLD_KV} > 0.9", Gone="absent(vllm:generation_tokens_total)")
    found = coverage([ALL, rules], "vllm", "0.18.0", [PAGE])
    assert item(found, "ttft").rung == "alerted"
    assert item(found, "ttft").alerts == ("Slow",)
    assert item(found, "memory").alerts == ()
    assert "alert Full can never fire" in item(found, "memory").note
    assert item(found, "tps").alerts == ()


def test_alerts_alone_cover_nothing() -> None:
    found = coverage([alerts(Slow=f"{TTFT} > 2")], "vllm", "0.18.0")
    assert item(found, "ttft").rung == "missing"
    assert item(found, "ttft").alerts == ("Slow",)


def test_several_files_are_one_set_and_recording_rules_cross_them() -> None:
    recording = File("r.yaml", json.dumps({"groups": [{"rules": [{"record": "kv", "expr": KV}]}]}), "rules")
    found = coverage([board(TTFT, name="1.json"), board(TPS, "kv", name="2.json"), recording], "vllm", "0.18.0")
    assert rungs(found) == ("valid",) * 3
    assert item(found, "memory").where == ("2.json: panel 1",)
    assert found.files == ("1.json", "2.json", "r.yaml")


def test_activity_is_not_occupancy_also_behind_a_recording_rule() -> None:
    rule = {"record": "accelerator_memory_used_bytes", "expr": "DCGM_FI_DEV_MEM_COPY_UTIL"}
    recording = File("r.yaml", json.dumps({"groups": [{"rules": [rule]}]}), "rules")
    found = coverage([board("accelerator_memory_used_bytes"), recording], "vllm", "0.18.0")
    assert item(found, "memory").rung == "missing"
    assert item(found, "memory_activity").names == ("DCGM_FI_DEV_MEM_COPY_UTIL",)


def test_what_cannot_be_read_never_counts() -> None:
    broken = File("helm.json", "{{ if .Values.x }}" + ALL.text)
    found = coverage([broken, board("rate(vllm:generation_tokens_total)")], "vllm", "0.18.0")
    assert rungs(found) == ("missing",) * 3
    assert found.unreadable[0].startswith("helm.json: not ")
    assert found.invalid_queries[0].startswith("d.json: panel 0: ")
    assert coverage([File("x.json", "{}")], "vllm").unreadable == ("x.json: holds no dashboard and no rules",)


def test_bounds_come_from_the_page_else_from_the_version() -> None:
    assert item(coverage([ALL], "vllm", "0.18.0", [PAGE]), "ttft").buckets == (0.1, 0.5, 2.0)
    assert item(coverage([ALL], "vllm", "0.8.3"), "ttft").buckets[-1] == 10
    assert item(coverage([ALL], "vllm", "0.18.0"), "ttft").buckets[-1] == 2560


def test_what_the_page_offers() -> None:
    offered = coverage([], "vllm", None, [PAGE]).offered
    assert offered["ttft"] == ("vllm:time_to_first_token_seconds",)
    assert offered["running"] == ("vllm:num_requests_running",)
    assert coverage([], "vllm", None, [MetricsPage(url="u", types={"python_info": "gauge"})]).offered == {}


def test_names_that_neither_page_nor_catalogue_has() -> None:
    found = coverage([board("rate(vllm:request_failure_total[5m])")], "vllm", "0.18.0", [PAGE])
    assert item(found, "other").dead == ("vllm:request_failure_total",)
    assert "on no page and in no known version" in item(found, "other").note


@pytest.mark.parametrize(
    ("query", "version", "note"),
    [
        ("rate(vllm:request_failure_total[5m]) > 0", "0.18.0", "vllm:request_failure_total is in no known version"),
        ("rate(vllm:num_preemptions[5m]) > 0", "0.18.0", "did you mean vllm:num_preemptions_total?"),
        ("rate(vllm:request_failure_total[5m]) > 0", "0.99.0", None),  # newer than what is known
        ("rate(vllm:request_failure_total[5m]) > 0", None, None),
        ("rate(vllm:kv_offload_anything_total[5m]) > 0", "0.18.0", None),  # a plugin's
        ("rate(my:request_failure_total[5m]) > 0", "0.18.0", None),
    ],
)
def test_names_that_no_version_has_need_no_page(query: str, version: str | None, note: str | None) -> None:
    found = coverage([alerts(Fails=query)], "vllm", version)
    said = [i.note for i in found.items if i.dead]
    assert bool(said) == (note is not None)
    assert all((note or "") in text and "alert Fails can never fire" in text for text in said)


def test_a_name_that_returns_data_is_no_mistake() -> None:
    query = "rate(vllm:patched_total[5m])"
    found = coverage([board(query)], "vllm", "0.18.0", watch=prometheus(Answer(query=query, series=1)))
    assert [i for i in found.items if i.dead] == []


QUERIES = (TTFT, TPS, KV, OLD_KV, "up", "DCGM_FI_PROF_DRAM_ACTIVE", "rate(vllm:prompt_tokens_total[5m])")
COVERING = {TTFT: "ttft", TPS: "tps", KV: "memory", OLD_KV: "memory"}


@settings(max_examples=40, deadline=None)
@given(
    queries=st.lists(st.sampled_from(QUERIES), max_size=6),
    titles=st.lists(
        st.sampled_from(["TTFT p95", "KV cache usage", "Tokens per second", "", "up"]), min_size=6, max_size=6
    ),
)
def test_titles_never_change_the_answer_and_expressions_do(queries: list[str], titles: list[str]) -> None:
    plain = coverage([board(*queries)], "generic")
    titled = coverage([board(*queries, titles=tuple(titles[: len(queries)]))], "generic")
    assert rungs(plain) == rungs(titled)
    covered = {i.concept for i in plain.items if i.rung != "missing"} & {"ttft", "tps", "memory"}
    assert covered == {COVERING[query] for query in queries if query in COVERING}


def prometheus(*answers: Answer, rules: tuple[RuleState, ...] | None = None) -> Watch:
    return Watch(url="http://p:9090", answers=answers, rules=rules)


def test_queries_to_ask_are_those_about_the_service() -> None:
    files = [board(TTFT, "up", "rate(node_cpu_seconds_total[5m])", "vllm:nonsense"), alerts(Full=f"{KV} > 0.9")]
    found = coverage(files, "vllm", "0.18.0", [PAGE]).queries
    assert [(q.where, q.concepts, q.names, q.alert) for q in found] == [
        ("d.json: panel 0", ("ttft",), ("vllm:time_to_first_token_seconds_bucket",), None),
        ("d.json: panel 3", (), ("vllm:nonsense",), None),
        ("a.yaml: alert Full", ("memory",), ("vllm:kv_cache_usage_perc",), "Full"),
    ]
    assert found[0].text == TTFT


def test_what_returns_data_is_proven_and_what_returns_nothing_is_said() -> None:
    watch = prometheus(Answer(query=TTFT, series=1), Answer(query=TPS, series=0), Answer(query=KV, error="timed out"))
    found = coverage([ALL], "vllm", "0.18.0", watch=watch)
    assert rungs(found) == ("returns_data", "valid", "valid")
    assert (item(found, "ttft").silent, item(found, "tps").silent) == ((), ("vllm:generation_tokens_total",))
    assert "d.json: panel 1 returns nothing" in item(found, "tps").note
    assert "d.json: panel 2 cannot be answered: timed out" in item(found, "memory").note


def test_one_panel_with_data_is_enough() -> None:
    other = 'sum(rate(vllm:generation_tokens_total{job="gone"}[5m]))'
    watch = prometheus(Answer(query=other, series=0), Answer(query=TPS, series=3))
    found = item(coverage([board(other, TPS)], "vllm", "0.18.0", watch=watch), "tps")
    assert (found.rung, found.silent) == ("returns_data", ())


def test_data_revives_a_dead_name_only_where_it_stands_alone() -> None:
    both = f"{OLD_KV} or {KV}"
    alone = coverage([board(OLD_KV)], "vllm", "0.18.0", watch=prometheus(Answer(query=OLD_KV, series=1)))
    assert (item(alone, "memory").rung, item(alone, "memory").dead) == ("returns_data", ())
    beside = coverage([board(both)], "vllm", "0.18.0", watch=prometheus(Answer(query=both, series=1)))
    assert item(beside, "memory").dead == ("vllm:gpu_cache_usage_perc",)


def test_alerts_that_the_prometheus_runs_count_and_those_it_does_not_are_said() -> None:
    state = RuleState(name="Slow", query=f"{TTFT} > 2", state="inactive", health="ok")
    broken = RuleState(name="Full", query=f"{KV} > 0.9", state="inactive", health="err", error="many-to-many")
    answers = tuple(Answer(query=query, series=1) for query in (TTFT, TPS, KV))
    files = [ALL, alerts(Full=f"{KV} > 0.9", Idle=f"{TPS} < 1")]
    found = coverage(files, "vllm", "0.18.0", watch=prometheus(*answers, rules=(state, broken)))
    assert rungs(found) == ("alerted", "returns_data", "returns_data")
    assert item(found, "ttft").alerts == ("Slow",)
    assert "alert Idle is not loaded by http://p:9090" in item(found, "tps").note
    assert "alert Full fails: many-to-many" in item(found, "memory").note


def test_an_alert_whose_subject_returns_nothing_can_never_fire() -> None:
    query = f"{KV} > 0.9"
    watch = prometheus(Answer(query=query, series=0, absent=("vllm:kv_cache_usage_perc",)))
    found = item(coverage([ALL, alerts(Full=query)], "vllm", "0.18.0", watch=watch), "memory")
    assert found.alerts == ()
    assert "alert Full can never fire" in found.note


def test_an_alert_that_waits_for_a_first_event_is_not_one_that_never_fires() -> None:
    """SGLang has the counter from the first abort on."""
    aborts = "rate(sglang:num_aborted_requests_total[5m])"
    rules = [alerts(Aborts=f"{aborts} > 0.1")]

    def told(*absent: str) -> str:
        answer = Answer(query=f"{aborts} > 0.1", series=0, absent=absent)
        return item(coverage(rules, "sglang", "0.5.9", watch=Watch(url="p", answers=(answer,))), "aborted").note

    assert "never fire" not in told("sglang:num_aborted_requests_total")
    assert "alert Aborts can never fire" in told()  # its series are there: a label or the window keeps it silent


def test_a_template_that_was_not_rendered_covers_nothing() -> None:
    query = 'max(vllm:kv_cache_usage_perc{namespace="{{ .Release.Namespace }}"})'
    found = coverage([board(query)], "vllm", "0.18.0")
    assert item(found, "memory").rung == "missing"
    assert found.unreadable == ("d.json: panel 0: a template that was not rendered",)
