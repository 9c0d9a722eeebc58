"""Long computations of tests, shared out over the cores of the machine."""

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

__all__ = ["spread", "workers"]

T = TypeVar("T")
U = TypeVar("U")


def workers() -> ProcessPoolExecutor:
    """A process for each core. What goes to them and comes back must pickle: functions of modules, plain data."""
    return ProcessPoolExecutor(mp_context=get_context("spawn"))


def spread(work: Callable[[T], U], items: Iterable[T]) -> list[U]:
    """What `work` gives for each item, in order."""
    with workers() as pool:
        return list(pool.map(work, items, chunksize=4))
