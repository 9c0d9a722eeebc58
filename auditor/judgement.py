"""What every installed check finds in evidence, and how the rules about load judge another level than the target's."""

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from auditor import plugins, slo, verdict
from auditor.errors import AuditError
from auditor.evidence import Evidence, Finding, Rule
from auditor.loads import Plan
from auditor.measurement import Measurement, Sample
from auditor.plan.arrivals import reached
from auditor.plan.point import at_level
from auditor.points import Level, Point, Reading, Signs
from auditor.profile import Objective
from auditor.theory import judging
from auditor.theory.deciding import Judged
from auditor.theory.statistics import Outcome
from auditor.validity import family

__all__ = ["KV_RULES", "SLO_RULES", "as_target", "findings", "point"]

SLO_RULES = ("W110", "W111", "W112", "W113", "W114", "W120")
"""What users feel at a level of load."""

KV_RULES = ("K302", "K303", "K304", "K305", "K307")
"""What the cache and the batch limits bear of it."""

_WORKS = "a rule that works on this evidence"
_CROWD = "requests that arrive by chance at this level"


def findings(evidence: Evidence, only: Sequence[str] = ()) -> list[Finding]:
    """What the checks' rules find (those with an id in `only`, if any), and before them the rules on the measurement.

    Loads that sought the nearest passing level are no part of what is judged.
    """
    at_target = replace(evidence, measurements=_but_nearest(evidence.measurements))
    validities = family.FAMILY.rules if at_target.measurements else ()
    rules = [rule for check in plugins.load_checks() for rule in check.rules if not only or rule.id in only]
    return [finding for rule in (*validities, *rules) for finding in _judged(rule, at_target)]


def _but_nearest(measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
    return tuple(m for m in measurements if m.load.purpose != "nearest")


def _judged(rule: Rule, evidence: Evidence) -> tuple[Finding, ...]:
    """What a rule finds. One that breaks has decided nothing, and must not take what was measured with it.

    A broken T rule leaves every pass in doubt: it might have voided it.
    """
    try:
        return tuple(rule.judge(evidence))
    except AuditError:
        raise
    except Exception as error:
        if os.environ.get("AUDIT_TRACEBACK"):
            raise
        why = f"this rule broke ({type(error).__name__}: {error}); set AUDIT_TRACEBACK=1 to see where, and report it"
        broken = Finding(rule=rule.id, status="inconclusive", title=rule.title, why=why, deciding=True, missing=_WORKS)
        letters = [check.question for check in plugins.load_checks()] if rule in family.FAMILY.rules else ()
        return (replace(broken, voids=tuple(f"{letter}:pass" for letter in letters)),)


# -------------------------------------------------------------------------------------------------------------- points


def as_target(evidence: Evidence, level: Level, plan: Plan | None, loads: Sequence[Measurement]) -> Evidence:
    """The evidence as if `level` were the target and `loads` its loads; ladders stay as they were measured."""
    mine = tuple(replace(m, load=replace(m.load, purpose="slo")) for m in loads)
    rest = tuple(m for m in evidence.measurements if m.load.purpose in ("cold", "prefill", "decode"))
    return replace(
        evidence, profile=at_level(evidence.profile, level), plan=plan, measurements=(*mine, *rest), nearest=None
    )


def point(
    evidence: Evidence, level: Level, loads: Sequence[Measurement], rules: Sequence[str], plan: Plan | None = None
) -> Point:
    """A level as the verdict's own rules judge it: a fail is beyond doubt, a pass too, and the rest is undecided.

    None passes without requests that arrived by chance: a closed loop never shows a crowd.
    """
    here = as_target(evidence, level, plan, loads)
    checks = plugins.load_checks()
    report = verdict.decide(findings(here, rules), checks, here.profile, here, today=here.today)
    deciding = [f for f in report.findings if f.rule in rules and f.deciding and f.waived is None]
    broken = [f for f in deciding if f.status == "fail"]
    unsure = [f for f in deciding if f.status in ("inconclusive", "skip")]
    worst = next(iter((*broken, *unsure)), None)
    crowd = any(m.load.arrivals and m.judged for m in loads)
    judged = [s for m in loads for s in m.judged]
    closed = next((m for m in loads if not m.load.arrivals), None)
    stay, error = _stay(closed.judged if closed is not None else judged)
    return Point(
        level=level,
        status="fail" if broken else "inconclusive" if unsure or not deciding or not crowd else "pass",
        requests=len(judged),
        failed=sum(not s.good for s in judged),
        readings=tuple(_readings(here)),
        reached=reached(closed) if closed is not None else None,
        output_rate=_output_rate(loads),
        stay=stay,
        stay_error=error,
        broken=tuple(dict.fromkeys(f.rule for f in (broken or unsure))),
        why=worst.why if worst is not None else "",
        missing=None if broken else worst.missing if worst is not None else None if crowd else _CROWD,
        voided_by=() if broken else tuple(dict.fromkeys(rule for f in unsure for rule in f.voided_by)),
        signs=_signs(loads),
    )


def _readings(evidence: Evidence) -> Iterable[Reading]:
    for objective in slo.every(evidence):
        judged = slo.judged(evidence, objective)
        if judged is not None:
            yield _reading(objective, judged)


def _reading(objective: Objective, judged: Judged) -> Reading:
    rate = objective.metric == "tps"
    value = judging.inverse(judged.value) if rate else judged.value
    numbers = (x if math.isfinite(x) else None for x in (value.point, value.low, value.high))
    known, low, high = numbers
    status: Outcome = judged.status
    return Reading(
        path=objective.path,
        metric=objective.metric,
        percentile=objective.percentile,
        cls=objective.cls,
        value=known,
        low=low,
        high=high,
        limit=objective.limit,
        unit="tok/s" if rate else "share" if objective.metric == "error_rate" else "s",
        n=judged.n,
        bad=judged.bad,
        status=status,
        missing=judged.missing,
    )


def _stay(samples: Sequence[Sample]) -> tuple[float | None, float | None]:
    """Mean seconds of a good request, and its standard error."""
    times = [s.stay for s in samples if s.good]
    if len(times) < 2:
        return (times[0] if times else None), None
    mean = math.fsum(times) / len(times)
    return mean, math.sqrt(math.fsum((t - mean) ** 2 for t in times) / (len(times) - 1) / len(times))


def _output_rate(loads: Sequence[Measurement]) -> float | None:
    """Output tokens a second of the first load, from its first request to the last one's start."""
    for m in loads:
        rate = reached(m) if not m.load.arrivals else m.load.rate
        tokens = [s.output_tokens for s in m.judged if s.good and s.output_tokens is not None]
        if rate is not None and tokens:
            return rate * math.fsum(tokens) / len(tokens)
    return None


def _signs(loads: Sequence[Measurement]) -> Signs:
    running, usage = ([v for m in loads for _, v in m.gauge(name)] for name in ("running", "kv_usage"))
    waiting = [[v for _, v in m.gauge("waiting")] for m in loads]
    means = [sum(values) / len(values) for values in waiting if values]
    moved = [m.moved("preemptions") for m in loads]
    pressed = [m.kv_pressed for m in loads if m.kv_pressed is not None]
    return Signs(
        running=max(running, default=None),
        waiting=max(means, default=None),
        kv_usage=max(usage, default=None),
        preemptions=sum(x for x in moved if x is not None) if any(x is not None for x in moved) else None,
        kv_pressed=any(pressed) if pressed else None,
        rate_limited=any(s.rate_limited for m in loads for s in m.judged),
    )
