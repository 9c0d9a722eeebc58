"""Wait for an endpoint that still starts, where a flag asks for it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from auditor.loading import Loaded
    from auditor.probe.events import Listener

__all__ = ["until_ready"]


async def until_ready(loaded: "Loaded", seconds: float, show: "Listener") -> None:
    """Return once the endpoint answers, or after `seconds`; at once for the emulator, which starts with the audit."""
    if seconds and loaded.profile.endpoint.url != "emulator":
        from auditor.probe.waiting import until_there

        await until_there(loaded.profile, loaded.key, seconds, show)
