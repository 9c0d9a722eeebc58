"""`audit emulate PROFILE`: serve a profile's deployment on an emulated engine."""

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from auditor.cli.options import ProfileName
from auditor.cli.output import write
from auditor.errors import UsageError

if TYPE_CHECKING:
    from auditor.emulator.spec import Spec
    from auditor.loading import Loaded

__all__ = ["command"]

Port = Annotated[int, typer.Option("--port", metavar="P", min=0, max=65535, help="Listen here; 0 takes a free port.")]


def _spec(loaded: "Loaded") -> "Spec":
    from auditor.emulator.spec import spec_from
    from auditor.run import Options, declare

    evidence = declare(loaded, Options(offline=True))
    if evidence.geometry is None or evidence.device is None or evidence.settings is None:
        reason = evidence.geometry_error or evidence.device_error or "deployment.model and accelerator are missing"
        raise UsageError(f"{evidence.where('deployment') or loaded.path}: nothing to emulate: {reason}")
    return spec_from(evidence.profile, evidence.geometry, evidence.device, evidence.settings, api_key=loaded.key)


def command(profile: ProfileName, port: Port = 0) -> None:
    """Serve a profile's deployment on an emulated engine, on this machine, until Ctrl-C.

    Plays vLLM and SGLang. Prints the URL. Whatever the endpoint in the profile is, nothing is sent to it.

    \b
    audit emulate embedded --port 8000 &
    audit probe --url http://127.0.0.1:8000/v1 --requests 20 --prompt-tokens 500 --output-tokens 50
    """
    from auditor.emulator.process import new_loop, serve
    from auditor.loading import load_profile

    spec = _spec(load_profile(profile))
    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            runner.run(serve(spec, lambda url: write(f"{url}\n"), asyncio.Event().wait, port))
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise UsageError(f"--port {port}: {reason}; choose another, or 0 for a free one") from None
