"""Where requests go and what they say: the endpoint's address, the request's bytes, the body by API.

Pure but for the CA file that TLS needs.
"""

import json
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from auditor.errors import UsageError
from auditor.probe.messages import Message, as_chat, as_text

__all__ = [
    "Address",
    "Api",
    "Deadlines",
    "Force",
    "Target",
    "address_of",
    "api_path",
    "basic_of",
    "forced",
    "request_body",
    "request_bytes",
    "tls_context",
]

Api = Literal["chat", "completions"]
Force = Literal["min_tokens", "ignore_eos"]
"""How an engine is made to give replies of a fixed length."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = ("content-length", "transfer-encoding", "connection", "accept-encoding", "content-type", "expect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where requests go and how they are phrased.

    `url` is the API root ("http://host:8000/v1"). `max_tokens_field` is max_tokens or max_completion_tokens; `force` is
    how the reply's length is forced. `usage` asks for a usage event (stream_options). `ca` is a PEM file to trust.
    `extra_body` is merged into the body last and so wins.
    """

    url: str
    model: str
    api: Api = "chat"
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    max_tokens_field: str = "max_tokens"
    force: Force | None = None
    usage: bool = True
    verify_tls: bool = True
    ca: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """The longest waits, in seconds: for a connection (TLS included), for the first token, between two reads after it,
    and for the whole reply.
    """

    connect: float = 10.0
    first_token: float = 300.0
    gap: float = 60.0
    total: float = 1800.0


@dataclass(frozen=True, slots=True)
class Address:
    """A URL taken apart: the socket addresses to try in order, TLS or not, path with query, and the Host header."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    path: str
    host_header: str
    basic: str | None = None


def address_of(target: Target) -> Address:
    """Where `target`'s requests go. Raises UsageError for a URL that is none, or a CA file that cannot be read.

    People write the host alone, the API root with or without its last slash, or the whole endpoint: all mean the same.
    """
    parts = urlsplit(target.url)
    try:
        port = parts.port
    except ValueError:
        raise UsageError(f"endpoint.url: {target.url!r} has no valid port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"endpoint.url: {target.url!r} is no http:// or https:// address")
    secure = parts.scheme == "https"
    host = parts.hostname
    shown = f"[{host}]" if ":" in host else host
    tail = "/chat/completions" if target.api == "chat" else "/completions"
    return Address(
        host=host,
        port=port or (443 if secure else 80),
        tls=tls_context(target.verify_tls, target.ca) if secure else None,
        path=api_path(parts.path) + tail + (f"?{parts.query}" if parts.query else ""),
        host_header=shown if port is None else f"{shown}:{port}",
        basic=basic_of(target.url),
    )


def api_path(path: str) -> str:
    """The path of the API's root, whatever people write for it: nothing, /v1/, /v1/v1, or the path of one method."""
    root = re.sub(r"/{2,}", "/", path).rstrip("/") or "/v1"
    root = re.sub(r"/(chat/completions|completions|embeddings|models|responses)$", "", root)
    return re.sub(r"(/v1){2,}$", "/v1", root)


def basic_of(url: str) -> str | None:
    """What a URL's user and password say in an Authorization header (RFC 7617); None where it has none."""
    parts = urlsplit(url)
    if parts.username is None:
        return None
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + b64encode(pair.encode()).decode()


def forced(*, min_tokens: bool | None, ignore_eos: bool | None) -> Force | None:
    """How reply lengths are forced where these work: min_tokens leaves the engine's admission as it is for users."""
    return "min_tokens" if min_tokens else "ignore_eos" if ignore_eos else None


def tls_context(verify: bool, ca: str | None = None) -> ssl.SSLContext:
    """TLS to an endpoint, trusting what the machine does (SSL_CERT_FILE is honoured), and a file of PEM certificates.

    To read what a machine trusts takes as long as an import. Raises UsageError for a file that is none.
    """
    context = ssl.create_default_context()
    try:
        if ca is not None:
            context.load_verify_locations(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"{ca}: not a readable file of PEM certificates ({error})") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def request_bytes(address: Address, headers: Mapping[str, str], body: bytes) -> bytes:
    """The whole request. `headers` win over the defaults except where the framing is concerned.

    Raises UsageError for a header that would break the request (a line break, a character outside latin-1).
    """
    lines = {"host": ("Host", address.host_header), "accept": ("Accept", "text/event-stream, application/json")}
    lines["user-agent"] = ("User-Agent", "serving-audit")
    if address.basic:
        lines["authorization"] = ("Authorization", address.basic)
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or not value.isprintable():
            raise UsageError(f"endpoint.headers.{name}: not a valid HTTP header (a line break or control character?)")
        if name.lower() not in _OURS:
            lines[name.lower()] = (name, value)
    head = [f"POST {address.path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.values())]
    head += ["Content-Type: application/json", "Accept-Encoding: identity"]
    head += [f"Content-Length: {len(body)}", "", ""]
    try:
        return "\r\n".join(head).encode("latin-1") + body
    except UnicodeEncodeError as error:
        raise UsageError(
            f"endpoint: {error.object[error.start : error.end]!r} cannot stand in an HTTP header"
        ) from None


def request_body(target: Target, said: str | Sequence[Message], output_tokens: int) -> bytes:
    """The JSON body: a stream with usage, greedy, of exactly `output_tokens` where the engine lets itself be forced.

    `said` is the user's message, or a whole conversation that ends with it.

    min_tokens forces the length and leaves the engine's admission as it is for users; ignore_eos is the fallback
    (SGLang admits such requests by another rule and never retracts them).
    """
    body: dict[str, Any] = {"model": target.model}
    messages = (Message("user", said),) if isinstance(said, str) else said
    if target.api == "chat":
        body["messages"] = as_chat(messages)
    else:
        body["prompt"] = as_text(messages)
    body |= {target.max_tokens_field: output_tokens, "temperature": 0, "stream": True}
    if target.usage:
        body["stream_options"] = {"include_usage": True}
    if target.force == "min_tokens":
        body["min_tokens"] = output_tokens
    elif target.force == "ignore_eos":
        body["ignore_eos"] = True
    return json.dumps(body | dict(target.extra_body)).encode()
