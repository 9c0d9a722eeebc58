"""From one exchange to its Sample: the words for what went wrong, and times that count from t0."""

import json
import re
from collections.abc import Mapping
from typing import Any

from auditor.errors import ToolError
from auditor.loads import Load, Shape
from auditor.measurement import Sample
from auditor.probe.tally import Reply, clip, error_text, page_title
from auditor.probe.transport import Exchange

__all__ = ["check_invariants", "decode", "sample_of"]

_PROXIES = ("server", "via", "x-cache", "cf-ray", "x-accel-buffering")
_LIMIT_HEADERS = ("x-ratelimit", "ratelimit", "x-rate-limit", "anthropic-ratelimit")


def decode(record: Exchange, asked: int | None) -> Reply:
    """What the reply holds."""
    if record.status is None or record.status >= 300:
        return Reply()
    return record.body.reply(
        complete=record.complete or record.done, content_type=record.headers.get("content-type", ""), asked=asked
    )


def sample_of(record: Exchange, reply: Reply, *, load: str, index: int, shape: Shape, began: float) -> Sample:
    """The sample of one request; `began` is when its load began, on the receiver's clock.

    A request that was given up (deadline, cancelled) keeps what was seen, and `closed` says how long it had run.
    """
    t0 = record.begun if record.t0 is None else record.t0
    error, detail = _outcome(record, reply)
    arrivals = tuple(at - t0 for at in reply.arrivals)
    return Sample(
        load=load,
        index=index,
        cls=shape.cls,
        start=t0 - began,
        asked_prompt_tokens=shape.prompt_tokens,
        asked_output_tokens=shape.output_tokens,
        connect=None if record.connect is None else record.connect + (record.tls or 0.0),
        ttft=arrivals[0] if arrivals else None,
        first_answer=None if reply.first_answer is None else reply.first_answer - t0,
        e2e=arrivals[-1] if arrivals else None,
        closed=None if record.closed is None else record.closed - t0,
        prompt_tokens=reply.prompt_tokens,
        output_tokens=reply.output_tokens,
        cached_tokens=reply.cached_tokens,
        first_tokens=reply.first_tokens,
        estimated=reply.estimated,
        arrivals=arrivals,
        status=record.status,
        error=error,
        detail=detail,
        rate_limited=_rate_limited(record),
        retry_after=_retry_after(record.headers),
        finish_reason=reply.finish_reason,
        server_id=reply.server_id,
        via=_via(record.headers),
        late=None if record.due is None else max(0.0, t0 - record.due),
    )


def _outcome(record: Exchange, reply: Reply) -> tuple[str | None, str | None]:
    """The error word and its detail. An error that the server named outranks how the connection ended."""
    status = record.status
    if status is not None and status >= 300 and record.error in (None, "cut_off"):
        return _status_error(status, record)
    if reply.error == "in_stream":
        return reply.error, reply.detail
    if record.error is not None:
        return record.error, record.detail
    return reply.error, reply.detail


def _status_error(status: int, record: Exchange) -> tuple[str, str]:
    text = _page_text(record).removeprefix(f"{status}: ")  # servers repeat the status as their code
    detail = f"HTTP {status}: {text}" if text else f"HTTP {status}"
    if status < 400:
        place = clip(record.headers.get("location", "nowhere"), 120)
        return "protocol", f"HTTP {status}: redirected to {place}; put the final address in endpoint.url"
    if status == 429:
        return "http_429", detail
    return ("http_4xx" if status < 500 else "http_5xx"), detail


def _page_text(record: Exchange) -> str:
    """What an error's body says, on one line: a JSON error's message, a page's title, or the text itself."""
    if record.headers.get("content-encoding", "identity") != "identity":
        return f"a {record.headers['content-encoding']} body"
    text = record.body.head().decode("utf-8", "replace").strip()
    try:
        message: Any = json.loads(text)
    except (ValueError, RecursionError):
        return clip(page_title(text) or text, 200)
    if isinstance(message, dict):
        return error_text(message.get("error") or message)
    return clip(text, 200)


def _via(headers: Mapping[str, str]) -> str | None:
    """What the headers say of who answered: a proxy names itself in one of these."""
    return clip(", ".join(f"{name}: {headers[name]}" for name in _PROXIES if name in headers), 120) or None


def _rate_limited(record: Exchange) -> bool:
    """A 429 that a gateway's quota sent: engines' own refusals carry no rate-limit headers."""
    if record.status != 429:
        return False
    return "retry-after" in record.headers or any(name.startswith(_LIMIT_HEADERS) for name in record.headers)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds; None where it is missing or a date."""
    value = headers.get("retry-after", "").strip()
    return float(value) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value) else None


def check_invariants(sample: Sample, load: Load, inflight: int) -> None:
    """Raise ToolError if this program measured what cannot be: its numbers would not be worth judging."""
    where = f"load {load.id}, request {sample.index}"
    if inflight > load.concurrency and not load.arrivals:
        raise ToolError(f"{where}: {inflight} requests were in flight, {load.concurrency} were asked for")
    if not sample.good:
        return
    if sample.ttft is None or sample.e2e is None:
        raise ToolError(f"{where}: a good reply without a first token")
    if not 0 < sample.ttft <= sample.e2e:
        raise ToolError(f"{where}: the first token after {sample.ttft} s, the last after {sample.e2e} s")
