"""Both phases as matrix products, with the user's own numbers: GEMM against GEMV. Shared by all formats.

Prefill multiplies a prompt's N rows at once, decode one row a sequence; what that does to FLOPs, bytes and their ratio
says whether compute or bandwidth binds.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from auditor.evidence import Evidence
from auditor.instruments.predict import Predicted
from auditor.report.words import quantity
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.phases import Phase, Work, critical_tokens, decode_phase, prefill_phase, ridge
from auditor.theory.settings import Settings
from auditor.theory.work import rate
from auditor.units import plain

__all__ = ["Products", "data", "lines", "of_evidence", "of_prediction", "rows", "summary"]

_WIDTH, _LABEL, _COLUMN = 78, 24, 26  # room for an indent in 80 columns

_KINDS = {"prefill": "matrix x matrix (GEMM)", "decode": "vector x matrix (GEMV)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """One step of each phase and the ridge that it meets (FLOP/byte); `critical` are the tokens of a step from which
    products with the weights are bound by compute. `provisional` says that the ridge rests on uncertain figures.
    """

    phases: tuple[Phase, ...]
    ridges: tuple[float, ...]
    peak: float
    dtype: str
    bandwidth: float
    devices: int
    critical: float
    provisional: bool


def of_evidence(evidence: Evidence) -> Products | None:
    """The target load's phases at its mean lengths; None where model, hardware or traffic is unknown."""
    theory, batch, (prompt, output) = evidence.theory, evidence.batch, evidence.profile.traffic.mean_lengths
    if theory is None or batch is None or prompt <= 0 or not theory[0].active_parameters:
        return None
    geometry, settings, device = theory
    read = prefill_phase(geometry, settings, round(prompt))
    return _products(geometry, settings, device, (read, decode_phase(geometry, settings, batch, prompt + output / 2)))


def of_prediction(found: Predicted) -> Products | None:
    """The phases that a prediction speaks of."""
    phases = tuple(speed.phase for speed in (found.prefill, found.decode) if speed is not None)
    device = found.inputs.device
    return _products(found.inputs.geometry, found.inputs.settings, device, phases) if phases and device else None


def _products(geometry: Geometry, settings: Settings, device: Device, phases: tuple[Phase, ...]) -> Products:
    return Products(
        phases=phases,
        ridges=tuple(ridge(device.at(phase.total.bytes), settings) for phase in phases),
        peak=rate(device, settings.compute_dtype),
        dtype=settings.compute_dtype,
        bandwidth=device.bandwidth,
        devices=settings.devices,
        critical=critical_tokens(geometry, settings, device),
        provisional="C" in (device.certainty("flops"), device.certainty("bandwidth")),
    )


# --------------------------------------------------------------------------------------------------------------- words


def rows(found: Products) -> list[tuple[str, list[str]]]:
    """The table as (label, a cell a phase); the first row heads the columns, indents show what belongs together."""
    table = [("products of one step", [_title(phase) for phase in found.phases])]
    if found.phases[0].q_width:
        table += [
            ("  Q (N x d)", [_shape(p.n, p.q_width, p) for p in found.phases]),
            ("  K, V (M x d)", [_shape(p.m, p.kv_width, p) for p in found.phases]),
            ("  Q times K", [_KINDS[p.name] for p in found.phases]),
        ]
    for label in ("weights", "attention", "all"):
        works = [_parts(phase)[label] for phase in found.phases]
        table += [
            (f"  {label}: FLOP", [quantity(work.flops, "FLOP/s").removesuffix("FLOP/s").strip() for work in works]),
            ("    bytes moved", [quantity(work.bytes, "bytes") for work in works]),
            ("    FLOP/byte", [plain(work.intensity) for work in works]),
        ]
    table.append(("  ridge, FLOP/byte", [plain(each) for each in found.ridges]))
    bounds = [_binds(*pair) for pair in zip(found.phases, found.ridges, strict=True)]
    table.append(("  which binds", [bound if bound == "compute" else f"bandwidth ({bound})" for bound in bounds]))
    return table


def summary(found: Products) -> str:
    """What the ridge is made of, and from which step size the linear layers leave the bandwidth behind."""
    each = "one device's share; " if found.devices > 1 else ""
    sheet = f"{quantity(found.peak, 'FLOP/s')} of {found.dtype} over {quantity(found.bandwidth, 'bytes/s')}"
    if any(each < 0.99 * found.peak / found.bandwidth for each in found.ridges):
        sheet += " of memory, and more where caches hold a part"
    doubt = " (provisional)" if found.provisional else ""
    turn = f"Products with the weights turn compute-bound from {plain(found.critical)} tokens a step."
    return f"{each}the ridge is {sheet}{doubt}. {turn}"


def lines(found: Products) -> Iterator[str]:
    """Table and summary as plain text of at most 80 columns."""
    for label, cells in rows(found):
        yield f"{label:<{_LABEL}}{''.join(f'{cell:<{_COLUMN}}' for cell in cells)}".rstrip()
    yield from textwrap.wrap(summary(found), _WIDTH, initial_indent="  ", subsequent_indent="  ")


def _title(phase: Phase) -> str:
    return "prefill, one prompt" if phase.name == "prefill" else f"decode, {plain(phase.sequences)} at once"


def _shape(count: float, width: int, phase: Phase) -> str:
    each = " each" if phase.name == "decode" and phase.sequences > 1 else ""
    return f"{count:,.0f} x {width:,}{each}"


def _binds(phase: Phase, ridge: float) -> str:
    bound = phase.binds(ridge)
    return "KV cache" if bound == "kv" else bound


# ---------------------------------------------------------------------------------------------------------------- data


def data(found: Products) -> dict[str, Any]:
    """The table as plain data: FLOPs, bytes and FLOP/byte of one device."""
    phases: dict[str, Any] = {
        phase.name: {
            "sequences": phase.sequences,
            "q": {"n": phase.n, "width": phase.q_width},
            "kv": {"m": phase.m, "width": phase.kv_width},
            "product": _KINDS[phase.name],
            **{name: _work(work) for name, work in _parts(phase).items()},
            "ridge": each,
            "binds": _binds(phase, each),
        }
        for phase, each in zip(found.phases, found.ridges, strict=True)
    }
    own = {"peak": found.peak, "dtype": found.dtype, "bandwidth": found.bandwidth, "devices": found.devices}
    return {**phases, **own, "compute_bound_from": found.critical, "provisional": found.provisional}


def _parts(phase: Phase) -> dict[str, Work]:
    return {"weights": phase.linear, "attention": phase.attention, "all": phase.total}


def _work(work: Work) -> dict[str, float]:
    return {"flops": work.flops, "bytes": work.bytes, "intensity": work.intensity}
