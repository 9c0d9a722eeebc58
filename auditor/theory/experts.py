"""How many experts a step reads: tokens that are served together choose alike, so fewer than by chance."""

from functools import lru_cache

from auditor.theory.kv.geometry import Experts

__all__ = ["coverage"]

# Popularity of a layer's experts from the rarest to the most wanted, spread evenly on a logarithmic scale: the power
# law of exponent 1 with which aiconfigurator draws routed tokens "simulating real-world load imbalance"
# (ai-dynamo/aiconfigurator, collector/helper.py: power_law_logits_v3). With 20 the most wanted takes 3 times its share.
_RANGE = 20.0
_CLASSES = 16


def coverage(experts: Experts, tokens: float) -> float:
    """The share of a layer's routed experts that a step of `tokens` tokens reads.

    The mean over experts of 1 - (1 - p)^tokens, p being an expert's chance to be among the k of a token.
    """
    return _coverage(experts.per_token / experts.count, max(1.0, tokens))


@lru_cache(maxsize=4096)
def _coverage(share: float, tokens: float) -> float:
    wanted = [_RANGE ** ((i + 0.5) / _CLASSES) for i in range(_CLASSES)]
    mean = sum(wanted) / _CLASSES
    chances = [min(1.0, share * weight / mean) for weight in wanted]
    touched = sum(1 - float((1 - chance) ** tokens) for chance in chances) / _CLASSES
    return max(share, min(1.0, touched))
