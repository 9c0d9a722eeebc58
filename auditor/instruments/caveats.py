"""What `audit predict` must say beside its times: that the engine would not start, or not take such requests."""

from collections.abc import Iterator

from auditor.engines.flavours import FLAVOURS, flag_names
from auditor.errors import UsageError
from auditor.instruments.brief import weights_of
from auditor.instruments.inputs import Inputs
from auditor.instruments.load import Load
from auditor.theory import answers
from auditor.theory.carrying import pool_range
from auditor.theory.levers import name, spell
from auditor.theory.memory import memory
from auditor.units import in_gib, plain, quantity

__all__ = ["caveats", "longer", "refuse_longer"]


def longer(found: Inputs, load: Load) -> str | None:
    """That a request is longer than the context limit, which no engine serves whole; None where it is not."""
    limit, asked = found.limit, max((load.prompt or 0.0) + (load.output or 0.0), load.context or 0.0)
    if not limit or asked <= limit:
        return None
    parts = {"prompt": load.prompt, "output": load.output, "context": load.context}
    told = ", ".join(f"{plain(tokens, 10)} {what}" for what, tokens in parts.items() if tokens)
    most = f"the limit of {limit:,} tokens{_field(found, 'max_model_len')}"
    return f"a request of {told} tokens is longer than {most}: the engine refuses it or cuts it short"


def refuse_longer(found: Inputs, load: Load) -> None:
    """Raise UsageError for a request that is longer than the context limit."""
    if (said := longer(found, load)) is not None:
        raise UsageError(f"{said}; ask about shorter ones, or raise the limit where the model allows it")


def _field(found: Inputs, field: str) -> str:
    """The engine's flag for a field, in brackets; nothing where it has none."""
    flags = flag_names(FLAVOURS.get(found.settings.engine, FLAVOURS["generic"]))
    word = name(flags, field) if flags else None
    return f" ({word})" if word else ""


def caveats(found: Inputs, load: Load, holds: float | None) -> Iterator[str]:
    """Sentences on what would keep a deployment from these times; `holds` are the sequences that its cache carries."""
    start = _too_large(found) or _start(found)
    if start is not None:
        yield start
    limit = _batch_limit(found)
    if limit is not None and limit < load.batch:
        flags = flag_names(FLAVOURS.get(found.settings.engine, FLAVOURS["generic"]))
        most = f"{spell(flags, '{max_num_seqs}')} lets only {limit:,} of {plain(load.batch, 9)} sequences run at once"
        yield f"{most}: the others wait, and these times are those of a replica that runs all"
    if start is None and holds is not None and holds < load.batch:
        yield (
            f"the KV cache carries about {plain(max(0.0, holds), 3)} of {plain(load.batch, 9)} such sequences at once "
            "(audit fit says more): the others wait, and these times are those of a replica that carries all"
        )


def _batch_limit(found: Inputs) -> int | None:
    settings = found.settings
    limit = settings.slots if settings.engine == "llamacpp" else settings.max_num_seqs
    return limit * settings.data_parallel if limit else None


def _too_large(found: Inputs) -> str | None:
    weights, device = weights_of(found), found.device
    if weights is None or device is None or weights <= (device.usable_bytes or device.memory_bytes):
        return None
    size = quantity(weights, "bytes")
    return f"{size} of weights do not fit into one {device.name}: these times are those of one that had the memory"


def _start(found: Inputs) -> str | None:
    """Why the engine would not start, by the same rules as `audit fit`; None where it does or that is not known."""
    geometry, settings, device = found.geometry, found.settings, found.device
    if device is None or device.usable_bytes is None or not geometry.vocab_size or found.started:
        return None
    try:
        split = None if settings.pins_pool else memory(geometry, settings, device)
        if split is not None and split.pool <= 0:
            parts = f"{in_gib(split.weights)} of weights and {in_gib(split.overhead)} for the engine"
            word = "does not" if split.pool_high <= 0 else "may not"
            return f"the engine {word} start: {parts} exceed the {in_gib(split.budget)} a device that it may use"
        pools = pool_range(geometry, settings, device)
    except ValueError as error:
        return f"the engine does not start: {error}"
    if refusal := found.refusal or pools.kv.refusal:
        return f"the engine refuses to start: {refusal}"
    if answers.starts(geometry, settings, pools.kv):
        return None
    word = "may refuse" if answers.starts(geometry, settings, pools.high) else "refuses"
    whole = f"a request of {found.limit or 1:,} tokens{_field(found, 'max_model_len')} needs more than the KV cache"
    return f"the engine {word} to start: {whole} (audit fit says what starts)"
