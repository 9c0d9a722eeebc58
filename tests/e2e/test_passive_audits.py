"""Passive audits against a real Prometheus: exact counts, verdicts by buckets, and not a byte to the service."""

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from auditor import run
from auditor.emulator.process import start_process
from auditor.emulator.spec import spec_from
from auditor.errors import NothingMeasured, UsageError
from auditor.evidence import Report
from auditor.loading import load_profile
from auditor.probe import passive
from auditor.probe.prometheus import Prometheus
from auditor.report import words
from auditor.report.renderers import RENDERERS
from tests.e2e.scenario import HEALTHY, changed
from tests.prometheus import free_port, needs_prometheus, prometheus

pytestmark = [pytest.mark.slow, needs_prometheus]

HOURS = 3
EVERY = 15  # seconds between samples
PER_SAMPLE = 5  # requests
BOUNDS = {"0.25": 0.9, "0.5": 0.98, "1": 1.0, "+Inf": 1.0}  # share of requests within
TPOT = {"0.05": 0.99, "0.1": 1.0, "+Inf": 1.0}
SLO = {"ttft": {"p95": "500ms"}, "tps": {"p05": "20/s"}, "error_rate": "5%"}


def _lines(end: int, model: str, after: int | None = None) -> Iterator[str]:
    """OpenMetrics lines of three hours: 5 requests every 15 s, 16 in flight, none waiting.

    With `after`, the engine restarts in the middle and serves so many from then on.
    """
    middle = HOURS * 3600 // EVERY // 2
    requests = [
        PER_SAMPLE * i if after is None or i < middle else after * (i - middle + 1)
        for i in range(HOURS * 3600 // EVERY)
    ]
    labels = f'job="engine",instance="a:8000",model_name="{model}"'
    times = range(end - HOURS * 3600, end, EVERY)
    families = {"time_to_first_token_seconds": BOUNDS, "request_time_per_output_token_seconds": TPOT}
    for family, within in families.items():
        yield f"# TYPE vllm:{family} histogram"
        for i, at in enumerate(times):
            for bound, share in within.items():
                n = requests[i] * share
                yield f'vllm:{family}_bucket{{{labels},le="{bound}"}} {n} {at}'
            yield f"vllm:{family}_count{{{labels}}} {requests[i]} {at}"
            yield f"vllm:{family}_sum{{{labels}}} {0.2 * requests[i]} {at}"
    yield "# TYPE vllm:request_success counter"
    for reason, each in (("stop", 1), ("abort", 0), ("error", 0)):
        yield from (
            f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {each * requests[i]} {at}'
            for i, at in enumerate(times)
        )
    gauges = {"vllm:num_requests_running": (labels, 16), "vllm:num_requests_waiting": (labels, 0)}
    for name, (on, value) in (gauges | {"up": ('job="engine",instance="a:8000"', 1)}).items():
        yield f"# TYPE {name} gauge"
        yield from (f"{name}{{{on}}} {value} {at}" for at in times)


def _filled(folder: Path, *models: str, after: int | None = None) -> None:
    folder.mkdir()
    for model in models:
        text = "\n".join([*_lines(int(time.time()) - 5, model, after), "# EOF", ""])
        (folder / "history.txt").write_text(text)
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "history.txt", folder / "data"]
        subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("history") / "prom"
    _filled(folder, "m")
    with prometheus(folder, {}, flags=["--storage.tsdb.retention.time=3d"]) as url:
        yield url


def _audited(folder: Path, url: str, seconds: float = 7200.0, **changes: object) -> Report:
    """A passive audit of a service whose address takes no connection."""
    with socket.create_server(("127.0.0.1", 0)) as service:
        service.settimeout(0)
        fields = {
            "endpoint.engine": "auto",
            "endpoint.url": f"http://127.0.0.1:{service.getsockname()[1]}/v1",
            "monitoring.prometheus": url,
            "slo": SLO,
            "traffic.target_concurrency": 16,
        }
        (folder / "profile.yaml").write_text(yaml.safe_dump(changed(HEALTHY, fields | changes)))
        loaded = load_profile(folder / "profile.yaml")
        options = run.Options(passive=seconds, save=folder / "saved", only=("W",))
        report = asyncio.run(run.audit(loaded, options, lambda _: None))
        with pytest.raises(BlockingIOError):
            service.accept()
    return report


def _status(report: Report, rule: str) -> str:
    return next(f.status for f in report.findings if f.rule == rule)


def test_a_window_that_meets_its_slos_passes_by_exact_counts(history, tmp_path):
    report = _audited(tmp_path, history)
    seen = report.evidence.observed
    slices, step = len(seen.slices), seen.slices[0].seconds
    assert step == 75  # two hours in 96
    counted = seen.histograms["ttft"].count
    assert counted % PER_SAMPLE == 0
    assert 0 <= slices * step / EVERY * PER_SAMPLE - counted <= 2 * PER_SAMPLE  # the last sample is some seconds old
    assert dict(seen.histograms["ttft"].buckets)[0.5] == pytest.approx(0.98 * seen.histograms["ttft"].count)
    assert (seen.values["instances"], seen.values["up"], seen.values["aborted"]) == (1, 1, 0)
    assert {rule: _status(report, rule) for rule in ("W110", "W111", "W113", "W120")} == {
        "W110": "pass",
        "W111": "pass",
        "W113": "pass",
        "W120": "pass",
    }
    assert report.evidence.measurements == ()
    assert (seen.engine, report.evidence.engine) == ("vllm", "vllm")
    told = json.loads(RENDERERS["json"](report))["evidence"]["observed"]["slices"][1]
    assert told["counts"] == {"ttft": 25, "tpot": 25}  # five samples of 15 s, 5 requests each
    assert f"passive, 2 h of {history}" in words.context(report)
    again = run.judge(tmp_path / "saved", profile=None, options=run.Options())
    assert again == report


def test_a_limit_inside_a_bucket_is_open_and_one_beyond_doubt_fails(history, tmp_path):
    inside = _audited(tmp_path, history, slo={"ttft": {"p95": "300ms"}})
    assert _status(inside, "W110") == "inconclusive"
    assert inside.exit_code == 4
    (tmp_path / "other").mkdir()
    strict = _audited(tmp_path / "other", history, slo={"ttft": {"p99": "500ms"}})
    assert _status(strict, "W110") == "fail"  # 2 % took longer, 1 % may
    assert strict.exit_code == 1


def test_a_target_that_no_hour_reached_is_open(history, tmp_path):
    report = _audited(tmp_path, history, **{"traffic.target_concurrency": 64})
    assert _status(report, "W110") == "inconclusive"
    assert "at most 16 requests in flight in the mean" in next(f.why for f in report.findings if f.rule == "W110")


def test_a_prometheus_without_the_service_passes_nothing(tmp_path):
    with prometheus(tmp_path / "prom", {}) as url:
        report = _audited(tmp_path, url)
    assert {f.status for f in report.findings if f.rule in ("W110", "W111", "W113", "W120")} <= {"inconclusive", "skip"}
    assert report.verdict == "INCONCLUSIVE"


def test_a_restart_between_two_edges_is_seen(tmp_path):
    """1,800 requests in an hour and a half, then 1,000 in each scrape: two later the count is above the old one."""
    _filled(tmp_path / "prom", "m", after=1000)

    async def read(url):
        async with Prometheus(url) as asked:
            return await passive.look(asked, passive.Subject(), 7200.0)

    with prometheus(tmp_path / "prom", {}, flags=["--storage.tsdb.retention.time=3d"]) as url:
        seen = asyncio.run(read(url))
    assert seen.values["restarts"] == 1
    assert 20 <= seen.values["unknown"] <= 30  # a slice of 75 s before it: 25
    before = (7200 - HOURS * 3600 / 2) / EVERY * PER_SAMPLE  # of the half hour of the window before it: 600
    lost = before + 1000 * HOURS * 3600 / EVERY / 2 - seen.histograms["ttft"].count
    assert -PER_SAMPLE <= lost <= 2 * 25 + 1000  # up to a slice before it is not counted, and the last scrape
    assert seen.values["requests"] == seen.histograms["ttft"].count


def test_several_models_are_refused_until_one_is_named(tmp_path):
    _filled(tmp_path / "prom", "m", "n")
    with prometheus(tmp_path / "prom", {}, flags=["--storage.tsdb.retention.time=3d"]) as url:
        with pytest.raises(UsageError, match=r"several models: set endpoint\.model to one of m, n"):
            _audited(tmp_path, url)
        (tmp_path / "one").mkdir()
        assert _status(_audited(tmp_path / "one", url, **{"endpoint.model": "n"}), "W110") == "pass"
        (tmp_path / "none").mkdir()
        with pytest.raises(UsageError, match=r"none of endpoint\.model, x"):
            _audited(tmp_path / "none", url, **{"endpoint.model": "x"})


def test_a_selector_tells_one_cluster_from_others(history, tmp_path):
    found = _audited(tmp_path, history, **{"monitoring.selector": {"instance": "a:8000"}})
    assert _status(found, "W110") == "pass"
    (tmp_path / "other").mkdir()
    nobody = _audited(tmp_path / "other", history, **{"monitoring.selector": {"instance": 'b"8000'}})
    assert _status(nobody, "W110") == "inconclusive"


def test_lengths_of_a_week_need_no_counters(history):
    async def read(concepts):
        async with Prometheus(history) as asked:
            return await passive.look(asked, passive.Subject(), 7200.0, concepts)

    assert asyncio.run(read(passive.TIMES)).values["requests"] > 0
    lengths = asyncio.run(read(passive.LENGTHS))
    assert (lengths.histograms, "requests" in lengths.values) == ({}, False)


def test_no_prometheus_is_one_line(tmp_path):
    with pytest.raises(NothingMeasured, match=r"monitoring\.prometheus"):
        _audited(tmp_path, f"http://127.0.0.1:{free_port()}")
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match="--passive reads Prometheus alone"):
        _audited(tmp_path / "none", None)


def test_what_a_scraped_engine_served_is_counted_to_the_last_request(tmp_path):
    """The emulator under a Prometheus that scrapes it every second: 40 requests of 8 users, up to 6 tokens each."""
    (tmp_path / "profile.yaml").write_text(yaml.safe_dump(HEALTHY))
    declared = run.declare(load_profile(tmp_path / "profile.yaml"), run.Options(offline=True))
    spec = spec_from(declared.profile, declared.geometry, declared.device, declared.settings)
    url, stop = asyncio.run(start_process(spec))

    async def served(address):
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client, Prometheus(address) as asked:
            while not await asked.query('up{job="engine"} == 1'):
                await asyncio.sleep(0.2)
            await asyncio.sleep(3)  # scraped before its first request: what appears then counts from nothing
            model = (await client.get(f"{url}/models")).json()["data"][0]["id"]
            body = {"model": model, "messages": [{"role": "user", "content": "word " * 50}], "max_tokens": 6}
            usage: list[dict[str, int]] = []
            for _ in range(5):
                answers = await asyncio.gather(*(client.post(f"{url}/chat/completions", json=body) for _ in range(8)))
                assert {answer.status_code for answer in answers} == {200}
                usage += [answer.json()["usage"] for answer in answers]
            await asyncio.sleep(3)
            return usage, await passive.look(asked, passive.Subject(engine="vllm"), 60.0)

    try:
        with prometheus(tmp_path / "prom", {"engine": [url.split("/")[2]]}) as address:
            usage, seen = asyncio.run(served(address))
    finally:
        stop()
    assert {c: seen.histograms[c].count for c in ("ttft", "e2e", "prompt_len")} == {
        "ttft": 40,
        "e2e": 40,
        "prompt_len": 40,
    }
    assert seen.histograms["prompt_len"].sum == sum(each["prompt_tokens"] for each in usage)
    assert seen.values["generation_tokens"] == sum(each["completion_tokens"] for each in usage)
    assert (seen.values["requests"], seen.values["unknown"], seen.values["restarts"]) == (40, 0, 0)
