"""The client and `audit coverage --prometheus` with a real Prometheus that scrapes a page of vLLM's names."""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from auditor import monitored
from auditor.cli.coverage import command
from auditor.loading.profile import parse_profile
from auditor.probe.prometheus import Prometheus, Refused, Unreachable
from auditor.run import Options, declare
from tests.prometheus import needs_prometheus, prometheus

pytestmark = [pytest.mark.slow, needs_prometheus]

RULES = """
groups:
  - name: g
    rules:
      - {record: "kv:max", expr: "max(vllm:kv_cache_usage_perc)"}
      - {alert: KvFull, expr: "vllm:kv_cache_usage_perc > 0.9", for: 1m}
"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        tokens = int(100 * time.monotonic())
        text = (
            "# TYPE vllm:kv_cache_usage_perc gauge\n"
            'vllm:kv_cache_usage_perc{model_name="m"} 0.5\n'
            "# TYPE vllm:generation_tokens_total counter\n"
            f'vllm:generation_tokens_total{{model_name="m"}} {tokens}\n'
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: Any) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Running:
    """The Prometheus's address, and the host and port of the page."""

    url: str
    page: str

    def ask(self, work: Callable[[Prometheus], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with Prometheus(self.url) as client:
                return await work(client)

        return asyncio.run(run())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "rules.yaml").write_text(RULES)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = f"127.0.0.1:{server.server_port}"
    try:
        with prometheus(folder, {"vllm": [page]}, rules=[folder / "rules.yaml"], interval="200ms") as url:
            _until(url, "kv:max and on() rate(vllm:generation_tokens_total[2s])")
            yield Running(url, page)
    finally:
        server.shutdown()
        server.server_close()


def _until(url: str, query: str) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with urlopen(f"{url}/api/v1/query?query={quote(query)}", timeout=10) as reply:
            if json.load(reply)["data"]["result"]:
                return
        time.sleep(0.2)
    raise AssertionError(f"{query} returns nothing")


@pytest.fixture
def board(tmp_path: Path) -> Path:
    texts = {"KV": "kv:max", "before": "vllm:gpu_cache_usage_perc", "speed": "rate(vllm:generation_tokens_total[1m])"}
    path = tmp_path / "board.json"
    path.write_text(json.dumps({"panels": [{"title": t, "targets": [{"expr": e}]} for t, e in texts.items()]}))
    return path


def test_instants_and_ranges(running: Running) -> None:
    (now,) = running.ask(lambda p: p.query("vllm:kv_cache_usage_perc"))
    assert now.labels == {
        "__name__": "vllm:kv_cache_usage_perc",
        "instance": running.page,
        "job": "vllm",
        "model_name": "m",
    }
    assert now.last == 0.5
    at = running.ask(lambda p: p.now())
    assert at == pytest.approx(now.points[0][0], abs=60)
    (scalars,) = running.ask(lambda p: p.query_range("vector(3)", at - 10, at, 5))
    assert [value for _, value in scalars.points] == [3, 3, 3]


def test_what_it_scrapes_and_runs(running: Running) -> None:
    (target,) = running.ask(lambda p: p.targets())
    assert (target.job, target.url, target.health) == ("vllm", f"http://{running.page}/metrics", "up")
    assert target.interval == 0.2
    assert running.ask(lambda p: p.dropped()) == 0
    (alert,) = running.ask(lambda p: p.alerts())
    assert (alert.name, alert.query, alert.state) == ("KvFull", "vllm:kv_cache_usage_perc > 0.9", "inactive")
    assert running.ask(lambda p: p.flags())["query.lookback-delta"] == "5m"
    assert running.ask(lambda p: p.runtime())["storageRetention"] == "15d"
    assert running.ask(lambda p: p.version())[0].isdigit()


def test_labels_and_series(running: Running) -> None:
    assert running.ask(lambda p: p.label_values("model_name")) == ("m",)
    assert running.ask(lambda p: p.label_values("job", ["no_such_series"])) == ()
    names = [one["__name__"] for one in running.ask(lambda p: p.series(["vllm:kv_cache_usage_perc", "kv:max"]))]
    assert sorted(names) == ["kv:max", "vllm:kv_cache_usage_perc"]


def test_a_query_longer_than_any_address_is_asked_by_form(running: Running) -> None:
    long = "vllm:kv_cache_usage_perc" + " or vllm:kv_cache_usage_perc" * 200
    assert len(running.ask(lambda p: p.query(long))) == 1


def test_a_query_that_is_none_is_refused_in_the_servers_words(running: Running) -> None:
    with pytest.raises(Refused) as caught:
        running.ask(lambda p: p.query("up{"))
    assert caught.value.said == (
        'bad_data: invalid parameter "query": 1:4: parse error: unexpected end of input inside braces'
    )


def test_one_that_wants_a_password(tmp_path: Path) -> None:
    """Prometheus's own basic authentication (--web.config.file); the hash is bcrypt's of pass-word-1."""
    users = {"bob": "$2b$04$abcdefghijklmnopqrstuu.pRgs6SOPOaiNl89.1rRj7iKw6AhHf6"}
    (tmp_path / "web.yml").write_text(json.dumps({"basic_auth_users": users}))
    flags = [f"--web.config.file={tmp_path / 'web.yml'}"]

    async def now(url: str) -> float:
        async with Prometheus(url) as client:
            return await client.now()

    with prometheus(tmp_path / "data", {}, flags=flags) as url:
        assert asyncio.run(now(url.replace("//", "//bob:pass-word-1@"))) > 0
        with pytest.raises(Unreachable, match="with 401; the key or password is refused"):
            asyncio.run(now(url.replace("//", "//bob:another-2@")))
        with pytest.raises(Unreachable, match="with 401; it wants a key"):
            asyncio.run(now(url))


@pytest.mark.parametrize(("selector", "found"), [("{}", True), ("{job: vllm}", True), ("{job: other}", False)])
def test_it_knows_the_replicas_by_their_labels(running: Running, selector: str, found: bool, tmp_path: Path) -> None:
    text = (
        "version: 1\nname: t\nendpoint: {url: 'http://127.0.0.1:9/v1', metrics: prometheus}\n"
        f"monitoring: {{prometheus: '{running.url}', selector: {selector}}}\n"
    )
    loaded, notes = parse_profile(text, tmp_path / "p.yaml", {}), []
    evidence = declare(loaded, Options(offline=True))
    profile = asyncio.run(monitored.replicas(evidence, loaded.profile, loaded, notes.append))
    assert profile.endpoint.metrics == ((f"http://{running.page}/metrics",) if found else None)
    assert len(notes) == (not found)


def test_coverage_asks_what_the_files_draw(running: Running, board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command([board], engine="vllm", engine_version="0.18.0", prometheus=running.url, window="1m", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["concepts"]["memory"]["rung"] == "alerted"
    assert found["concepts"]["memory"]["dead"] == ["vllm:gpu_cache_usage_perc"]
    assert found["concepts"]["tps"]["rung"] == "returns_data"
    assert found["prometheus"]["window"] == 60
    series = {answer["query"]: (answer["series"], answer["absent"]) for answer in found["prometheus"]["answers"]}
    assert series == {
        "kv:max": (1, []),
        "vllm:gpu_cache_usage_perc": (0, ["vllm:gpu_cache_usage_perc"]),
        "rate(vllm:generation_tokens_total[1m])": (1, []),
        "vllm:kv_cache_usage_perc > 0.9": (1, []),
    }


def test_coverage_tells_in_a_table_what_carries_the_series(
    running: Running, board: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(board.parent)
    command([Path(board.name)], engine="vllm", engine_version="0.18.0", prometheus=running.url, window="1m")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert " ".join(" ".join(lines[-2:]).split()) == (
        f"prometheus {running.url}: 1 of 1 targets carry these series; asked over the last 60 s"
    )


def test_coverage_of_each_file_is_answered_by_one_prometheus(
    running: Running, board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command([board, tmp_path / "none.json"], engine="vllm", prometheus=running.url, prometheus_key_env=None, each=True)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["evidence"]["tps"]["rung"] == "returns_data"
    assert second["error"].endswith("there is no such file")
