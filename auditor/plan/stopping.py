"""When a load should end early: pure rules, asked after every request."""

from collections.abc import Sequence

from auditor.loads import Load
from auditor.measurement import Sample
from auditor.profile import Budget

__all__ = ["stop_rule"]

HOPELESS = 20  # requests in a row that may fail before a load is given up


def stop_rule(load: Load, samples: Sequence[Sample], elapsed: float, budget: Budget) -> str | None:
    """Why `load` should end now, or None. `elapsed` is the time spent on the endpoint in all, seconds."""
    if elapsed > budget.duration:
        return f"the time budget of {budget.duration:.0f} s is spent"
    latest = samples[-max(HOPELESS, load.concurrency) :]
    if len(latest) >= max(HOPELESS, load.concurrency) and not any(s.good for s in latest):
        return f"the last {len(latest)} requests all failed ({latest[-1].error})"
    return None
