"""What hardware and engines of a class usually reach of an SLO, with its 80 % band: the predictions of `roofline`."""

from collections.abc import Iterable
from dataclasses import dataclass

from auditor.theory.device import Device
from auditor.theory.judging import largest
from auditor.theory.kv.geometry import Geometry
from auditor.theory.limits import Mix, unavoidable
from auditor.theory.physics import Beaten
from auditor.theory.roofline import Largest, Prediction, predict_decode, predict_prefill
from auditor.theory.settings import Settings
from auditor.theory.statistics import median
from auditor.units import count

__all__ = ["Reach", "prompt_reach", "reply_reach", "streams_within", "surprising", "token_reach"]

_SURPRISES = 1.15  # times faster than the fast end of the band: one in ten is beyond it anyway


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Expected seconds with their 80 % band, what most of them go to, and the measurements behind the band."""

    seconds: float
    low: float
    high: float
    bound: Largest
    source: str


def token_reach(  # noqa: PLR0917 (geometry, settings, device come first everywhere)
    geometry: Geometry, settings: Settings, device: Device, batch: float, prompt: float, output: float
) -> Reach:
    """A token of each of `batch` streams of these mean lengths, the prompts of new ones being read in between."""
    return _of(_step(geometry, settings, device, batch, prompt, output))


def prompt_reach(
    geometry: Geometry, settings: Settings, device: Device, mix: Iterable[Mix], share: float
) -> Reach | None:
    """The first token of the prompts that `share` of the requests cannot leave out, in an engine that serves others (at
    the fast end in an idle one): under load they wait for others' prompts too. None where no class can break a ceiling
    on that share.
    """
    alone = [
        predict_prefill(geometry, settings, device, prompt) for prompt, _ in unavoidable(mix, share, replies=False)
    ]
    return _of(max(alone, key=lambda found: found.seconds)) if alone else None


def reply_reach(  # noqa: PLR0917
    geometry: Geometry,
    settings: Settings,
    device: Device,
    mix: Iterable[Mix],
    share: float,
    batch: float,
    prompt: float,
    output: float,
) -> Reach | None:
    """The last token of those requests: the prompt as in `prompt_reach`, then steps as in `token_reach`, and in one of
    them the first token waits as well.
    """
    step, found = _step(geometry, settings, device, batch, prompt, output), None
    for read, written in unavoidable(mix, share, replies=True):
        first, steps = predict_prefill(geometry, settings, device, read), max(0, written - 1)
        longer = first if first.seconds > steps * step.seconds else step
        one = Reach(
            seconds=first.seconds + step.prompts_s + steps * step.seconds,
            low=first.low + steps * step.low,
            high=first.high + step.prompts_s + steps * step.high,
            bound=longer.largest,
            source=longer.source,
        )
        found = one if found is None or one.seconds > found.seconds else found
    return found


def streams_within(  # noqa: PLR0917
    geometry: Geometry, settings: Settings, device: Device, seconds: float, most: int, prompt: float, output: float
) -> int:
    """The most streams at once, up to `most`, whose token is expected within `seconds`; 0 where not even one's is."""
    return largest(lambda n: n < 1 or _step(geometry, settings, device, n, prompt, output).seconds <= seconds, most)


def surprising(
    theory: tuple[Geometry, Settings, Device] | None,
    prefill: Iterable[tuple[int, float]],
    decode: Iterable[tuple[int, int, float]],
    accepted: float | None,
) -> tuple[Beaten, ...]:
    """What is faster than such hardware usually is, by the median point of each ladder: (prompt tokens, seconds to the
    first token) and (streams, context, seconds a token), of which `accepted` come a step. Nothing where inputs lack, or
    the figures that a phase rests on are provisional.
    """
    if theory is None or theory[2].certainty("bandwidth") == "C":
        return ()
    found: list[Beaten] = []
    prompts = [(predict_prefill(*theory, n).low, s, f"a prompt of {n} tokens") for n, s in prefill]
    if prompts and theory[2].certainty("flops") != "C":
        found += _surprise("prefill", prompts)
    each = 1.0 if theory[1].speculative_tokens else accepted or 1.0  # a predicted token has its share of the drafts
    steps = [
        (predict_decode(*theory, b, c).low / each, s, f"a token for {count(b, 'stream')} at {c} tokens")
        for b, c, s in decode
    ]
    return (*found, *(_surprise("decode", steps) if steps and accepted is not None else ()))


def _surprise(phase: str, points: list[tuple[float, float, str]]) -> list[Beaten]:
    """The point of median ratio among (usual at least, measured, what), if it is beyond doubt."""
    ratio = median([least / seconds for least, seconds, _ in points])
    least, seconds, what = min(points, key=lambda point: abs(point[0] / point[1] - ratio))
    return [Beaten(phase, what, seconds, least, sure=False)] if ratio > _SURPRISES else []


def _step(  # noqa: PLR0917
    geometry: Geometry, settings: Settings, device: Device, batch: float, prompt: float, output: float
) -> Prediction:
    ratio = prompt / output if output > 0 else 0.0
    return predict_decode(geometry, settings, device, batch, max(1.0, prompt + output / 2), ratio)


def _of(found: Prediction) -> Reach:
    return Reach(seconds=found.seconds, low=found.low, high=found.high, bound=found.largest, source=found.source)
