"""`audit catalog [KIND] [NAME]`: what the audit knows without asking anybody."""

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from auditor.cli.complete import entry_names
from auditor.cli.output import write
from auditor.errors import UsageError

if TYPE_CHECKING:
    from auditor.engines.flavour import Flavour
    from auditor.theory.device import Device
    from auditor.theory.kv.geometry import Geometry

__all__ = ["command"]


class Kind(StrEnum):
    """What the catalogue holds."""

    accelerators = "accelerators"
    models = "models"
    engines = "engines"


Row = Mapping[str, Any]
KindName = Annotated[
    Kind | None,
    typer.Argument(metavar="KIND", help="What to list; a count of each without it.", show_default=False),
]
EntryName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="One entry in full.", autocompletion=entry_names, show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _device(device: "Device") -> Row:
    """A line of at most 80 columns; figures that are recalled or in dispute carry a question mark."""
    bf16 = device.flops.get("bf16") or device.flops.get("fp16")
    tera = {"16 bit": bf16, "fp8": device.flops.get("fp8"), "int8": device.flops.get("int8")}

    def sure(figure: str, text: str) -> str:
        return f"{text}?" if text and device.certainty(figure) == "C" else text

    return {
        "key": device.key,
        "GiB": sure("memory", f"{device.memory_bytes / (1 << 30):g}"),
        "GB/s": sure("bandwidth", f"{device.bandwidth / 1e9:,.0f}"),
        **{name: sure("flops", f"{rate / 1e12:,.4g}" if rate else "") for name, rate in tera.items()},
        "confidence": device.confidence,
    }


def _model(geometry: "Geometry") -> Row:
    """A line of at most 80 columns; parameters are in billions."""
    from auditor.report.entries import attention, billions, limit

    return {
        "name": geometry.name,
        "B": billions(geometry.parameters),
        "active": billions(geometry.active_parameters),
        "attention": attention(geometry),
        "limit": limit(geometry.max_position),
    }


def _engine(flavour: "Flavour") -> Row:
    """A line of at most 80 columns: the first command and page of each."""
    return {
        "name": flavour.name,
        "started by": next(iter(flavour.commands), ""),
        "metrics": next(iter(flavour.metrics_paths), ""),
        "checked on": _checked(flavour),
    }


def _checked(flavour: "Flavour") -> str:
    return "a running engine" if flavour.seen_running else "its source"


def _entries(kind: Kind) -> dict[str, Any]:
    from auditor.catalog import accelerators, models
    from auditor.engines.flavours import FLAVOURS

    if kind is Kind.accelerators:
        return {device.key: device for device in accelerators.devices()}
    return {name: models.find(name) for name in models.names()} if kind is Kind.models else dict(FLAVOURS)


def _find(kind: Kind, name: str) -> Any:
    from auditor.catalog import accelerators, models
    from auditor.engines.flavours import FLAVOURS

    if kind is Kind.engines and name not in FLAVOURS:
        raise UsageError(f"unknown engine '{name}'; engines: {', '.join(FLAVOURS)}")
    if kind is Kind.engines:
        return FLAVOURS[name]
    if kind is Kind.accelerators and accelerators.is_this_cpu(name):
        from auditor.probe.machine import measured

        return measured()
    return accelerators.find(name) if kind is Kind.accelerators else models.find(name)


_ROWS: Mapping[Kind, Callable[[Any], Row]] = {Kind.accelerators: _device, Kind.models: _model, Kind.engines: _engine}


def _data(entry: Any) -> Any:
    """An entry as JSON data; the functions of an engine are left out, its flags are kept by field."""
    from auditor.report.json import plain

    if hasattr(entry, "flags"):
        flags = {flag.field: list(flag.names) for flag in entry.flags}
        return {
            "name": entry.name,
            "title": entry.title,
            "started by": ", ".join(entry.commands),
            "metrics": ", ".join(entry.metrics_paths),
            "checked on": _checked(entry),
            "prefix": entry.prefix,
            "info_paths": list(entry.info_paths),
            "flags": flags,
        }
    return plain(entry)


def _text(kind: Kind, entry: Any) -> str:
    """An entry in full, as text of at most 80 columns."""
    from auditor.report import entries

    if kind is Kind.engines:
        data = _data(entry)
        data["flags"] = [f"{field}: {', '.join(names)}" for field, names in data["flags"].items()]
    else:
        data = entries.model(entry) if kind is Kind.models else entries.device(entry)
    return "\n".join(entries.lines(data)) + "\n"


def _table(rows: Sequence[Row]) -> str:
    head = list(rows[0]) if rows else []
    widths = {key: max(len(key), *(len(row[key]) for row in rows)) for key in head}
    lines = ["  ".join(key.ljust(widths[key]) for key in head)]
    lines += ["  ".join(row[key].ljust(widths[key]) for key in head) for row in rows]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def command(kind: KindName = None, name: EntryName = None, as_json: AsJson = False) -> None:
    """List the known accelerators, models and engines.

    \b
    audit catalog accelerators
    audit catalog models llama-3.1-8b --json
    audit catalog accelerators this-cpu     measures this machine, in about five seconds

    Models: parameters and those that a token passes, in billions; attention, where "state" is of recurrent layers; the
    context limit in tokens (Ki is 1,024 of them).
    Rates of accelerators are dense TFLOP/s (int8: TOP/s). Confidence is that of the least certain figure: A two sources
    agree, B one source, C recalled or in dispute; such figures carry a question mark.
    """
    if kind is None:
        counts = {each.value: len(_entries(each)) for each in Kind}
        listed = "".join(f"{name}: {number:,}\n" for name, number in counts.items())
        write(json.dumps(counts, indent=2) + "\n" if as_json else listed)
    elif name is None:
        entries = _entries(kind)
        data = {key: _data(entry) for key, entry in entries.items()}
        write(json.dumps(data, indent=2) + "\n" if as_json else _table([_ROWS[kind](e) for e in entries.values()]))
    else:
        found = _find(kind, name)
        write(json.dumps(_data(found), indent=2) + "\n" if as_json else _text(kind, found))
