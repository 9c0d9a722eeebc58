"""Price: what do a million output tokens cost at the target load?

A complete check of a third party in one file: a question of its own, one rule, its page in `rules/`.
"""

from collections.abc import Iterable

from auditor.evidence import Check, Evidence, Finding, Number, Rule

__all__ = ["CHECK"]

DEAR = 10.0  # per million output tokens, in the currency of deployment.price_per_hour


def x901_price(evidence: Evidence) -> Iterable[Finding]:
    """Tokens of the load at the target over its duration, against the price of all replicas."""
    deployment, where = evidence.profile.deployment, evidence.where("deployment.price_per_hour")
    tokens = sum(s.output_tokens or 0 for s in evidence.requests())
    seconds = sum(m.duration for m in evidence.loads("slo"))
    if deployment.price_per_hour is None or not tokens or not seconds:
        yield CHECK.skip("X901", "deployment.price_per_hour and a measured load", deciding=True, where=where)
        return
    price = deployment.price_per_hour * deployment.replicas * seconds / 3600 / tokens * 1e6
    status = "pass" if price <= DEAR else "fail"
    why = f"A million output tokens cost {price:.2f} at the target load; up to {DEAR:.2f} is fair."
    measured = Number.of("price of a million output tokens", price, "", "measured", len(evidence.requests()))
    yield CHECK.finding("X901", status, why, deciding=True, measured=measured, where=where)


CHECK = Check(
    question="X",
    title="Price",
    rules=(Rule("X901", "Price of a million output tokens", x901_price),),
    pages="audit_price/rules",
)
