"""Watches the endpoint's well-being beside a load: what the profile's guard says, and the server's own pages."""

from collections.abc import Awaitable, Callable, Sequence

from auditor.measurement import Sample, Snapshot
from auditor.plan.care import guarded, pressed
from auditor.profile import Profile

__all__ = ["Care"]

_Snap = Callable[[float, str], Awaitable[Snapshot | None]]


class Care:
    """Sees the server's pages as they are read, and says when to stop. An endpoint on this machine is the user's own:
    there only the guard counts.
    """

    def __init__(self, profile: Profile) -> None:
        self._guard = profile.probe.guard
        self._spare = not profile.endpoint.on_this_machine
        self._pages: list[Snapshot] = []

    def watching(self, snap: _Snap | None) -> _Snap | None:
        """The same reader of pages, watched."""
        return None if snap is None else self._watched(snap)

    def _watched(self, snap: _Snap) -> _Snap:
        async def read(at: float, phase: str) -> Snapshot | None:
            page = await snap(at, phase)
            if page is not None and phase == "during":
                self._pages.append(page)
            return page

        return read

    def harm(self, samples: Sequence[Sample]) -> str | None:
        """Why the load should end for the endpoint's sake; None while all is well."""
        if self._guard is not None and (reason := guarded(self._guard, samples)) is not None:
            return reason
        return pressed(self._pages) if self._spare else None
