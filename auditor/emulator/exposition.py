"""Metrics pages in Prometheus text: what both engines' pages share. What they show stands in `pages.py`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from auditor.emulator.counters import HistogramCount
from auditor.emulator.engine import Engine

__all__ = ["Metric", "Value", "render"]

Value = float | HistogramCount


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of a page: name, type, help and how to read it from an engine.

    `read` gives values or (extra labels, value) pairs; a name whose rows are all absent is left out of the page.
    """

    name: str
    kind: str
    help: str
    read: Callable[[Engine], "Value | Iterable[tuple[Mapping[str, str], Value]]"]


Labels = Callable[[Engine, Metric], Mapping[str, str]]


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    inner = ",".join(
        f'{name}="{value.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"'
        for name, value in sorted(labels.items())
    )
    return "{" + inner + "}"


def _number(value: float) -> str:
    return repr(float(value))


def _histogram(name: str, labels: Mapping[str, str], value: HistogramCount) -> Iterator[str]:
    total = 0
    for bound, count in zip((*map(_number, value.bounds), "+Inf"), value.counts, strict=True):
        total += count
        yield f"{name}_bucket{_labels({**labels, 'le': bound})} {_number(total)}"
    yield f"{name}_count{_labels(labels)} {_number(value.count)}"
    yield f"{name}_sum{_labels(labels)} {_number(value.sum)}"


def _samples(metric: Metric, labels: Labels, engines: Iterable[Engine]) -> list[tuple[Mapping[str, str], Value]]:
    rows: list[tuple[Mapping[str, str], Value]] = []
    for engine in engines:
        read = metric.read(engine)
        own = labels(engine, metric)
        if isinstance(read, int | float | HistogramCount):
            rows.append((own, read))
        else:
            rows.extend(({**own, **extra}, value) for extra, value in read)
    return rows


def render(
    metrics: Iterable[Metric],
    engines: Iterable[Engine],
    labels: Labels,
    created: float | None,
) -> str:
    """The page. `created` is the Unix time of the `_created` series, None where the engine has none."""
    lines: list[str] = []
    engines = tuple(engines)
    for metric in metrics:
        rows = _samples(metric, labels, engines)
        if not rows:
            continue
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        for own, value in rows:
            if isinstance(value, HistogramCount):
                lines.extend(_histogram(metric.name, own, value))
            else:
                lines.append(f"{metric.name}{_labels(own)} {_number(value)}")
        if created is not None and metric.kind in ("counter", "histogram"):
            name = metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
            lines += [f"# HELP {name}_created {metric.help}", f"# TYPE {name}_created gauge"]
            lines += [f"{name}_created{_labels(own)} {_number(created)}" for own, _ in rows]
    return "\n".join(lines) + "\n"
