"""`audit fit`: what fits into a deployment's memory, by arithmetic alone."""

import json
from collections.abc import Callable, Mapping
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
from auditor.cli.output import write
from auditor.errors import UsageError

if TYPE_CHECKING:
    from auditor.instruments.inputs import Inputs
    from auditor.instruments.question import Question

__all__ = ["command"]

_MOST = 10**9  # requests in flight, replicas


Replicas = Annotated[int, option("--replicas", metavar="N", text="Replicas that share the load.")]
Fraction = Annotated[
    float | None,
    option("--gpu-memory-utilization", "--mem-fraction-static", metavar="SHARE", text="The engine's memory."),
]
Concurrency = Annotated[int | None, option("--concurrency", metavar="N", text="Requests in flight that must fit.")]
Prompt = Annotated[str | None, option("--prompt", metavar="TOKENS", text="Prompt tokens, or p50:p95:max of them.")]
Output = Annotated[str | None, option("--output", metavar="TOKENS", text="Output tokens, likewise.")]
Prefix = Annotated[str | None, option("--shared-prefix", metavar="TOKENS", text="Of the prompt, the same in all.")]
File = Annotated[str | None, option("--batch", metavar="FILE", text="JSON lines, a deployment each; - is stdin.")]


def command(
    profile: ProfileName = None,
    *,
    model: Model = None,
    accelerator: Accelerator = None,
    gpu_memory_gib: Memory = None,
    count: Count = None,
    replicas: Replicas = 1,
    tensor_parallel: Tensor = None,
    pipeline_parallel: Pipeline = None,
    data_parallel: Data = None,
    expert_parallel: Expert = None,
    engine: Engine = None,
    engine_version: Version = None,
    quantization: Quantization = None,
    kv_cache_dtype: KvDtype = None,
    max_model_len: Limit = None,
    max_num_seqs: Most = None,
    gpu_memory_utilization: Fraction = None,
    launch: Launch = None,
    concurrency: Concurrency = None,
    prompt: Prompt = None,
    output: Output = None,
    shared_prefix: Prefix = None,
    as_json: AsJson = False,
    batch: File = None,
) -> None:
    """Say what fits into a deployment's memory, and what to change.

    \b
    audit fit --model llama-3.1-70b --accelerator h200-sxm --count 4 --tp 4 --concurrency 64 \\
              --prompt 3000:8000:16000 --output 500
    audit fit prod.yaml --json
    audit fit --batch questions.jsonl > answers.jsonl

    Exits 0 if it fits, 1 if not (at p95 lengths), 4 if that is within the band of what the engine itself takes; with
    --batch 0 once every line is answered, or its reader has gone away. Flags that it names are the engine's: --launch
    takes them.
    """
    row = {
        "model": model,
        "accelerator": accelerator,
        "gpu_memory_gib": gpu_memory_gib,
        "count": count,
        "tensor_parallel": tensor_parallel,
        "pipeline_parallel": pipeline_parallel,
        "data_parallel": data_parallel,
        "expert_parallel": expert_parallel,
        "engine": engine,
        "engine_version": engine_version,
        "quantization": quantization,
        "kv_cache_dtype": kv_cache_dtype,
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "memory_fraction": gpu_memory_utilization,
        "launch": launch,
    }
    load = {"--concurrency": concurrency, "--prompt": prompt, "--output": output, "--shared-prefix": shared_prefix}
    said = [_flag(key) for key, value in row.items() if value is not None]
    said += [key for key, value in load.items() if value is not None]
    _refuse_both({"PROFILE": profile, "--batch": batch}, said)
    if batch is not None:
        _batch(batch)
        return
    if profile is not None:
        _declared(profile, as_json=as_json)
    else:
        _answer(*_flags(row, load, replicas), as_json=as_json)


def _flag(key: str) -> str:
    return {"memory_fraction": "--gpu-memory-utilization"}.get(key, f"--{key.replace('_', '-')}")


def _refuse_both(whole: Mapping[str, str | None], said: list[str]) -> None:
    """Raise UsageError where a profile or a batch stands beside what it holds itself."""
    named = [name for name, value in whole.items() if value is not None]
    if named and (said or len(named) > 1):
        raise UsageError(f"{named[0]} says it all: leave out {', '.join([*named[1:], *said])}")


def _declared(profile: str, *, as_json: bool) -> None:
    from auditor.instruments.question import from_profile
    from auditor.loading import load_profile
    from auditor.probe.machine import measured
    from auditor.redact import Redactor

    loaded = load_profile(profile)
    _answer(*from_profile(loaded, measured), as_json=as_json, clean=Redactor(loaded.secrets).text)


def _flags(row: dict[str, Any], load: Mapping[str, Any], replicas: int) -> "tuple[Inputs, Question]":
    from auditor.instruments.inputs import inputs
    from auditor.instruments.question import Question, one_class, tokens
    from auditor.probe.machine import measured

    if row["max_model_len"] is not None:
        row["max_model_len"] = tokens("--max-model-len", row["max_model_len"])
    prompt, output, prefix = load["--prompt"], load["--output"], load["--shared-prefix"]
    if (prompt is None) != (output is None):
        raise UsageError("--prompt and --output: give both, or neither for requests up to the context limit")
    if prefix is not None and prompt is None:
        raise UsageError("--shared-prefix: is a part of --prompt, which is missing")
    target = load["--concurrency"]
    for flag, number in {"--replicas": replicas, "--concurrency": target}.items():
        if number is not None and not 1 <= number <= _MOST:
            raise UsageError(f"{flag}: a whole number from 1 to {_MOST} is needed")
    try:
        found = inputs(row, Path(), here=measured)
    except UsageError as error:
        raise UsageError(_of_flags(str(error), row)) from None
    shared = tokens("--shared-prefix", prefix) if prefix is not None else None
    classes = (one_class(prompt, output, shared),) if prompt is not None else ()
    return found, Question(
        classes=classes, target=None if target is None else -(-target // replicas), replicas=replicas
    )


def _of_flags(message: str, row: Mapping[str, Any]) -> str:
    """A message about a key of a row, about the flag that the user typed instead."""
    key, colon, rest = message.partition(":")
    return f"{_flag(key)}:{rest}" if colon and row.get(key) is not None else message


def _answer(found: "Inputs", question: "Question", *, as_json: bool, clean: Callable[[str], str] = str) -> None:
    from auditor.instruments.document import document
    from auditor.instruments.fit import fit
    from auditor.instruments.ruling import ruling
    from auditor.report.fit import render

    answer = fit(found, question)
    verdict = ruling(answer)
    write(clean(json.dumps(document(answer, verdict), indent=2) + "\n" if as_json else render(answer, verdict)))
    raise typer.Exit(verdict.exit_code)


def _batch(source: str) -> None:
    from auditor.cli.batches import answer_lines
    from auditor.instruments.brief import brief

    answer_lines(source, brief)
