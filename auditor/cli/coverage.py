"""`audit coverage FILES...`: which of TTFT, TPS and memory dashboards cover, and how far that can be trusted."""

import json
from contextlib import suppress
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from auditor.cli import fixes
from auditor.cli.options import positive
from auditor.cli.output import write
from auditor.errors import NothingMeasured, UsageError

if TYPE_CHECKING:
    from auditor.loading.files import TextFile
    from auditor.measurement import MetricsPage
    from auditor.monitoring.standing import Place
    from auditor.watch import Coverage, CoverageItem, Watch

__all__ = ["command"]

_NEXT = "audit coverage --fix prints them, and the alerts"
_TIMEOUT = 10.0

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILES...", help="Dashboards and rule files, judged as one set; --fix needs none."),
]
Metrics = Annotated[
    list[str] | None, typer.Option("--metrics", metavar="URL|FILE", help="A metrics page, live or saved; repeatable.")
]
Engine = Annotated[str, typer.Option("--engine", metavar="NAME", help="The engine that serves; any without it.")]
Version = Annotated[str | None, typer.Option("--engine-version", metavar="V", help="Its version, such as 0.18.0.")]
Prometheus = Annotated[
    str | None, typer.Option("--prometheus", metavar="URL", help="A Prometheus to ask what the queries return.")
]
KeyName = Annotated[
    str | None,
    typer.Option("--prometheus-key-env", metavar="NAME", help="The variable that holds its token.", show_default=False),
]
Window = Annotated[str, typer.Option("--window", metavar="TIME", help="How far back the queries are asked.")]
Fix = Annotated[
    bool, typer.Option("--fix", help="Print the panels and alerts that are missing: Grafana JSON, then rule YAML.")
]
Each = Annotated[bool, typer.Option("--each", help="One JSON line a file, each judged alone by what it names.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _file(path: Path) -> "TextFile":
    from auditor.loading.files import FileError, TextFile, read_text

    try:
        return TextFile(str(path), read_text(path), "dashboard")
    except FileError as error:
        raise UsageError(f"{path}: {error}") from None


def _readable(paths: list[Path]) -> list["TextFile"]:
    """Those files that can be read: of the others each line says so."""
    found = []
    for path in paths:
        with suppress(UsageError):
            found.append(_file(path))
    return found


def _page(source: str) -> "MetricsPage":
    """A page from an address or a file; raises NothingMeasured or UsageError in one line."""
    from auditor.probe.exposition import parse_page

    live = source.startswith(("http://", "https://"))
    text, content_type = _get(source) if live else (_file(Path(source)).text, "text/plain")
    found = parse_page(text, content_type, source)
    if found is None:
        raise UsageError(f"{source}: this is no metrics page")
    return _to_prometheus(found.page) if live else found.page


def _to_prometheus(page: "MetricsPage") -> "MetricsPage":
    """The page with the names that it gives to a Prometheus 2; as it is where none could differ, or nothing answers."""
    from auditor.probe.exposition import PROMETHEUS_2, escaped, parse_page

    if not any(":" in name for name in page.types):
        return page
    try:
        text, content_type = _get(page.url, PROMETHEUS_2)
    except NothingMeasured:
        return page
    return escaped(page, parse_page(text, content_type, page.url))


def _get(url: str, accept: str = "text/plain") -> tuple[str, str]:
    import asyncio

    import httpx

    from auditor.probe.web import get_text

    async def fetch() -> tuple[int, dict[str, str], str]:
        async with (
            asyncio.timeout(2 * _TIMEOUT),
            httpx.AsyncClient(trust_env=False, timeout=_TIMEOUT, follow_redirects=True) as client,
        ):
            return await get_text(client, url, {"accept": accept, "accept-encoding": "identity"})

    try:
        status, headers, text = asyncio.run(fetch())
    except TimeoutError:
        raise NothingMeasured(f"{url}: the page did not end within {2 * _TIMEOUT:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise NothingMeasured(f"{url}: cannot be read ({error or type(error).__name__}); correct --metrics") from None
    if status != 200:
        raise NothingMeasured(f"{url}: HTTP {status}; is this the metrics page, and does it need no key?")
    return text, headers.get("content-type", "")


def _watch(
    url: str,
    key_name: str | None,
    files: list["TextFile"],
    *,
    engine: str,
    version: str | None,
    pages: list["MetricsPage"],
    window: float,
) -> "Watch":
    """What the Prometheus says of the files. Raises NothingMeasured or UsageError in one line."""
    import asyncio
    import os

    from auditor.loading.profile import key_of
    from auditor.monitored import asked
    from auditor.probe.prometheus import Prometheus

    key, why = key_of(key_name, Path(), os.environ) if key_name else (None, None)
    if why is not None:
        raise UsageError(f"--prometheus-key-env: {why}")

    async def ask() -> "Watch":
        async with Prometheus(url, key=key, where="--prometheus") as prometheus:
            return await asked(prometheus, files, engine=engine, version=version, pages=pages, window=window)

    return asyncio.run(ask())


def _line(
    path: Path, engine: str, version: str | None, pages: list["MetricsPage"], watch: "Watch | None"
) -> dict[str, Any]:
    """The answer for one file: what its queries name, whatever the engine, and the ladder for the engine given."""
    from auditor.monitoring.coverage import ASKED, coverage

    try:
        file = _file(path)
    except UsageError as error:
        return {"file": str(path), **dict.fromkeys(ASKED, "unreadable"), "error": str(error)}
    found = coverage(_files([file], watch), engine, version, pages, watch)
    plain = engine == "generic" and not pages and watch is None
    named = {item.concept: item for item in (found if plain else coverage([file], "generic")).items}
    unreadable = bool(found.unreadable) and all(named[concept].rung == "missing" for concept in ASKED)
    answer: dict[str, Any] = {"file": str(path)}
    for concept in ASKED:
        rung = named[concept].rung
        answer[concept] = "unreadable" if unreadable else rung if rung in ("missing", "proxy") else "covered"
    evidence = {item.concept: _item(item) for item in found.items if item.rung != "missing"}
    answer["evidence"] = evidence
    if found.flaws:
        answer["flaws"] = fixes.flaws(found)
    if found.unreadable or found.invalid_queries:
        answer["unreadable"] = [*found.unreadable, *found.invalid_queries]
    return answer


def _files(files: list["TextFile"], watch: "Watch | None") -> list[Any]:
    """The files, and the recording rules that the Prometheus runs."""
    return [*files, *(watch.documents if watch else ())]


def _plain(watch: "Watch") -> dict[str, Any]:
    from dataclasses import asdict

    return {key: value for key, value in asdict(watch).items() if key != "documents"}


def _watched(watch: "Watch") -> list[str]:
    """The lines of the table on the Prometheus itself."""
    from auditor.report.words import clean

    serving = sum(target.serves for target in watch.targets)
    first = f"{watch.url}: {serving} of {watch.active} targets carry these series"
    lines = _wrap(f"{'prometheus':<16}", clean(f"{first}; asked over the last {watch.window or 0:g} s"))
    for target in watch.targets:
        if target.health != "up":
            lines += _wrap("", clean(f"{target.job} {target.url} is {target.health}: {target.error or 'no reason'}"))
    for problem in watch.problems:
        lines += _wrap("", clean(problem))
    return lines


def _item(item: "CoverageItem") -> dict[str, Any]:
    from dataclasses import asdict

    return {key: value for key, value in asdict(item).items() if value not in ("", (), False) and key != "concept"}


def _around(found: "Coverage", pages: list["MetricsPage"], place: "Place", stored: tuple[str, ...]) -> list[str]:
    """The lines of the table on the pages read, and on how to show what no panel shows."""
    from auditor.report.coverage import advice, contents
    from auditor.report.words import clean

    read = [line for url, what in contents(pages) for line in _wrap(f"{'page':<16}", clean(f"{url}: {what}"))]
    told = advice(found, place.engine, place.version, stored)
    shows = [line for concept, what in told for line in _wrap(f"{'to show ' + concept:<16}", clean(what))]
    return [*read, *shows, *(_wrap("", _NEXT) if shows else [])]


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
        initial_indent=f"{first.rstrip():<24} ",
        subsequent_indent=" " * 25,
        break_long_words=False,
        break_on_hyphens=False,
    )


def command(
    files: Files = None,
    *,
    metrics: Metrics = None,
    engine: Engine = "generic",
    engine_version: Version = None,
    prometheus: Prometheus = None,
    prometheus_key_env: KeyName = None,
    window: Window = "1h",
    fix: Fix = False,
    each: Each = False,
    as_json: AsJson = False,
) -> None:
    """Say which of TTFT, TPS and memory dashboards cover, and how far that can be trusted.

    Rungs: missing, proxy, named, valid (in the version), parses (on the page, and PromQL), returns_data (asked of a
    Prometheus), alerted. Exits 0 whatever it finds; to gate on it: audit run --offline --only M.

    \b
    audit coverage grafana/*.json alerts/*.yaml --engine vllm --engine-version 0.18.0
    audit coverage panels.json --metrics http://127.0.0.1:8000/metrics
    audit coverage --metrics http://127.0.0.1:8000/metrics --fix       panels and alerts to begin with
    """
    from auditor.catalog.metrics import engines
    from auditor.monitoring.coverage import coverage
    from auditor.monitoring.standing import Place
    from auditor.report.coverage import advice, contents
    from auditor.units import DURATION

    if engine not in (*engines(), "generic", "auto"):
        raise UsageError(f"--engine {engine}: no metrics are known of it; known: {', '.join(engines())}")
    files = files or []
    if not files and not fix:
        raise UsageError("name dashboards and rule files; without any, --fix prints some to begin with")
    if fix and each:
        raise UsageError("--fix: is for the files as one set; leave --each away")
    pages = [_page(source) for source in metrics or ()]
    watch = None
    if prometheus is not None:
        readable = _readable(files) if each else [_file(path) for path in files]
        watch = _watch(
            prometheus,
            prometheus_key_env,
            readable,
            engine=engine,
            version=engine_version,
            pages=pages,
            window=positive("--window", window, DURATION),
        )
    if each:
        for path in files:
            write(json.dumps(_line(path, engine, engine_version, pages, watch)) + "\n")
        return
    found = coverage(_files([_file(path) for path in files], watch), engine, engine_version, pages, watch)
    place, stored = Place.of(engine, engine_version, pages), watch.names if watch else ()
    if fix:
        write(fixes.printed(found, place, stored, as_json=as_json))
        return
    if as_json:
        items = {item.concept: _item(item) for item in found.items}
        rest = {key: getattr(found, key) for key in ("offered", "files", "unreadable", "invalid_queries")}
        rest["flaws"] = fixes.flaws(found)
        rest |= {"pages": dict(contents(pages)), "remedies": dict(advice(found, place.engine, place.version, stored))}
        live = {"prometheus": _plain(watch)} if watch else {}
        write(json.dumps({"schema_version": 1, "concepts": items, **rest, **live}, indent=2) + "\n")
    else:
        more = [*_around(found, pages, place, stored), *(_watched(watch) if watch else ())]
        more += [part for line in fixes.lines(found) for part in _wrap(f"{'misleads':<16}", line)]
        write(_table(found) + "".join(f"{line}\n" for line in more))
