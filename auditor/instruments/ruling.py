"""The verdict of `audit fit` in one sentence, and the exit code it stands for."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from auditor.instruments.fit import Fit
from auditor.instruments.question import Beyond, beyond
from auditor.theory import answers
from auditor.theory.carrying import free_for_cache
from auditor.theory.levers import name, spell
from auditor.theory.statistics import Interval
from auditor.units import count, in_gib, plain

__all__ = ["Ruling", "ruling"]

_WORST = ("does not fit", "fits at p50 only", "may fit", "fits")
Status = Literal["fits", "fits at p50 only", "may fit", "does not fit"]


@dataclass(frozen=True, slots=True)
class Ruling:
    """`status` and why, as a sentence without the status."""

    status: Status
    why: str

    @property
    def exit_code(self) -> int:
        """0 fits, 1 does not (at p95), 4 is undecided within the band."""
        return {"fits": 0, "may fit": 4}.get(self.status, 1)


def ruling(fit: Fit) -> Ruling:
    """What the figures amount to: the worst of what memory, the start, the target and its batch say, the first of them
    where several are as bad.
    """
    room = _target(fit) if fit.question.target is not None else _room(fit)
    found = (_memory(fit), _start(fit), _lengths(fit), _unweighed(fit, room), room)
    worst = min((one for one in found if one is not None), key=lambda one: _WORST.index(one.status))
    tail = beyond(fit.question.classes, fit.limit)
    if tail is None or tail.decides or worst.status == "does not fit":
        return worst
    return replace(worst, why=f"{worst.why}; {_beyond(fit, tail)}")


def _memory(fit: Fit) -> Ruling | None:
    """Where no pool is left, or a flag asks for more than there is."""
    found, pool = fit.memory, fit.pool
    if found is None:
        return None
    room = free_for_cache(found)
    if fit.inputs.settings.pins_pool and pool.kv.bytes > room.low:
        parts = f"{in_gib(pool.kv.bytes)} of KV cache, {in_gib(found.weights)} of weights and {in_gib(found.overhead)}"
        over = pool.kv.bytes > room.high
        return Ruling(
            "does not fit" if over else "may fit",
            f"{parts} for the engine {'exceed' if over else 'nearly fill'} the {in_gib(found.usable)} of a device",
        )
    if pool.kv.tokens > 0 and found.pool > 0:
        return None
    parts = f"{in_gib(found.weights)} of weights and {in_gib(found.overhead)} for the engine"
    why = f"{parts} exceed the {in_gib(found.budget)} a device that it may use"
    return Ruling("does not fit" if found.pool_high <= 0 else "may fit", why)


def _unweighed(fit: Fit, room: Ruling) -> Ruling | None:
    """Where a flag fixes the pool and nothing tells whether a device holds it beside the weights."""
    if fit.memory is not None or fit.inputs.started:
        return None
    missing = fit.inputs.no_device or "the size of the weights is not known"
    return Ruling("may fit", f"whether a device has the memory is not judged ({missing}); else {room.why}")


def _start(fit: Fit) -> Ruling | None:
    """Where vLLM refuses to start: one request of the limit needs more than the pool."""
    theory = fit.inputs.geometry, fit.inputs.settings
    refusal = fit.inputs.refusal or fit.pool.kv.refusal
    if refusal and not fit.inputs.started:
        return Ruling("does not fit", f"the engine refuses to start: {refusal}")
    if fit.limit is None or fit.inputs.settings.engine != "vllm" or answers.starts(*theory, fit.pool.low):
        return None
    field = name(fit.flags, "max_model_len")
    why = f"one request of {fit.limit:,} tokens ({field}) needs more than the pool: the engine refuses to start"
    if not answers.starts(*theory, fit.pool.high):
        return Ruling("does not fit", f"{why}; {fit.context[0]:,} tokens fit{_then(fit)}")
    if answers.starts(*theory, fit.pool.kv) and fit.question.target is None:
        return Ruling("may fit", f"{why} at the low end of its band")
    return Ruling("may fit", f"within the pool's band {why}")


def _lengths(fit: Fit) -> Ruling | None:
    """Where requests at p95 are longer than the engine takes."""
    found = beyond(fit.question.classes, fit.limit)
    return Ruling("does not fit", _beyond(fit, found)) if found is not None and found.decides else None


def _beyond(fit: Fit, found: Beyond) -> str:
    """vLLM, SGLang and llama.cpp refuse a prompt beyond the context; a reply ends there, or is refused before."""
    field = name(fit.flags, "max_model_len") or name(fit.flags, "context")
    limit = f"the limit of {fit.limit:,} tokens a request{f' ({field})' if field else ''}"
    of = f" of class {found.name}" if len(fit.question.classes) > 1 else ""
    if found.prompts > 0:
        return f"{_part(found.prompts)} of the prompts{of} are longer than {limit}: the engine refuses them"
    return f"{_part(found.requests)} of the requests{of} exceed {limit} with their reply: it is cut short or refused"


def _part(share: float) -> str:
    return f"{100 * share:.3g} %"


def _then(fit: Fit) -> str:
    """What there would be room for if it started."""
    target = fit.question.target
    if target is None:
        return ""
    return f", and then it holds {_range(fit.decides)}{_quantile(fit)}; the target is {target:,}"


def _quantile(fit: Fit) -> str:
    return " at p95 lengths" if fit.count("p50") is not None else ""


def _target(fit: Fit) -> Ruling:
    target = fit.question.target or 0
    at95, at50, most = fit.decides, fit.count("p50"), fit.count("max")
    held = f"it holds {_range(at95)}{_quantile(fit)}"
    asked = f"the target is {target:,}{'' if fit.question.replicas == 1 else ' a replica'}"
    if at95.high >= target and fit.batch_limit is not None and fit.batch_limit < target:
        return Ruling("does not fit", f"{held}; {asked}, but {_batch(fit)}")
    if at95.low >= target:
        return Ruling("fits", f"{held}{_most(most, target)}; {asked}")
    if at95.high >= target:
        return Ruling("may fit", f"{held}; {asked}, within the band of the pool")
    if at50 is not None and at50.low >= target:
        return Ruling("fits at p50 only", f"{held}, {_range(at50)} at p50; {asked}")
    also = f", {_range(at50)} at p50" if at50 is not None else ""
    return Ruling("does not fit", f"{held}{also}; {asked}")


def _most(most: Interval | None, target: int) -> str:
    if most is None:
        return ""
    return " and at the longest" if most.low >= target else f", {_range(most)} at the longest"


def _batch(fit: Fit) -> str:
    said = spell(fit.flags, "{max_num_seqs}")
    return f"{said} lets only {fit.batch_limit} run at once: the others wait"


def _room(fit: Fit) -> Ruling:
    at95 = fit.decides
    what = _quantile(fit) if fit.question.classes else f" of {fit.limit:,} tokens" if fit.limit else ""
    if at95.high < 1:
        return Ruling("does not fit", f"it does not hold one request{what}")
    return Ruling("fits" if at95.low >= 1 else "may fit", f"it holds {_range(at95)}{what} at once")


def _range(requests: Interval) -> str:
    """ "312 requests (290 to 330)", in whole requests; the band is left out where there is none."""
    low, point, high = (math.floor(x) for x in (requests.low, requests.point, requests.high))
    shown = count(point, "request") if point >= 1 else f"{plain(requests.point, 2)} of a request"
    return shown if low == high else f"{shown} ({low:,} to {high:,})"
