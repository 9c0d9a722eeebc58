"""Wait for a server that is still starting: it refuses connections, or a gateway before it answers in its place."""

import asyncio

from auditor.errors import PreflightFailed
from auditor.probe.contact import Contact, connect, place_of
from auditor.probe.events import Event, Listener
from auditor.profile import Profile

__all__ = ["until_there"]

_LOADING = (429, 502, 503, 504)  # what engines and gateways answer while a model is being loaded
_EVERY = 1.0


async def until_there(profile: Profile, key: str | None, seconds: float, events: Listener) -> None:
    """Return once the endpoint answers, or after `seconds`: whoever comes next tells what is wrong with it then."""
    clock = asyncio.get_running_loop().time
    until, told = clock() + seconds, False
    while seconds > 0 and (why := await _missing(profile, key, until - clock())) and clock() < until:
        if not told:
            events(Event(kind="stage", text=f"waiting up to {seconds:g} s: {why}"))
            told = True
        await asyncio.sleep(min(_EVERY, max(0.0, until - clock())))


async def _missing(profile: Profile, key: str | None, most: float) -> str | None:
    """Why the endpoint cannot be asked yet; None if it can, or if it says that it may not be."""
    contact = connect(place_of(profile.endpoint.url), profile, key, wait=max(1.0, min(20.0, most)))
    try:
        return await _state(contact)
    except PreflightFailed as failure:
        return str(failure)
    finally:
        await contact.client.aclose()


async def _state(contact: Contact) -> str | None:
    await contact.greet()
    reply = await contact.get(f"{contact.place.api}/models")
    return f"GET /models at {contact.place.host} answers {reply.status}" if reply.status in _LOADING else None
