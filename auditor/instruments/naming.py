"""What a model's name says of its weights, beside a config.json that was read from elsewhere."""

import re
from collections.abc import Mapping
from dataclasses import replace

from auditor.catalog import models
from auditor.engines.formats import loads_several
from auditor.loading.problems import one_line
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings
from auditor.theory.widths import same_format

__all__ = ["as_named", "unsure"]

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def as_named(geometry: Geometry, name: str, asked: str | None) -> Geometry:
    """The model of a config with weights as its name has them; `asked` is the quantisation that was told, if any.

    A plain config is that of a quantised copy whose name says so ("...-NVFP4", "...-w4a16"). A config that ModelOpt
    wrote is not that of a model whose name says nothing, as ModelOpt's copies always do: its publisher's format is
    taken. Weights whose files are at hand, and a format that was told outright, are left alone.
    """
    if geometry.weight_bytes is not None:
        return geometry
    said = models.format_of(name)
    if geometry.quantization is None:
        return _copied(geometry, name, said, asked)
    if not geometry.repacked or asked is not None or said not in (None, "none"):
        return geometry
    return _original(geometry, name)


def unsure(geometry: Geometry, settings: Settings, sources: Mapping[str, str]) -> tuple[str, ...]:
    """What the quantisation leaves open of weights that are to be computed: a word that is not known, or a loader of
    several widths.
    """
    word = one_line(settings.quantization or "")
    if settings.weight_bytes is not None or geometry.weight_bytes is not None:
        return ()
    if sources.get("weight_bits", "").startswith("assumed"):
        return (f"quantization {word} is not known: weights are counted in 16 bit; name their format, such as awq",)
    if geometry.quantization is None and loads_several(settings.quantization):
        told = f"{settings.weight_bits:g} bits are counted; name the format, or the copy (...-NVFP4, ...-w4a16)"
        return (f"quantization {word} loads weights of several widths: {told}",)
    return ()


def _copied(geometry: Geometry, name: str, said: str | None, asked: str | None) -> Geometry:
    if said in (None, "none") or not (asked is None or loads_several(asked) or same_format(asked, said)):
        return geometry
    note = f"the config is of 16-bit weights: they are counted in {said}, as the name {name} says"
    return replace(geometry, quantization=said, notes=(*geometry.notes, note))


def _original(geometry: Geometry, name: str) -> Geometry:
    repository = _REPOSITORY.match(name)
    published = models.published(repository[0]) if repository else None
    if published is None:
        return geometry
    note = (
        f"the config is of a copy in {geometry.quantization}, which the name {name} does not say: the weights are "
        f"counted as its publisher's, in {published.quantization or '16 bit'}; name the copy, or its quantization"
    )
    return replace(
        geometry,
        quantization=published.quantization,
        formats=published.formats,
        kv_format=published.kv_format,
        notes=(*geometry.notes, note),
    )
