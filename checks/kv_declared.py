"""KV capacity, what is declared: do the computed pool, the profile, the launch line and the server say the same?

Rules K308 to K311 of question K, which `kv_capacity` asks.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from auditor import holding
from auditor.evidence import Check, Conflict, Evidence, Finding, Number, Rule
from auditor.theory.agreement import Figure, Told, causes, compare, implied_share
from auditor.theory.kv.cells import attention_parallel
from auditor.units import count, percent, plain

__all__ = ["RULES"]

_NEEDS = "both pools: served by the engine, and computed from model, hardware and settings"


# ----------------------------------------------------------------------------------------------------------- the server


def k308_pools(evidence: Evidence) -> Iterable[Finding]:
    told = holding.told(evidence)
    if told is None or evidence.geometry is None or evidence.settings is None:
        yield _PART.skip("K308", _NEEDS)
        return
    figures = compare(evidence.geometry, evidence.settings, evidence.device, told)
    if not figures:
        yield _PART.skip("K308", _NEEDS)
        return
    wrong = [figure for figure in figures if not figure.agrees]
    first, *others = sorted(figures, key=lambda figure: figure.agrees)
    rest: dict[str, Any] = {"measured": _served(first), "required": _computed(first)}
    rest |= {"numbers": tuple(n for f in others for n in (_served(f), _computed(f)))}
    rest |= {"where": evidence.where("deployment")}
    if not wrong:
        why = "; ".join(_words(figure) for figure in figures)
        estimate = any(abs(f.off) > 0.02 for f in figures)
        why += ", within what engines differ in memory overhead." if estimate else ": they agree."
        yield _PART.finding("K308", "pass", why, **rest)
        return
    why = f"{'; '.join(map(_words, wrong))}. Computed: {first.rule}. Served: {_place(evidence, told)}. "
    known, guess = _explained(evidence, told, wrong)
    yield _PART.finding("K308", "warn", f"{why}{guess}", remedies=_fix(evidence, known), **rest)


def _served(figure: Figure) -> Number:
    return Number.of(figure.name, figure.told, figure.unit, "served")


def _computed(figure: Figure) -> Number:
    band = (None, None) if figure.exact else (figure.low, figure.high)
    return Number(
        name=figure.name,
        value=figure.ours,
        unit=figure.unit,
        provenance="computed",
        low=band[0],
        high=band[1],
        note=figure.rule,
    )


def _words(figure: Figure) -> str:
    share = f"{'-' if figure.off < 0 else '+'}{percent(abs(figure.off))}"
    pair = f"{_amount(figure.ours)} {figure.unit}, served {_amount(figure.told)} ({share})"
    band = "" if figure.exact else f", {_amount(figure.low)} to {_amount(figure.high)} expected"
    return f"Computed {pair}{band}"


def _amount(value: float) -> str:
    return plain(value, 4)


def _place(evidence: Evidence, told: Told) -> str:
    """The engine's own figures, and where it tells them."""
    served = evidence.served
    said = [f"{told.blocks} blocks of {told.block_size}"] if told.blocks and told.block_size else []
    said += [f"{told.tokens} tokens"] if told.tokens else []
    said += [f"{told.bytes / 2**30:.2f} GiB"] if told.bytes else []
    said += [f"{_amount(told.requests)} requests of {told.length} tokens"] if told.requests else []
    names = ("kv_blocks", "kv_tokens", "max_model_len")
    place = next((served.sources[name] for name in names if served and name in served.sources), "")
    return f"{', '.join(said)}{f' ({place})' if place else ''}"


def _explained(evidence: Evidence, told: Told, wrong: Sequence[Figure]) -> tuple[list[str], str]:
    """The settings that would explain the difference, as flags with values, and the sentence that says so."""
    if evidence.geometry is None or evidence.settings is None:
        return [], ""
    theory = evidence.geometry, evidence.settings, evidence.device
    found = causes(*theory, told)
    known = [f"{evidence.flag(cause.field)} {cause.value}" for cause in found]
    if known:
        return known, f"It would agree with {' or '.join(known)}."
    share, now = implied_share(*theory, told), evidence.settings.memory_fraction
    if share is not None and now is not None and not all(figure.exact for figure in wrong):
        flag = evidence.flag("gpu_memory_utilization")
        return [], f"At the usual overhead that is {flag} {share:.2f} instead of {now:g}, or memory that others take."
    return [], "No one setting explains it: another model, or a rule of this version that is not known here."


def _fix(evidence: Evidence, known: Sequence[str]) -> tuple[str, ...]:
    fields = [evidence.flag(f) for f in ("gpu_memory_utilization", "kv_cache_dtype", "quantization") if evidence.has(f)]
    log = f"compare {', '.join((*fields, 'the accelerator'))} with what the start-up log says"
    return (*(f"if it is served with {said}, say so in the profile" for said in known), log)


# ---------------------------------------------------------------------------------------------------------- the devices


def k309_heads(evidence: Evidence) -> Iterable[Finding]:
    geometry, settings = evidence.geometry, evidence.settings
    if geometry is None or settings is None:
        yield _PART.skip("K309", evidence.lacking or "the model's geometry")
        return
    rest: dict[str, Any] = {"where": evidence.where("deployment.tensor_parallel"), "severity": "low"}
    if not geometry.layers:
        yield _PART.finding("K309", "pass", "No layer keeps keys and values: none is stored twice.", **rest)
        return
    heads, devices = min(1 if g.kind == "mla" else g.kv_heads for g in geometry.layers), attention_parallel(settings)
    latent = any(g.kind == "mla" for g in geometry.layers)
    shared = settings.decode_context_parallel
    if devices <= heads * shared:
        split = f", whose tokens {shared} devices divide" if shared > 1 else ""
        share = f"{devices} devices share {_cache(heads, latent=latent)}{split}"
        why = share if devices > 1 else "One device holds all KV heads"
        yield _PART.finding("K309", "pass", f"{why}: none is stored twice.", **rest)
        return
    why = f"{devices} devices for {_cache(heads, latent=latent)}: each is stored {devices // (heads * shared)} times, "
    why += "and more devices add no room."
    fix = evidence.levers(
        "divide each request's tokens over devices ({decode_context_parallel})",
        "spend devices on data-parallel attention instead ({data_parallel})",
    )
    yield _PART.finding("K309", "warn", why, remedies=(*fix, "spend devices on replicas instead"), **rest)


def _cache(heads: int, *, latent: bool) -> str:
    return "one latent cache" if latent else count(heads, "KV head")


# ----------------------------------------------------------------------------------------------------------- said twice


def k310_served(evidence: Evidence) -> Iterable[Finding]:
    if evidence.served is None:
        return [_PART.skip("K310", "what the endpoint serves")]
    return _differences(evidence, "K310", [c for c in evidence.conflicts if c.with_served and c.on_capacity])


def k311_launch(evidence: Evidence) -> Iterable[Finding]:
    if evidence.profile.deployment.launch is None:
        return [_PART.skip("K311", "deployment.launch")]
    return _differences(evidence, "K311", [c for c in evidence.conflicts if not c.with_served])


def _differences(evidence: Evidence, rule: str, found: list[Conflict]) -> Iterator[Finding]:
    fix = ("make both places say the same, then audit again",)
    for c in found:
        where = evidence.where(c.field)
        yield _PART.finding(rule, "warn", f"{c}.", subject=c.field, deciding=True, where=where, remedies=fix)
    if not found:
        yield _PART.finding(rule, "pass", "Nothing is said twice and differently.", deciding=True)


RULES = (
    Rule("K308", "Computed pool against the served one", k308_pools),
    Rule("K309", "Tensor parallelism and KV heads", k309_heads),
    Rule("K310", "KV settings as served", k310_served),
    Rule("K311", "Launch flags against the profile", k311_launch),
)
"""The rules of question K that hold what is said against itself."""

_PART = Check(question="K", title="KV capacity", rules=RULES)
