"""Accelerators ranked for one model and load: the same deployment on each part of the catalogue that holds it."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from auditor.catalog import accelerators
from auditor.engines.elsewhere import moved
from auditor.instruments.inputs import Inputs
from auditor.instruments.load import Load
from auditor.profile import Deployment
from auditor.theory.device import Device
from auditor.theory.kv.pool import kv_pool, residents
from auditor.theory.memory import memory
from auditor.theory.ranking import Ranked, ranked
from auditor.units import plain

__all__ = ["declared_prices", "held_at_once", "ranking", "unlisted"]


def declared_prices(deployment: Deployment, own: Device | None, devices: int) -> dict[str, float]:
    """A profile's prices an hour of one accelerator, by key; that of its own is its share of the replica's."""
    prices = {accelerators.find(name, any_memory=True).key: price for name, price in deployment.prices.items()}
    if deployment.price_per_hour and own is not None:
        prices.setdefault(own.key, deployment.price_per_hour / max(1, devices))
    return prices


def ranking(found: Inputs, load: Load, prices: Mapping[str, float], most: int) -> tuple[Ranked, ...]:
    """The fastest devices that hold the load, after all of those with a price, the cheapest first, and always the one
    asked about.

    As many of each, under the same parallelism. Parts sold with several memories are listed once, with the smallest
    that holds the load.
    """
    rows = sorted(_rows(found, load, prices), key=_money)
    priced = sum(row.cost is not None for row in rows)
    shown = [row for row in rows if row.holds][: max(most, priced)]
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
        part = (re.sub(r" \d+GB$", "", device.name), device.bandwidth)
        repeated = part in seen and device.key not in prices
        if not mine and (not holds or repeated or not device.flops):
            continue
        seen.add(part)
        lengths = load.prompt or 1.0, load.output or 1.0, load.held or 1.0
        parts, price = (there.geometry, there.settings, device), prices.get(device.key)
        yield ranked(*parts, load.batch, lengths, price, holds=holds, mine=mine)


def _holds(found: Inputs, load: Load) -> bool | None:
    carried = held_at_once(found, load.held or 1.0)
    return None if carried is None else carried >= load.batch


def unlisted(found: Inputs, load: Load, prices: Iterable[str], listed: Iterable[Ranked]) -> Iterator[str]:
    """Why accelerators with a price have no row."""
    keys = {row.key for row in listed}
    absent = [device for device in accelerators.devices() if device.key in set(prices) - keys]
    for held, why in (
        (False, f"too small for {plain(load.batch, 9)} of these sequences at once"),
        (None, "how many of these sequences fit is not known"),
    ):
        names = [
            f"{found.settings.devices} x {device.key}"
            for device in absent
            if _holds(replace(found, device=device, settings=moved(found.settings, device)), load) is held
        ]
        if names:
            yield f"not listed: {', '.join(names)}: {why}"


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
