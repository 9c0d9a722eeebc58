"""A speed question: a deployment that is resolved, and the load at which its speed is asked."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from auditor.catalog import accelerators
from auditor.errors import UsageError
from auditor.instruments.ages import aged
from auditor.instruments.inputs import Inputs, inputs
from auditor.loading import Here
from auditor.loading.problems import one_line
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

__all__ = ["LOAD_KEYS", "Load", "Theory", "asked", "provisional", "theory"]

LOAD_KEYS = ("prompt_tokens", "batch", "context_tokens", "output_tokens")
_MOST, _LEAST = 10**9, 1e-3  # tokens, sequences
Theory = tuple[Geometry, Settings, Device]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`batch` sequences at once, each of `prompt` tokens to read and `output` to write; None: not told.

    `context` is what a sequence holds on average while it decodes. `alone` says that one is assumed, for want of a
    batch.
    """

    batch: float = 1.0
    alone: bool = False
    prompt: float | None = None
    output: float | None = None
    context: float | None = None

    @property
    def held(self) -> float | None:
        """Tokens that a sequence holds while it decodes: as told, or its prompt and half of its output."""
        if self.context is not None:
            return self.context
        return None if self.prompt is None else self.prompt + (self.output or 0.0) / 2

    @property
    def longest(self) -> float | None:
        """Tokens that a sequence holds at most; None where only a mean is told."""
        return None if self.context is not None or self.prompt is None else self.prompt + (self.output or 0.0)

    @property
    def ratio(self) -> float:
        """Prompt tokens for each output token; 0 where one of them is not told."""
        return self.prompt / self.output if self.prompt and self.output else 0.0


def asked(
    row: Mapping[str, Any], also: tuple[str, ...] = (), base: Path | None = None, here: Here | None = None
) -> tuple[Inputs, Load]:
    """A row's deployment and load; `here` as for `inputs`. Raises UsageError with the key and what to do.

    Speed does not depend on how much memory a part has, so its name may leave that open.
    """
    written = row.get("accelerator")
    if isinstance(written, str):
        row = {**row, "accelerator": _of_any_memory(written)}
    found = inputs(row, base, (*LOAD_KEYS, *also), here)
    engine = " ".join(str(row[key]) for key in ("engine", "engine_version") if row.get(key))
    found = replace(found, settings=aged(found.settings, engine))
    prompt, context, output = (_tokens(key, row.get(key)) for key in LOAD_KEYS if key != "batch")
    if prompt and context is not None and 0 < context < prompt:
        raise UsageError(f"context_tokens: {context:,.10g} tokens held are fewer than the prompt's {prompt:,.10g}")
    batch, alone = _batch(row.get("batch")), row.get("batch") is None
    return found, Load(batch=batch, alone=alone, prompt=prompt or None, output=output or None, context=context)


def _of_any_memory(written: str) -> str:
    """The key of a part that is named but for its memory; anything else as it is written."""
    try:
        return accelerators.find(written, any_memory=True).key
    except UsageError:
        return written


def _tokens(key: str, value: Any) -> float | None:
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= _MOST or 0 < value < _LEAST:
        raise UsageError(f"{key}: {one_line(repr(value)[:60])}, a number of 0 or more and at most {_MOST:,} is needed")
    return float(value)


def _batch(value: Any) -> float:
    batch = _tokens("batch", value)
    if batch is not None and batch < 1:
        raise UsageError(f"batch: {value}, at least 1 sequence is needed")
    return batch or 1.0


def theory(found: Inputs) -> Theory:
    """What predictions take. Raises UsageError where the device's speed or the model's size is not known."""
    device = found.device
    if device is None:
        raise UsageError(_without_memory(found.no_device))
    if not device.bandwidth:
        raise UsageError(f"accelerator: no speed is known of {device.name}{_neighbours(device.name)}")
    if not found.geometry.parameters or not found.geometry.active_parameters:
        raise UsageError("model: its layers alone do not tell its speed; give model, model_config or its inline form")
    return found.geometry, found.settings, device


def _without_memory(said: str) -> str:
    """Why there is no device, without the advice to give its memory, which tells no speed."""
    host = " has the memory of its host: give gpu_memory_gib"
    if said.endswith(host):
        name = said.removesuffix(host).removeprefix("accelerator: ")
        return f"accelerator: no speed is known of {name}; this-cpu is measured on the machine that it is asked on"
    return said.removesuffix(" or give gpu_memory_gib").rstrip(";,")


def _neighbours(name: str) -> str:
    """What the catalogue says to a name that it does not hold."""
    try:
        accelerators.find(name)
    except UsageError as error:
        return f": {error}"
    return ""


def provisional(device: Device, *figures: str) -> tuple[str, ...]:
    """Those of the figures that are recalled or in dispute, so that what rests on them is provisional."""
    return tuple(figure for figure in figures if device.certainty(figure) == "C")
