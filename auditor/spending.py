"""What the target load takes: where the device's time goes, and how many requests a replica serves a second.

From evidence, for checks and reports: by ladders and loads where they tell, else by the step law.
"""

from dataclasses import dataclass

from auditor import bounds
from auditor.evidence import Evidence, Provenance
from auditor.theory import dominance
from auditor.theory.cost import stay
from auditor.theory.idle import idle
from auditor.theory.roofline import predict_decode, predict_prefill
from auditor.theory.shape import device_time
from auditor.units import percent

__all__ = ["Rate", "prefill_share", "request_rate"]


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests a second of one replica while `flight` are on it, where that comes from, and on how many it rests."""

    value: float
    flight: float
    provenance: Provenance
    n: int | None = None


def prefill_share(evidence: Evidence) -> tuple[float, Provenance] | str:
    """Share of the device's time that goes to prompts at the target load: from the ladders, else by the step law.

    Where neither tells, what is missing.
    """
    batch, (prompt, output) = evidence.batch, evidence.profile.traffic.mean_lengths
    if batch is None or prompt <= 0:
        return "traffic.classes and traffic.target_concurrency"
    alone, step = idle(evidence.prefill_points), bounds.step_seconds(evidence, bounds.measured(evidence))
    noise = alone.noise if alone is not None else None
    own = alone.reckoned(prompt) - alone.fixed if alone is not None and noise is None else 0.0
    if own > 0 and step:
        return device_time(own, prompt, output, step, batch), "measured"
    if evidence.theory is not None:
        return dominance.predicted_device_share(*evidence.theory, batch, prompt, output), "computed"
    scatter = f" whose times scatter less (here by {percent(noise)})" if noise is not None else ""
    return f"prefill and decode ladders{scatter}; and for a computed time: {evidence.lacking}"


def request_rate(evidence: Evidence) -> Rate | None:
    """By Little's law: requests in flight over the time that one stays, failed ones not counted; None where neither a
    closed loop nor arithmetic tells. An open loop's rate is the one that was asked for.
    """
    replicas = max(1, evidence.profile.deployment.replicas)
    for m in reversed(evidence.loads("slo")):
        good = [s for s in m.judged if s.good]
        if m.stay and good and not m.load.arrivals:
            flight = min(m.load.concurrency, m.client.peak_inflight or m.load.concurrency) / replicas
            return Rate(flight / m.stay * len(good) / len(m.judged), flight, "measured", len(good))
    batch, (prompt, output) = evidence.batch, evidence.profile.traffic.mean_lengths
    if evidence.theory is None or batch is None or prompt <= 0:
        return None
    step = predict_decode(*evidence.theory, batch, prompt + output / 2, prompt / max(1.0, output))
    return Rate(batch / stay(predict_prefill(*evidence.theory, prompt), step, output), batch, "computed")
