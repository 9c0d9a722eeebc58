"""`audit coverage FILES...`: which of TTFT, TPS and memory dashboards cover, and how far that can be trusted."""

import json
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from auditor.cli.output import write
from auditor.errors import NothingMeasured, UsageError

if TYPE_CHECKING:
    from auditor.loading.files import TextFile
    from auditor.measurement import MetricsPage
    from auditor.watch import Coverage, CoverageItem

__all__ = ["command"]

_TIMEOUT = 10.0

Files = Annotated[list[Path], typer.Argument(metavar="FILES...", help="Dashboards and rule files, judged as one set.")]
Metrics = Annotated[
    list[str] | None, typer.Option("--metrics", metavar="URL|FILE", help="A metrics page, live or saved; repeatable.")
]
Engine = Annotated[str, typer.Option("--engine", metavar="NAME", help="The engine that serves; any without it.")]
Version = Annotated[str | None, typer.Option("--engine-version", metavar="V", help="Its version, such as 0.18.0.")]
Each = Annotated[bool, typer.Option("--each", help="One JSON line a file, each judged alone by what it names.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _file(path: Path) -> "TextFile":
    from auditor.loading.files import FileError, TextFile, read_text

    try:
        return TextFile(str(path), read_text(path), "dashboard")
    except FileError as error:
        raise UsageError(f"{path}: {error}") from None


def _page(source: str) -> "MetricsPage":
    """A page from an address or a file; raises NothingMeasured or UsageError in one line."""
    from auditor.probe.exposition import parse_page

    live = source.startswith(("http://", "https://"))
    text, content_type = _get(source) if live else (_file(Path(source)).text, "text/plain")
    found = parse_page(text, content_type, source)
    if found is None:
        raise UsageError(f"{source}: this is no metrics page")
    return found.page


def _get(url: str) -> tuple[str, str]:
    import asyncio

    import httpx

    from auditor.probe.web import get_text

    async def fetch() -> tuple[int, dict[str, str], str]:
        async with (
            asyncio.timeout(2 * _TIMEOUT),
            httpx.AsyncClient(trust_env=False, timeout=_TIMEOUT, follow_redirects=True) as client,
        ):
            return await get_text(client, url, {"accept": "text/plain", "accept-encoding": "identity"})

    try:
        status, headers, text = asyncio.run(fetch())
    except TimeoutError:
        raise NothingMeasured(f"{url}: the page did not end within {2 * _TIMEOUT:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise NothingMeasured(f"{url}: cannot be read ({error or type(error).__name__}); correct --metrics") from None
    if status != 200:
        raise NothingMeasured(f"{url}: HTTP {status}; is this the metrics page, and does it need no key?")
    return text, headers.get("content-type", "")


def _line(path: Path, engine: str, version: str | None, pages: list["MetricsPage"]) -> dict[str, Any]:
    """The answer for one file: what its queries name, whatever the engine, and the ladder for the engine given."""
    from auditor.monitoring.coverage import ASKED, coverage

    try:
        file = _file(path)
    except UsageError as error:
        return {"file": str(path), **dict.fromkeys(ASKED, "unreadable"), "error": str(error)}
    named = {item.concept: item for item in coverage([file], "generic").items}
    found = coverage([file], engine, version, pages)
    unreadable = bool(found.unreadable) and all(named[concept].rung == "missing" for concept in ASKED)
    answer: dict[str, Any] = {"file": str(path)}
    for concept in ASKED:
        rung = named[concept].rung
        answer[concept] = "unreadable" if unreadable else rung if rung in ("missing", "proxy") else "covered"
    evidence = {item.concept: _item(item) for item in found.items if item.rung != "missing"}
    answer["evidence"] = evidence
    if found.unreadable or found.invalid_queries:
        answer["unreadable"] = [*found.unreadable, *found.invalid_queries]
    return answer


def _item(item: "CoverageItem") -> dict[str, Any]:
    from dataclasses import asdict

    return {key: value for key, value in asdict(item).items() if value not in ("", ()) and key != "concept"}


def _table(found: "Coverage") -> str:
    from auditor.report.words import clean

    lines = [f"{'concept':<16}{'rung':<9}series"]
    for item in found.items:
        more = [f"dead: {', '.join(item.dead)}" if item.dead else "", *item.note.split("; ")]
        more += [f"watched by {', '.join(item.alerts)}" if item.alerts else ""]
        lines += _wrap(f"{item.concept:<16}{item.rung:<9}", clean(", ".join(item.names) or "-"))
        lines += [part for line in more if line for part in _wrap("", clean(line))]
    for problem in (*found.unreadable, *found.invalid_queries):
        lines += _wrap(f"{'unreadable':<16}", clean(problem))
    return "\n".join(lines) + "\n"


def _wrap(first: str, text: str) -> list[str]:
    """`text` in the last column of the table, 80 columns wide; names are never broken."""
    return wrap(
        text,
        80,
        initial_indent=f"{first:<25}",
        subsequent_indent=" " * 25,
        break_long_words=False,
        break_on_hyphens=False,
    )


def command(
    files: Files,
    *,
    metrics: Metrics = None,
    engine: Engine = "generic",
    engine_version: Version = None,
    each: Each = False,
    as_json: AsJson = False,
) -> None:
    """Say which of TTFT, TPS and memory dashboards cover, and how far that can be trusted.

    Rungs: missing, proxy, named, valid (in the version), parses (on the page, and PromQL), alerted. Exits 0 whatever
    it finds; to gate on it: audit run --offline --only M.
    """
    from auditor.catalog.metrics import engines
    from auditor.monitoring.coverage import coverage

    if engine not in (*engines(), "generic", "auto"):
        raise UsageError(f"--engine {engine}: no metrics are known of it; known: {', '.join(engines())}")
    pages = [_page(source) for source in metrics or ()]
    if each:
        for path in files:
            write(json.dumps(_line(path, engine, engine_version, pages)) + "\n")
        return
    found = coverage([_file(path) for path in files], engine, engine_version, pages)
    if as_json:
        items = {item.concept: _item(item) for item in found.items}
        rest = {key: getattr(found, key) for key in ("offered", "files", "unreadable", "invalid_queries")}
        write(json.dumps({"schema_version": 1, "concepts": items, **rest}, indent=2) + "\n")
    else:
        write(_table(found))
