"""Which models an endpoint lists, and which of them is asked for."""

from collections.abc import Mapping, Sequence

from auditor.engines.flavour import Reply
from auditor.engines.replies import models
from auditor.errors import PreflightFailed
from auditor.probe.contact import Contact, check_answer, page_words
from auditor.profile import Profile

__all__ = ["choose_model", "list_models", "listed", "names_of"]


async def list_models(contact: Contact) -> Reply:
    """The answer to GET /models under the API root; a missing /v1 is found out here."""
    place, profile = contact.place, contact.profile
    reply = await contact.get(f"{place.api}/models")
    path = f"{place.api.removeprefix(place.root)}/models"
    looks_wrong = reply.status in (404, 405) or (reply.status == 200 and not isinstance(reply.json, dict))
    if looks_wrong and place.api == place.root:
        better = await contact.look(f"{place.api}/v1/models")
        if better is not None and isinstance(better.json, dict) and better.status in (200, 401, 403):
            raise PreflightFailed(f"endpoint.url: {place.api} lacks /v1; write {place.api}/v1")
    check_answer(reply, path, place, profile, contact.key)
    if reply.status in (404, 405) and profile.endpoint.model == "auto":
        raise PreflightFailed(
            f"endpoint.url: no OpenAI API at {place.api} (GET {path}: {reply.status}{page_words(reply)}); "
            "correct the address, or name endpoint.model if this gateway lists no models"
        )
    return reply


def choose_model(profile: Profile, replies: Mapping[str, Reply], *, certain: bool) -> str:
    """The model to ask for: the profile's, if it is served, or the only one there is.

    `certain` says that the server is known to list whatever it serves. Raises PreflightFailed.
    """
    wanted = profile.endpoint.model
    entries, names = models(replies), names_of(replies)
    aliases = [str(alias) for entry in entries if isinstance(entry.get("aliases"), list) for alias in entry["aliases"]]
    if wanted != "auto":
        if wanted in (*names, *aliases) or not names or not certain:
            return wanted
        raise PreflightFailed(f"endpoint.model: the server has no model {wanted}; it serves {listed(names)}")
    bases = [str(entry["id"]) for entry in entries if isinstance(entry.get("id"), str) and not entry.get("parent")]
    if len(bases) == 1:
        return bases[0]
    if not bases:
        raise PreflightFailed("endpoint.model: the server lists no model; write the model's name")
    raise PreflightFailed(f"endpoint.model: auto leaves the choice open, the server has {listed(bases)}; name one")


def names_of(replies: Mapping[str, Reply]) -> list[str]:
    """The names of the models that the endpoint lists."""
    return [str(entry["id"]) for entry in models(replies) if isinstance(entry.get("id"), str)]


def listed(names: Sequence[str]) -> str:
    """Names in a line, the first of many."""
    shown = ", ".join(names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
