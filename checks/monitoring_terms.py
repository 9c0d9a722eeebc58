"""What the rules of question M share: the engine in use, how a concept is called, and the query that would show it."""

from collections.abc import Iterable

from auditor import panels
from auditor.evidence import Coverage, CoverageItem, Evidence, Location

__all__ = [
    "ASKED",
    "UNREAD",
    "another_model",
    "covered",
    "flavour",
    "listed",
    "names",
    "own_model",
    "panel",
    "panel_remedies",
    "ranks",
    "title",
    "unlike_served",
    "where",
]

ASKED = {"ttft": "TTFT", "tps": "TPS", "memory": "memory"}
UNREAD = "the coverage of dashboards and rules"
_TITLES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
    "trtllm": "TensorRT-LLM",
    "lmdeploy": "LMDeploy",
}


def flavour(evidence: Evidence) -> str:
    """The engine in use: as recognised, else as the settings or the profile say."""
    if evidence.served is not None:
        return evidence.served.engine
    return evidence.settings.engine if evidence.settings is not None else evidence.profile.endpoint.engine


def title(evidence: Evidence) -> str:
    """The engine and version as people write them ("vLLM 0.18.0")."""
    served, declared = evidence.served, evidence.profile.deployment.engine_version
    version = (served.engine_version if served else None) or declared
    name = _TITLES.get(flavour(evidence), "this engine")
    return f"{name} {version}" if version and name != "this engine" else name


def covered(coverage: Coverage, concept: str) -> CoverageItem:
    """What is covered of a concept; missing where nothing is."""
    found = (one for one in coverage.items if one.concept == concept)
    return next(found, CoverageItem(concept=concept, rung="missing"))


def where(evidence: Evidence) -> Location | None:
    """The profile line that names the dashboards."""
    return evidence.where("monitoring.dashboards") or evidence.where("monitoring")


def listed(words: Iterable[str], most: int = 3) -> str:
    """The first few words, and how many more there are."""
    all_of_them = tuple(dict.fromkeys(words))
    rest = len(all_of_them) - most
    return ", ".join(all_of_them[:most]) + (f" (and {rest} more)" if rest > 0 else "")


# ------------------------------------------------------------------------------------------------------------- queries


def names(evidence: Evidence) -> panels.Names:
    """The series of the engine and version in use, those that its page has before others, as Prometheus stores them."""
    offered = evidence.coverage.offered if evidence.coverage is not None else {}
    stored = evidence.watch.names if evidence.watch is not None else ()
    return panels.as_stored(panels.offered_first(evidence.metric_names, offered), stored)


def panel(evidence: Evidence, concept: str) -> str | None:
    """The query that shows a concept on the engine and version in use, at the SLO's own percentile."""
    at = next((objective.share for objective in evidence.profile.objectives("ttft")), 0.95)
    return panels.query(concept, names(evidence), at)


def panel_remedies(evidence: Evidence, concept: str) -> tuple[str, ...]:
    """How to show a concept: the query, or what to run beside an engine that has no metric of it."""
    return (panels.advice(concept, panel(evidence, concept), evidence.metric_names, title(evidence)),)


def ranks(evidence: Evidence) -> int | None:
    """How many data-parallel ranks of one replica write the same series; None where nothing tells."""
    pages = [page for page in evidence.served.pages if page.exporter is None] if evidence.served else []
    seen = [len(page.ranks.get(label, ())) for page in pages for label in ("engine", "dp_rank")]
    declared = evidence.settings.data_parallel if evidence.settings is not None else None
    known = [*seen, *([declared] if declared is not None else [])]
    return max([1, *known]) if known else None


# -------------------------------------------------------------------------------------------------------------- models

_MODEL = "model_name"  # the label by which most engines tell what they serve


def another_model(evidence: Evidence, concept: str) -> str | None:
    """The matchers of the concept's panels, where each asks for a model that is not the one served; else None.

    Only where a live Prometheus tells the names under which the service's series are stored.
    """
    own = {*(evidence.watch.labels.get(_MODEL, ()) if evidence.watch is not None else ())}
    asked = [q.matchers.get(_MODEL) for q in panels.queries(evidence.coverage, concept)] if evidence.coverage else []
    wrong = [name for name in asked if name is not None and name not in own]
    if not own or not asked or len(wrong) < len(asked):
        return None
    return f"{listed(f'{_MODEL}={chr(34)}{name}{chr(34)}' for name in wrong)} ({_MODEL} is {listed(sorted(own))})"


def unlike_served(evidence: Evidence) -> str | None:
    """The models of the series that a live Prometheus has, where none is the one that the endpoint serves."""
    stored = evidence.watch.labels.get(_MODEL, ()) if evidence.watch is not None else ()
    mine = own_model(evidence)
    return listed(stored) if stored and mine is not None and mine not in stored else None


def own_model(evidence: Evidence) -> str | None:
    """The model that the endpoint serves, else, where it was not asked, the one that the profile names."""
    if evidence.served is not None and evidence.served.model is not None:
        return evidence.served.model
    declared = evidence.profile.endpoint.model
    return None if declared == "auto" else declared
