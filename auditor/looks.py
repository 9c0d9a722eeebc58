"""What the loads at the target have shown so far, and whether more of them could change it: asked between loads. Pure.

The first look takes what was planned, the second what the plan keeps in reserve; how they share the risk of a wrong
outcome is told in `theory.deciding`.
"""

from collections.abc import Sequence

from auditor import slo
from auditor.evidence import Evidence
from auditor.loads import Load
from auditor.profile import Objective
from auditor.theory.deciding import Part
from auditor.units import count

__all__ = ["decided", "reserve_wanted"]


def decided(evidence: Evidence) -> str | None:
    """Why no further load at the target can change the outcome: an SLO is missed however good they are."""
    left = [load for load in _at_target(evidence) if load.id not in _ran(evidence)]
    path = slo.failed(evidence, lambda objective: [_good(evidence, load, objective) for load in left])
    return f"{path} fails whatever further requests bring" if path else None


def reserve_wanted(evidence: Evidence) -> str | None:
    """Why the reserve should run: as many requests more, like those before, would decide what is still open.

    None where nothing is open, an SLO is missed already, or more of the same would leave it open.
    """
    if evidence.plan is None or slo.failed(evidence):
        return None
    reserve = [load for load in evidence.plan.reserve if load.id not in _ran(evidence)]
    unsure = [o for o in slo.every(evidence) if (now := slo.judged(evidence, o)) and now.status == "inconclusive"]
    if not reserve or not unsure:
        return None
    then = [slo.judged(evidence, o, more=_alike(evidence, reserve, o)) for o in unsure]
    outcomes = {judged.status for judged in then if judged is not None}
    if "fail" not in outcomes and "inconclusive" in outcomes:
        return None
    more = sum(len(load.shapes) for load in reserve)
    return f"{', '.join(o.path for o in unsure)} would be decided by {count(more, 'more request')}"


def _at_target(evidence: Evidence) -> list[Load]:
    plan = evidence.plan
    return [load for load in (*plan.loads, *plan.reserve) if load.purpose == "slo"] if plan else []


def _ran(evidence: Evidence) -> set[str]:
    return {m.load.id for m in evidence.measurements}


def _size(load: Load, objective: Objective) -> int:
    return sum(objective.cls in (None, shape.cls) for shape in load.shapes)


def _look(evidence: Evidence, load: Load) -> int:
    return 2 if evidence.plan and load in evidence.plan.reserve else 1


def _good(evidence: Evidence, load: Load, objective: Objective) -> Part:
    """All requests of a load well within the limit."""
    return Part((0.0,) * _size(load, objective), open=bool(load.arrivals), look=_look(evidence, load))


def _alike(evidence: Evidence, loads: Sequence[Load], objective: Objective) -> list[Part]:
    """What loads would bring if their requests fared like those of the same kind before, in the same order."""
    found = []
    for load in loads:
        before = [m for m in evidence.loads("slo") if bool(m.load.arrivals) == bool(load.arrivals)]
        seen = [x for m in before for _, x in slo.readings_of(m, objective)]
        sent = sum(_size(m.load, objective) for m in before)
        size = round(_size(load, objective) * len(seen) / sent) if sent else 0
        values = tuple(seen[i % len(seen)] for i in range(size))
        found.append(Part(values, open=bool(load.arrivals), look=_look(evidence, load)))
    return found
