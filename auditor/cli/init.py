"""`audit init`: write a profile from what runs, or from the files that deploy it."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auditor.cli.complete import accelerator_names
from auditor.cli.keys import key_of
from auditor.cli.output import check_writable, say, write
from auditor.cli.presets import PresetName
from auditor.errors import ProfileError, UsageError, unread

if TYPE_CHECKING:
    from auditor.init.draft import Draft

__all__ = ["command"]

File = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="A Kubernetes manifest, compose file, Helm values, start script or systemd unit; - is stdin.",
        show_default=False,
    ),
]
Url = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="A live endpoint, http://HOST:PORT/v1.", show_default=False)
]
LaunchLine = Annotated[
    str | None,
    typer.Option("--launch", metavar="COMMAND", help="The engine's own command line.", show_default=False),
]
Pick = Annotated[
    str | None,
    typer.Option("--pick", metavar="NAME", help="Which of several deployments in FILE.", show_default=False),
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="The profile's name.", show_default=False)]
Part = Annotated[
    str | None,
    typer.Option(
        "--accelerator",
        metavar="NAME",
        help="Such as h200-sxm; files seldom name it.",
        autocompletion=accelerator_names,
        show_default=False,
    ),
]
KeyName = Annotated[
    str | None,
    typer.Option("--api-key-env", metavar="NAME", help="The variable that holds the API key.", show_default=False),
]
PrometheusUrl = Annotated[
    str | None,
    typer.Option(
        "--prometheus",
        metavar="URL",
        help="Take a week of lengths, times and requests in flight from here.",
        show_default=False,
    ),
]
PrometheusKey = Annotated[
    str | None,
    typer.Option(
        "--prometheus-key-env", metavar="NAME", help="The variable that holds its bearer token.", show_default=False
    ),
]
Out = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="PROFILE", help="Write it here; stdout without it.")
]
Force = Annotated[bool, typer.Option("--force", help="Write over a file that is there.")]


def command(
    file: File = None,
    *,
    url: Url = None,
    launch: LaunchLine = None,
    pick: Pick = None,
    accelerator: Part = None,
    name: Name = None,
    api_key_env: KeyName = None,
    prometheus: PrometheusUrl = None,
    prometheus_key_env: PrometheusKey = None,
    preset: PresetName = None,
    output: Out = None,
    force: Force = False,
) -> None:
    """Write a profile, from what runs or from what deploys it.

    Every value says where it comes from, guesses say "assumed". A live endpoint is asked by GETs alone; lengths come
    off its histograms. Secrets stay out: a key becomes the name of a variable.

    \b
    audit init --url http://127.0.0.1:8000/v1 -o prod.yaml
    audit init --url http://127.0.0.1:8000/v1 --prometheus http://127.0.0.1:9090
    audit init deployment.yaml --accelerator h100-sxm -o prod.yaml
    audit init compose.yaml --pick vllm
    kubectl get deployment,service -o yaml | audit init -
    audit init --launch "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 32k"
    """
    from auditor.init.write import profile_text

    if file is None and url is None and launch is None:
        raise UsageError("init: nothing to read; give a file, --url or --launch (audit init --help)")
    if pick is not None and file is None:
        raise UsageError(f"--pick {pick[:60]}: chooses among the deployments of a file; give the FILE too")
    if prometheus_key_env is not None and prometheus is None:
        raise UsageError("--prometheus-key-env: is the token of a Prometheus; give its --prometheus URL too")
    if output is not None:
        _free(output, force=force)
    draft = _draft(file, url, launch, pick, api_key_env)
    if prometheus is not None:
        draft = _watched(draft, prometheus, prometheus_key_env)
    draft = _with_part(replace(draft, name=name or draft.name), accelerator)
    text = profile_text(draft, output.name if output else "PROFILE", preset.value if preset else None)
    if output is None:
        write(text)
    else:
        _put(output, text)
    _check(text, output, draft)


def _draft(file: Path | None, url: str | None, launch: str | None, pick: str | None, key_name: str | None) -> "Draft":
    """All that was given, in one: files and flags say what is deployed, the endpoint where it is and who uses it."""
    from auditor.init.draft import Draft
    from auditor.init.files import from_file, from_launch
    from auditor.init.merging import with_endpoint

    deployed = Draft()
    if file is not None:
        deployed = from_file(Path("/dev/stdin") if str(file) == "-" else file, Path(), pick)
    if launch is not None:
        from auditor.init.draft import merged

        deployed = merged(from_launch(launch, Path()), deployed)
    if url is None:
        return _keyed(deployed, key_name)
    return with_endpoint(deployed, _live(url, key_name))


def _live(url: str, key_name: str | None) -> "Draft":
    from auditor.init.live import from_endpoint
    from auditor.loading.endpoint import address_fault

    if (fault := address_fault(url, query=False)) is not None:
        raise UsageError(f"--url: {fault}")
    return asyncio.run(from_endpoint(url, key_name, key_of(key_name), Path()))


def _watched(draft: "Draft", url: str, key_name: str | None) -> "Draft":
    """The draft with what a Prometheus saw of the service's users, which is more than the engine's page."""
    from auditor.init.draft import merged
    from auditor.init.watched import from_prometheus

    seen = asyncio.run(from_prometheus(url, key_name, key_of(key_name, "--prometheus-key-env"), draft))
    return replace(merged(seen, draft), sources=(*draft.sources, *seen.sources))


def _keyed(draft: "Draft", key_name: str | None) -> "Draft":
    from auditor.init.draft import Said
    from auditor.loading.endpoint import key_name_fault

    if key_name is None:
        return draft
    if (fault := key_name_fault(key_name)) is not None:
        raise UsageError(f"--api-key-env: {fault}")
    return replace(draft, endpoint={**draft.endpoint, "api_key_env": Said(key_name, "the variable that holds the key")})


def _free(path: Path, *, force: bool) -> None:
    if path.exists() and not force:
        raise UsageError(f"-o {path}: is there already; choose another name, or --force to write over it")
    check_writable(path)


def _with_part(draft: "Draft", accelerator: str | None) -> "Draft":
    """The draft with the accelerator that was named, else with a word on why there should be one."""
    from auditor.catalog.accelerators import find, is_this_cpu
    from auditor.init.draft import Said

    if accelerator is not None:
        key = accelerator if is_this_cpu(accelerator) else find(accelerator).key
        return replace(draft, deployment={**draft.deployment, "accelerator": Said(key)})
    if "accelerator" in draft.deployment:
        return draft
    note = "deployment.accelerator: nothing names it; without it neither memory nor limits of speed are computed"
    return replace(draft, notes=(*draft.notes, note))


def _put(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"-o {path}: cannot be written ({unread(error)})") from None


def _check(text: str, output: Path | None, draft: "Draft") -> None:
    """Say what to do next; raise ProfileError for what cannot be right, such as flags that the engine refuses."""
    from auditor.loading.profile import parse_profile
    from auditor.redact import Redactor

    hide = Redactor(draft.secrets).text
    for note in draft.notes:
        say(f"note: {hide(note)}")
    try:
        parse_profile(text, output or Path("PROFILE"), {})
    except ProfileError as error:
        say("init: the profile is written, but what it was made from cannot be right; correct this in it:")
        raise ProfileError(error.problems) from None
    if output is not None:
        say(f"{output}: written; next: audit lint {output}, audit plan {output}, audit run {output}")
