"""A Prometheus that stores the engine's series in another spelling than its page has: queries follow the storage."""

import asyncio
import json
from collections.abc import Iterator

import pytest
import yaml
from typer.testing import CliRunner

from auditor import run
from auditor.cli.app import app
from auditor.emulator.process import start_process
from auditor.emulator.spec import spec_from
from auditor.loading import load_profile
from tests.e2e.scenario import HEALTHY, changed
from tests.prometheus import needs_prometheus, prometheus

pytestmark = [pytest.mark.slow, needs_prometheus]

PAGE = "max(vllm:kv_cache_usage_perc)"
STORED = "max(vllm_kv_cache_usage_perc)"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The options that name an emulated vLLM's page, and a Prometheus that stores its names with `_` for `:`."""
    folder = tmp_path_factory.mktemp("spelling")
    (folder / "draft.yaml").write_text(yaml.safe_dump(changed(HEALTHY, {})))
    declared = run.declare(load_profile(folder / "draft.yaml"), run.Options(offline=True))
    assert declared.geometry is not None
    assert declared.device is not None
    assert declared.settings is not None
    spec = spec_from(declared.profile, declared.geometry, declared.device, declared.settings)
    url, stop = asyncio.run(start_process(spec))
    host = url.split("/")[2]
    renamed = {
        "source_labels": ["__name__"],
        "regex": "vllm:(.*)",
        "target_label": "__name__",
        "replacement": "vllm_$1",
    }
    job = {"job_name": "renamed", "static_configs": [{"targets": [host]}], "metric_relabel_configs": [renamed]}
    try:
        with prometheus(folder / "prom", {}, jobs=[job]) as address:
            yield ["--metrics", f"http://{host}/metrics", "--prometheus", address, "--window", "30s"]
    finally:
        stop()


def asked(tmp_path, query: str, *options: str) -> dict:
    path = tmp_path / "board.json"
    path.write_text(json.dumps({"title": "b", "panels": [{"title": "KV", "targets": [{"expr": query}]}]}))
    return json.loads(CliRunner().invoke(app, ["coverage", str(path), *options, "--json"]).stdout)


def until_scraped(tmp_path, live: list[str]) -> dict:
    """The answer for the stored spelling, once the first scrapes are in."""
    for _ in range(30):
        found = asked(tmp_path, STORED, *live)
        if found["concepts"]["memory"]["rung"] == "returns_data":
            break
        asyncio.run(asyncio.sleep(1))
    return found


def test_the_spelling_of_the_storage_returns_data_and_the_page_s_does_not(tmp_path, live):
    found = until_scraped(tmp_path, live)
    assert (found["concepts"]["memory"]["rung"], found["flaws"]) == ("returns_data", [])
    assert "vllm_kv_cache_usage_perc" in found["prometheus"]["names"]
    silent = asked(tmp_path, PAGE, *live)
    assert silent["concepts"]["memory"]["silent"] == ["vllm:kv_cache_usage_perc"]
    (flaw,) = silent["flaws"]
    assert (flaw["kind"], flaw["instead"]) == ("renamed_prefix", "vllm_kv_cache_usage_perc")


def test_what_is_printed_to_add_returns_data(tmp_path, live):
    until_scraped(tmp_path, live)
    lacks = asked(tmp_path, PAGE, *live, "--fix")
    queries = {panel["title"]: panel["targets"][0]["expr"] for panel in lacks["dashboard"]["panels"]}
    assert queries["KV cache usage"] == STORED
    assert "rate(vllm_time_to_first_token_seconds_bucket[$__rate_interval])" in queries["Time to first token"]
    assert lacks["rules"]["groups"][0]["rules"][-1]["expr"] == "absent(vllm_num_requests_running)"
