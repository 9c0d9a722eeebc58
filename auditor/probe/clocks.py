"""Which clock the event loop follows."""

import asyncio
import time

__all__ = ["real_time"]


def real_time() -> bool:
    """Whether the running loop's time is the wall's (the monotonic clock), not one that a test or emulator turns."""
    return abs(asyncio.get_running_loop().time() - time.monotonic()) < 1.0
