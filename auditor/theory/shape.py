"""The shape of traffic: length distributions, and what dominates a request's time and the device's time."""

from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Curve", "at", "curve", "device_time", "mean", "user_time"]


@dataclass(frozen=True, slots=True)
class Curve:
    """A length distribution by its quantiles: (share of requests, tokens), piecewise linear from share 0 to 1."""

    points: tuple[tuple[float, int], ...]


def curve(p50: int, p95: int | None = None, p99: int | None = None, max: int | None = None) -> Curve:
    """A curve through the percentiles given. Raises ValueError where a higher percentile has fewer tokens.

    With p50 alone every request has that length. Below the median, where profiles say nothing, the curve mirrors the
    upper half on a logarithmic scale (lengths are close to log-normal): share 0 stands at p50^2 / longest.
    """
    given = ((0.5, p50), (0.95, p95), (0.99, p99), (1.0, max))
    known = [(share, tokens) for share, tokens in given if tokens is not None]
    for (_, shorter), (share, longer) in pairwise(known):
        if longer < shorter:
            raise ValueError(f"the length at share {share:g} ({longer}) is below the one before it ({shorter})")
    longest = known[-1][1]
    shortest = round(p50 * p50 / longest) if longest else 0
    if known[-1][0] < 1.0:
        known.append((1.0, longest))
    return Curve(((0.0, shortest), *known))


def at(curve: Curve, u: float) -> int:
    """Tokens at share `u` (0..1) of requests ordered by length; beyond the ends, the ends."""
    points = curve.points
    if u <= points[0][0]:
        return points[0][1]
    for (left, shorter), (right, longer) in pairwise(points):
        if u <= right:
            return round(shorter + (longer - shorter) * (u - left) / (right - left))
    return points[-1][1]


def mean(curve: Curve) -> float:
    """Mean tokens: the integral of the curve over the shares."""
    return sum((right - left) * (shorter + longer) / 2 for (left, shorter), (right, longer) in pairwise(curve.points))


def user_time(ttft: float, tpot: float, output_tokens: float) -> float:
    """Share of a request's time that is its wait for the first token: TTFT / (TTFT + TPOT (T - 1))."""
    reply = tpot * max(0.0, output_tokens - 1)
    return ttft / (ttft + reply) if ttft + reply > 0 else 0.0


def device_time(prefill_s: float, prompt_tokens: float, output_tokens: float, step_s: float, batch: float) -> float:
    """Share of the device's time spent on prefill at steady state.

    `prefill_s` is the device's time for one whole prompt of `prompt_tokens` (none where it has no tokens). A request
    also takes part in its T - 1 decode steps of `step_s` (without any prefill in them), each shared by `batch`
    requests: prefill / (prefill + (T - 1) step / batch).
    """
    prefill = prefill_s if prompt_tokens > 0 else 0.0
    decode = max(0.0, output_tokens - 1) * step_s / max(1.0, batch)
    return prefill / (prefill + decode) if prefill + decode > 0 else 0.0
