"""What bounds each phase at the target load as the ladders tell it: from evidence, for checks."""

from collections.abc import Iterable

from auditor.evidence import Evidence
from auditor.measurement import Measurement
from auditor.theory.classify import Classification, classify
from auditor.theory.ladders import Ladders, Step
from auditor.theory.step_costs import plain_costs

__all__ = ["ladders", "measured", "queued", "step_seconds", "steps"]


def measured(evidence: Evidence) -> Classification | None:
    """The ladders read against model, device and settings; None without these, a target, or any ladder."""
    found = ladders(evidence)
    if evidence.theory is None or found is None or not (found.prompts or found.steps):
        return None
    return classify(*evidence.theory, found)


def ladders(evidence: Evidence) -> Ladders | None:
    """The ladders of one replica, at the target's share of it; None without a target or traffic.

    Streams are spread evenly over the replicas, as a gateway does in the mean.
    """
    batch, (prompt, output) = evidence.batch, evidence.profile.traffic.mean_lengths
    if batch is None or prompt <= 0:
        return None
    loads, replicas = evidence.loads("decode"), max(1, evidence.profile.deployment.replicas)
    return Ladders(
        prompts=tuple(evidence.prefill_points),
        steps=steps(loads, replicas),
        batch=batch,
        context=prompt + output / 2,
        prompt=prompt,
        accepted=evidence.accept_length,
        queued=queued(loads),
    )


def step_seconds(evidence: Evidence, told: Classification | None) -> float | None:
    """Seconds of a decode step at the target as the ladder tells it, with what is `told` of it or else by itself; None
    where it does not, or scatters.
    """
    if told is not None and told.decode is not None:
        return None if told.decode.noise is not None else told.decode.seconds
    found = ladders(evidence)
    costs = plain_costs(found.steps) if found is not None else None
    if found is None or costs is None or costs.noise is not None or len(costs.levels) < 2:
        return None
    return costs.level(found.batch) + costs.cost.point * found.batch * found.context


def steps(loads: Iterable[Measurement], replicas: int = 1) -> tuple[Step, ...]:
    """The steps of a decode ladder, on each replica, while all streams decode."""
    return tuple(
        Step(max(1.0, m.load.concurrency / replicas), m.mean_context, found.seconds, found.error)
        for m in loads
        if (found := m.steps) is not None
    )


def queued(loads: Iterable[Measurement]) -> tuple[tuple[float, float], ...]:
    """(streams, context) of loads whose streams were all served and yet never decoded together."""
    return tuple(
        (m.load.concurrency, m.mean_context)
        for m in loads
        if m.steps is None and m.judged and all(s.good and len(s.arrivals) > 2 for s in m.judged)
    )
