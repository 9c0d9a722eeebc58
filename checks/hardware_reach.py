"""Bottleneck, what hardware of this class usually reaches: is each SLO within reach, met, or missed, and why?

Rule H210 of question H, which `bottleneck` asks. Physics (H201) says what is impossible; this says what is unusual.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from auditor import slo
from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.profile import Objective
from auditor.theory import judging, reach, shape
from auditor.theory.alternatives import alternatives
from auditor.theory.deciding import Judged
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.levers import by_bound
from auditor.theory.reach import Reach
from auditor.theory.settings import Settings
from auditor.units import count, percent, quantity

__all__ = ["RULES"]

GAINS = 0.95  # of the expected time: a lever that brings less is not named
WAITS = 0.5  # of a TTFT under load: a prompt that alone takes less has mostly waited
MOST = 3  # other accelerators that are named
RESTS_ON = {"ttft": ("bandwidth", "flops"), "tps": ("bandwidth",), "e2e": ("bandwidth", "flops")}
_Theory = tuple[Geometry, Settings, Device]


def h210_reach(evidence: Evidence) -> Iterable[Finding]:
    profile = evidence.profile
    objectives = (*profile.objectives("ttft"), *profile.objectives("tps"), *profile.objectives("e2e"))
    if not objectives:
        yield _PART.skip("H210", "an SLO on TTFT, TPS or E2E", where=evidence.where("slo"))
    for o in objectives:
        yield _against_reach(evidence, o)


def _against_reach(evidence: Evidence, o: Objective) -> Finding:
    expected, judged = _expected(evidence, o, evidence.theory), slo.judged(evidence, o)
    rest: dict[str, Any] = {"subject": f"{o.metric} {o.subject}", "where": evidence.where(o.path)}
    rest["required"] = Number.of(f"{o.metric} {o.percentile}", o.limit, _unit(o), "declared")
    if judged is not None:
        rest["measured"] = _seen(o, judged)
    if expected is not None:
        rest["numbers"] = (_usual(evidence, o, expected),)
    if judged is not None and judged.status == "pass":
        return _PART.finding("H210", "pass", _met(o, judged, expected), **rest)
    if expected is None:
        lacks = evidence.lacking or "traffic.classes and traffic.target_concurrency"
        return _PART.skip("H210", f"what such hardware usually reaches: {lacks}", **rest)
    rest["confidence"] = "low" if _doubted(evidence, o) else "medium"
    if o.seconds < expected.low:
        return _out_of_reach(evidence, o, expected, rest)
    if judged is not None and judged.status == "fail":
        return _missed(evidence, o, expected, judged, rest)
    usual = f"{_name(o)} is usually {_range(o, expected)} here{_doubted(evidence, o)}"
    if o.seconds >= expected.high:
        return _PART.finding("H210", "pass", f"Within reach: {usual}, the SLO allows {_shown(o, o.seconds)}.", **rest)
    why = f"{usual}, and the SLO at {_shown(o, o.seconds)} lies within: it may be met or not."
    return _PART.finding("H210", "inconclusive", why, missing="more requests at the target", **rest)


# ------------------------------------------------------------------------------------------------- expected, measured


def _expected(evidence: Evidence, o: Objective, theory: _Theory | None, batch: int | None = None) -> Reach | None:
    """What this class usually reaches at the target; for TTFT that of a prompt that waits for no other's."""
    batch = batch or evidence.batch
    if theory is None or batch is None or not evidence.profile.traffic.classes:
        return None
    prompt, output = evidence.profile.traffic.mean_lengths
    if o.metric == "tps":
        return reach.token_reach(*theory, batch, prompt, output)
    classes = [c for c in evidence.profile.traffic.classes if o.cls in (None, c.name)]
    mix = [(1.0 if o.cls else c.share, c.fresh, c.output_tokens.curve) for c in classes]
    if o.metric == "ttft":
        return reach.prompt_reach(*theory, mix, o.share)
    return reach.reply_reach(*theory, mix, o.share, batch, prompt, output)


def _usual(evidence: Evidence, o: Objective, expected: Reach) -> Number:
    ends = sorted(_value(o, x) for x in (expected.low, expected.high))
    return Number(
        name="usual for this class" + (", no other prompt before it" if o.metric == "ttft" else ""),
        value=_value(o, expected.seconds),
        unit=_unit(o),
        provenance="computed",
        low=ends[0],
        high=ends[1],
        note=expected.source + _doubted(evidence, o),
    )


def _seen(o: Objective, judged: Judged) -> Number:
    value = judging.inverse(judged.value) if o.metric == "tps" else judged.value
    return Number.measured(f"{_name(o)} {o.percentile}", value, _unit(o), judged.n)


def _doubted(evidence: Evidence, o: Objective) -> str:
    """A mark for what rests on figures that are recalled or in dispute, or on what engines reach of a CPU."""
    device = evidence.device
    if device is None:
        return ""
    rests = device.kind == "cpu" or any(device.certainty(figure) == "C" for figure in RESTS_ON[o.metric])
    return " (provisional)" if rests else ""


def _unit(o: Objective) -> str:
    return "tok/s" if o.metric == "tps" else "s"


def _name(o: Objective) -> str:
    return o.metric.upper()


def _value(o: Objective, seconds: float) -> float:
    return 1 / seconds if o.metric == "tps" else seconds


def _shown(o: Objective, seconds: float) -> str:
    return quantity(_value(o, seconds), _unit(o))


def _range(o: Objective, expected: Reach) -> str:
    ends = sorted((_value(o, expected.low), _value(o, expected.high)))
    alone = " with no other prompt before it" if o.metric == "ttft" else ""
    return f"{quantity(ends[0], _unit(o))} to {quantity(ends[1], _unit(o))}{alone}"


# ------------------------------------------------------------------------------------------------------------ verdicts


def _met(o: Objective, judged: Judged, expected: Reach | None) -> str:
    """How far from the limit: a ceiling's unused part, or by how much a floor is exceeded."""
    point, sure = (_headroom(o, seconds) for seconds in (judged.value.point, judged.value.high))
    least = f" (at least {percent(sure)})" if 0 <= sure < point else ""
    usual = f"; such hardware usually gives {_range(o, expected)}" if expected is not None else ""
    seen, limit = _shown(o, judged.value.point), _shown(o, o.seconds)
    return f"Met with {percent(point)} headroom{least}: {_name(o)} {o.percentile} {seen} against {limit}{usual}."


def _headroom(o: Objective, seconds: float) -> float:
    if not math.isfinite(seconds) or seconds <= 0:
        return -1.0
    return o.seconds / seconds - 1 if o.metric == "tps" else 1 - seconds / o.seconds


def _out_of_reach(evidence: Evidence, o: Objective, expected: Reach, rest: dict[str, Any]) -> Finding:
    why = f"The SLO asks for {_shown(o, o.seconds)}, such hardware usually gives {_range(o, expected)}"
    why += f"{_doubted(evidence, o)}: tuning alone is unlikely to reach it, if physics allows it at all (H201)."
    return _PART.finding("H210", "warn", why, remedies=tuple(_beyond(evidence, o, expected)), **rest)


def _missed(evidence: Evidence, o: Objective, expected: Reach, judged: Judged, rest: dict[str, Any]) -> Finding:
    """Within reach and not reached: either the class is as slow as this, or time goes elsewhere."""
    seen = judged.value.point
    why = f"Missed, but within reach: such hardware usually gives {_range(o, expected)}{_doubted(evidence, o)}, "
    if not math.isfinite(seen):
        why += "here this percentile falls on failed requests."
        fix: tuple[str, ...] = ("find out why requests fail first (W113)",)
    elif seen <= expected.high:
        why += f"and {_shown(o, seen)} here is no slower than that: it takes a lever, not a repair."
        fix = ()
    else:
        why += f"here it is {_shown(o, seen)}, {seen / expected.seconds:.1f} times the expected time."
        fix = (_lost(evidence, o, seen),)
    fix += tuple(_gains(evidence, o, expected)) + evidence.levers(
        *by_bound(expected.bound, evidence.settings, evidence.device)
    )
    return _PART.finding("H210", "warn", why, remedies=fix, **rest)


def _lost(evidence: Evidence, o: Objective, seen: float) -> str:
    """Where to look for the time: a prompt that is fast alone has waited for others."""
    prompt = max((shape.at(c.prompt_tokens.curve, o.share) for c in evidence.profile.traffic.classes), default=0)
    alone = evidence.idle_ttft(prompt) if o.metric == "ttft" else None
    if alone is not None and alone < WAITS * seen:
        return f"a {prompt}-token prompt alone takes {quantity(alone, 's')} here: the rest is waiting (K302 to K305)"
    return "look for lost time first: queue and cache (K302 to K305), kernels and pauses (H203 to H207)"


# -------------------------------------------------------------------------------------------------------------- levers


def _gains(evidence: Evidence, o: Objective, expected: Reach) -> Iterator[str]:
    """Levers of this engine that shorten the expected time, and fewer streams where those would do."""
    theory = evidence.theory
    if theory is None:
        return
    geometry, settings, device = theory
    now = _shown(o, expected.seconds)
    for lever in (a for a in alternatives(settings, device) if evidence.has(a.field)):
        then = _expected(evidence, o, (geometry, lever.settings, device))
        if then is not None and then.seconds < GAINS * expected.seconds:
            yield f"{evidence.flag(lever.field)} {lever.value}: {_shown(o, then.seconds)} expected instead of {now}"
    yield from _fewer(evidence, o, theory)


def _fewer(evidence: Evidence, o: Objective, theory: _Theory) -> Iterator[str]:
    batch, target = evidence.batch, evidence.target
    if o.metric != "tps" or batch is None or target is None:
        return
    most = reach.streams_within(*theory, o.seconds, batch, *evidence.profile.traffic.mean_lengths)
    if 0 < most < batch:
        replicas = count(math.ceil(target / most), "replica")
        yield evidence.spell(f"at most {count(most, 'stream')} at once on each replica ({{max_num_seqs}}): {replicas}")


def _beyond(evidence: Evidence, o: Objective, expected: Reach) -> Iterator[str]:
    """What would bring the SLO within reach: levers, fewer streams, other accelerators, another SLO."""
    yield from _gains(evidence, o, expected)
    geometry, settings, _ = evidence.theory or (None, None, None)
    named = 0
    for other in evidence.candidates:
        if geometry is None or settings is None or named == MOST:
            break
        then = _expected(evidence, o, (geometry, settings, other)) if other.confidence != "C" else None
        if then is not None and then.seconds <= o.seconds:
            named += 1
            yield f"{other.name} instead: {_shown(o, then.seconds)} expected"
    yield f"an SLO of {_shown(o, expected.high)}, which such hardware usually meets"


RULES = (Rule("H210", "SLO against what such hardware reaches", h210_reach),)
"""The rule of question H that holds SLOs against the class of hardware."""

_PART = Check(question="H", title="Bottleneck", rules=RULES)
