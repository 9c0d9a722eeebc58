"""What is missing is printed so that it passes the same check, and promtool, for each engine, page or no page."""

import json
import shutil
import subprocess
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from auditor.cli.app import app
from auditor.measurement import MetricsPage
from auditor.monitoring.coverage import ASKED, coverage
from auditor.monitoring.fix import Missing, missing
from auditor.monitoring.standing import Place
from auditor.watch import Coverage, Watch

EMPTY = json.dumps({"title": "nothing", "panels": []})
PROVEN = ("valid", "on_page", "parses")
ENGINES = [
    ("vllm", "0.6.6"),
    ("vllm", "0.9.2"),
    ("vllm", "0.18.0"),
    ("sglang", "0.4.4"),
    ("sglang", "0.5.10"),
    ("lmdeploy", None),
    ("trtllm", None),
]


def file(name: str, text: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, text=text, kind="x")


def fixed(lacks: Missing) -> list[SimpleNamespace]:
    parts = [("d.json", lacks.dashboard), ("a.yaml", lacks.rules)]
    return [file(name, json.dumps(part)) for name, part in parts if part is not None]


def lacking(files: list[SimpleNamespace], engine: str, version: str | None, *pages: MetricsPage) -> Missing:
    """What the command would print."""
    place = Place.of(engine, version, pages)
    return missing(judged(files, place.engine, version, *pages), place)


def judged(files: list[SimpleNamespace], engine: str, version: str | None, *pages: MetricsPage) -> Coverage:
    return coverage(files, engine, version, pages)


@pytest.mark.parametrize(("engine", "version"), ENGINES)
def test_what_is_printed_covers_what_was_missing(engine, version):
    lacks = lacking([file("e.json", EMPTY)], engine, version)
    found = judged(fixed(lacks), engine, version)
    items = {item.concept: item for item in found.items}
    assert {concept: items[concept].rung for concept in ASKED} == dict.fromkeys(
        ASKED, "valid" if version else items["ttft"].rung
    )
    assert all(items[concept].alerts for concept in ASKED)
    assert [item.dead for item in found.items if item.dead] == []
    assert (found.flaws, found.unreadable, found.invalid_queries, lacks.impossible) == ((), (), (), ())
    again = missing(found, Place.of(engine, version, ()))
    assert (again.dashboard, again.rules) == (None, None)


def test_only_what_is_missing_is_printed():
    panel = {"title": "KV", "targets": [{"expr": "max(vllm:kv_cache_usage_perc)"}]}
    given = [file("k.json", json.dumps({"title": "k", "panels": [panel]}))]
    lacks = lacking(given, "vllm", "0.18.0")
    assert lacks.dashboard is not None
    titles = [panel["title"] for panel in lacks.dashboard["panels"]]
    assert titles == ["Time to first token", "Generated tokens per second", "Time per output token"]


def test_limits_stand_on_bounds():
    """vLLM's TTFT histogram has no bound at 2 s but at 2.5 s, SGLang's has one at 2 s."""
    for engine, version, limit in (("vllm", "0.18.0", "> 2.5"), ("sglang", "0.5.10", "> 2")):
        lacks = lacking([file("e.json", EMPTY)], engine, version)
        assert lacks.rules is not None
        (ttft, *_) = lacks.rules["groups"][0]["rules"]
        assert ttft["expr"].endswith(limit)


def test_triton_counts_milliseconds_and_has_its_usage_in_a_label():
    lacks = lacking([file("e.json", EMPTY)], "triton", None)
    assert lacks.dashboard is not None
    assert lacks.rules is not None
    ttft, memory = lacks.dashboard["panels"]
    assert ttft["fieldConfig"]["defaults"]["unit"] == "ms"
    assert memory["targets"][0]["expr"] == 'max(nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"})'
    assert lacks.rules["groups"][0]["rules"][0]["expr"].endswith("> 2000")
    assert [line.partition(":")[0] for line in lacks.impossible] == [
        "Triton with TensorRT-LLM has no metric of generated tokens"
    ]


def test_an_engine_without_ttft_and_kv_says_what_to_run():
    lacks = lacking([file("e.json", EMPTY)], "llamacpp", "b6000")
    assert "litellm" in lacks.impossible[0]
    assert "GPU exporter, such as DCGM_FI_DEV_FB_USED" in lacks.impossible[1]
    assert lacks.dashboard is not None
    assert [panel["title"] for panel in lacks.dashboard["panels"]] == ["Generated tokens per second"]


def test_an_exporter_s_page_shows_the_memory_that_the_engine_does_not():
    names = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED")
    page = MetricsPage(url="u", types=dict.fromkeys(names, "gauge"), exporter="dcgm")
    lacks = lacking([file("e.json", EMPTY)], "llamacpp", "b6000", page)
    assert lacks.dashboard is not None
    memory = lacks.dashboard["panels"][1]["targets"][0]["expr"]
    assert memory == f"max({names[0]} / ({' + '.join(names)}))"
    again = judged(fixed(lacks), "llamacpp", "b6000", page)
    assert {item.concept: item.rung for item in again.items}["memory"] == "parses"
    assert [flaw.kind for flaw in again.flaws] == ["gpu_memory_only"]


def test_a_page_tells_the_series_where_no_engine_is_named():
    types = {"vllm:time_to_first_token_seconds_bucket": "histogram", "vllm:kv_cache_usage_perc": "gauge"}
    page = MetricsPage(url="u", types=types)
    lacks = lacking([file("e.json", EMPTY)], "generic", None, page)
    assert lacks.dashboard is not None
    assert [panel["title"] for panel in lacks.dashboard["panels"]] == ["Time to first token", "KV cache usage"]


def test_what_a_page_does_not_have_is_not_drawn():
    """vLLM of 2024 has neither the newer time per token nor a KV gauge of the newer name."""
    types = {
        "vllm:time_to_first_token_seconds_bucket": "histogram",
        "vllm:generation_tokens_total": "counter",
        "vllm:gpu_cache_usage_perc": "gauge",
        "vllm:num_requests_running": "gauge",
    }
    page = MetricsPage(url="u", types=types, buckets={"vllm:time_to_first_token_seconds": (0.5, 1.0, 2.0)})
    lacks = lacking([file("e.json", EMPTY)], "vllm", None, page)
    found = judged(fixed(lacks), "vllm", None, page)
    assert {i.concept: i.rung for i in found.items if i.concept in ASKED} == dict.fromkeys(ASKED, "alerted")
    assert ([item.dead for item in found.items if item.dead], found.flaws) == ([], ())
    assert lacks.rules is not None
    ttft, tps, *_ = lacks.rules["groups"][0]["rules"]
    assert ttft["expr"].endswith("> 1")  # the page's last bound is 2 s: a quantile never shows more
    assert tps["expr"] == "sum(rate(vllm:generation_tokens_total[5m])) / sum(vllm:num_requests_running) < 5"


def test_older_names_of_one_gauge_are_no_pools():
    types = dict.fromkeys(("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"), "gauge")
    page = MetricsPage(url="u", types=types)
    lacks = lacking([file("e.json", EMPTY)], "vllm", None, page)
    assert lacks.dashboard is not None
    (memory,) = lacks.dashboard["panels"]
    assert [target["expr"] for target in memory["targets"]] == ["max(vllm:kv_cache_usage_perc)"]
    assert judged(fixed(lacks), "vllm", None, page).flaws == ()


def test_series_are_spelled_as_a_prometheus_stores_them():
    place = Place.of("sglang", "0.5.10", ())
    stored = ("sglang_time_to_first_token_seconds_bucket", "sglang_token_usage", "sglang_num_running_reqs")
    lacks = missing(judged([file("e.json", EMPTY)], "sglang", "0.5.10"), place, stored)
    assert lacks.rules is not None
    queries = [rule["expr"] for rule in lacks.rules["groups"][0]["rules"]]
    assert "rate(sglang_time_to_first_token_seconds_bucket[5m])" in queries[0]
    assert "rate(sglang:inter_token_latency_seconds_bucket[5m])" in queries[1]  # stored in no spelling
    assert queries[2:] == ["max(sglang_token_usage) > 0.95", "absent(sglang_num_running_reqs)"]


def test_pools_are_spelled_as_they_are_stored():
    types = dict.fromkeys(("sglang:token_usage", "sglang:swa_token_usage"), "gauge")
    page, stored = MetricsPage(url="u", types=types), ("sglang_token_usage", "sglang_swa_token_usage")
    place = Place.of("sglang", None, (page,))
    lacks = missing(judged([file("e.json", EMPTY)], "sglang", None, page), place, stored)
    assert lacks.dashboard is not None
    memory = next(panel for panel in lacks.dashboard["panels"] if panel["title"] == "KV cache usage")
    assert [t["expr"] for t in memory["targets"]] == ["max(sglang_token_usage)", "max(sglang_swa_token_usage)"]


def test_a_concept_that_is_shown_in_a_misleading_way_only_is_missing():
    mean = "vllm:time_to_first_token_seconds_sum / vllm:time_to_first_token_seconds_count"
    board = {"title": "t", "panels": [{"title": "TTFT", "targets": [{"expr": mean}]}]}
    lacks = lacking([file("t.json", json.dumps(board))], "vllm", "0.18.0")
    assert lacks.dashboard is not None
    assert lacks.dashboard["panels"][0]["title"] == "Time to first token"


# ---------------------------------------------------------------------------------------------------------- the command


def ran(tmp_path, *arguments: str) -> tuple[int, str, str]:
    path = tmp_path / "empty.json"
    path.write_text(EMPTY, encoding="utf-8")
    result = CliRunner().invoke(app, ["coverage", str(path), *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_stream_is_read_as_it_is_printed(tmp_path):
    code, printed, said = ran(tmp_path, "--engine", "vllm", "--engine-version", "0.18.0", "--fix")
    assert (code, said) == (0, "")
    found = judged([file("stream.yaml", printed)], "vllm", "0.18.0")
    assert {item.rung for item in found.items if item.concept in ASKED} == {"valid"}
    board, rules = printed.split("\n---\n")
    assert json.loads(board)["panels"]
    assert yaml.safe_load(rules)["groups"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize(("engine", "version"), [*ENGINES, ("triton", None), ("llamacpp", None), ("tgi", None)])
def test_promtool_takes_the_rules(tmp_path, engine, version):
    named = ["--engine-version", version] if version else []
    _, printed, _ = ran(tmp_path, "--engine", engine, *named, "--fix", "--json")
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps(json.loads(printed)["rules"]), encoding="utf-8")
    done = subprocess.run(["promtool", "check", "rules", str(rules)], capture_output=True, text=True, check=False)
    assert (done.returncode, "SUCCESS" in done.stdout) == (0, True), done.stderr


def test_nothing_is_missing(tmp_path):
    _, printed, _ = ran(tmp_path, "--engine", "vllm", "--engine-version", "0.18.0", "--fix")
    whole = tmp_path / "whole.yaml"
    whole.write_text(printed, encoding="utf-8")
    result = CliRunner().invoke(
        app, ["coverage", str(whole), "--engine", "vllm", "--engine-version", "0.18.0", "--fix"]
    )
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing that a panel or an alert could show is missing" in result.stderr


def test_mistakes_get_one_line(tmp_path):
    from auditor.errors import UsageError

    path = tmp_path / "empty.json"
    path.write_text(EMPTY, encoding="utf-8")
    for arguments, words in (
        (["--fix"], "--engine NAME or --metrics"),
        (["--fix", "--each", "--engine", "vllm"], "leave --each away"),
    ):
        result = CliRunner().invoke(app, ["coverage", str(path), *arguments])
        assert isinstance(result.exception, UsageError)
        assert words in str(result.exception)


def test_what_misleads_is_printed_with_what_to_write(tmp_path):
    path = tmp_path / "b.json"
    panel = {"title": "KV", "targets": [{"expr": "sum(vllm:kv_cache_usage_perc)"}]}
    path.write_text(json.dumps({"title": "b", "panels": [panel]}), encoding="utf-8")
    table = CliRunner().invoke(app, ["coverage", str(path)]).stdout
    assert "misleads" in table
    assert "write max(vllm:kv_cache_usage_perc)" in " ".join(table.split())
    line = json.loads(CliRunner().invoke(app, ["coverage", str(path), "--each"]).stdout)
    (flaw,) = line["flaws"]
    assert (flaw["kind"], flaw["instead"]) == ("summed_ratio", "max(vllm:kv_cache_usage_perc)")
    whole = json.loads(CliRunner().invoke(app, ["coverage", str(path), "--json"]).stdout)
    assert whole["flaws"] == [flaw]


def _summed(*titles: str) -> str:
    """A dashboard with a panel of each title, each of twelve sums that replicas add up in."""
    targets = [{"expr": f'sum(vllm:kv_cache_usage_perc{{a="{number}"}})'} for number in range(12)]
    return json.dumps({"title": "b", "panels": [{"title": title, "targets": targets} for title in titles]})


def test_many_that_mislead_are_not_all_in_the_table(tmp_path):
    path = tmp_path / "b.json"
    path.write_text(_summed(*(f"KV {number}" for number in range(12))), encoding="utf-8")
    table = CliRunner().invoke(app, ["coverage", str(path)]).stdout
    assert "and 2 more (--json shows all)" in table


def test_what_misleads_alike_in_one_panel_is_told_once(tmp_path):
    path = tmp_path / "b.json"
    path.write_text(_summed("KV"), encoding="utf-8")
    table = CliRunner().invoke(app, ["coverage", str(path)]).stdout
    assert " ".join(table.split()).count("replicas add up beyond it") == 1


def test_alerts_on_names_that_prometheus_stores_otherwise_are_written_anew():
    """An alert on `sglang:token_usage` never fires where Prometheus holds `sglang_token_usage`."""
    page = MetricsPage(
        url="u", types={"sglang:token_usage": "gauge", "sglang:time_to_first_token_seconds": "histogram"}
    )
    place = Place.of("sglang", "0.5.23", (page,))
    files = fixed(missing(judged([file("e.json", EMPTY)], "sglang", "0.5.23", page), place))
    stored = ("sglang_token_usage", "sglang_time_to_first_token_seconds_bucket", "sglang_generation_tokens_total")
    watch = Watch(url="http://prom:9090", names=stored)
    lacks = missing(coverage(files, "sglang", "0.5.23", (page,), watch), place, stored)
    assert lacks.rules is not None
    written = json.dumps(lacks.rules)
    assert "sglang_token_usage" in written
    assert "sglang:token_usage" not in written
