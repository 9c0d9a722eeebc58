"""Accelerators ranked for one model and load: the same deployment on each part of the catalogue that holds it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from auditor.catalog import accelerators
from auditor.engines.elsewhere import moved
from auditor.instruments.inputs import Inputs
from auditor.instruments.load import Load
from auditor.theory.kv.pool import kv_pool, residents
from auditor.theory.memory import memory
from auditor.theory.ranking import Ranked, ranked

__all__ = ["held_at_once", "ranking"]


def ranking(found: Inputs, load: Load, prices: Mapping[str, float], most: int) -> tuple[Ranked, ...]:
    """The fastest devices that hold the load, after the cheapest of those with a price, and always the one asked about.

    As many of each, under the same parallelism. Parts sold with several memories are listed once, with the smallest
    that holds the load.
    """
    rows = sorted(_rows(found, load, prices), key=_money)
    shown = [row for row in rows if row.holds][:most]
    mine = [row for row in rows if row.mine and row not in shown]
    return (*shown, *mine)


def _money(row: Ranked) -> tuple[float, float, float]:
    return math.inf if row.cost is None else row.cost, row.request, row.tpot


def _rows(found: Inputs, load: Load, prices: Mapping[str, float]) -> Iterator[Ranked]:
    own, seen = found.device, set[tuple[str, float]]()
    others = (device for device in accelerators.devices() if own is None or device.key != own.key)
    for device in (*((own,) if own is not None else ()), *others):
        mine = device is own
        there = found if mine else replace(found, device=device, settings=moved(found.settings, device))
        holds = _holds(there, load)
        part = (device.name.rpartition(" ")[0] if device.kind == "unified" else device.key, device.bandwidth)
        if not mine and (not holds or part in seen or not device.flops):
            continue
        seen.add(part)
        lengths = load.prompt or 1.0, load.output or 1.0, load.held or 1.0
        parts, price = (there.geometry, there.settings, device), prices.get(device.key)
        yield ranked(*parts, load.batch, lengths, price, holds=holds, mine=mine)


def _holds(found: Inputs, load: Load) -> bool | None:
    carried = held_at_once(found, load.held or 1.0)
    return None if carried is None else carried >= load.batch


def held_at_once(found: Inputs, tokens: float) -> float | None:
    """Sequences of this many tokens that the KV cache carries at once; None where memory or rule are not known."""
    geometry, settings, device = found.geometry, found.settings, found.device
    if device is None or device.usable_bytes is None or not geometry.vocab_size:
        return None
    try:
        split = None if settings.pins_pool else memory(geometry, settings, device)
        pool = kv_pool(geometry, settings, None if split is None else max(0.0, split.pool))
        return residents(geometry, settings, pool, round(tokens)) if pool.tokens > 0 else 0.0
    except ValueError:
        return None
