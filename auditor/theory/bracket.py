"""The search for the highest level that passes: double or halve until one passes and one fails, then bisect. Pure.

Levels are requests in flight or requests a second. An outcome that decided nothing is neither a pass nor a fail: the
search goes on below it, as it goes on below a fail, and the bracket names it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from auditor.theory.statistics import Outcome

__all__ = ["RESOLUTION", "Bracket", "bracket", "next_level"]

RESOLUTION = 0.1  # of the highest level that passes: what lies closer to it is not told apart

Points = Iterable[tuple[float, Outcome]]


@dataclass(frozen=True, slots=True)
class Bracket:
    """Between which levels the highest passing one lies: `passed` did (None: none), `failed` did not (None: none).

    `undecided` are levels from `passed` to `failed` that were measured and decided nothing. `upset` are levels that
    passed above one that failed: more load cannot help, so they count for nothing.
    """

    passed: float | None
    failed: float | None
    undecided: tuple[float, ...] = ()
    upset: tuple[float, ...] = ()

    @property
    def wall(self) -> float | None:
        """The lowest level above `passed` that did not pass; None where none was measured."""
        return min((level for level in (self.failed, *self.undecided) if level is not None), default=None)

    def settled(self, resolution: float = RESOLUTION, step: float = 0.0) -> bool:
        """Whether the highest passing level is known to the resolution, or to one `step`: from a pass to a fail."""
        if self.failed is None:
            return False
        if self.passed is None:
            return self.failed <= step
        return self.failed - self.passed <= max(step, resolution * self.passed) + 1e-9

    def reaches(self, target: float) -> bool | None:
        """Whether the highest passing level is `target` or more; None where the bracket leaves it open."""
        if self.passed is not None and self.passed >= target:
            return True
        return False if self.failed is not None and self.failed <= target else None


def bracket(points: Points) -> Bracket:
    """What measured (level, outcome) pairs tell. Of one level a fail outweighs a pass, a pass what decided nothing."""
    seen: dict[str, set[float]] = {"pass": set(), "fail": set(), "inconclusive": set()}
    for level, outcome in points:
        seen[outcome].add(level)
    failed = min(seen["fail"], default=None)
    top = math.inf if failed is None else failed
    passed = max((level for level in seen["pass"] if level < top), default=None)
    floor = -math.inf if passed is None else passed
    undecided = tuple(sorted(level for level in seen["inconclusive"] if floor < level < top))
    return Bracket(passed, failed, undecided, tuple(sorted(level for level in seen["pass"] if level >= top)))


def next_level(
    points: Points, start: float, least: float, most: float, *, step: float = 0.0, resolution: float = RESOLUTION
) -> float | None:
    """The level to measure next, of `least` to `most`, or None where the search is over.

    `start` comes first; then twice the highest pass or half of the lowest level that did not pass, until there is one
    of each; then their geometric mean. Where what stands above the highest pass decides nothing, it doubles on until
    one fails, so that the bracket has an end. Levels are multiples of `step` where that is not 0.
    """
    found, known = bracket(points := list(points)), {level for level, _ in points}
    if not known:
        return _on_grid(min(max(start, least), most), step)
    low, wall = found.passed, found.wall
    if low is None:
        wanted = least if wall is None else _on_grid(wall / 2, step)
    elif wall is None:
        wanted = 2 * low
    elif wall - low <= max(step, resolution * low) + 1e-9:
        if found.failed is not None:
            return None
        wanted = 2 * found.undecided[-1]
    else:
        wanted = _on_grid(math.sqrt(low * wall), step)
        wanted = min(max(wanted, low + step), wall - step) if step else wanted
    wanted = min(max(wanted, least), most)
    return None if wanted in known else wanted


def _on_grid(level: float, step: float) -> float:
    return round(level / step) * step if step else level
