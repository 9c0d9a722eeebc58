"""The server's own account of a load beside the client's: does the path between them add time, what did the engine do?

Pure; shared by all formats. What a metrics page does not tell is None.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from auditor.measurement import Measurement
from auditor.monitoring.truth import gained, mean_tpot

__all__ = ["Beside", "beside"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One load as both sides saw it, warm-up included; seconds, shares, requests.

    `requests` and `server_requests` are those with a first token, here and by the server's TTFT histogram (more there
    is foreign traffic). The difference is client less server, its share one of the server's. Gauges are the highest
    readings while the load ran; `preemptions` is how far their counter moved.
    """

    requests: int
    server_requests: float | None
    server_ttft: float | None
    client_ttft: float | None
    server_tpot: float | None
    client_tpot: float | None
    kv_usage: float | None
    preemptions: float | None
    running: float | None
    waiting: float | None
    ttft_difference: float | None = None
    ttft_difference_share: float | None = None


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _highest(measurement: Measurement, name: str) -> float | None:
    return max((value for _, value in measurement.gauge(name)), default=None)


def beside(measurement: Measurement) -> Beside | None:
    """Both accounts of one load; None without a snapshot before it and one after."""
    if not {"before", "after"} <= {s.phase for s in measurement.snapshots}:
        return None
    samples = (*measurement.warmup, *measurement.samples)
    here = [s.ttft for s in samples if s.ttft is not None]
    ttft, tpot = gained(measurement, "ttft"), gained(measurement, "tpot")
    server, client = ttft.sum / ttft.count if ttft and ttft.count else None, _mean(here)
    off = client - server if client is not None and server is not None else None
    client_tpot = mean_tpot(samples, tpot)
    return Beside(
        requests=len(here),
        server_requests=ttft.count if ttft else None,
        server_ttft=server,
        client_ttft=client,
        ttft_difference=off,
        ttft_difference_share=off / server if off is not None and server else None,
        server_tpot=tpot.sum / tpot.count if tpot and tpot.count and client_tpot is not None else None,
        client_tpot=client_tpot,
        kv_usage=_highest(measurement, "kv_usage"),
        preemptions=measurement.moved("preemptions"),
        running=_highest(measurement, "running"),
        waiting=_highest(measurement, "waiting"),
    )
