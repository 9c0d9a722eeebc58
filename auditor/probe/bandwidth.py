"""How fast this machine's memory and caches are read: every core compares and copies buffers of a size at once.

One process a core, because caches answer faster than threads of one interpreter can ask. The parent says
"SIZE SECONDS" on its standard input, hears "ready", says "go" and hears bytes/s; the process ends when its input does.

Bytes are counted as STREAM does (McCalpin, 1995): those read and those written. They are divided by the core's own
time, not by the wall's, so that other programs take nothing of the core; what they take of memory and its caches cannot
be told, but that they ran can: the core had less than all of the time. It is a limit that nothing may beat, hence the
best of several rounds.
"""

import ctypes
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from auditor.errors import ToolError

__all__ = ["Speed", "fastest", "main", "readers"]

ROUNDS = 3
SECONDS = 0.1  # of each way to move bytes, a round
_PATIENCE = 3.0  # times as long by the wall, where other programs keep the core busy
_PASS = 32 << 20  # bytes between two looks at the clock

Reader = subprocess.Popen[str]


@dataclass(frozen=True, slots=True)
class Speed:
    """Bytes/s of all cores together, and the share of the time that the busiest of them had for it."""

    rate: float
    share: float = 1.0


@contextmanager
def readers(cpus: Sequence[int]) -> Iterator[list[Reader]]:
    """A process bound to each of the CPUs, for as long as the block lasts."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    started: list[Reader] = []
    try:
        for cpu in cpus:
            command = [sys.executable, "-m", "auditor.probe.bandwidth", str(cpu)]
            pipe = subprocess.PIPE
            started.append(subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe))
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def fastest(started: Sequence[Reader], size: int, rounds: int = ROUNDS, seconds: float = SECONDS) -> Speed:
    """All processes together, each with a buffer of `size` bytes: the best of several rounds.

    Raises ToolError where a process ended.
    """
    best = Speed(0.0)
    for _ in range(rounds):
        for process in started:
            _say(process, f"{size} {seconds}")
        for process in started:
            _hear(process)
        for process in started:
            _say(process, "go")
        heard = [tuple(map(float, _hear(process).split())) for process in started]
        found = Speed(sum(rate for rate, _ in heard), min(share for _, share in heard))
        best = max(best, found, key=lambda speed: speed.rate)
    return best


def _say(process: Reader, text: str) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # the missing answer tells
        process.stdin.write(f"{text}\n")
        process.stdin.flush()


def _hear(process: Reader) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise ToolError(f"memory could not be measured (exit code {process.wait()}); name a catalogue accelerator")
    return line


# ------------------------------------------------------------------------------------------------------ in the process


def main() -> None:
    """The process: answers until its input ends."""
    with suppress(OSError, AttributeError):
        os.sched_setaffinity(0, {int(sys.argv[1])})
    memory, moves = _filled(4096), _moves()
    for line in sys.stdin:
        size, seconds = line.split()
        if len(memory) != int(size):
            memory = _filled(int(size))
        print("ready", flush=True)
        sys.stdin.readline()
        rate, share = max(_rate(move, memory, float(seconds)) for move in moves)
        print(rate, share, flush=True)


def _filled(size: int) -> mmap.mmap:
    """A buffer that holds something: pages that were never written are all one page of zeros in a cache."""
    memory = mmap.mmap(-1, size)
    with suppress(OSError, AttributeError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 1, size)
    return memory


def _moves() -> tuple[Callable[[int, int, int], object], ...]:
    """The C library's own ways to read two buffers, and to copy one to the other."""
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return compare, ctypes.memmove


def _rate(move: Callable[[int, int, int], object], memory: mmap.mmap, seconds: float) -> tuple[float, float]:
    """Bytes/s of this core's own time over about `seconds` of it, in which the buffer's equal halves are compared or
    one is copied to the other, and that time's share of the wall's.
    """
    half, first = len(memory) // 2, ctypes.addressof(ctypes.c_char.from_buffer(memory))
    times = max(1, _PASS // len(memory))
    start, began, moved = time.monotonic(), time.thread_time(), 0
    until = start + _PATIENCE * seconds
    while moved == 0 or (time.thread_time() - began < seconds and time.monotonic() < until):
        for _ in range(times):
            move(first, first + half, half)
        moved += times * 2 * half
    spent = time.thread_time() - began
    return moved / spent, min(1.0, spent / (time.monotonic() - start))


if __name__ == "__main__":
    main()
