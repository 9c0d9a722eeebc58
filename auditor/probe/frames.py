"""What processes of this program say to each other over pipes: pickled messages, each after its size in four bytes."""

import asyncio
import pickle
from dataclasses import dataclass
from typing import Any

from auditor.loads import Load
from auditor.probe.prompts import Prompts
from auditor.probe.target import Deadlines, Target

__all__ = ["Job", "frame", "next_frame"]

_SIZE = 4


@dataclass(frozen=True, slots=True)
class Job:
    """A load for a worker to send."""

    target: Target
    prompts: Prompts
    deadlines: Deadlines
    load: Load


def frame(message: object) -> bytes:
    """A message as it goes over the pipe."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_SIZE, "big") + data


async def next_frame(reader: asyncio.StreamReader) -> Any:
    """The next message; None at the end of the pipe."""
    try:
        size = int.from_bytes(await reader.readexactly(_SIZE), "big")
        return pickle.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
