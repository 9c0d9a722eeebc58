"""The times of a prompt at the target, told from the idle ladder: reading weights, multiplying, and the rest.

    TTFT(N) = rest + text N + links N + max(launches, weights(N), products (N + filling) + attention N^2)

The shortest prompt tells the rest, as its products hide behind its weights.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from auditor.theory.classes import launches, tiled
from auditor.theory.decode_bound import STREAMED
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.priors import prefill_law
from auditor.theory.prompt_costs import ATTENTION, FILLING, FLAT, LAUNCH, TEXT, PromptCosts, Work, prompt_work
from auditor.theory.settings import Settings
from auditor.theory.statistics import Interval

__all__ = ["prefill_times"]

# Where a choice changes what is told: round numbers, held by deployments of known bounds
# (tests/property/test_classification.py).
_SEEN = 1.2  # times the weights' time from which a prompt is seen to multiply
_EXPLAINED = 0.3  # of such a prompt, which products must explain at their cost in long ones
_RULES = 1.5  # times the weights' time from which the cost of long prompts holds for this one too
_LAUNCHED = 1.9  # times its kernels' time from which a flat step's launches are taken to outlast them
_HIDDEN = 0.25  # of its kernels' time, which the rest of a flat step must be for launches to hide behind


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """One choice of what the ladder leaves open: shares of bandwidth and peak, attention's inverse one, filling tokens,
    seconds a token of text, times what links take, by how much TTFT is off, whether launches outlast kernels (None: by
    what is likely), and whether the ladder's own growth bounds what is multiplied.
    """

    weights: float
    products: float
    attention: float
    filling: float
    text: float
    links: float
    off: float = 0.0
    launched: bool | None = None
    grown: bool = False


def prefill_times(  # noqa: PLR0917 (geometry, settings, device come first everywhere)
    geometry: Geometry, settings: Settings, device: Device, costs: PromptCosts, products: Interval, tokens: float
) -> tuple[dict[str, float], ...]:
    """The times of a prompt of `tokens`, the likeliest first, then those of every choice that the ladder leaves open.

    `products` is the share of the peak that these reach. None for prompts beyond the ladder.
    """
    whole = costs.idle.seconds(tokens)
    if whole is None:
        return ()
    first = (prompt_work(geometry, settings, device, costs.idle.medians[0][0]), costs.idle.medians[0][1])
    target = (prompt_work(geometry, settings, device, tokens), whole)
    usual = prefill_law(geometry, settings, device).weights
    hidden = LAUNCH.high * geometry.layer_count if launches(device) else 0.0
    filling = FILLING if tiled(settings, device) else Interval(0.0, 0.0, 0.0)
    return tuple(_times(first, target, choice, hidden) for choice in _choices(costs, usual, products, filling))


def _choices(costs: PromptCosts, usual: float, products: Interval, filling: Interval) -> Iterator[_Choice]:
    low, likely, high = (usual * times for times in STREAMED)
    attention, links = ATTENTION, costs.exchanges
    if costs.attention is not None:
        attention = Interval(1 / costs.attention.high, 1 / costs.attention.point, 1 / costs.attention.low)
    yield _Choice(
        weights=likely,
        products=products.point,
        attention=attention.point,
        filling=filling.point,
        text=TEXT.point,
        links=links.point,
    )
    off = 2 * costs.idle.error
    ends = product(
        (low, high),
        (products.low, products.high),
        (attention.low, attention.high),
        (filling.low, filling.high),
        ((TEXT.low, links.low), (TEXT.high, links.high)),
        (-off, off),
        (True, False),
        (True, False),
    )
    for weights, share, scores, filled, (text, crossing), apart, launched, grown in ends:
        yield _Choice(
            weights=weights,
            products=share,
            attention=scores,
            filling=filled,
            text=text,
            links=crossing,
            off=apart,
            launched=launched,
            grown=grown,
        )


def _kernels(work: Work, choice: _Choice) -> tuple[float, float]:
    """Seconds of reading weights and of multiplying."""
    multiplied = work.products / choice.products * (1 + choice.filling / work.tokens)
    return work.read / choice.weights, multiplied + work.attention * choice.attention


def _beside(work: Work, choice: _Choice) -> float:
    return choice.text * work.tokens + choice.links * work.crossing


def _times(first: tuple[Work, float], target: tuple[Work, float], choice: _Choice, hidden: float) -> dict[str, float]:
    """The times of a prompt: what grew since the shortest one shows whether it multiplies, and how long at most."""
    (short, lowest), (work, whole) = first, target
    rest = max(0.0, lowest - _beside(short, choice) - max(_kernels(short, choice)))
    linear = max(0.0, whole * (1 + choice.off) - rest - _beside(work, choice))
    weights, multiplied = _kernels(work, choice)
    weights = min(weights, whole)
    if linear > _SEEN * weights and multiplied > _EXPLAINED * linear:
        multiplied = linear if choice.grown or multiplied < _RULES * weights else multiplied
    multiplied = min(multiplied, whole, max(linear, weights) + (0.0 if choice.grown else hidden))
    kernels = max(weights, multiplied)
    left = max(0.0, whole - kernels)
    if hidden and whole <= FLAT * lowest:
        likely = whole > _LAUNCHED * kernels
        left = whole if (likely if choice.launched is None else choice.launched and left > _HIDDEN * kernels) else left
    return {"weights": weights, "compute": multiplied, "overhead": left}
