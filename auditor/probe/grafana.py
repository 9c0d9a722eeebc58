"""Grafana's HTTP API (https://grafana.com/docs/grafana/latest/developers/http_api/): its dashboards and alert rules as
documents, and the Prometheus behind it through its datasource proxy.

Written from that documentation and tested with replies of its shape; not checked on a running server.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from auditor.monitoring.coverage import coverage
from auditor.probe.api import Api, Refused, Unanswered
from auditor.probe.prometheus import Prometheus
from auditor.watch import Document, RuleState

__all__ = ["ALERTS", "Grafana"]

ALERTS = "alert rules of Grafana"
"""The name of the document that holds them."""

_MOST_DASHBOARDS = 500
_PAGE = 500
_AT_ONCE = 4
_MOST_LIBRARY_PANELS = 100
_DEEPEST = 50  # objects within objects
_LONGEST_TITLE = 80


class Grafana:
    """An open client for one Grafana; use it by `async with`, or close it.

    `url` is its address with any path before it and user:password@; `key` is a service account token. Every method
    raises Unanswered in one line.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        verify_tls: bool = True,
        ca: str | None = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 30.0,
        where: str = "monitoring.grafana",
    ) -> None:
        self._asked: dict[str, Any] = {
            "key": key,
            "verify_tls": verify_tls,
            "ca": ca,
            "headers": headers,
            "wait": wait,
            "where": where,
        }
        self._given = url
        self._reading = asyncio.Lock()
        self._library: dict[str, Mapping[str, Any] | None] = {}
        self._api = Api(url, what="Grafana", endings=("/dashboards", "/api"), **self._asked)

    async def __aenter__(self) -> "Grafana":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let the connections go."""
        await self._api.close()

    async def dashboards(self, recordings: Sequence[Document] = ()) -> tuple[tuple[Document, ...], tuple[str, ...]]:
        """The dashboards that show anything of an LLM service or its accelerators, and a line on what was left out.

        `recordings` are rule documents whose recorded names they may draw.
        """
        found = [entry async for entry in self._search()]
        problems = []
        if len(found) > _MOST_DASHBOARDS:
            problems.append(f"{len(found) - _MOST_DASHBOARDS} of {len(found)} dashboards were not read: too many")
        gate = asyncio.Semaphore(_AT_ONCE)

        async def read(entry: Mapping[str, Any]) -> Document | str:
            async with gate:
                return await self._dashboard(entry)

        documents = await asyncio.gather(*(read(entry) for entry in found[:_MOST_DASHBOARDS]))
        problems += [line for line in documents if isinstance(line, str)]
        return _named(d for d in documents if isinstance(d, Document) and _concerns(d, recordings)), tuple(problems)

    async def alerts(self) -> tuple[tuple[Document, ...], tuple[RuleState, ...]]:
        """The alert rules that Grafana itself runs, as a rule file would hold them, and as they are known to run.

        Their thresholds are expressions of Grafana's own; the queries that these watch are what is told.
        """
        rules = await self._api.get("/api/v1/provisioning/alert-rules")
        watched = [
            (self._api.clean(str(rule.get("title") or "")), expression)
            for rule in _entries(rules)
            for expression in _expressions(rule)
            if not rule.get("isPaused")
        ]
        if not watched:
            return (), ()
        group = {"name": "Grafana", "rules": [{"alert": title, "expr": text} for title, text in watched]}
        states = tuple(RuleState(name=title, query=text, state="unknown", source="grafana") for title, text in watched)
        return (Document(name=ALERTS, text=json.dumps({"groups": [group]}), kind="rules"),), states

    async def prometheus(self, dashboards: Sequence[Document]) -> Prometheus:
        """The Prometheus that the dashboards draw from, through the datasource proxy; to be closed by the caller."""
        uid = await self._datasource(dashboards)
        if uid is None:
            said = "no datasource of type prometheus is found"
            raise Refused(f"{self._api.where}: {self._api.url}: {said}; name monitoring.prometheus", said)
        base, _, query = self._given.partition("?")
        for ending in ("/dashboards", "/api"):
            base = base.rstrip("/").removesuffix(ending)
        address = f"{base.rstrip('/')}/api/datasources/proxy/uid/{uid}"
        return Prometheus(f"{address}?{query}" if query else address, **self._asked)

    async def _search(self) -> Any:
        """Every dashboard's entry in the search, a page at a time."""
        for page in range(1, 100):
            entries = list(
                _entries(await self._api.get("/api/search", {"type": "dash-db", "limit": _PAGE, "page": page}))
            )
            for entry in entries:
                yield entry
            if len(entries) < _PAGE:
                return

    async def _dashboard(self, entry: Mapping[str, Any]) -> Document | str:
        """One dashboard, or a line on why it could not be read. Raises Unreachable."""
        uid, title = str(entry.get("uid") or ""), self._api.clean(str(entry.get("title") or ""), _LONGEST_TITLE)
        try:
            reply = await self._api.get(f"/api/dashboards/uid/{_safe(uid)}")
        except Refused as error:
            return str(error)
        board = reply.get("dashboard") if isinstance(reply, dict) else None
        if not isinstance(board, dict):
            return f"{self._api.where}: dashboard {title} is none"
        board = await self._with_library(board)
        return Document(name=f"grafana: {title or uid}", text=json.dumps(board), kind="dashboard")

    async def _with_library(self, board: Mapping[str, Any]) -> Mapping[str, Any]:
        """The dashboard with the library panels that it refers to, as an export for sharing carries them along."""
        wanted = list(dict.fromkeys(_library_panels(board)))[:_MOST_LIBRARY_PANELS]
        async with self._reading:  # dashboards that are read at once share their panels
            found = {uid: model for uid in wanted if (model := await self._library_panel(uid)) is not None}
        elements = {uid: {"uid": uid, "kind": 1, "model": model} for uid, model in found.items()}
        return {**board, "__elements": elements} if elements else board

    async def _library_panel(self, uid: str) -> Mapping[str, Any] | None:
        """The model of a library panel; None where it cannot be read, which the dashboard's reader then tells."""
        if uid not in self._library:
            try:
                reply = await self._api.get(f"/api/library-elements/{uid}")
            except Refused:
                reply = None
            result = reply.get("result") if isinstance(reply, dict) else None
            model = result.get("model") if isinstance(result, dict) else None
            self._library[uid] = model if isinstance(model, dict) else None
        return self._library[uid]

    async def _datasource(self, dashboards: Sequence[Document]) -> str | None:
        """The uid of the Prometheus: what most panels name, else the default one that Grafana lists."""
        named = Counter(uid for document in dashboards for uid in _datasources(json.loads(document.text)))
        if named:
            return _safe(named.most_common(1)[0][0])
        try:
            listed = list(_entries(await self._api.get("/api/datasources")))
        except Unanswered:  # a token that may read dashboards need not be one that lists datasources
            return None
        known = [entry for entry in listed if entry.get("type") == "prometheus" and entry.get("uid")]
        known.sort(key=lambda entry: not entry.get("isDefault"))
        return _safe(str(known[0]["uid"])) if known else None


def _named(documents: Iterator[Document]) -> tuple[Document, ...]:
    """The documents in order of their names, each with a name of its own."""
    found: dict[str, Document] = {}
    for document in sorted(documents, key=lambda d: (d.name, d.text)):
        name, count = document.name, 2
        while name in found:
            name, count = f"{document.name} ({count})", count + 1
        found[name] = Document(name=name, text=document.text, kind=document.kind)
    return tuple(found.values())


def _concerns(document: Document, recordings: Sequence[Document]) -> bool:
    """Whether a dashboard shows anything of the service: most of an organisation's do not."""
    return any(item.rung != "missing" for item in coverage([*recordings, document], "generic").items)


def _expressions(rule: Mapping[str, Any]) -> Iterator[str]:
    for query in _entries(rule.get("data")):
        model = query.get("model")
        expression = model.get("expr") if isinstance(model, dict) else None
        if query.get("datasourceUid") != "__expr__" and isinstance(expression, str) and expression.strip():
            yield expression


def _datasources(node: Any, depth: int = 0) -> Iterator[str]:
    """The uids of Prometheus datasources anywhere in a dashboard; variables name none."""
    if depth > _DEEPEST:
        return
    if isinstance(node, dict):
        source = node.get("datasource")
        if isinstance(source, dict) and source.get("type") == "prometheus":
            uid = source.get("uid")
            if isinstance(uid, str) and uid and "$" not in uid:
                yield uid
        for child in node.values():
            yield from _datasources(child, depth + 1)
    elif isinstance(node, list):
        for child in node:
            yield from _datasources(child, depth + 1)


def _library_panels(node: Any, depth: int = 0) -> Iterator[str]:
    """The uids of the library panels in a dashboard of which it holds no more than the name."""
    if depth > _DEEPEST:
        return
    if isinstance(node, dict):
        reference = node.get("libraryPanel")
        if isinstance(reference, dict) and isinstance(reference.get("uid"), str) and not node.get("targets"):
            yield _safe(reference["uid"])
        node = list(node.values())
    for child in node if isinstance(node, list) else ():
        yield from _library_panels(child, depth + 1)


def _safe(uid: str) -> str:
    """A uid as it may stand in a path (Grafana's own are letters, digits, - and _)."""
    return "".join(c for c in uid if c.isalnum() or c in "-_")


def _entries(value: Any) -> Iterator[Mapping[str, Any]]:
    return (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else iter(())
