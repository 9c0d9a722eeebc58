"""The first words with an endpoint: its address looked at, a GET answered or the reason why not, each in one line.

Every failure raises PreflightFailed with where, what and what to do.
"""

import asyncio
import json
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit, urlunsplit

import httpx

from auditor.engines.flavour import Reply
from auditor.errors import PreflightFailed
from auditor.probe.tally import clip, error_text, page_title
from auditor.probe.target import api_path, tls_context
from auditor.probe.web import get_text, headers_for
from auditor.profile import Profile

__all__ = ["Contact", "Place", "check_answer", "connect", "page_words", "place_of"]


@dataclass(frozen=True, slots=True)
class Place:
    """An endpoint's addresses, without user and password: `api` is the API root ("http://h:8000/v1"), `root` the
    server's ("http://h:8000").
    """

    api: str
    root: str
    host: str

    @property
    def secure(self) -> bool:
        """Whether TLS is asked for."""
        return self.api.startswith("https:")


def place_of(url: str) -> Place:
    """The addresses of `endpoint.url`. Raises PreflightFailed for a URL that cannot be an API root."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
    except ValueError as error:
        raise PreflightFailed(f"endpoint.url: no address ({error}); write http://HOST:PORT/v1") from None
    shown = urlunsplit(parts._replace(path=parts.path.rstrip("/"), fragment=""))
    if "://" not in url:
        raise PreflightFailed(f"endpoint.url: {url} has no scheme; write {shown}")
    if parts.scheme not in ("http", "https") or not parts.hostname or not _port_is_fine(shown):
        raise PreflightFailed(f"endpoint.url: {url} is no http:// or https:// address; write http://HOST:PORT/v1")
    path, host = api_path(parts.path), parts.netloc.rpartition("@")[2]
    api = parts._replace(netloc=host, path=path, fragment="")
    root = api._replace(path=path.removesuffix("/v1"), query="")
    return Place(api=urlunsplit(api), root=urlunsplit(root), host=host)


def _port_is_fine(url: str) -> bool:
    try:
        return (urlsplit(url).port or 1) > 0
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Contact:
    """An open client for small requests to one endpoint; `wait` is the longest wait for an answer, seconds."""

    place: Place
    profile: Profile
    key: str | None
    client: httpx.AsyncClient
    context: ssl.SSLContext | None
    wait: float = 20.0

    async def greet(self) -> None:
        """Connect once, with TLS where it is asked for, before an HTTP client gets to leave a handshake half done.

        Raises PreflightFailed.
        """
        parts = urlsplit(self.place.api)
        port = parts.port or (443 if self.place.secure else 80)
        try:
            async with asyncio.timeout(min(10.0, self.wait)):
                _, writer = await asyncio.open_connection(parts.hostname, port, ssl=self.context)
                writer.close()
        except TimeoutError:
            raise PreflightFailed(await self._no_connection()) from None
        except OSError as error:
            raise PreflightFailed(await self._no_answer(error)) from None

    async def get(self, path: str) -> Reply:
        """GET a path of the server (or a whole URL). Raises PreflightFailed where there is no answer."""
        url = path if "://" in path else self.place.root + path
        try:
            async with asyncio.timeout(self.wait):
                return await self._send(url)
        except (TimeoutError, httpx.ReadTimeout):
            where = f"GET {urlsplit(url).path or '/'} at {self.place.host}"
            raise PreflightFailed(
                f"endpoint.url: {where} was not answered within {self.wait:g} s; "
                "the server hangs or is still loading: look at its log"
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise PreflightFailed(await self._no_answer(error)) from None

    async def look(self, path: str) -> Reply | None:
        """GET a path that may well not exist; None where there is no answer."""
        try:
            return await self.get(path)
        except PreflightFailed:
            return None

    async def post(self, path: str, body: object) -> Reply | None:
        """POST JSON to a path of the server that may well not exist; None where there is no answer."""
        try:
            async with asyncio.timeout(self.wait):
                return await self._send(self.place.root + path, body)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, OSError):
            return None

    async def _send(self, url: str, body: object = None) -> Reply:
        headers = headers_for(self.profile, url, self.key)
        status, answered, text = await get_text(self.client, url, headers, body)
        return Reply(status=status, headers=answered, text=text, json=_json(text))

    async def _no_connection(self) -> str:
        """One line for a connection that took too long; a plain server may wait for ever for the end of a TLS hello."""
        host = self.place.host
        if self.place.secure and await _speaks_http(self.place.api):
            return f"endpoint.url: {host} does not speak TLS; write http:// instead of https://"
        return f"endpoint.url: no connection to {host} in time; check the address, the firewall and the network"

    async def _no_answer(self, error: Exception) -> str:
        """One line for a GET that brought no HTTP answer."""
        place, causes = self.place, list(_causes(error))
        for cause in causes:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return (
                    f"endpoint.url: the certificate of {place.host} is not trusted ({cause.verify_message}); name "
                    "your CA's PEM file in endpoint.ca_file or the environment variable SSL_CERT_FILE, or set "
                    "endpoint.verify_tls: false"
                )
            if isinstance(cause, socket.gaierror):
                return f"endpoint.url: the host name of {place.host} cannot be resolved; correct it or look at DNS"
            if isinstance(cause, ConnectionRefusedError):
                return (
                    f"endpoint.url: nothing listens at {place.host} (connection refused); start the server or "
                    "correct the address"
                )
        text = " ".join(str(cause) for cause in causes)
        if place.secure and re.search(r"WRONG_VERSION_NUMBER|UNKNOWN_PROTOCOL|HTTP_REQUEST|RECORD_LAYER", text):
            return f"endpoint.url: {place.host} does not speak TLS; write http:// instead of https://"
        if place.secure and any(isinstance(cause, ssl.SSLError) for cause in causes):
            return f"endpoint.url: TLS with {place.host} failed ({clip(text, 120)}); look at the server's TLS settings"
        return await self._no_http(error, text)

    async def _no_http(self, error: Exception, text: str) -> str:
        host = self.place.host
        if isinstance(error, httpx.ConnectTimeout):
            return await self._no_connection()
        if isinstance(error, httpx.ConnectError) or not isinstance(error, httpx.HTTPError):
            return f"endpoint.url: no connection to {host} ({clip(text, 120)}); check the address and the network"
        if isinstance(error, httpx.DecodingError):
            return f"endpoint.url: {host} sends a compressed body that cannot be unpacked; look at the gateway"
        if not self.place.secure and await _speaks_tls(self.place.api):
            return f"endpoint.url: {host} speaks TLS; write https:// instead of http://"
        if isinstance(error, httpx.RemoteProtocolError) and "without sending" not in text:
            return f"endpoint.url: {host} does not speak HTTP; correct the address"
        return f"endpoint.url: {host} closed the connection without an answer; is this an HTTP server?"


def connect(place: Place, profile: Profile, key: str | None, wait: float = 20.0) -> Contact:
    """A client for `place`; close it (`contact.client.aclose()`)."""
    context = (
        tls_context(profile.endpoint.verify_tls, profile.endpoint.ca_file)
        if place.secure or _asks_elsewhere(profile)
        else None
    )
    client = httpx.AsyncClient(
        verify=context or False,
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(wait, connect=min(10.0, wait)),
        headers={"accept": "application/json, */*", "accept-encoding": "identity", "user-agent": "serving-audit"},
    )
    return Contact(place, profile, key, client, context if place.secure else None, wait)


def _asks_elsewhere(profile: Profile) -> bool:
    """Whether pages of other servers are read, by TLS perhaps."""
    return profile.endpoint.metrics not in (None, "auto") or bool(profile.monitoring.exporters)


def check_answer(reply: Reply, path: str, place: Place, profile: Profile, key: str | None) -> None:
    """Raise PreflightFailed if the answer to a GET of the API is not the JSON it should be; 404 is the caller's."""
    where = f"GET {path} at {place.host}"
    status = reply.status
    if 300 <= status < 400:
        target = reply.headers.get("location", "nowhere")
        raise PreflightFailed(
            f"endpoint.url: {where} is redirected ({status}) to {clip(target, 150)}; write that address"
        )
    if status in (401, 403, 407):
        raise PreflightFailed(_key_problem(status, profile, key))
    if status == 400 and re.search(r"(?i)plain http request was sent to https", reply.text):
        raise PreflightFailed(f"endpoint.url: {place.host} speaks TLS; write https:// instead of http://")
    if status == 429:
        raise PreflightFailed(
            f"endpoint.url: {where} answered 429, a rate limit; wait, or use a key with a larger quota"
        )
    if status >= 500:
        raise PreflightFailed(
            f"endpoint.url: {where} answered {_status(status)}{page_words(reply)}; "
            "the server, or what stands behind this gateway, is not ready: look at its log"
        )
    if status in (404, 405):
        return
    if status >= 400:
        raise PreflightFailed(
            f"endpoint.url: {where} answered {_status(status)}{page_words(reply)}; correct the request"
        )
    if reply.json is None:
        what = "an HTML page" if _is_html(reply) else "an empty body" if not reply.text.strip() else "no JSON"
        raise PreflightFailed(
            f"endpoint.url: {where} answered with {what}{page_words(reply)}; "
            "this is a website or a gateway's page, not an OpenAI API: correct the address"
        )


def _key_problem(status: int, profile: Profile, key: str | None) -> str:
    place, name = "api_key_env", profile.endpoint.api_key_env
    if profile.endpoint.api_key_file is not None:
        place, name = "api_key_file", profile.endpoint.api_key_file
    if key and name:
        return f"endpoint.{place}: the server refuses the key in {name} ({status}); put the right key there"
    if any(header.lower() in ("authorization", "api-key", "x-api-key") for header in profile.endpoint.headers):
        return f"endpoint.headers: the server refuses the credentials in them ({status}); put the right ones there"
    if name:
        return f"endpoint.{place}: the server wants a key ({status}) and there is none in {name}; put it there"
    return (
        f"endpoint.api_key_env: the server wants a key ({status}) and none is given; "
        "name the environment variable that holds it, such as api_key_env: LLM_API_KEY"
    )


def page_words(reply: Reply) -> str:
    """What an error page says, in brackets, or nothing."""
    if isinstance(reply.json, dict):
        text = error_text(reply.json.get("error") or reply.json)
    else:
        text = page_title(reply.text) or ("" if _is_html(reply) else reply.text)
    text = clip(text[:8192], 120)
    return f" ({text})" if text else ""


def _is_html(reply: Reply) -> bool:
    return "html" in reply.headers.get("content-type", "") or reply.text.lstrip()[:1] == "<"


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it stands for: httpx wraps what the socket said."""
    seen = 0
    while error is not None and seen < 10:
        yield error
        error, seen = error.__cause__ or error.__context__, seen + 1


async def _speaks_tls(url: str) -> bool:
    """Whether a TLS handshake succeeds where plain HTTP brought nothing."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(5.0):
            context = tls_context(verify=False)
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 80, ssl=context)
            writer.close()
    except (OSError, TimeoutError):
        return False
    return True


async def _speaks_http(url: str) -> bool:
    """Whether plain HTTP is answered where TLS was not."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(3.0):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 443)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            start = await reader.read(5)
            writer.close()
    except (OSError, TimeoutError):
        return False
    return start == b"HTTP/"
