"""When a load should end early, and whether there is time for more: pure rules, asked while a plan runs."""

from collections.abc import Sequence

from auditor.loads import Load
from auditor.measurement import Measurement, Sample
from auditor.plan.target import SLO_SHARE
from auditor.profile import Budget

__all__ = ["stop_rule", "time_for"]

HOPELESS = 20  # requests in a row that may fail before a load is given up


def stop_rule(load: Load, samples: Sequence[Sample], elapsed: float, budget: Budget, tokens: int = 0) -> str | None:
    """Why `load` should end now, or None. `elapsed` seconds and `tokens` were spent on the endpoint in all."""
    if elapsed > budget.duration:
        return f"the time budget of {budget.duration:.0f} s is spent"
    if tokens > budget.tokens:
        return f"the token budget of {budget.tokens:,} is spent"
    latest = samples[-max(HOPELESS, load.concurrency) :]
    if len(latest) >= max(HOPELESS, load.concurrency) and not any(s.good for s in latest):
        return f"the last {len(latest)} requests all failed ({latest[-1].error})"
    return None


def time_for(loads: Sequence[Load], measured: Sequence[Measurement], elapsed: float, budget: Budget) -> bool:
    """Whether further SLO loads end within the SLOs' part of the time, at the speed of those measured."""
    before = [m for m in measured if m.load.purpose == "slo"]
    took, sent = sum(m.duration for m in before), sum(map(_requests, (m.load for m in before)))
    needs = took * sum(map(_requests, loads)) / max(1, sent)
    return elapsed + needs <= SLO_SHARE * budget.duration


def _requests(load: Load) -> int:
    return len(load.warmup) + len(load.shapes)
