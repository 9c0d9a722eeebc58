"""A run held against the runs before it: is it slower than chance, and the noise between runs, explain?

Only what ran at one operating point is compared: the same concurrency, or the same declared rate. Runs of the same
requests are compared request by request. A metric is worse where a rank test says so among all rows (Holm) and the
shift is larger than `min_effect`, than the client's own delay, and than what baseline runs differ by among themselves;
it is the same only where the interval shows that it is not longer by `min_effect`, however much those differ.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from statistics import median_low

from auditor import slo
from auditor.compared import Change, Comparison, Metric, Outcome
from auditor.evidence import Evidence, Finding
from auditor.measurement import Measurement
from auditor.profile import Objective
from auditor.theory import shifts
from auditor.theory.judging import rank
from auditor.theory.statistics import median
from auditor.validity import family

__all__ = ["Against", "compare", "other_traffic"]

_FEWEST = 10  # requests of a run without which no row is made
_FLOOR: Mapping[Metric, float] = {"ttft": 0.005, "first_answer": 0.005, "tpot": 0.0002, "e2e": 0.005}
_FAILED = 0.02  # of the requests: more failures than that are never "the same"
_HOPELESS = 20  # times as many requests: a difference that close to the limit stays open
_RULES: Mapping[Metric, str] = {"ttft": "W110", "tpot": "W111", "e2e": "W112", "first_answer": "W114", "failed": "W113"}
_METRICS: Mapping[Metric, str] = {"ttft": "ttft", "tpot": "tps", "e2e": "e2e", "first_answer": "first_answer"}
_DECIDING = ("ttft", "tpot")
_MOST_DIFFERENCES = 12
_TEXTS = ("log", "prompts")  # files, which may lie elsewhere: the lengths that they gave are compared instead


@dataclass(frozen=True, slots=True)
class Against:
    """A baseline run and what to call it."""

    name: str
    evidence: Evidence


def other_traffic(old: Evidence, new: Evidence) -> str | None:
    """The first part of the declared traffic that differs between two runs, or that their numbers do not mean the same;
    None where they can be compared.
    """
    if old.metrics_version != new.metrics_version:
        return "metrics_version"
    then, now = old.profile.traffic, new.profile.traffic
    names = (f.name for f in fields(now) if f.name not in ("optimize_for", *_TEXTS))
    return next((f"traffic.{name}" for name in names if getattr(then, name) != getattr(now, name)), None)


def compare(baselines: Sequence[Against], evidence: Evidence, min_effect: float = 0.1) -> Comparison:
    """The run of `evidence` against one or several runs before it. At least one baseline is needed."""
    risk = 1 - evidence.profile.probe.confidence
    each = [tuple(_rows(base.evidence, evidence, risk)) for base in baselines]
    noise = [row for a, b in combinations(baselines, 2) for row in _rows(a.evidence, b.evidence, risk)]
    middles = [_middle(key, each) for key in dict.fromkeys(row.key for rows in each for row in rows)]
    which = [next(i for i, rows in enumerate(each) if row in rows) for row in middles]
    chances = shifts.holm([row.worse for row in middles]), shifts.holm([row.better for row in middles])
    doubts = {i: tuple(_doubts(baselines[i].evidence, "baseline")) for i in set(which)}
    own = tuple(_doubts(evidence, "run"))
    changes = []
    for row, base, worse, better in zip(middles, which, *chances, strict=True):
        judged = _judged(replace(row, worse=worse, better=better), min_effect, _noise(row.key, noise), risk)
        changes.append(_doubted(judged, (*doubts[base], *own)))
    known = [_noise(row.key, noise) for row in middles if row.key[0] != "failed"]
    return Comparison(
        name=evidence.profile.name,
        date=evidence.today,
        baseline=tuple(f"{base.name} of {base.evidence.today}" for base in baselines),
        changes=tuple(changes),
        min_effect=min_effect,
        confidence=evidence.profile.probe.confidence,
        noise=max(known) if noise and known else None,
        differences=tuple(_differences(baselines[0].evidence, evidence)),
        notes=tuple(dict.fromkeys(note for base in baselines for note in _notes(base.evidence, evidence))),
    )


# ---------------------------------------------------------------------------------------------------------------- loads


def _same_point(old: Measurement, new: Measurement) -> bool:
    """Whether two loads ran at one operating point. A rate that followed from a closed loop differs as the service."""
    return old.load.concurrency == new.load.concurrency and old.load.rate == new.load.rate


def _matched(old: Evidence, new: Evidence) -> Iterator[tuple[Measurement, Measurement]]:
    before = {m.load.id: m for m in old.loads("slo")}
    yield from ((before[m.load.id], m) for m in new.loads("slo") if m.load.id in before)


def _notes(old: Evidence, new: Evidence) -> Iterator[str]:
    differs = other_traffic(old, new)
    if differs == "metrics_version":
        yield f"metrics_version was {old.metrics_version} and is {new.metrics_version}: measure the baseline again"
    elif differs is not None:
        yield f"{differs} is not what the baseline measured"
    elif not any(True for _ in _matched(old, new)):
        yield "the runs have no load at the target in common"
    for before, now in _matched(old, new):
        if not _same_point(before, now):
            yield f"{now.load.id} is not compared: it ran at {_point(now)}, in the baseline at {_point(before)}"


def _point(m: Measurement) -> str:
    return f"{m.load.rate:.3g} requests a second" if m.load.rate else f"{m.load.concurrency} in flight"


def _same_requests(old: Measurement, new: Measurement) -> bool:
    both = zip(old.load.shapes, new.load.shapes, strict=False)
    return bool(old.load.shapes) and all(a == b for a, b in both) and old.load.arrivals == new.load.arrivals


# ----------------------------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One metric of one load before it is judged. `factor` and its bounds are ratios, of failures 1 + a difference."""

    key: tuple[Metric, str, str | None, str]
    old: float
    new: float
    n_old: int
    n_new: int
    factor: float
    low: float
    high: float
    worse: float
    better: float
    worth: float | None
    paired: bool
    floor: float


def _rows(old: Evidence, new: Evidence, risk: float) -> Iterator[_Row]:
    if other_traffic(old, new) is not None:
        return
    classes: list[str | None] = [None, *(c.name for c in new.profile.traffic.classes)]
    for before, now in _matched(old, new):
        if _same_point(before, now):
            for cls in classes if len(classes) > 2 else classes[:1]:
                yield from _of_class(new, before, now, cls, risk)


def _of_class(
    evidence: Evidence, before: Measurement, now: Measurement, cls: str | None, risk: float
) -> Iterator[_Row]:
    for metric, name in _METRICS.items():
        goals = [o for o in evidence.profile.objectives(name) if o.cls == cls]  # type: ignore[arg-type]
        if metric == "first_answer" and not goals:
            continue
        series = _Series.of(before, now, metric, cls)
        if min(len(series.old), len(series.new)) >= _FEWEST:
            yield series.shift(metric, now.load.id, cls, risk)
            for goal in goals:
                yield from series.quantile(metric, now, goal, risk)
    if (row := _failures(before, now, cls, risk)) is not None:
        yield row


@dataclass(frozen=True, slots=True)
class _Series:
    """The logarithms of one metric in start order, by request; `both` where the runs sent the same requests."""

    old: Mapping[int, float]
    new: Mapping[int, float]
    both: tuple[int, ...]
    floor: float

    @classmethod
    def of(cls, before: Measurement, now: Measurement, metric: Metric, name: str | None) -> "_Series":
        old, new = _read(before, metric, name), _read(now, metric, name)
        both = tuple(i for i in new if i in old) if _same_requests(before, now) else ()
        own = [m.client.floor.ttft_p99 for m in (before, now) if m.client.floor is not None and metric != "tpot"]
        return cls(old, new, both, max([_FLOOR[metric], *own]))

    @property
    def paired(self) -> bool:
        return len(self.both) >= _FEWEST

    def values(self) -> tuple[list[float], list[float]]:
        """Both runs in start order; of the same requests only where both have them."""
        if self.paired:
            return [self.old[i] for i in self.both], [self.new[i] for i in self.both]
        return list(self.old.values()), list(self.new.values())

    def shift(self, metric: Metric, load: str, cls: str | None, risk: float) -> _Row:
        old, new = self.values()
        if self.paired:
            found = shifts.of_pairs([b - a for a, b in zip(old, new, strict=True)], risk)
        else:
            found = shifts.of_samples(old, new, risk)
        return self._row((metric, load, cls, ""), found, _seconds(median(old)), _seconds(median(new)))

    def quantile(self, metric: Metric, now: Measurement, goal: Objective, risk: float) -> Iterator[_Row]:
        """The percentile that an SLO is on, where the tail moves and the middle does not."""
        old, new = self.values()
        if goal.share <= 0.5:
            return
        found = shifts.of_quantile(old, new, goal.share, risk, 3 * now.load.concurrency, paired=self.paired)
        if found is not None:
            was, is_now = (_seconds(rank(values, goal.share)) for values in (old, new))
            yield self._row((metric, now.load.id, goal.cls, f"p{100 * goal.share:.4g}"), found, was, is_now)

    def _row(self, key: tuple[Metric, str, str | None, str], found: shifts.Shift, old: float, new: float) -> _Row:
        return _Row(
            key=key,
            old=old,
            new=new,
            n_old=len(self.old),
            n_new=len(self.new),
            factor=found.factor.point,
            low=found.factor.low,
            high=found.factor.high,
            worse=found.worse,
            better=found.better,
            worth=found.worth,
            paired=self.paired,
            floor=self.floor,
        )


def _read(m: Measurement, metric: Metric, cls: str | None) -> dict[int, float]:
    goal = Objective(metric=_METRICS[metric], share=0.5, limit=math.inf, path="", cls=cls)  # type: ignore[arg-type]
    return {s.index: shifts.NEVER if x == math.inf else math.log(max(x, 1e-6)) for s, x in slo.readings_of(m, goal)}


def _seconds(logarithm: float) -> float:
    return math.inf if logarithm >= shifts.NEVER / 2 else math.exp(logarithm)


def _failures(before: Measurement, now: Measurement, cls: str | None, risk: float) -> _Row | None:
    old, new = (
        [not s.good for s in sorted(m.judged, key=lambda s: (s.start, s.index)) if cls in (None, s.cls)]
        for m in (before, now)
    )
    (bad_old, n_old), (bad_new, n_new) = ((sum(failed), len(failed)) for failed in (old, new))
    if min(n_old, n_new) < _FEWEST:
        return None
    alike = max(shifts.inflation(old), shifts.inflation(new))
    found, worse, better = shifts.of_shares((bad_old, n_old), (bad_new, n_new), risk, alike)
    return _Row(
        key=("failed", now.load.id, cls, ""),
        old=bad_old / n_old,
        new=bad_new / n_new,
        n_old=n_old,
        n_new=n_new,
        factor=1 + found.point,
        low=1 + found.low,
        high=1 + found.high,
        worse=worse,
        better=better,
        worth=min(n_old, n_new) / alike,
        paired=False,
        floor=0.0,
    )


def _middle(key: tuple[Metric, str, str | None, str], each: Sequence[Sequence[_Row]]) -> _Row:
    """Of the rows against several baselines the one in the middle."""
    rows = {row.factor: row for rows in each for row in rows if row.key == key}
    return rows[median_low(rows)]


def _noise(key: tuple[Metric, str, str | None, str], rows: Iterable[_Row]) -> float:
    """How far baseline runs differ by this metric, as a relative change."""
    same = [max(row.factor, 1 / row.factor) - 1 for row in rows if row.key == key and row.factor > 0]
    return max((x for x in same if x < math.inf), default=0.0)


# -------------------------------------------------------------------------------------------------------------- judging


def _judged(row: _Row, least: float, noise: float, risk: float) -> Change:
    metric, load, cls, percentile = row.key
    margin = max(least, noise)
    status = _of_failures(row, risk) if metric == "failed" else _of_times(row, least, margin, risk)
    bounds = (None if math.isinf(x) else x - 1 for x in (row.factor, row.low, row.high))
    change, low, high = bounds
    return Change(
        metric=metric,
        load=load,
        cls=cls,
        percentile=percentile,
        status=status,
        deciding=metric in _DECIDING and cls is None and not percentile,
        old=None if math.isinf(row.old) else row.old,
        new=None if math.isinf(row.new) else row.new,
        change=change,
        low=low,
        high=high,
        counts=0.0 if metric == "failed" else margin,
        n_old=row.n_old,
        n_new=row.n_new,
        worth=row.worth,
        paired=row.paired,
        chance=row.worse,
        missing=_missing(row, least, margin) if status == "unclear" and metric != "failed" else None,
    )


def _of_times(row: _Row, least: float, margin: float, risk: float) -> Outcome:
    bound = row.low if row.key[3] else row.factor  # a percentile's shift is worse only where all of its interval is
    if row.worse <= risk and bound > 1 + margin and _moved(row, row.factor) > row.floor:
        return "worse"
    if row.better <= risk and row.factor < 1 / (1 + margin) and -_moved(row, row.factor) > row.floor:
        return "better"
    return "same" if row.high < 1 + least or _moved(row, row.high) < row.floor else "unclear"


def _moved(row: _Row, factor: float) -> float:
    """By how many seconds a factor moves the baseline's value."""
    return (factor - 1) * row.old if row.old < math.inf else math.copysign(math.inf, factor - 1)


def _of_failures(row: _Row, risk: float) -> Outcome:
    if row.worse <= risk:
        return "worse"
    if row.better <= risk:
        return "better"
    return "same" if row.high - 1 < _FAILED else "unclear"


def _missing(row: _Row, least: float, margin: float) -> int | None:
    """How many more requests in each run until the interval would end below, or lie above, what counts; None where the
    difference lies within what baseline runs differ by, or close to an end of it: no number would tell.
    """
    if not 0 < row.factor < row.high < math.inf or 1 + least < row.factor < 1 + margin:
        return None
    room = abs(math.log((1 + (least if row.factor <= 1 + least else margin)) / row.factor))
    times = (math.log(row.high / row.factor) / room) ** 2 if room > 0 else math.inf
    if not 1 < times <= _HOPELESS:
        return None
    return math.ceil(min(row.n_old, row.n_new) * (times - 1))


# --------------------------------------------------------------------------------------------------------------- doubts


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A finding on the measurement of one of the runs: what it voids, in words and by rule and outcome."""

    side: str
    finding: Finding

    def covers(self, change: Change) -> bool:
        outcome = {"worse": "fail", "same": "pass", "better": "pass"}.get(change.status)
        if outcome is None:
            return False
        if self.side == "baseline":  # a baseline that looks better than it was makes the run look worse
            outcome = {"fail": "pass", "pass": "fail"}[outcome]
        rule = _RULES[change.metric]
        return bool({f"{rule}:{outcome}", f"{rule[0]}:{outcome}"} & set(self.finding.voids))

    def __str__(self) -> str:
        return f"{self.finding.rule} in the {self.side}: {self.finding.missing or self.finding.why}"


def _doubts(evidence: Evidence, side: str) -> Iterator[_Doubt]:
    for finding in family.judge(evidence):
        if finding.status not in ("pass", "skip") and finding.voids:
            yield _Doubt(side, finding)


def _doubted(change: Change, doubts: Sequence[_Doubt]) -> Change:
    found = tuple(dict.fromkeys(str(doubt) for doubt in doubts if doubt.covers(change)))
    return replace(change, status="unclear", doubts=found) if found else change


def _differences(old: Evidence, new: Evidence) -> list[str]:
    """What was served or declared otherwise: the first suspects."""
    pairs = {name: (getattr(old.served, name, None), getattr(new.served, name, None)) for name in ("model", "engine")}
    pairs |= {"accelerator": (old.device and old.device.key, new.device and new.device.key)}
    pairs |= {"replicas": (old.profile.deployment.replicas, new.profile.deployment.replicas)}
    pairs |= {name: (getattr(old.profile.traffic, name), getattr(new.profile.traffic, name)) for name in _TEXTS}
    if old.settings is not None and new.settings is not None:
        pairs |= {f.name: _settings(f.name, old, new) for f in fields(new.settings)}
    found = [f"{name}: {_said(a)} before, {_said(b)} now" for name, (a, b) in pairs.items() if a != b]
    more = [f"{len(found) - _MOST_DIFFERENCES} more settings differ"] if len(found) > _MOST_DIFFERENCES else []
    return found[:_MOST_DIFFERENCES] + more


def _settings(name: str, old: Evidence, new: Evidence) -> tuple[object, object]:
    """As declared or by the engine's default; where these are alike as served, if both servers told it."""
    pairs = ((old.settings, new.settings), (old.served, new.served))
    declared, served = ((getattr(a, name, None), getattr(b, name, None)) for a, b in pairs)
    return served if declared[0] == declared[1] and None not in served else declared


def _said(value: object) -> str:
    return "not told" if value is None else str(value)
