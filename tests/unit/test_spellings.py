"""A page that spells its names in one way for a Prometheus 2 and in another for a 3, as SGLang 0.5.23 does."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_endpoint import Asked, generation, reply, serving

from auditor.catalog.metrics import lookup
from auditor.cli.coverage import command
from auditor.loading.files import TextFile
from auditor.measurement import MetricsPage
from auditor.monitoring.coverage import coverage
from auditor.probe.discover import discover
from auditor.probe.exposition import escaped, parse_page
from auditor.profile import Endpoint, Profile
from auditor.watch import Answer, Coverage, CoverageItem, Watch

TEXT = """\
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="tiny"} 0.5
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="tiny"} 12.0
"""
TO_PROMETHEUS_2 = """\
# TYPE sglang_token_usage gauge
sglang_token_usage{model_name="tiny"} 0.5
# TYPE sglang_generation_tokens counter
sglang_generation_tokens_total{model_name="tiny"} 12.0
# EOF
"""
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
COLON, UNDERSCORE = "sglang:token_usage", "sglang_token_usage"
TYPES = {COLON: "gauge", "sglang:generation_tokens_total": "counter"}
BOTH = MetricsPage(url="u", types=TYPES, escaped=("sglang_generation_tokens_total", UNDERSCORE))
ONE = MetricsPage(url="u", types=TYPES)


def board(*queries: str) -> TextFile:
    panels = [{"title": "KV", "targets": [{"expr": query}]} for query in queries]
    return TextFile("d.json", json.dumps({"title": "d", "panels": panels}), "dashboard")


def shown(page: MetricsPage, *queries: str, watch: Watch | None = None) -> tuple[CoverageItem, Coverage]:
    found = coverage([board(*queries)], "sglang", "0.5.23", [page], watch)
    return next(item for item in found.items if item.concept == "memory"), found


@pytest.mark.parametrize("name", [COLON, UNDERSCORE])
def test_a_name_that_one_kind_of_prometheus_stores_lives_and_is_not_sure(name: str) -> None:
    item, found = shown(BOTH, f"max({name})")
    assert (item.rung, item.names, item.dead, item.one_reader) == ("parses", (name,), (), True)
    assert item.note == "the page gives sglang_token_usage to a Prometheus 2 and sglang:token_usage to a Prometheus 3"
    flaws = [flaw for flaw in found.flaws if flaw.kind == "renamed_prefix"]
    assert [(flaw.names, flaw.instead, flaw.note) for flaw in flaws] == [((name,), None, item.note)]


def test_a_page_that_is_one_to_all_decides_as_ever() -> None:
    item, found = shown(ONE, f"max({COLON})")
    assert (item.rung, item.one_reader, item.note) == ("parses", False, "")
    item, found = shown(ONE, f"max({UNDERSCORE})")
    assert (item.rung, item.dead) == ("named", (UNDERSCORE,))
    assert [flaw.instead for flaw in found.flaws if flaw.kind == "renamed_prefix"] == [COLON]


@pytest.mark.parametrize("queries", [(f"max({COLON} or {UNDERSCORE})",), (f"max({COLON})", f"max({UNDERSCORE})")])
def test_both_spellings_show_it_whichever_prometheus_asks(queries: tuple[str, ...]) -> None:
    item, found = shown(BOTH, *queries)
    assert (item.rung, item.dead, item.one_reader) == ("parses", (), False)
    assert len([flaw for flaw in found.flaws if flaw.kind == "renamed_prefix"]) == (0 if len(queries) == 1 else 2)


def test_a_name_that_the_page_gives_to_no_reader_is_dead() -> None:
    name = "sglang_generation_tokens_total"
    assert lookup(name)
    page = replace(BOTH, escaped=(UNDERSCORE,))
    found = coverage([board(f"sum(rate({name}[5m]))")], "sglang", "0.5.23", [page])
    assert next(item for item in found.items if item.concept == "tps").dead == (name,)


def test_a_live_prometheus_decides() -> None:
    query = f"max({UNDERSCORE})"
    watch = Watch(url="http://p", names=(UNDERSCORE,), answers=(Answer(query=query, series=1),))
    item, found = shown(BOTH, query, watch=watch)
    assert (item.rung, item.one_reader, item.note) == ("returns_data", False, "")
    assert not [flaw for flaw in found.flaws if flaw.kind == "renamed_prefix"]


def test_only_names_of_the_page_itself_are_taken_for_its_other_spelling() -> None:
    page = MetricsPage(url="u", types={COLON: "gauge", "up": "gauge"})
    answer = parse_page("sglang_token_usage 1\nsglang_new 1\nup 1\n", "text/plain", "u")
    assert escaped(page, answer).escaped == (UNDERSCORE,)
    assert escaped(page, parse_page(TEXT, "text/plain", "u")).escaped == ()
    assert escaped(page, None) == page


# ----------------------------------------------------------------------------------------------------- asked as it asks


def spelled(asked: Asked) -> bytes:
    """The page as SGLang 0.5.23 answers it: by what is accepted."""
    if "openmetrics" not in asked.headers.get("accept", ""):
        return reply(TEXT, kind="text/plain; version=0.0.4; charset=utf-8")
    utf8 = "allow-utf-8" in asked.headers["accept"]
    return reply(f"{TEXT}# EOF\n" if utf8 else TO_PROMETHEUS_2, kind=OPENMETRICS)


def same(_: Asked) -> bytes:
    return reply(TEXT, kind="text/plain; version=0.0.4; charset=utf-8")


def refused(asked: Asked) -> bytes:
    return reply("", 406) if "openmetrics" in asked.headers.get("accept", "") else same(asked)


ANSWERS = [(spelled, BOTH.escaped), (same, ()), (refused, ())]


@pytest.mark.parametrize(("answer", "expected"), ANSWERS)
def test_discovery_reads_the_page_as_a_prometheus_2_too(answer, expected) -> None:
    answers = {
        "GET /v1/models": reply({"object": "list", "data": [{"id": "tiny", "object": "model", "owned_by": "sglang"}]}),
        "POST /v1/chat/completions": generation,
        "GET /metrics": answer,
    }

    async def run():
        async with serving(answers) as fake:
            return await discover(Profile(version=1, name="t", endpoint=Endpoint(url=f"{fake.origin}/v1")), None)

    (page,) = asyncio.run(run()).pages
    assert (dict(page.types), page.escaped) == (TYPES, expected)


@pytest.mark.parametrize(("answer", "expected"), [(answer, bool(names)) for answer, names in ANSWERS])
def test_the_command_reads_the_page_as_a_prometheus_2_too(answer, expected, tmp_path: Path, capsys) -> None:
    path = tmp_path / "d.json"
    path.write_text(board(f"max({COLON})").text)

    async def run() -> None:
        async with serving({"GET /metrics": answer}) as fake:
            urls = [f"{fake.origin}/metrics"]
            await asyncio.to_thread(command, [path], metrics=urls, engine="sglang", as_json=True)

    asyncio.run(run())
    memory = json.loads(capsys.readouterr().out)["concepts"]["memory"]
    assert (memory["rung"], memory.get("one_reader", False)) == ("parses", expected)


def test_a_saved_page_speaks_for_every_reader(tmp_path: Path, capsys) -> None:
    (tmp_path / "page.txt").write_text(TEXT)
    (tmp_path / "d.json").write_text(board(f"max({COLON})").text)
    command([tmp_path / "d.json"], metrics=[str(tmp_path / "page.txt")], engine="sglang", as_json=True)
    memory = json.loads(capsys.readouterr().out)["concepts"]["memory"]
    assert (memory["rung"], "one_reader" in memory) == ("parses", False)
