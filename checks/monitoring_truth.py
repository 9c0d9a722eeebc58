"""Monitoring, held against what users felt: does the engine's page count what the client saw?

Rules M430 and M431 of question M, which `monitoring` asks. They look at `Evidence.truth`: the server's account of each
load at the target beside the client's own.
"""

from collections.abc import Iterable
from typing import Any

from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.profile import Objective
from auditor.units import quantity
from auditor.watch import Agreement

__all__ = ["RULES"]

LACKS = "a load at the target with the engine's metrics page before and after it"
PANEL = "on a panel"
FIX = {
    "requests": "let the panels and the audit read every replica that answers here (endpoint.metrics: one URL each)",
    "prompt tokens": "compare the replies' usage with the engine's counter: a gateway may count by its own tokenizer",
    "output tokens": "compare the replies' usage with the engine's counter: a gateway may count by its own tokenizer",
    "mean TTFT": "measure TTFT where users are: a gateway's own histogram, or a probe beside them",
    "mean time per token": "let the stream through every proxy: no buffering, no compression of text/event-stream",
    "mean KV usage": "draw the gauge as a share of the pool, at most over replicas (vLLM's perc is 0 to 1)",
}


def m430_agreement(evidence: Evidence) -> Iterable[Finding]:
    """Each quantity that differs warns; where all that both sides know agrees, one pass names it."""
    told = [a for a in evidence.truth if PANEL not in a.quantity and a.verdict != "unknown"]
    if not told:
        yield _PART.skip("M430", _why_not(evidence))
        return
    for each in (a for a in told if a.verdict == "differs"):
        why = f"{_both(each)}: {each.note}."
        fix = (FIX[each.quantity],) if each.quantity in FIX else ()
        yield _PART.finding("M430", "warn", why, subject=_subject(each), remedies=fix, **_numbers(each))
    if all(a.verdict == "agrees" for a in told):
        names = ", ".join(dict.fromkeys(a.quantity for a in told))
        rest: dict[str, Any] = {"numbers": tuple(n for a in told for n in _numbers(a)["numbers"])}
        yield _PART.finding("M430", "pass", f"The engine's page and the client agree: {names}.", **rest)


def m431_panel(evidence: Evidence) -> Iterable[Finding]:
    """What histogram_quantile draws of the load, which is all that a panel of the engine's histogram can show."""
    drawn = [a for a in evidence.truth if PANEL in a.quantity and a.verdict != "unknown"]
    if not drawn:
        yield _PART.skip("M431", _why_not(evidence))
    for each in drawn:
        rest: dict[str, Any] = {"subject": _subject(each), "where": evidence.where("slo.ttft")} | _numbers(each)
        if each.verdict == "agrees":
            yield _PART.finding("M431", "pass", f"{_both(each)}.", **rest)
            continue
        limit = next((o.limit for o in evidence.profile.objectives("ttft") if _between(each, o)), None)
        rest["severity"] = "low" if limit is None else "high"
        rest["remedies"] = ("judge the SLO by measured requests, or set it on a bound of the histogram (M408)",)
        yield _PART.finding("M431", "warn", f"{_both(each)}: {each.note}.", **rest)


def _between(each: Agreement, objective: Objective) -> bool:
    """Whether an SLO's limit lies between what the panel draws and what the requests took."""
    if each.server is None or each.client is None or objective.cls is not None:
        return False
    same = each.quantity.startswith(f"TTFT p{objective.share * 100:g} ")
    return same and (each.server <= objective.limit) != (each.client <= objective.limit)


def _why_not(evidence: Evidence) -> str:
    reasons = dict.fromkeys(a.note for a in evidence.truth if a.note)
    return f"what the page and the client can both tell ({'; '.join(reasons)})" if reasons else LACKS


def _both(each: Agreement) -> str:
    server, client = (quantity(value, _unit(each)) for value in (each.server, each.client))
    return f"{each.quantity[:1].upper()}{each.quantity[1:]}: {server} by the server, {client} here"


def _unit(each: Agreement) -> str:
    """The unit that follows a figure; a quantity that is called requests or tokens says it itself."""
    return {"s a token": "s", "requests": "", "tokens": ""}.get(each.unit, each.unit)


def _subject(each: Agreement) -> str:
    return f"{each.quantity} in {each.load}"


def _numbers(each: Agreement) -> dict[str, Any]:
    server = Number.of(f"{each.quantity}, server", each.server, _unit(each), "served")
    client = Number.of(f"{each.quantity}, here", each.client, _unit(each), "measured")
    return {"numbers": (server, client)}


RULES = (
    Rule("M430", "Server and client agree", m430_agreement),
    Rule("M431", "What a panel shows of the load", m431_panel),
)
_PART = Check(question="M", title="", rules=RULES)
