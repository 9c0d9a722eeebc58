"""The emulator in a process of its own. It ends when its standard input does, so never later than its parent."""

import asyncio
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from auditor.emulator.memory import pool_size
from auditor.emulator.server import Emulator
from auditor.emulator.spec import Spec, served
from auditor.errors import NothingMeasured

__all__ = ["main", "new_loop", "serve", "start_process"]

GOODBYE = 5.0  # seconds that the process gets to end by itself
GC_THRESHOLD = 100_000  # objects between collections: fewer pauses between tokens


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed, else asyncio's own loop."""
    with suppress(ImportError):
        loop: asyncio.AbstractEventLoop = import_module("uvloop").new_event_loop()
        return loop
    return asyncio.new_event_loop()


async def serve(
    spec: Spec, ready: Callable[[str], object], until: Callable[[], Awaitable[object]], port: int = 0
) -> None:
    """Serve `spec`, tell `ready` the URL, stop when `until` is over."""
    emulator = Emulator(spec)
    await emulator.start(port=port)
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    ready(emulator.url)
    try:
        await until()
    finally:
        await emulator.stop()


async def _input_ends() -> None:
    ended = asyncio.Event()
    descriptor = sys.stdin.fileno()

    def read() -> None:
        if not os.read(descriptor, 4096):
            ended.set()

    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, read)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)


def _say(url: str) -> None:
    print(url, flush=True)


def main() -> None:
    """The process: reads a pickled Spec from standard input, prints the URL, serves until the input ends."""
    spec = pickle.load(sys.stdin.buffer)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(spec, _say, _input_ends))


async def start_process(spec: Spec) -> tuple[str, Callable[[], None]]:
    """Start the emulator; its URL, and a function that stops it.

    Raises UsageError where the real engine would refuse to start, NothingMeasured if the process does not come up.
    """
    pool_size(served(spec))
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    process = subprocess.Popen(
        [sys.executable, "-m", "auditor.emulator.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,  # Ctrl-C is for the auditor, which still wants its answers
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(BrokenPipeError):  # it is gone already: the missing line tells
            process.stdin.write(pickle.dumps(spec))
            process.stdin.flush()
        line = await asyncio.to_thread(process.stdout.readline)
    except BaseException:
        _stop(process)
        raise
    if not line:
        _stop(process)
        raise NothingMeasured(f"the emulator did not start (exit code {process.returncode}); its error is above")
    return line.decode().strip(), lambda: _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with suppress(OSError):
                pipe.close()
    try:
        process.wait(GOODBYE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
