"""A JSON API that is asked by GET or by form: where it is, what it is told, and one line for every way it can fail."""

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlencode, urlsplit, urlunsplit

import httpx

from auditor.errors import NothingMeasured, UsageError
from auditor.probe.tally import clip, page_title
from auditor.probe.target import basic_of, tls_context
from auditor.probe.web import LIMIT, get_text
from auditor.redact import Redactor, is_secret_name

__all__ = ["Api", "Refused", "Unanswered", "Unreachable"]

T = TypeVar("T")

_LONGEST_ADDRESS = 1800  # characters that every proxy takes; longer parameters travel as a form
_SAID = 200


class Unanswered(NothingMeasured):
    """An API gave no usable answer; the message says in one line where, what and what to do."""


class Unreachable(Unanswered):
    """Nothing at the address answers as this API does: no other question will fare better."""


class Refused(Unanswered):
    """The API answered one question with an error; `said` is what it said, alone."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


class Api:
    """An open client for one server's JSON API; close it with `close`, or use it by `async with`.

    `where` is the field or option that names the address, `what` the program that is expected there. A header wins over
    the key, and the key over user and password in the address; all are sent to this address only and are in no message.
    `wait` is the longest wait for an answer, in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        where: str,
        what: str,
        key: str | None = None,
        verify_tls: bool = True,
        ca: str | None = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 30.0,
        endings: tuple[str, ...] = (),
    ) -> None:
        self.where, self.what, self.wait = where, what, wait
        parts = _parts(url, where)
        path = parts.path.rstrip("/")
        for ending in endings:
            path = path.removesuffix(ending)
        host = parts.netloc.rpartition("@")[2]
        self.url: str = urlunsplit(parts._replace(netloc=host, path=path, query="", fragment=""))
        self._query = parts.query
        extra = {name.lower(): value for name, value in (headers or {}).items()}
        secrets = [value for name, value in extra.items() if is_secret_name(name)]
        self._redactor = Redactor([*secrets, *filter(None, (key, parts.password, basic_of(url)))])
        sent = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "serving-audit"}
        if key or parts.username is not None:
            sent["authorization"] = f"Bearer {key}" if key else basic_of(url) or ""
        self._headers = sent | extra
        self._keyed = "authorization" in self._headers
        self._client = httpx.AsyncClient(
            verify=tls_context(verify_tls, ca) if parts.scheme == "https" else False,
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(wait, connect=min(10.0, wait)),
        )

    async def __aenter__(self) -> "Api":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.aclose()

    def hidden(self, value: T) -> T:
        """A copy of plain data without what was sent along: a server may tell it back."""
        return self._redactor.data(value)

    def clean(self, text: str, size: int = _SAID) -> str:
        """What a server said as one printable line of bounded length without secrets."""
        return clip("".join(c if c.isprintable() else " " for c in self._redactor.text(text)), size)

    async def get(self, path: str, params: Mapping[str, object] | None = None, *, form: bool = False) -> Any:
        """The JSON that GET of a path below the address gives; long parameters of a `form` go by POST.

        A parameter may be a list, which is sent once an item. Raises Unanswered.
        """
        asked = urlencode(params or {}, doseq=True)
        query = "&".join(filter(None, (self._query, asked)))
        posted = form and len(query) > _LONGEST_ADDRESS
        shown = self._query if posted else query
        url = f"{self.url}{path}?{shown}" if shown else self.url + path
        headers = self._headers | ({"content-type": "application/x-www-form-urlencoded"} if posted else {})
        try:
            async with asyncio.timeout(self.wait):
                status, answered, text = await get_text(self._client, url, headers, asked if posted else None)
        except (TimeoutError, httpx.TimeoutException):
            raise Unreachable(self._line(f"{path} was not answered within {self.wait:g} s; look at its log")) from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            raise Unreachable(self._line(self._no_answer(error))) from None
        return self._json(path, status, answered, text)

    def _line(self, text: str) -> str:
        return self.clean(f"{self.where}: {self.url} {text}", 400)

    def _no_answer(self, error: Exception) -> str:
        causes = list(_causes(error))
        said = clip(" ".join(map(str, causes)), 120) or type(error).__name__
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
            return "has a certificate that is not trusted; name its CA's PEM file in the environment (SSL_CERT_FILE)"
        if any(isinstance(cause, ssl.SSLError) for cause in causes):
            return f"does not speak TLS as asked ({said}); is it http://?"
        if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
            return f"has nothing that listens (connection refused); start {self.what} or correct the address"
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            return "has a host name that cannot be resolved; correct it or look at DNS"
        return f"gives no answer ({said}); correct the address or look at the network"

    def _json(self, path: str, status: int, headers: Mapping[str, str], text: str) -> Any:
        """The answer's JSON. Raises Unanswered for whatever is none, and for what the API refuses."""
        if 300 <= status < 400:
            to = clip(headers.get("location", "nowhere"), 150)
            raise Unreachable(self._line(f"is redirected ({status}) to {to}; write that address, or pass a key"))
        data = _parsed(text)
        complaint = _complaint(data)
        if status in (401, 407) or (status == 403 and complaint is None):
            advice = "the key or password is refused: put the right one there" if self._keyed else "it wants a key"
            raise Unreachable(self._line(f"answers {path} with {status}; {advice}"))
        if len(text.encode()) >= LIMIT:
            said = f"the answer is larger than {LIMIT >> 20} MiB"
            raise Refused(self._line(f"{path}: {said}; ask for less"), said)
        if complaint is None and status == 200 and isinstance(data, dict | list):
            return data
        if complaint is None and status != 200:
            complaint = f"HTTP {status}"
        if complaint is not None:
            raise Refused(self._line(f"{path}: {complaint}"), self.clean(complaint))
        title = page_title(text)
        shown = f"a page ({clip(title, 60)})" if title else "no JSON"
        raise Unreachable(self._line(f"answers {path} with {shown}, as no {self.what} does; correct the address"))


def _parts(url: str, where: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        fine = False
    if not fine:
        shown = Redactor().text(url)
        raise UsageError(f"{where}: {clip(shown, 120)} is no http:// or https:// address; write http://HOST:PORT")
    return parts


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it stands for: httpx wraps what the socket said."""
    for _ in range(10):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _complaint(data: Any) -> str | None:
    """What an error in JSON says, in the words of Prometheus ({status: error, error}) and Grafana ({message})."""
    if not isinstance(data, dict):
        return None
    if data.get("status") == "error":
        return f"{data.get('errorType') or 'error'}: {data.get('error') or 'no reason given'}"
    if set(data) <= {"message", "messageId", "statusCode", "traceID", "accessErrorId", "title"}:
        return str(data["message"]) if data.get("message") else None
    return None
