"""The flags that describe a deployment, for commands that answer a question about one."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from auditor.cli.complete import accelerator_names, model_names, profile_names

__all__ = [
    "Accelerator",
    "AsJson",
    "Count",
    "Data",
    "Engine",
    "Expert",
    "KvDtype",
    "Launch",
    "Limit",
    "Memory",
    "Model",
    "Most",
    "Pipeline",
    "ProfileName",
    "Quantization",
    "Tensor",
    "Version",
    "option",
]


def option(*names: str, metavar: str, text: str, offers: Callable[[str], list[str]] | None = None) -> Any:
    """An option with a value and no default worth showing; `offers` completes what is typed."""
    return typer.Option(*names, metavar=metavar, help=text, show_default=False, autocompletion=offers)


ProfileName = Annotated[
    str | None,
    typer.Argument(
        metavar="PROFILE",
        help="A profile, instead of the flags below.",
        autocompletion=profile_names,
        show_default=False,
    ),
]
Model = Annotated[
    str | None, option("--model", metavar="NAME", text="Catalogue name, model folder, GGUF file.", offers=model_names)
]
Accelerator = Annotated[
    str | None, option("--accelerator", metavar="NAME", text="Such as h200-sxm.", offers=accelerator_names)
]
Memory = Annotated[float | None, option("--gpu-memory-gib", metavar="GIB", text="Usable memory of one, if known.")]
Count = Annotated[int | None, option("--count", metavar="N", text="Accelerators a replica.")]
Tensor = Annotated[int | None, option("--tp", "--tensor-parallel", metavar="N", text="Tensor parallelism.")]
Pipeline = Annotated[int | None, option("--pp", "--pipeline-parallel", metavar="N", text="Pipeline parallelism.")]
Data = Annotated[int | None, option("--dp", "--data-parallel", metavar="N", text="Data parallelism.")]
Expert = Annotated[int | None, option("--ep", "--expert-parallel", metavar="N", text="Expert parallelism.")]
Engine = Annotated[str | None, option("--engine", metavar="NAME", text="vllm (assumed), sglang, llamacpp, trtllm ...")]
Version = Annotated[str | None, option("--engine-version", metavar="V", text="Such as 0.18.0; the newest without it.")]
Quantization = Annotated[str | None, option("--quantization", metavar="WORD", text="Such as fp8, awq, q4_k_m.")]
KvDtype = Annotated[str | None, option("--kv-cache-dtype", metavar="WORD", text="Such as fp8, q8_0.")]
Launch = Annotated[str | None, option("--launch", metavar="COMMAND", text="The engine's own command line, read.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[str | None, option("--max-model-len", metavar="TOKENS", text="The context limit; the model's own.")]
Most = Annotated[int | None, option("--max-num-seqs", metavar="N", text="Requests that may run at once.")]
