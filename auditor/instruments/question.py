"""What is asked of a deployment's memory: the requests that are to fit, from flags or from a profile."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from auditor.engines.kernels import too_old
from auditor.engines.settings import resolve
from auditor.errors import UsageError
from auditor.instruments.inputs import Inputs
from auditor.instruments.refusals import beyond_positions, cap, one_machine, too_long, unstartable
from auditor.loading import Here, Loaded, resolve_device, resolve_draft, resolve_model
from auditor.plan.pace import concurrency
from auditor.profile import Lengths, SharedPrefix, TrafficClass
from auditor.theory import shape
from auditor.theory.judging import largest
from auditor.units import TOKENS

__all__ = ["Beyond", "Question", "beyond", "from_profile", "lengths", "one_class", "tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The requests that are to fit: their classes, and how many are in flight on each of `replicas`.

    No classes: any request up to the context limit. No target: as many as there is room for.
    """

    classes: tuple[TrafficClass, ...] = ()
    target: int | None = None
    replicas: int = 1
    notes: tuple[str, ...] = ()

    @property
    def spread(self) -> bool:
        """Whether lengths differ, so that percentiles say more than one length."""
        lengths = (x for c in self.classes for x in (c.prompt_tokens, c.output_tokens))
        return any(x.p95 or x.p99 or x.max for x in lengths)


@dataclass(frozen=True, slots=True)
class Beyond:
    """The requests of a class that are longer than a limit: the share of them whose prompt alone is, the share whose
    prompt and reply together are, and whether these are more than what lies beyond p95.
    """

    name: str
    prompts: float
    requests: float
    decides: bool


def beyond(classes: Iterable[TrafficClass], limit: int | None) -> Beyond | None:
    """The class with the largest share of requests beyond a limit of tokens, prompts before replies; None where none
    is, or there is no limit.
    """
    found = [_beyond(one, limit) for one in classes] if limit else []
    worst = max(found, key=lambda one: (one.decides, one.prompts, one.requests), default=None)
    return worst if worst is not None and worst.requests > 0 else None


def _beyond(one: TrafficClass, limit: int) -> Beyond:
    prompt, reply = one.prompt_tokens.curve, one.output_tokens.curve
    requests = _share_beyond((prompt, reply), limit)
    decides = shape.at(prompt, 0.95) + shape.at(reply, 0.95) > limit
    return Beyond(one.name, _share_beyond((prompt,), limit), requests, decides)


def _share_beyond(curves: Sequence[shape.Curve], limit: int) -> float:
    """The share of requests, to a thousandth, whose lengths add up to more than the limit; long prompts go with long
    replies.
    """

    def within(thousandths: int) -> bool:
        return sum(shape.at(curve, thousandths / 1000) for curve in curves) <= limit

    return 1 - largest(within, 1000) / 1000 if within(0) else 1.0


def from_profile(loaded: Loaded, here: Here | None = None) -> tuple[Inputs, Question]:
    """What a profile declares; `here` tells the figures of this machine where it is meant.

    Raises UsageError where its model is not known.
    """
    profile = loaded.profile
    geometry, why = resolve_model(loaded)
    if geometry is None:
        raise UsageError(f"{loaded.path}: {why}")
    device, no_device = resolve_device(loaded, here)
    settings, sources = resolve(profile, loaded.launch, None, geometry, device, draft=resolve_draft(loaded))
    try:
        unstartable(geometry, settings)
        one_machine(settings, device)
    except UsageError as error:
        raise UsageError(f"{loaded.path}: deployment.{error}") from None
    measured = "measured here" if device is not None and device.here else "catalogue"
    weights = "the model's files" if geometry.weight_bytes is not None else "computed from parameters"
    told = {**sources, "geometry": geometry.source, "device": measured, "weights": weights}
    notes = geometry.notes if settings.engine != "generic" else (*geometry.notes, "no engine is named: plain paging")
    found = Inputs(
        geometry=geometry,
        settings=settings,
        device=device,
        sources=told,
        notes=(*notes, *beyond_positions(geometry, settings), *too_old(settings, device)),
        no_device=f"{loaded.path}: {no_device}" if device is None else "",
        misnamed=device is None and profile.deployment.accelerator is not None,
        refusal=too_long(geometry, settings, profile.deployment.launch or ""),
        cap=cap(geometry, settings, profile.deployment.launch or ""),
    )
    return found, _question(loaded)


def _question(loaded: Loaded) -> Question:
    traffic, replicas = loaded.profile.traffic, max(1, loaded.profile.deployment.replicas)
    if not traffic.classes:
        raise UsageError(f"{loaded.path}: traffic.classes: what requests hold is needed")
    if traffic.target_concurrency is None and traffic.request_rate is None:
        return Question(classes=traffic.classes, replicas=replicas)
    flight = concurrency(loaded.profile)
    notes: tuple[str, ...] = ()
    if traffic.target_concurrency is None:
        notes = (f"{traffic.request_rate:g} requests/s are taken as {flight} in flight, by the E2E ceiling of the SLO",)
    return Question(classes=traffic.classes, target=math.ceil(flight / replicas), replicas=replicas, notes=notes)


def one_class(prompt: str, output: str, prefix: int | None = None) -> TrafficClass:
    """A class from lengths as flags give them; `prefix` tokens are the same in every prompt.

    Raises UsageError where they are not lengths, or the prefix is longer than the longest prompt.
    """
    prompts = lengths("--prompt", prompt)
    longest = prompts.max or prompts.p95 or prompts.p50
    if prefix and prefix > longest:
        raise UsageError(f"--shared-prefix {prefix}: is a part of --prompt, whose longest has {longest} tokens")
    return TrafficClass(
        name="requests",
        prompt_tokens=prompts,
        output_tokens=lengths("--output", output),
        shared_prefix=SharedPrefix(tokens=prefix) if prefix else None,
    )


def lengths(flag: str, written: str) -> Lengths:
    """`4000`, `3k:8k` or `3000:8000:16000` as p50, p95 and max. Raises UsageError for anything else."""
    found = [_tokens(part) for part in written.split(":")]
    if None in found or len(found) > 3:
        raise UsageError(f"{flag} {written}: tokens are needed, such as 4000, or p50:p95:max as in 3000:8000:16000")
    known = [part for part in found if part is not None]
    if sorted(known) != known:
        raise UsageError(f"{flag} {written}: p50:p95:max must not fall")
    return Lengths(p50=known[0], p95=_item(known, 1), max=_item(known, 2))


def tokens(flag: str, written: str) -> int:
    """`32768` or `32k` (thousands, as in profiles). Raises UsageError for anything else."""
    found = _tokens(written)
    if found is None:
        raise UsageError(f"{flag} {written}: a number of tokens is needed, such as 32768 or 32k")
    return found


def _tokens(written: str) -> int | None:
    try:
        return int(TOKENS.parse(written.strip())) or None
    except ValueError:
        return None


def _item(items: Sequence[int], index: int) -> int | None:
    return items[index] if len(items) > index else None
