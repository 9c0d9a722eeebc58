"""What an endpoint is and says of itself, found out before any load.

    GET /v1/models, /metrics and the engine's own information pages -> which engine, which model, which settings
    a few tiny generations (`preflight`)                            -> how the load must be phrased

At most a dozen GETs, some counts of tokens (`counting`) and ten generations are sent. Everything that stands in the way
of a load raises PreflightFailed in one line that says where, what and what to do. Nothing that a server sent is kept
but typed facts and metric names: replies such as SGLang's /server_info hold keys in clear.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_args, get_type_hints

import httpx

from auditor.engines.flavour import Flavour, Reply
from auditor.engines.flavours import FLAVOURS
from auditor.errors import PreflightFailed
from auditor.measurement import MetricsPage, Served
from auditor.probe.contact import Contact, Place, connect, place_of
from auditor.probe.counting import counted
from auditor.probe.exposition import PROMETHEUS_2, escaped, parse_page
from auditor.probe.models import choose_model, list_models, names_of
from auditor.probe.preflight import Answers, facts, first_target, preflight
from auditor.probe.scrape import Page
from auditor.probe.target import Deadlines
from auditor.probe.web import get_text, headers_for
from auditor.profile import Profile
from auditor.redact import Redactor

__all__ = ["Look", "discover", "look"]

_DEADLINES = Deadlines(connect=10.0, first_token=120.0, gap=30.0, total=240.0)
_ENABLE = {"sglang": "start it with --enable-metrics", "llamacpp": "start it with --metrics"}
_HINTS = get_type_hints(Served)
_SIZES = frozenset(
    [
        *("max_model_len", "kv_tokens", "kv_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens"),
        *("tensor_parallel", "pipeline_parallel", "data_parallel", "gpu_memory_utilization", "mem_fraction_static"),
        *("kv_pool_bytes", "decode_context_parallel", "mamba_slots", "mamba_full_ratio", "swa_full_tokens_ratio"),
    ]
)
_MOST = 1e15  # bytes, tokens or settings: whatever is more is no fact


async def discover(
    profile: Profile, key: str | None, *, deadlines: Deadlines = _DEADLINES, wait: float = 20.0
) -> Served:
    """Recognise the engine, read what it serves, and try a few generations; `key` is the API key itself.

    `wait` is the longest wait for the answer to a GET, `deadlines` hold for the generations. Raises PreflightFailed.
    """
    try:
        return await _discover(profile, key, deadlines, wait)
    except PreflightFailed as failure:
        raise PreflightFailed(_redactor(profile, key).text(str(failure))) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What an endpoint says of itself before any generation: its engine and who says so, what it answered by path, its
    metrics pages, the settings that it tells with the place of each, and what is in the way of knowing more.
    """

    flavour: Flavour
    source: str
    replies: Mapping[str, Reply]
    pages: tuple[Page, ...]
    values: Mapping[str, Any]
    sources: Mapping[str, str]
    warnings: tuple[str, ...]


async def look(profile: Profile, key: str | None, *, wait: float = 20.0) -> Look:
    """Look at an endpoint by GETs alone, as `discover` does first. Raises PreflightFailed."""
    try:
        contact = connect(place_of(profile.endpoint.url), profile, key, wait)
        try:
            await contact.greet()
            return await _look(contact)
        finally:
            await contact.client.aclose()
    except PreflightFailed as failure:
        raise PreflightFailed(_redactor(profile, key).text(str(failure))) from None


def _redactor(profile: Profile, key: str | None) -> Redactor:
    return Redactor([key or "", *profile.endpoint.headers.values()])


async def _look(contact: Contact) -> Look:
    replies = {"/v1/models": await list_models(contact)}
    pages, warnings = await _pages(contact, replies)
    flavour, source = _recognise(contact.profile, replies)
    await _read_info(contact, flavour, replies)
    pages, more = await _engine_page(contact, flavour, replies, pages)
    exporters, missing = await _exporters(contact)
    values, sources = flavour.read_served(replies)
    return Look(
        flavour=flavour,
        source=source,
        replies=replies,
        pages=(*pages, *exporters),
        values=_typed(values),
        sources=sources,
        warnings=(*warnings, *more, *missing),
    )


async def _discover(profile: Profile, key: str | None, deadlines: Deadlines, wait: float) -> Served:
    place = place_of(profile.endpoint.url)
    contact = connect(place, profile, key, wait)
    try:
        await contact.greet()
        seen = await _look(contact)
        model = choose_model(profile, seen.replies, certain=seen.flavour.name != "generic")
        context = seen.values.get("max_model_len")
        answers = await preflight(
            first_target(profile, model, key),
            deadlines,
            any_api=profile.endpoint.api == "auto",
            context=context,
            served=names_of(seen.replies),
            count=lambda target: counted(contact, target.model, (target.api,), context),
        )
    finally:
        await contact.client.aclose()
    return _served(
        flavour=seen.flavour,
        source=seen.source,
        model=model,
        values=seen.values,
        sources=seen.sources,
        pages=seen.pages,
        answers=answers,
        warnings=(*seen.warnings, *_unchecked(profile, place)),
    )


def _unchecked(profile: Profile, place: Place) -> tuple[str, ...]:
    if profile.endpoint.verify_tls or not place.secure:
        return ()
    return (f"endpoint.verify_tls is false: whether {place.host} is the service, nobody checked",)


def _served(
    *,
    flavour: Flavour,
    source: str,
    model: str,
    values: Mapping[str, Any],
    sources: Mapping[str, str],
    pages: Sequence[Page],
    answers: Answers,
    warnings: Sequence[str],
) -> Served:
    engine_pages = [page for page in pages if page.page.exporter is None]
    said = {"engine": source, "model": "/v1/models", **sources}
    if flavour.name == "generic":
        warnings = (*warnings, "the engine is not recognised: settings come from the profile alone")
    known = facts(answers) | {
        **values,
        "engine": flavour.name,
        "model": model,
        "replicas": len(engine_pages) if len(engine_pages) > 1 else None,
        "pages": tuple(page.page for page in pages),
        "sources": said,
        "warnings": (*warnings, *answers.warnings),
    }
    return Served(**known)


# --------------------------------------------------------------------------------------------------------------- pages


async def _pages(contact: Contact, replies: dict[str, Reply]) -> tuple[list[Page], tuple[str, ...]]:
    """The metrics pages that the profile names, or /metrics; `replies` gets what they answered."""
    wanted = contact.profile.endpoint.metrics
    if wanted is None:
        return [], ()
    pages, warnings = [], []
    named = wanted != "auto"
    urls = [wanted] if isinstance(wanted, str) else list(wanted)
    for url in urls if named else [f"{contact.place.root}/metrics"]:
        page, why = await _page(contact, url, replies)
        if page is not None:
            pages.append(page)
        elif named:
            warnings.append(
                f"endpoint.metrics: {url} {why}; correct the address or look at the server's metrics setting"
            )
    return pages, tuple(warnings)


async def _page(contact: Contact, url: str, replies: dict[str, Reply]) -> tuple[Page | None, str]:
    """One page, or why there is none. A URL without a path means /metrics."""
    full = url if url.count("/") > 2 else f"{url}/metrics"
    reply = await contact.look(full)
    if reply is None:
        return None, "does not answer"
    replies[f"/metrics of {full}"] = reply
    if reply.status != 200:
        return None, f"answers {reply.status}"
    page = parse_page(reply.text, reply.headers.get("content-type", ""), full)
    if page is not None:
        known = await _to_prometheus(contact, page.page)
        page = replace(page, page=replace(known, needs_key=await _needs_key(contact, full)))
    return page, "is no metrics page"


async def _to_prometheus(contact: Contact, page: MetricsPage) -> MetricsPage:
    """The page with the names that it gives to a Prometheus 2; as it is where none could differ, or nothing answers."""
    if not any(":" in name for name in page.types):
        return page
    headers = {**headers_for(contact.profile, page.url, contact.key), "accept": PROMETHEUS_2}
    try:
        async with asyncio.timeout(contact.wait):
            status, answered, text = await get_text(contact.client, page.url, headers)
    except (TimeoutError, httpx.HTTPError, OSError):
        return page
    return escaped(page, parse_page(text, answered.get("content-type", ""), page.url)) if status == 200 else page


async def _needs_key(contact: Contact, url: str) -> bool | None:
    """Whether the page is refused to a scrape that brings no key; None where none was sent, or nothing answers."""
    if not any(
        name.lower() in ("authorization", "api-key", "x-api-key")
        for name in headers_for(contact.profile, url, contact.key)
    ):
        return None
    try:
        async with asyncio.timeout(contact.wait):
            status, _, _ = await get_text(contact.client, url, {})
    except (TimeoutError, httpx.HTTPError, OSError):
        return None
    return status in (401, 403)


async def _engine_page(
    contact: Contact, flavour: Flavour, replies: dict[str, Reply], pages: list[Page]
) -> tuple[list[Page], tuple[str, ...]]:
    """With `metrics: auto`, the engine's page where it is another than /metrics; a warning where there is none."""
    if contact.profile.endpoint.metrics != "auto":
        return pages, ()
    for path in flavour.metrics_paths:
        if not pages and path != "/metrics":
            page, _ = await _page(contact, contact.place.root + path, replies)
            pages = [page] if page is not None else pages
    if pages:
        return pages, ()
    how = _ENABLE.get(flavour.name, "name its address in endpoint.metrics")
    return pages, (f"no metrics page at {contact.place.root}/metrics: what the server counts is not seen; {how}",)


async def _exporters(contact: Contact) -> tuple[list[Page], tuple[str, ...]]:
    """The pages of `monitoring.exporters`, and a warning for each that is not one."""
    pages, warnings = [], []
    for url in contact.profile.monitoring.exporters:
        page, why = await _page(contact, url, {})
        if page is None:
            warnings.append(f"monitoring.exporters: {url} {why}; correct the address or start the exporter")
        else:
            pages.append(replace(page, page=replace(page.page, exporter=page.page.exporter or "exporter")))
    return pages, tuple(warnings)


# -------------------------------------------------------------------------------------------------------------- engine


def _recognise(profile: Profile, replies: Mapping[str, Reply]) -> tuple[Flavour, str]:
    """The engine by what it answered; what the profile says counts only where nothing gives it away."""
    for flavour in FLAVOURS.values():
        if flavour.name != "generic" and flavour.recognise(replies):
            return flavour, "its own answers"
    declared = profile.endpoint.engine
    if declared not in ("auto", "generic"):
        return FLAVOURS[declared], "declared"
    return FLAVOURS["generic"], "nothing gives the engine away"


async def _read_info(contact: Contact, flavour: Flavour, replies: dict[str, Reply]) -> None:
    for path in flavour.info_paths:
        reply = await contact.look(contact.place.root + path)
        if reply is not None:
            replies[path] = reply


def _typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Facts whose type and range can be true; a server may send anything."""
    known = {spec.name for spec in fields(Served)}
    return {
        name: value
        for name, value in values.items()
        if name in known and _can_be(value, _HINTS[name]) and not (name in _SIZES and value <= 0)
    }


def _can_be(value: Any, hint: Any) -> bool:
    kinds = get_args(hint) or (hint,)
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, int):
        return (int in kinds or float in kinds) and 0 <= value < _MOST
    if isinstance(value, float):
        return float in kinds and math.isfinite(value) and 0 <= value < _MOST
    return isinstance(value, str) and str in kinds and len(value) <= 200
