"""The times of prompts and steps on engines of which kernels are all but a known rest: llama.cpp on a CPU.

Nothing is launched there: threads compute a node of the graph, meet at a barrier and go on to the next
(ggml/src/ggml-cpu/ggml-cpu.c, ggml_graph_compute_thread). A kernel either waits for memory or computes, unpacking
weights included; what takes far longer than memory needs for the same bytes computes.
"""

from collections.abc import Iterator
from itertools import product

from auditor.theory.decode_bound import Facts
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.priors import prefill_law, products_rate
from auditor.theory.prompt_costs import PromptCosts, prompt_work
from auditor.theory.settings import Settings
from auditor.theory.statistics import Interval
from auditor.theory.step_costs import StepCosts

__all__ = ["core_decode_times", "core_prefill_times"]

# The share of bandwidth that reading weights reaches where memory is what kernels wait for: 3.8 GB in 254 ms at 20 GB/s
# (ggml-org/llama.cpp issue 34), half of it on two sockets that do not mind which memory is near (mozilla-ai/llamafile
# issue 765).
_READ = Interval(0.4, 0.75, 0.95)
_REST = Interval(0.2, 1.0, 5.0)  # times what layers usually take beside their kernels
_SAMPLED = Interval(1e-9, 4e-9, 10e-9)  # seconds for each word of the vocabulary, to choose a sequence's next token
_TEXT = Interval(0.1e-6, 0.35e-6, 1e-6)  # seconds a token of reading the prompt's text
_SEEN = 1.3  # times memory's time, from which kernels are seen to compute


def core_decode_times(
    geometry: Geometry, known: Facts, costs: StepCosts, products: Interval
) -> tuple[dict[str, float], ...]:
    """The four times of a step at the target, the likeliest first, then those of every choice that is left open."""
    level, layers = costs.level(known.batch), known.law.per_layer * geometry.layer_count
    multiplied = Interval(*(known.one * known.batch / share for share in (products.high, products.point, products.low)))
    found = []
    read, off = known.dense + known.covered(known.batch, 1) * known.experts, _off(level, costs.error)
    for whole, share, rest, each, cost, least in _choices(off, _READ, _REST, _SAMPLED, costs.cost, multiplied):
        overhead = min(whole, rest * layers + each * geometry.vocab_size * known.batch)
        found.append(_named(whole - overhead, read / share, least, overhead) | {"kv": cost * known.cache})
    return tuple(found)


def core_prefill_times(  # noqa: PLR0917 (geometry, settings, device come first everywhere)
    geometry: Geometry, settings: Settings, device: Device, costs: PromptCosts, products: Interval, tokens: float
) -> tuple[dict[str, float], ...]:
    """The times of a prompt of `tokens`, likewise; none for prompts beyond the ladder."""
    whole = costs.idle.seconds(tokens)
    if whole is None:
        return ()
    work, law = prompt_work(geometry, settings, device, tokens), prefill_law(geometry, settings, device)
    layers = work.steps * law.per_layer * geometry.layer_count
    # The head sees one token: it is multiplied as in a decode step.
    head = 2.0 * geometry.embedding_parameters / products_rate(device, settings)
    multiplied = Interval(*((work.products + head) / share for share in (products.high, products.point, products.low)))
    found = []
    for seconds, share, rest, text, least in _choices(_off(whole, costs.idle.error), _READ, _REST, _TEXT, multiplied):
        overhead = min(seconds, rest * layers + text * tokens)
        found.append(_named(seconds - overhead, work.read / share, least, overhead))
    return tuple(found)


def _off(seconds: float, error: float) -> Interval:
    """What was measured with this relative standard error."""
    return Interval(seconds * max(0.0, 1 - 2 * error), seconds, seconds * (1 + 2 * error))


def _choices(*left_open: Interval) -> Iterator[tuple[float, ...]]:
    yield tuple(each.point for each in left_open)
    yield from product(*((each.low, each.high) for each in left_open))


def _named(kernels: float, streamed: float, least: float, overhead: float) -> dict[str, float]:
    """Kernels that take longer than memory needs compute all the while; others do for as long as products take."""
    computed = kernels if kernels > _SEEN * streamed else min(kernels, least)
    return {"weights": min(kernels, streamed), "compute": computed, "overhead": overhead}
