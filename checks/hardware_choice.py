"""Bottleneck, is this the right hardware for this traffic: what does the traffic need most, who gives it, at what cost?

Rules H211 and H212 of question H, which `bottleneck` asks.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from auditor import bounds, slo, spending
from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.theory import cost
from auditor.theory.device import Device
from auditor.theory.dominance import leans
from auditor.theory.kv.geometry import Geometry
from auditor.theory.ranking import Ranked
from auditor.theory.roofline import predict_decode, predict_prefill
from auditor.theory.settings import Settings
from auditor.units import count, percent, plain, quantity

__all__ = ["RULES"]

NEEDS = {
    "compute": ("compute (FLOP/s)",),
    "weights": ("memory bandwidth",),
    "kv": ("memory bandwidth",),
    "overhead": ("fewer or faster kernels and links",),
    "mixed": ("compute (FLOP/s)", "memory bandwidth"),
}
_Theory = tuple[Geometry, Settings, Device]
CHEAPER = 1.3  # times: a difference in price below that is within what predictions differ by
FASTEST = 3  # accelerators named


# ---------------------------------------------------------------------------------------------------- hardware, traffic


def h211_hardware(evidence: Evidence) -> Iterable[Finding]:
    share, theory, batch = spending.prefill_share(evidence), evidence.theory, evidence.batch
    rest: dict[str, Any] = {"where": evidence.where("deployment.accelerator"), "severity": "low"}
    if isinstance(share, str) or theory is None or batch is None:
        missing = evidence.lacking or (share if isinstance(share, str) else "traffic.target_concurrency")
        yield _PART.skip("H211", missing, **rest)
        return
    why = _dominates(share[0], *_bounds(evidence, theory, batch))
    rest["confidence"] = "low" if theory[2].confidence == "C" else "medium"
    rest["numbers"] = (
        Number.of("prompts, share of the device's time", share[0], "share", share[1]),
        *_ranks(evidence.ranking, theory[1].devices),
    )
    better = _cheaper(evidence.ranking)
    if better:
        why += f" {_money(better, theory[1].devices)}"
        fix = tuple(f"{row.name} at {plain(1000 * (row.cost or 0))} for 1,000 requests" for row in better)
        yield _PART.finding("H211", "warn", why, remedies=fix, **rest)
        return
    why += f" {_fastest(evidence.ranking)}" if evidence.ranking else ""
    yield _PART.finding("H211", "pass", why.strip(), **rest)


def _bounds(evidence: Evidence, theory: _Theory, batch: int) -> tuple[str, str]:
    """What bounds prompts and steps: as measured where nothing else is possible, else by arithmetic."""
    prompt, output = evidence.profile.traffic.mean_lengths
    told = bounds.measured(evidence)
    read, step = (told.prefill, told.decode) if told is not None else (None, None)
    return (
        read.bound if read is not None and read.certain else predict_prefill(*theory, max(1, round(prompt))).bound,
        step.bound
        if step is not None and step.certain
        else predict_decode(*theory, batch, round(prompt + output / 2)).bound,
    )


def _dominates(share: float, read: str, step: str) -> str:
    """Which phase takes the device's time, and the resource that it needs."""
    part = {"ttft": share, "tps": 1 - share}.get(leans(share))
    if part is None:
        return f"Prompts and replies share the device's time: they need {_needs(read, step)}."
    phase, bound = ("prompts", read) if leans(share) == "ttft" else ("replies", step)
    return f"{percent(part)} of the device's time goes to {phase}, which need {_needs(bound)}."


def _needs(*bounds: str) -> str:
    return " and ".join(dict.fromkeys(need for bound in bounds for need in NEEDS[bound]))


def _ranks(ranking: Sequence[Ranked], devices: int) -> Iterable[Number]:
    for row in ranking:
        paid = f"; {plain(1000 * row.cost)} for 1,000 requests" if row.cost is not None else ""
        doubt = "; provisional" if row.confidence == "C" else ""
        times = f"TTFT with no other prompt before it {quantity(row.ttft, 's')}, a token {quantity(row.tpot, 's')}"
        name = f"a request on {devices} x {row.key}{' (declared)' if row.mine else ''}"
        yield Number(name=name, value=row.request, unit="s", provenance="computed", note=f"{times}{paid}{doubt}")


def _fastest(ranking: Sequence[Ranked]) -> str:
    """Where the declared accelerator stands in time."""
    mine = next((row for row in ranking if row.mine), None)
    if mine is None or len(ranking) == 1:
        return ""
    others = [row for row in ranking if row.request < mine.request][:FASTEST]
    if not others:
        return f"No other accelerator known here serves it faster than {quantity(mine.request, 's')} a request."
    named = ", ".join(f"{row.name} {quantity(row.request, 's')}" for row in others)
    return f"A request takes {quantity(mine.request, 's')} here by prediction; faster would be {named}."


def _cheaper(ranking: Sequence[Ranked]) -> list[Ranked]:
    """Those that serve a request for clearly less money and no later, the cheapest first."""
    mine = next((row for row in ranking if row.mine), None)
    if mine is None or mine.cost is None:
        return []
    found = [
        row
        for row in ranking
        if row.cost is not None
        and row.confidence != "C"
        and row.holds is not False
        and row.cost * CHEAPER <= mine.cost
        and row.request <= mine.request
    ]
    return sorted(found, key=lambda row: row.cost or 0.0)


def _money(better: Sequence[Ranked], devices: int) -> str:
    names = ", ".join(f"{devices} x {row.key}" for row in better)
    return f"At the declared prices {names} would serve this traffic for less money, and no slower."


# ------------------------------------------------------------------------------------------------------ capacity, cost


def h212_cost(evidence: Evidence) -> Iterable[Finding]:
    traffic, deployment = evidence.profile.traffic, evidence.profile.deployment
    rest: dict[str, Any] = {"where": evidence.where("traffic.request_rate"), "severity": "low"}
    rate = spending.request_rate(evidence)
    if rate is None:
        yield _PART.skip("H212", f"a measured load, or for a computed one: {_lacks(evidence)}", **rest)
        return
    stand = _stand(evidence) if rate.provenance == "measured" else "predicted"
    why = f"With {count(rate.flight, 'request')} in flight one replica serves {plain(rate.value)} a second"
    why += f" ({_STANDS[stand]})"
    needed = cost.replicas(traffic.request_rate, rate.value) if traffic.request_rate else None
    numbers = [Number.of("requests a second, one replica", rate.value, "/s", rate.provenance, rate.n)]
    if needed is not None and traffic.request_rate:
        why += f": {plain(traffic.request_rate)} requests/s take {count(needed, 'replica')}"
        why += f" where {deployment.replicas} are declared" if needed > deployment.replicas else ""
        numbers.append(Number.of("replicas needed", needed, "replicas", "computed"))
    price = _price(evidence, rate)
    if price is not None:
        why += f". {'At the SLOs' if stand == 'met' else 'At that load'} a million prompt tokens cost "
        why += f"{plain(price.per_million_input)}, a million output tokens {plain(price.per_million_output)}"
        why += "; where the SLOs are met, with fewer in flight, they cost more" if stand == "missed" else ""
        numbers += _prices(price, f"with {count(rate.flight, 'request')} in flight on a replica")
    rest["numbers"] = tuple(numbers)
    rest["confidence"] = "medium" if stand == "met" else "low"
    if needed is not None and needed > deployment.replicas:
        fix = (f"set deployment.replicas to {needed}, or expect a queue that grows",)
        yield _PART.finding("H212", "warn", f"{why}.", remedies=fix, **(rest | {"severity": "medium"}))
        return
    yield _PART.finding("H212", "pass", f"{why}.", **rest)


def _lacks(evidence: Evidence) -> str:
    return evidence.lacking or "traffic.classes and traffic.target_concurrency"


def _stand(evidence: Evidence) -> str:
    """Whether the measured load meets every latency SLO."""
    outcomes = [outcome for rule in slo.LATENCY for outcome in slo.outcomes(evidence, rule, lambda _, seconds: seconds)]
    if not outcomes:
        return "free"
    return "missed" if "fail" in outcomes else "met" if set(outcomes) == {"pass"} else "open"


_STANDS = {
    "met": "measured; the SLOs are met",
    "missed": "measured; an SLO is missed",
    "open": "measured; whether the SLOs are met is not decided",
    "free": "measured; no latency SLO is declared",
    "predicted": "predicted, and whether the SLOs are met is not measured",
}


def _price(evidence: Evidence, rate: spending.Rate) -> cost.Cost | None:
    price, (prompt, output) = evidence.profile.deployment.price_per_hour, evidence.profile.traffic.mean_lengths
    share = spending.prefill_share(evidence)
    if not price or isinstance(share, str) or prompt <= 0 or output <= 0 or rate.value <= 0:
        return None
    return cost.cost(price, rate.value, share[0], prompt, output)


def _prices(price: cost.Cost, load: str) -> list[Number]:
    shown = (
        ("a million prompt tokens", price.per_million_input),
        ("a million output tokens", price.per_million_output),
        ("1,000 requests", 1000 * price.per_request),
    )
    return [Number(name=name, value=value, unit="", provenance="computed", note=load) for name, value in shown]


RULES = (
    Rule("H211", "Hardware against traffic", h211_hardware),
    Rule("H212", "Replicas and cost", h212_cost),
)
"""The rules of question H that weigh the hardware against what it is to do."""

_PART = Check(question="H", title="Bottleneck", rules=RULES)
