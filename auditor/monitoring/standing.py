"""Whether a metric name lives where the deployment runs: on its pages, in its version, or merely somewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property

from auditor.catalog import metrics as catalogue
from auditor.catalog.metrics import Metric
from auditor.catalog.pages import recognise
from auditor.measurement import MetricsPage
from auditor.monitoring.promql import Use
from auditor.watch import Answer

__all__ = ["EMPTY", "Place", "Standing", "answered", "comes_late"]

# Series that a page has only with a feature in use or after the first event, on any engine.
_CONDITIONAL = {
    "other",
    "preemptions",
    "refusals",
    "spec_accepted",
    "spec_drafts",
    "spec_draft_tokens",
    "waiting_by_reason",
}
EMPTY = "returns nothing"
_LONGEST = 200  # characters of a name that are compared with others
_PRESENT = "its series exist: look at its labels, its rate window and whether there was traffic"
_FAMILIES = ({"trtllm", "triton"},)  # one engine behind two servers


@dataclass(frozen=True, slots=True)
class Standing:
    """How far up the ladder a name gets by itself, or that it is dead (`foreign`: another engine's), and why.

    `silent`: a live Prometheus was asked and returned nothing. `culprit` is the name that is dead where another is.
    `reader`: the only kind of Prometheus that the page gives this spelling of the name to, "2" or "3"; else empty.
    """

    rung: str
    dead: bool = False
    foreign: bool = False
    note: str = ""
    silent: bool = False
    culprit: str = ""
    reader: str = ""


def answered(standing: Standing, answer: Answer | None, where: str, *, alone: bool) -> Standing:
    """The standing after a live Prometheus answered the query of the panel `where`; as before without an answer.

    Data proves the name where it stands `alone`: in `a or b` either may have been the one that had some. Data of
    another engine's series is of another service.
    """
    if answer is None or standing.foreign or (answer.series and standing.dead and not alone):
        return standing
    if answer.series:
        return Standing("returns_data")
    if standing.dead:
        return standing
    if answer.error:
        why = f"cannot be answered: {answer.error}"
    else:
        why = f"{EMPTY}: {', '.join(answer.absent)} has no sample" if answer.absent else f"{EMPTY} ({_PRESENT})"
    return replace(standing, note="; ".join(n for n in (standing.note, f"{where} {why}") if n), silent=True)


def comes_late(metric: Metric) -> bool:
    """True for a series that may be absent until its first event, or without the feature that it counts."""
    return catalogue.source(metric.engine).lazy or metric.concept in _CONDITIONAL


@dataclass(frozen=True)
class Place:
    """The deployment that a name is looked up in: engine, version and pages; each may be unknown."""

    engine: str
    version: str | None
    pages: tuple[MetricsPage, ...]

    @classmethod
    def of(cls, engine: str, version: str | None, pages: Sequence[MetricsPage]) -> "Place":
        """The deployment as declared or, where the engine is not known, the one whose series the pages have."""
        if not catalogue.is_known(engine):
            names = {name for page in pages if page.exporter is None for name in page.types}
            seen = (one for one in recognise(names) if catalogue.kind(one.name) == "engine")
            engine = next((one.name for one in seen), engine)
        return cls(engine, version, tuple(pages))

    def standing(self, metric: Metric, use: Use) -> Standing:
        """The rung that `metric`, written as in `use`, reaches here."""
        spellings = self.spellings(use.name)
        if spellings:
            two, three = (_family(name, metric) for name in spellings)
            note = f"the page gives {two} to a Prometheus 2 and {three} to a Prometheus 3"
            return Standing("parses", note=note, reader="2" if use.name == spellings[0] else "3")
        if self._on_page(metric, use):
            return Standing("parses")
        if self._foreign(metric):
            return Standing("named", dead=True, foreign=True)
        own = self._own(metric)
        if self.pages and self._page_speaks_for(metric):
            if (
                own
                and comes_late(metric)
                and catalogue.valid(metric, self.version)
                and self._written_by_engine(metric, use)
            ):
                return Standing("valid", note=f"{use.base} is not on the page yet")
            return self._dead(metric, use, "is not on the metrics page")
        if not own:
            return Standing("named", note=f"no page of {catalogue.title(metric.engine)} was read")
        if self.version is None:
            return Standing("named", note="" if catalogue.valid(metric) else self._gone(metric, use))
        if not catalogue.valid(metric, self.version):
            return self._dead(metric, use, f"is not in {catalogue.title(metric.engine)} {self.version}")
        if not self._written_by_engine(metric, use):
            return Standing("named", note=f"the engine writes {metric.name}; {use.base} exists only behind a gateway")
        return Standing("valid")

    def divided(self, use: Use, standing: Standing) -> Standing:
        """The standing of a series that is divided by another: without the other the query returns nothing.

        Where several are divided by, some may stand in for others, and none is held against it.
        """
        if standing.dead or len(use.over) != 1:
            return standing
        below = Use(name=use.over[0], base=use.over[0])
        metrics = catalogue.lookup(below.name)
        found = [self.standing(metric, below) for metric in metrics]
        if not found or not all(one.dead for one in found):
            return standing
        note = f"{use.base} is divided by {below.base}: {found[0].note or 'which the engine does not have'}"
        return replace(found[0], note=note, culprit=below.base)

    def unheard_of(self, use: Use) -> bool:
        """True for a name with the engine's own prefix that neither its page nor any version of it has.

        Without a page only where the version is one whose names are all known.
        """
        if not catalogue.is_known(self.engine) or catalogue.lookup(use.name):
            return False
        entry = catalogue.source(self.engine)
        prefix = entry.prefixes[0]
        if not entry.complete or not use.name.startswith(prefix) or use.name.startswith(entry.open):
            return False
        if any(name.startswith(prefix) for name in self._names):
            return not self._written_on_page(use)
        checked = self.version is not None and entry.checked is not None
        return checked and catalogue.version_key(self.version) <= catalogue.version_key(entry.checked)

    def unheard(self, use: Use) -> Standing:
        """What becomes of a name that nobody has, with the one that it was probably meant to be."""
        known = self._names or {metric.name for metric in catalogue.metrics(self.engine)}
        near = get_close_matches(use.base[:_LONGEST], {catalogue.family(name) for name in known}, n=1, cutoff=0.8)
        where = "on no page and in no known version" if self.pages else "in no known version"
        meant = f": did you mean {near[0]}?" if near else ""
        return Standing("named", dead=True, note=f"{use.base} is {where}{meant}")

    def buckets(self, metric: Metric) -> tuple[float, ...]:
        """The bounds of the histogram as served, else the defaults of the engine's version."""
        if metric.type != "histogram":
            return ()
        for page in self.pages:
            if metric.name in page.buckets:
                return tuple(bound for bound in page.buckets[metric.name] if bound != float("inf"))
        return catalogue.buckets(metric, self.version)

    def spellings(self, name: str) -> tuple[str, str] | None:
        """How the pages give a name to a Prometheus 2 and to a 3, where they differ and it is one of them."""
        two = name.replace(":", "_")
        three = self._escaped.get(two)
        return (two, three) if three is not None and name in (two, three) else None

    @cached_property
    def _escaped(self) -> Mapping[str, str]:
        """The names that the pages give to a Prometheus 2 alone, with those that others are given."""
        alone = {name for page in self.pages for name in page.escaped} - self._names
        return {two: name for name in sorted(self._names) if (two := name.replace(":", "_")) in alone}

    def offered(self) -> Mapping[str, tuple[str, ...]]:
        """What the pages offer: concept -> names, for the concepts that the catalogue knows."""
        return self._offered

    @cached_property
    def _offered(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {}
        for name in sorted(self._names):
            for metric in catalogue.lookup(name)[:1]:
                if metric.concept != "other" and not name.endswith("_created"):
                    found.setdefault(metric.concept, {})[_family(name, metric)] = None
        return {concept: tuple(names) for concept, names in sorted(found.items())}

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(name for page in self.pages for name in page.types)

    def _on_page(self, metric: Metric, use: Use) -> bool:
        written = _family(use.name, metric)
        return any(written + suffix in self._names for suffix in ("", "_bucket", "_count", "_sum")) or (
            metric.type == "counter" and written.removesuffix("_total") in self._names
        )

    def _written_on_page(self, use: Use) -> bool:
        return use.name in self._names or use.base in self._names

    def _page_speaks_for(self, metric: Metric) -> bool:
        prefixes = tuple(p for p in catalogue.source(metric.engine).prefixes if p)
        return bool(prefixes) and any(name.startswith(prefixes) for name in self._names)

    def _own(self, metric: Metric) -> bool:
        return metric.engine == self.engine or any({metric.engine, self.engine} <= f for f in _FAMILIES)

    def _foreign(self, metric: Metric) -> bool:
        """True for a metric of another engine than the one that is known to serve."""
        known = catalogue.is_known(self.engine) and catalogue.kind(self.engine) == "engine"
        return known and catalogue.kind(metric.engine) == "engine" and not self._own(metric)

    def _written_by_engine(self, metric: Metric, use: Use) -> bool:
        return _family(use.name, metric) == metric.name

    def _dead(self, metric: Metric, use: Use, why: str) -> Standing:
        return Standing("named", dead=True, note=f"{use.base} {why}{self._instead(metric, use)}")

    def _gone(self, metric: Metric, use: Use) -> str:
        last = metric.hidden or metric.until
        when = f"is gone since {last}" if last else "is not in the newest version"
        return f"{use.base} {when}{self._instead(metric, use)}"

    def _instead(self, metric: Metric, use: Use) -> str:
        served = self.offered().get(metric.concept, ())  # what the page has beats what the version should have
        candidates = served or catalogue.names(self.engine, self.version).get(metric.concept, ())
        instead = metric.replaced_by if metric.replaced_by in candidates or not candidates else candidates[0]
        written = _family(use.name, metric)
        if catalogue.is_known(metric.engine) and metric.name != written and self._own(metric):
            instead = metric.name if catalogue.valid(metric, self.version) else instead
        return f": use {instead}" if instead and instead != written else ""


def _family(name: str, metric: Metric) -> str:
    """A sample's name without the suffix that a histogram or summary gives it."""
    if metric.type in ("histogram", "summary"):
        for suffix in ("_bucket", "_sum", "_count"):
            if name.endswith(suffix):
                return name.removesuffix(suffix)
    return name
