"""Which numbers a profile may hold, by the name of their field."""

from collections.abc import Mapping

__all__ = ["ABOVE_ZERO", "AT_LEAST_ONE", "UP_TO_ONE", "goal_out_of_range", "out_of_range"]

AT_LEAST_ONE = frozenset(
    [
        "count",
        "replicas",
        "tensor_parallel",
        "pipeline_parallel",
        "data_parallel",
        "expert_parallel",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "block_size",
        "target_concurrency",
        "requests",
        "tokens",
        "distinct",
        "turns",
        "width",
        "height",
        "p50",
        "p95",
        "p99",
        "max",
    ]
)
ABOVE_ZERO = frozenset(["share", "request_rate", "duration"])
UP_TO_ONE = frozenset(["gpu_memory_utilization", "mem_fraction_static"])
AT_MOST: Mapping[str, tuple[float, str]] = {
    "target_concurrency": (1e5, "needs at most 100000: one client cannot hold more requests in flight"),
    **dict.fromkeys(("width", "height"), (16384, "needs at most 16384 pixels")),
    "turns": (1000, "needs at most 1000 turns"),
    "requests": (1e6, "needs at most 1M requests: one client cannot keep more"),
    **dict.fromkeys(("p50", "p95", "p99", "max"), (1e8, "needs at most 100M tokens: no context holds more")),
}
LARGEST = 1e15
"""No count or size of a deployment is larger; what is would only overflow the arithmetic."""

LEAST_ERROR_RATE = 1e-6


def goal_out_of_range(value: float) -> str | None:
    """What is wrong with the limit of an SLO; None if it can be."""
    return "needs to be above zero" if value <= 0 else None


def out_of_range(name: str, value: float) -> str | None:
    """What is wrong with a number, by the name of its field; None if it can be."""
    most, too_much = AT_MOST.get(name, (LARGEST, "is larger than anything a deployment has"))
    if name in AT_LEAST_ONE and value < 1:
        return "needs at least 1"
    if name in ABOVE_ZERO and value <= 0:
        return "needs to be above zero"
    if name in UP_TO_ONE and not 0 < value <= 1:
        return "needs a fraction above 0 and up to 1, such as 0.9"
    if name == "confidence" and not 0.5 < value < 1 - 1e-9:
        return "needs a confidence between 0.5 and 1, such as 0.95"
    if name == "error_rate" and value >= 0.5:
        return "lets half of the requests fail; write 1% for one in a hundred"
    if name == "error_rate" and 0 < value < LEAST_ERROR_RATE:
        return "takes more than a million requests to show; write 0.1% for one in a thousand"
    if name == "price_per_hour" and value < 0:
        return "needs to be zero or more"
    return too_much if value > most and name != "seed" else None
