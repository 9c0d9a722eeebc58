"""What differs between the two flavours' HTTP interfaces: what needs a key, error bodies, limits."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from auditor.emulator.engine import Engine
from auditor.emulator.http import Response, chunk, json_response
from auditor.emulator.memory import PoolSize
from auditor.emulator.spec import Spec
from auditor.emulator.wire import DONE, event

__all__ = ["Ask", "Deployment", "Dialect", "Refusal", "nested_error"]


@dataclass(frozen=True, slots=True)
class Deployment:
    """What the information endpoints tell about: the served spec, its pool, its engines, since when it runs."""

    spec: Spec
    size: PoolSize
    engines: tuple[Engine, ...]
    started: float


@dataclass(frozen=True, slots=True)
class Ask:
    """What a generation request asks for, checked: prompt tokens and the longest and shortest reply."""

    prompt: list[Any]
    chat: bool
    model: str
    stream: bool
    limit: int
    least: int
    ignore_eos: bool
    usage: bool
    continuous: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a request that is not served."""

    response: Response


class Dialect(Protocol):
    """One flavour."""

    def guarded(self, path: str) -> bool:
        """True where an API key is needed."""

    def get(self, path: str, deployment: Deployment, now: float) -> Response | None:
        """The answer to an information GET, None where there is no such path."""

    def tokenize(self, body: Mapping[str, Any], deployment: Deployment) -> Response:
        """The answer to POST /tokenize."""

    def bad_json(self) -> Response:
        """The body was no JSON."""

    def check(self, body: Mapping[str, Any], chat: bool, spec: Spec, size: PoolSize) -> Ask | Refusal:
        """Check a generation request and resolve its limits."""

    def busy(self, ask: Ask, name: str, created: int) -> Response | bytes:
        """The queue is full: a reply, or the events with which a stream says so."""


def nested_error(message: str, kind: str, code: int, param: str | None = None) -> Response:
    """vLLM's error body."""
    return json_response({"error": {"message": message, "type": kind, "param": param, "code": code}}, code)


def error_events(*data: Mapping[str, Any]) -> bytes:
    """Chunks of an event stream that carries an error and ends."""
    return b"".join(chunk(event(json.dumps(part))) for part in data) + chunk(DONE)


def number(body: Mapping[str, Any], *names: str) -> int | None:
    """The first of the fields that is a number; a TypeError that names a field of another type."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(name, value)
        return value
    return None


def streaming(body: Mapping[str, Any]) -> tuple[bool, bool, bool]:
    """Whether a stream, its usage and continuous usage are asked for."""
    stream = bool(body.get("stream"))
    options = body.get("stream_options") or {}
    usage = bool(stream and isinstance(options, dict) and options.get("include_usage"))
    return stream, usage or not stream, bool(usage and options.get("continuous_usage_stats"))
