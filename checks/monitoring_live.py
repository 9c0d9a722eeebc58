"""Monitoring, what runs: does a Prometheus scrape the service, often enough, and do its panels and alerts work there?

Rules of question M, which `monitoring` asks. Most look at `Evidence.watch`, what a live Prometheus says; without one
they are skipped.

| rule | looks at | decides |
|---|---|---|
| M411 | a key that keeps the scrape out | no |
| M412 | a page written by several processes | no |
| M422 | windows of rates beside the scrape interval | no |
| M423 | the service among the targets | where none is up |
| M424 | alerts that never fire, or always | no |
| M425 | panels without data whose series are there | no |
| M429 | retention and lookback | no |
"""

import re
from collections.abc import Iterator

from auditor import panels
from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.units import count, quantity
from auditor.watch import Answer, Query, Target, Watch
from checks.monitoring_terms import ASKED, UNREAD, flavour, listed, own_model, unlike_served, where

__all__ = ["RULES"]

_NO_WATCH = "a live Prometheus (monitoring.prometheus)"
_REFUSED = re.compile(r"(?<=\s)40[13]\b")  # "server returned HTTP status 401 Unauthorized", and no port
_SERVERS = re.compile(r"--api[-_]server[-_]count[ =](\d{1,4})\b")
_MERGED = ("set PROMETHEUS_MULTIPROC_DIR to a folder on a local disk, and use a release that merges its gauges",)
_FEWEST = 2  # scrapes in a window: fewer, and there is no rate
_ENOUGH = 4  # as many survive one lost scrape, and a window that is not aligned
_REVIEW = 15 * 86_400.0  # Prometheus keeps as much by default; last month's incident is looked at after it
_LOOKBACK = 300.0  # Prometheus's default: an older sample is no longer drawn


def _serving(watch: Watch) -> tuple[Target, ...]:
    return tuple(target for target in watch.targets if target.serves)


def _interval(watch: Watch) -> float | None:
    """The longest time between two scrapes of the service."""
    return max((t.interval for t in _serving(watch) if t.interval is not None), default=None)


# ------------------------------------------------------------------------------------------------------------- scraping


def m411_key(evidence: Evidence) -> Iterator[Finding]:
    if evidence.watch is None or not _serving(evidence.watch):
        yield _by_pages(evidence)
        return
    refused = [t for t in _serving(evidence.watch) if _REFUSED.search(t.error or "")]
    if not refused:
        yield _PART.finding("M411", "pass", "No target of the service refuses the scrape.")
        return
    jobs = listed(dict.fromkeys(target.job for target in refused))
    yield _PART.finding(
        "M411",
        "fail",
        f"{listed(t.url for t in refused)} refuses the scrape of job {jobs}: {refused[0].error}.",
        severity="high",
        where=evidence.where("monitoring.prometheus"),
        remedies=(
            f"give scrape job {jobs} the key: authorization: {{credentials_file: FILE}} in its scrape config",
            "or let the metrics path through without a key in the proxy in front",
        ),
    )


def _by_pages(evidence: Evidence) -> Finding:
    """What the pages say where no Prometheus tells: one that only a key opens is empty for a scrape without it."""
    pages = evidence.served.pages if evidence.served else ()
    locked = [page.url for page in pages if page.needs_key]
    if locked:
        return _PART.finding(
            "M411",
            "warn",
            f"{listed(locked)} is refused without the key: a scrape that brings none gets nothing.",
            where=evidence.where("endpoint.metrics"),
            remedies=("give its scrape job the key: authorization: {credentials_file: FILE} in its scrape config",),
        )
    if any(page.needs_key is False for page in pages):
        return _PART.finding("M411", "pass", "The metrics page is read without a key.")
    return _PART.skip("M411", f"{_NO_WATCH} that has the service among its targets")


def m412_processes(evidence: Evidence) -> Iterator[Finding]:
    pages = [page for page in evidence.served.pages if page.exporter is None] if evidence.served else []
    asked = _SERVERS.search(evidence.profile.deployment.launch or "")
    if not pages and asked is not None and int(asked[1]) > 1:
        why = f"The launch line starts {asked[1]} API servers, each with metrics of its own, and no page was read."
        place = evidence.where("deployment.launch")
        yield _PART.finding("M412", "warn", why, severity="low", where=place, remedies=_MERGED)
        return
    if not pages:
        yield _PART.skip("M412", "the engine's own metrics page")
        return
    split = [page for page in pages if len(page.ranks.get("pid", ())) > 1]
    if not split:
        yield _PART.finding("M412", "pass", "One process writes the page, or several write it as one.")
        return
    processes = max(len(page.ranks["pid"]) for page in split)
    yield _PART.finding(
        "M412",
        "warn",
        f"{split[0].url} has a series for each of {processes} processes (pid): a gauge of one is not the engine's.",
        where=evidence.where("endpoint.metrics"),
        remedies=_MERGED
        if flavour(evidence) == "vllm"
        else ("let one process write the page, or aggregate without (pid)",),
    )


def m423_scraped(evidence: Evidence) -> Iterator[Finding]:
    """Without a target nothing is there, whatever the panels say: that decides."""
    watch = evidence.watch
    if watch is not None and watch.active is None and watch.labels and unlike_served(evidence) is None:
        why = f"{watch.url} tells no targets, as Thanos and Mimir do not; the service's series are there."
        yield _PART.finding("M423", "pass", why)
        return
    if watch is not None and watch.active is None and watch.labels:
        yield _unlike(evidence, watch)
        return
    if watch is None or watch.active is None:
        asked = watch is not None and evidence.profile.monitoring.prometheus is not None
        why = "; ".join(watch.problems) if watch is not None and watch.problems else _NO_WATCH
        yield _PART.skip("M423", why, deciding=asked, where=evidence.where("monitoring.prometheus"))
        return
    serving, place = _serving(watch), evidence.where("monitoring.prometheus")
    if not serving:
        dropped = f", {watch.dropped} dropped" if watch.dropped else ""
        why = f"{watch.url} has {count(watch.active, 'target')}{dropped}, and none has the engine's series or its page."
        fix = (
            "add a scrape job for the engine's page; in Kubernetes compare the ServiceMonitor's selector and port name",
        )
        yield _PART.finding("M423", "fail", why, deciding=True, severity="high", where=place, remedies=fix)
        return
    down = [target for target in serving if target.health != "up"]
    expected = max(evidence.profile.deployment.replicas, 1)
    if down:
        known = all(target.health == "down" for target in down)  # or not scraped yet
        what = "down" if known else "not up"
        why = f"{len(down)} of {count(len(serving), 'target')} of the service are {what}: {down[0].url}"
        why += f" ({down[0].error})." if down[0].error else "."
        dead = known and len(down) == len(serving)
        fix = ("make the target answer, and alert on up == 0 and on absent(<series>)",)
        rest = {"deciding": dead, "severity": "high" if dead else "medium", "where": place, "remedies": fix}
        yield _PART.finding("M423", "fail" if dead else "warn", why, **rest)
    elif len(serving) < expected:
        here = count(len(serving), "target")
        why = f"The engine's series are on {here}, and the profile has {count(expected, 'replica')}."
        fix = ("scrape every replica: behind one address a scrape meets one of them by chance",)
        yield _PART.finding("M423", "warn", why, where=place, remedies=fix)
    elif unlike_served(evidence) is not None:
        yield _unlike(evidence, watch)
    else:
        up = f"All {len(serving)} targets of the service are" if len(serving) > 1 else "The service's target is"
        yield _PART.finding("M423", "pass", f"{up} up.")


def _unlike(evidence: Evidence, watch: Watch) -> Finding:
    """Series of another model only: they may be those of another service, or this one may have two names."""
    return _PART.finding(
        "M423",
        "warn",
        f"The series at {watch.url} are of {unlike_served(evidence)}, and the endpoint serves {own_model(evidence)}: "
        "another service, or another name of this one.",
        deciding=True,
        where=evidence.where("monitoring.prometheus"),
        remedies=("scrape this endpoint too, or say by monitoring.selector which series are its own",),
    )


# -------------------------------------------------------------------------------------------------------------- windows


def m422_windows(evidence: Evidence) -> Iterator[Finding]:
    coverage = evidence.coverage
    if coverage is None or not coverage.files:
        yield _PART.skip("M422", UNREAD)
        return
    zooming = [flaw for flaw in coverage.flaws if flaw.kind == "interval_variable"]
    if zooming:
        fix = ("write $__rate_interval in the place of $__interval, and set timeInterval of the data source",)
        why = f"{listed((f.where for f in zooming), 2)}: {zooming[0].note}."
        yield _PART.finding("M422", "warn", why, subject="$__interval", where=where(evidence), remedies=fix)
    interval = _interval(evidence.watch) if evidence.watch is not None else None
    if interval is None:
        if not zooming:
            yield _PART.skip("M422", f"{_NO_WATCH} that tells how often it scrapes the service")
        return
    short = [q for q in coverage.queries if q.windows and min(q.windows) < _ENOUGH * interval]
    yield _short(evidence, short, interval)


def _short(evidence: Evidence, short: list[Query], interval: float) -> Finding:
    every = Number.of("scrape interval", interval, "s", "measured")
    if not short:
        return _PART.finding("M422", "pass", f"Every window holds {_ENOUGH} scrapes or more.", measured=every)
    worst = min(short, key=lambda query: min(query.windows))
    window = min(worst.windows)
    none = window < _FEWEST * interval
    seconds = quantity(window, "s")
    why = f"{worst.where} takes a rate over {seconds}, and the service is scraped every {quantity(interval, 's')}"
    what = "there is never a rate" if window <= interval else "often only one falls in it, and there is no rate"
    why += f": {what if none else 'one lost scrape, and the panel has a gap'}"
    return _PART.finding(
        "M422",
        "fail" if none else "warn",
        f"{why}{f' ({len(short)} queries)' if len(short) > 1 else ''}.",
        severity="high" if none else "low",
        measured=every,
        required=Number.of("window", _ENOUGH * interval, "s", "computed"),
        where=where(evidence),
        remedies=(f"take rates over $__rate_interval, or over {quantity(_ENOUGH * interval, 's')} and more in alerts",),
    )


# --------------------------------------------------------------------------------------------------------------- alerts


def m424_alerts(evidence: Evidence) -> Iterator[Finding]:
    coverage = evidence.coverage
    if coverage is None:
        yield _PART.skip("M424", UNREAD)
        return
    notes = [note for one in coverage.items for note in one.note.split("; ") if note.startswith("alert ")]
    never = [flaw for flaw in coverage.flaws if flaw.kind == "never_fires"]
    always = [flaw for flaw in coverage.flaws if flaw.kind == "always_fires"]
    rest = {"where": evidence.where("monitoring.rules") or evidence.where("monitoring")}
    if notes or never:
        why = listed([*dict.fromkeys(notes), *(flaw.note for flaw in never)])
        fix = [f"{flaw.where}: write {flaw.instead}" for flaw in never if flaw.instead]
        fix.append("name a series that the page has, guard it with absent(<series>), and try it: promtool test rules")
        yield _PART.finding("M424", "fail", f"{why}.", severity="high", remedies=tuple(fix), **rest)
    if always:
        fix = [f"{flaw.where}: write {flaw.instead}" for flaw in always if flaw.instead]
        why = listed(flaw.note for flaw in always)
        yield _PART.finding("M424", "warn", f"{why}.", subject="always", remedies=tuple(fix), **rest)
    alerts = {query.alert for query in coverage.queries if query.alert is not None}
    if notes or never or always:
        return
    if not alerts:
        yield _PART.skip("M424", "alerting rules on the engine's series")
        return
    yield _PART.finding("M424", "pass", f"Nothing keeps the {len(alerts)} alerts on the engine's series from firing.")


# ------------------------------------------------------------------------------------------------------------- no data


def m425_empty(evidence: Evidence) -> Iterator[Finding]:
    """Panels without data although their series are there: a label, a variable or a window keeps them empty."""
    watch, coverage = evidence.watch, evidence.coverage
    if watch is None or not watch.answers or coverage is None:
        yield _PART.skip("M425", f"{_NO_WATCH}, asked what the panels ask")
        return
    answers = {answer.query: answer for answer in watch.answers}
    asked = [(query, answers[query.text]) for query in panels.queries(coverage) if query.text in answers]
    refused = [(query, answer) for query, answer in asked if answer.error]
    least = _FEWEST * (_interval(watch) or 0.0)
    empty = [(q, a) for q, a in asked if a.series == 0 and not a.absent and min(q.windows, default=least) >= least]
    if not asked:
        yield _PART.skip("M425", "an answer to a panel's query")
    for subject, those in (("refused", refused), ("empty", empty)):
        if those:
            yield _nothing(evidence, watch, subject, those)
    if asked and not refused and not empty:
        yield _PART.finding("M425", "pass", f"{len(asked)} queries of panels were answered as their series allow.")


def _nothing(evidence: Evidence, watch: Watch, subject: str, those: list[tuple[Query, Answer]]) -> Finding:
    told = sorted(those, key=lambda each: not _labels(watch, each[0]))
    concepts = {concept for query, _ in those for concept in query.concepts}
    ask = "try it at" if subject == "refused" else "leave its labels away one by one at"
    return _PART.finding(
        "M425",
        "warn",
        f"{listed((_said(watch, query, answer) for query, answer in told), 2)}.",
        severity="medium" if concepts & ASKED.keys() else "low",
        subject=subject,
        where=where(evidence),
        remedies=tuple(f"{query.where}: {ask} {watch.url}/graph: {query.text}" for query, _ in told[:2]),
    )


def _said(watch: Watch, query: Query, answer: Answer) -> str:
    if answer.error:
        return f"{query.where} is refused: {answer.error}"
    wrong = _labels(watch, query)
    why = f": no series has {' and '.join(wrong)}" if wrong else ""
    return f"{query.where} returns nothing, although its series are there{why}"


def _labels(watch: Watch, query: Query) -> list[str]:
    """The labels that the query asks for by a value that the engine's series do not have."""
    wrong = {label: value for label, value in query.matchers.items() if _wrong(watch, label, value)}
    return [f'{label}="{value}" ({label} is {listed(watch.labels[label])})' for label, value in wrong.items()]


def _wrong(watch: Watch, label: str, value: str) -> bool:
    return label in watch.labels and value not in watch.labels[label]


# ------------------------------------------------------------------------------------------------------------ retention


def m429_retention(evidence: Evidence) -> Iterator[Finding]:
    watch = evidence.watch
    if watch is None or (watch.retention is None and _interval(watch) is None):
        yield _PART.skip("M429", f"{_NO_WATCH} that tells its retention and how often it scrapes")
        return
    place, interval = evidence.where("monitoring.prometheus"), _interval(watch)
    lookback = watch.lookback or _LOOKBACK
    if watch.retention is not None and watch.retention < _REVIEW:
        why = f"{watch.url} keeps samples for {quantity(watch.retention, 's')}: an older incident cannot be looked at."
        fix = ("start Prometheus with --storage.tsdb.retention.time=30d, or write to a remote store",)
        yield _PART.finding("M429", "warn", why, subject="retention", severity="low", where=place, remedies=fix)
    if interval is not None and interval > lookback:
        gap = f"the service is scraped every {quantity(interval, 's')}, a sample is drawn for {quantity(lookback, 's')}"
        fix = ("scrape at least every 30 s (scrape_interval), or raise --query.lookback-delta",)
        why = f"{gap[:1].upper()}{gap[1:]}: every panel has gaps."
        yield _PART.finding("M429", "warn", why, subject="lookback", where=place, remedies=fix)
    elif watch.retention is None or watch.retention >= _REVIEW:
        kept = "kept long enough to review" if watch.retention is not None else ""
        taken = "taken often enough to draw" if interval is not None else ""
        unknown = (
            "" if kept and taken else f" Nothing tells how {'often they are taken' if kept else 'long they are kept'}."
        )
        yield _PART.finding("M429", "pass", f"Samples are {', and '.join(filter(None, (kept, taken)))}.{unknown}")


RULES = (
    Rule("M411", "A key that keeps the scrape out", m411_key),
    Rule("M412", "A page written by several processes", m412_processes),
    Rule("M422", "Rates over too few scrapes", m422_windows),
    Rule("M423", "The service among the targets", m423_scraped),
    Rule("M424", "Alerts that can never fire", m424_alerts),
    Rule("M425", "Panels without data", m425_empty),
    Rule("M429", "Retention and lookback", m429_retention),
)
_PART = Check(question="M", title="Monitoring", rules=RULES)
