"""The command line. A command's module is imported only when that command runs, so help and completion stay quick."""

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from auditor.cli.exits import EXITS

__all__ = ["COMMANDS", "app", "program"]

# One module a command under auditor/cli, each with a function `command`; the text is its line in `audit --help`.
COMMANDS: dict[str, str] = {
    "init": "Write a profile, from what runs or from what deploys it.",
    "run": "Audit a deployment: discover, probe, judge, report.",
    "plan": "Show what a run would send and cost; send nothing.",
    "lint": "Check profiles and the files they name.",
    "capacity": "Find the highest load that meets every SLO.",
    "schema": "Print the JSON schema of a profile, for editors.",
    "judge": "Judge a saved run again, without the endpoint.",
    "compare": "Say whether a saved run is slower than those before it.",
    "report": "Render a saved run in other formats.",
    "explain": "Explain a rule and how to fix what it found.",
    "fit": "Say what fits into a deployment's memory, and what to change.",
    "predict": "Say how fast a deployment is at a load, what bounds it, and what it costs.",
    "coverage": "Say which of TTFT, TPS and memory dashboards cover, and how far that can be trusted.",
    "probe": "Send one load to an endpoint and measure it.",
    "catalog": "List the known accelerators, models and engines.",
    "emulate": "Serve a profile's deployment on an emulated engine.",
}

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_EPILOG = "Exit codes: " + ", ".join(f"{code} {meaning}" for code, meaning in EXITS.items()) + "."


def _load(name: str) -> Any:
    single = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    single.command(name, context_settings=_SETTINGS)(import_module(f"auditor.cli.{name}").command)
    return get_command(single)


class _LazyGroup(TyperGroup):
    """Knows its commands by name and summary; puts the real one in place when one is resolved."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, known, rest = super().resolve_command(ctx, args)
        return name, _load(name) if name and known else known, rest


def _version(wanted: bool) -> None:
    if wanted:
        from auditor import __version__

        typer.echo(f"serving-audit {__version__}")
        raise typer.Exit


def _placeholder() -> None:
    raise AssertionError("the command's own module answers")


app = typer.Typer(
    name="audit",
    cls=_LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=_SETTINGS,
    epilog=_EPILOG,
)


@app.callback(epilog=_EPILOG)
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Is this LLM deployment ready to serve? One profile, one command, one verdict with its evidence.

    Start with `audit run embedded`: it needs no GPU and no server. `audit init` writes a profile of your own service.
    """


for _name, _summary in COMMANDS.items():
    app.command(_name, help=_summary)(_placeholder)


def program(arguments: list[str]) -> None:
    """Run the command line; raises SystemExit with the exit code, or the error that the command raised."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    get_command(app)(arguments, prog_name="audit")
