"""Small requests by httpx: what is sent along, and an answer as text of a bounded size."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from auditor.probe.target import basic_of
from auditor.profile import Profile

__all__ = ["LIMIT", "get_text", "headers_for"]

LIMIT = 16 * 1024 * 1024
"""The most bytes of an answer that are read."""


async def get_text(
    client: httpx.AsyncClient, url: str, headers: Mapping[str, str], body: object = None
) -> tuple[int, dict[str, str], str]:
    """(status, headers by lower-case name, text) of a GET, or of a POST of `body`; the answer is cut at `LIMIT`.

    A text is sent as it is, with the content type among the headers, anything else as JSON. Raises httpx.HTTPError.
    """
    sent = {} if body is None else {"content": body} if isinstance(body, str) else {"json": body}
    method = "GET" if body is None else "POST"
    async with client.stream(method, url, headers=dict(headers), **sent) as reply:
        text = bytearray()
        async for chunk in reply.aiter_bytes():
            text += chunk
            if len(text) > LIMIT:
                break
        return (
            reply.status_code,
            {k.lower(): v for k, v in reply.headers.items()},
            bytes(text[:LIMIT]).decode("utf-8", "replace"),
        )


def headers_for(profile: Profile, url: str, key: str | None) -> dict[str, str]:
    """The headers that go to a URL: the profile's, the key and what the address holds, on the endpoint's own host.

    A header wins over the key, and the key over user and password in the address.
    """
    if urlsplit(url).hostname != urlsplit(profile.endpoint.url).hostname:
        return {}
    given = {"authorization": f"Bearer {key}"} if key else {}
    given |= profile.endpoint.headers
    basic = basic_of(profile.endpoint.url)
    if basic is not None and not any(name.lower() == "authorization" for name in given):
        given["authorization"] = basic
    return given
