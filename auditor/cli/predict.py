"""`audit predict`: how fast a deployment is at a load, and what bounds it, by arithmetic and priors alone."""

import json
from collections.abc import Callable, Container
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from auditor.cli.deployment import (
    Accelerator,
    AsJson,
    Count,
    Data,
    Engine,
    Expert,
    KvDtype,
    Launch,
    Limit,
    Memory,
    Model,
    Most,
    Pipeline,
    ProfileName,
    Quantization,
    Tensor,
    Version,
    option,
)
from auditor.cli.options import positive
from auditor.cli.output import write
from auditor.errors import UsageError

if TYPE_CHECKING:
    from auditor.instruments.predict import Predicted

__all__ = ["command"]

_LENGTHS = {"--prompt": "prompt_tokens", "--output": "output_tokens", "--context": "context_tokens"}
_MOST = 10**9  # sequences, money
_CHEAPEST = 1e-6  # money an hour

Drafts = Annotated[int | None, option("--num-speculative-tokens", metavar="N", text="Tokens drafted a step.")]
Eager = Annotated[bool | None, typer.Option("--enforce-eager", help="Without kernel graphs.", show_default=False)]
Prompt = Annotated[str | None, option("--prompt", metavar="TOKENS", text="Prompt tokens of a request.")]
Output = Annotated[str | None, option("--output", metavar="TOKENS", text="Output tokens of a request.")]
Context = Annotated[
    str | None,
    option("--context", metavar="TOKENS", text="Held while decoding; the prompt and half of the output without it."),
]
Rate = Annotated[
    str | None, option("--rate", metavar="RATE", text="Requests to serve, such as 5/s: how many replicas.")
]
Tpot = Annotated[
    str | None, option("--tpot", metavar="TIME", text="A token's time to keep, such as 50ms: with how many at once.")
]
Price = Annotated[
    list[str] | None,
    option("--price", metavar="[NAME=]MONEY", text="Of one accelerator an hour; others by name to rank; repeatable."),
]
Batch = Annotated[
    str | None,
    option("--batch", "--concurrency", metavar="N|FILE", text="Sequences at once; or JSON lines, a question each."),
]
File = Annotated[str | None, option("--batch-file", metavar="FILE", text="JSON lines, a question each; - is stdin.")]


def command(
    profile: ProfileName = None,
    *,
    model: Model = None,
    accelerator: Accelerator = None,
    count: Count = None,
    tensor_parallel: Tensor = None,
    pipeline_parallel: Pipeline = None,
    data_parallel: Data = None,
    expert_parallel: Expert = None,
    engine: Engine = None,
    engine_version: Version = None,
    quantization: Quantization = None,
    kv_cache_dtype: KvDtype = None,
    num_speculative_tokens: Drafts = None,
    enforce_eager: Eager = None,
    max_model_len: Limit = None,
    max_num_seqs: Most = None,
    gpu_memory_gib: Memory = None,
    launch: Launch = None,
    prompt: Prompt = None,
    output: Output = None,
    context: Context = None,
    rate: Rate = None,
    tpot: Tpot = None,
    price: Price = None,
    as_json: AsJson = False,
    batch: Batch = None,
    batch_file: File = None,
) -> None:
    """Say how fast a deployment is at a load, what bounds it, and what it costs.

    \b
    audit predict --model llama-3.1-70b --accelerator h100-sxm --count 2 --tp 2 --quantization fp8 \\
                  --batch 32 --prompt 4000 --output 500
    audit predict prod.yaml --json
    audit predict --batch questions.jsonl > answers.jsonl

    Every time comes with its 80 % band from published measurements of its kind and with the limit that physics sets.
    Exits 0 once it has answered; nothing is measured.
    """
    file = batch_file if batch_file is not None or batch is None or batch.isdecimal() else batch
    row = {
        "model": model,
        "accelerator": accelerator,
        "count": count,
        "tensor_parallel": tensor_parallel,
        "pipeline_parallel": pipeline_parallel,
        "data_parallel": data_parallel,
        "expert_parallel": expert_parallel,
        "engine": engine,
        "engine_version": engine_version,
        "quantization": quantization,
        "kv_cache_dtype": kv_cache_dtype,
        "num_speculative_tokens": num_speculative_tokens,
        "enforce_eager": enforce_eager,
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "gpu_memory_gib": gpu_memory_gib,
        "launch": launch,
    }
    lengths = {"--prompt": prompt, "--output": output, "--context": context}
    said = [f"--{key.replace('_', '-')}" for key, value in row.items() if value is not None]
    said += [flag for flag, value in {**lengths, "--rate": rate, "--tpot": tpot, "--price": price}.items() if value]
    if file is not None:
        if batch_file is None and not _there(file):
            raise UsageError(
                f"--batch {file[:60]}: neither a number of sequences nor a file of questions that is there"
            )
        flag = "--batch" if batch_file is None else "--batch-file"
        _refuse(f"{flag} {file}", [*["PROFILE"] * (profile is not None), *said, *["--json"] * as_json])
        _file(flag, file)
    elif profile is not None:
        _refuse("PROFILE", [*said, *["--batch"] * (batch is not None)])
        _declared(profile, as_json=as_json)
    else:
        _answer(row, lengths, batch, (rate, tpot), price or [], as_json=as_json)


def _refuse(whole: str, said: list[str]) -> None:
    """Raise UsageError where a profile or a file stands beside what it holds itself."""
    if said:
        raise UsageError(f"{whole} says it all: leave out {', '.join(said)}")


def _declared(profile: str, *, as_json: bool) -> None:
    """A profile's deployment at its target, by the mean lengths of its traffic."""
    from auditor.instruments.load import Load
    from auditor.instruments.predict import predict
    from auditor.instruments.question import from_profile
    from auditor.instruments.ranking import declared_prices
    from auditor.loading import load_profile
    from auditor.probe.machine import measured
    from auditor.redact import Redactor

    loaded = load_profile(profile)
    found, question = from_profile(loaded, measured)
    prompt, output = loaded.profile.traffic.mean_lengths
    load = Load(
        batch=float(question.target or 1), alone=not question.target, prompt=prompt or None, output=output or None
    )
    prices = declared_prices(loaded.profile.deployment, found.device, found.settings.devices)
    rate = loaded.profile.traffic.request_rate
    answer = predict(found, load, prices, rate, loaded.profile.traffic.classes)
    _print(answer, as_json=as_json, clean=Redactor(loaded.secrets).text)


def _print(answer: "Predicted", *, as_json: bool, clean: Callable[[str], str] = str) -> None:
    from auditor.instruments.forecast import forecast
    from auditor.report.predict import render

    write(clean(json.dumps(forecast(answer), indent=2) + "\n" if as_json else render(answer)))


def _answer(
    row: dict[str, Any],
    lengths: dict[str, str | None],
    batch: str | None,
    wanted: tuple[str | None, str | None],
    prices: list[str],
    *,
    as_json: bool,
) -> None:
    from auditor.instruments.load import asked
    from auditor.instruments.predict import predict
    from auditor.instruments.question import tokens
    from auditor.probe.machine import measured
    from auditor.units import DURATION, RATE

    told = {flag: None if text is None else tokens(flag, text) for flag, text in lengths.items()}
    if told["--prompt"] is None and told["--context"] is None:
        raise UsageError("--prompt: give it with --output, or --context for decode alone: nothing else tells lengths")
    if row["max_model_len"] is not None:
        row["max_model_len"] = tokens("--max-model-len", row["max_model_len"])
    given = row | {_LENGTHS[flag]: value for flag, value in told.items()} | {"batch": _sequences(batch)}
    rate, tpot = wanted
    per_second = None if rate is None else positive("--rate", rate, RATE)
    seconds = None if tpot is None else positive("--tpot", tpot, DURATION)
    try:
        found, load = asked(given, base=Path(), here=measured)
        money = _prices(prices, found.device.key if found.device is not None else None)
        answer = predict(found, load, money, per_second, tpot=seconds)
    except UsageError as error:
        raise UsageError(_flagged(str(error), given)) from None
    _print(answer, as_json=as_json)


def _sequences(written: str | None) -> int | None:
    """Sequences at once; None where none is told. Raises UsageError for none and for more than anybody serves."""
    if written is None:
        return None
    if len(written) > len(str(_MOST)) or int(written) > _MOST:
        raise UsageError(f"--batch: at most {_MOST:,} sequences")
    if int(written) < 1:
        raise UsageError("--batch: at least 1 is needed")
    return int(written)


def _flagged(said: str, keys: Container[str]) -> str:
    """What is wrong with a key of a row, under the flag that the key was told by."""
    key, colon, rest = said.partition(":")
    flags = {key: flag for flag, key in _LENGTHS.items()}
    return f"{flags.get(key) or '--' + key.replace('_', '-')}{colon}{rest}" if colon and key in keys else said


def _prices(written: list[str], own: str | None) -> dict[str, float]:
    """Prices by accelerator; one without a name is that of the accelerator asked about."""
    from auditor.catalog import accelerators

    found: dict[str, float] = {}
    for text in written:
        name, named, amount = text.rpartition("=")
        price = _amount(amount)
        if price is None or (named and not name.strip()):
            raise UsageError(f"--price {text[:60]}: an amount an hour is needed, such as 2.50 or h200-sxm=3.80")
        try:
            key = accelerators.find(name, any_memory=True).key if name else own
        except UsageError as error:
            raise UsageError(f"--price {text[:60]}: {error}") from None
        if key is not None and found.setdefault(key, price) != price:
            raise UsageError(f"--price {text[:60]}: {key} has a price, {found[key]:g}: give one")
    return found


def _amount(written: str) -> float | None:
    """Money an hour; None where it is no such amount."""
    try:
        price = float(written)
    except ValueError:
        return None
    return price if _CHEAPEST <= price <= _MOST else None


def _file(flag: str, source: str) -> None:
    from auditor.cli.batches import answer_lines
    from auditor.instruments.guess import guess

    if not _there(source):
        raise UsageError(f"{flag} {source[:60]}: no such file")
    answer_lines(source, guess)


def _there(source: str) -> bool:
    try:
        return source == "-" or Path(source).exists()
    except (OSError, ValueError):
        return False
