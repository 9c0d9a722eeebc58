"""What a Prometheus says of a service's users: a week of their lengths, times and concurrency."""

import math
from collections.abc import Mapping
from urllib.parse import urlsplit

from auditor.init.draft import Draft, Said
from auditor.init.lengths import ENOUGH
from auditor.init.users import users
from auditor.probe.observing import WEEK
from auditor.probe.passive import LENGTHS, TIMES, Subject, look
from auditor.probe.prometheus import Prometheus
from auditor.watch import Observed

__all__ = ["from_prometheus"]

_SHORTER = {"a day": 86_400.0, "an hour": 3600.0}


async def from_prometheus(url: str, key_name: str | None, key: str | None, deployed: Draft) -> Draft:
    """Ask a Prometheus for a week of the service that `deployed` describes, or less where it has no more.

    Raises UsageError, Unanswered.
    """
    said = {name: deployed.endpoint[name].value for name in ("engine", "model") if name in deployed.endpoint}
    version = deployed.deployment.get("engine_version")
    subject = Subject(**said, version=str(version.value) if version is not None else None)
    async with Prometheus(url, key=key, where="--prometheus") as prometheus:
        found, when = await _longest(prometheus, subject)
        where = prometheus.url
    draft = users(found.histograms, deployed.context, "Prometheus", f"in {when}")
    monitoring = {"prometheus": Said(where, "asked for what its panels and alerts return")}
    if key_name is not None:
        monitoring["prometheus_key_env"] = Said(key_name)
    return Draft(
        prompt=draft.prompt,
        output=draft.output,
        goals=draft.goals,
        notes=(*draft.notes, *_left_out(url)),
        traffic=_peak(found, when),
        monitoring=monitoring,
        sources=(f"{when} of {where}",),
        secrets=(key,) if key else (),
    )


def _left_out(url: str) -> tuple[str, ...]:
    """A word on the user and password that the profile will not have."""
    if "@" not in urlsplit(url).netloc:
        return ()
    return ("monitoring.prometheus: user and password were left out; give a token by prometheus_key_env",)


async def _longest(prometheus: Prometheus, subject: Subject) -> tuple[Observed, str]:
    """The longest window that has users in it: a service of today has no week, whose slices are hours."""
    found, when = await look(prometheus, subject, WEEK, (*TIMES, *LENGTHS)), "a week"
    for shorter, seconds in _SHORTER.items():
        if _enough(found):
            break
        found, when = await look(prometheus, subject, seconds, (*TIMES, *LENGTHS)), shorter
    return found, when


def _enough(found: Observed) -> bool:
    return all(c in found.histograms and found.histograms[c].count >= ENOUGH for c in LENGTHS)


def _peak(found: Observed, when: str) -> Mapping[str, Said]:
    peak = found.values.get("in_flight") or found.values.get("running")
    if not peak or not math.isfinite(peak) or peak < 1:
        return {}
    return {"target_concurrency": Said(math.ceil(peak), f"the most in flight that Prometheus saw in {when}")}
