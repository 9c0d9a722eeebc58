"""The GPUs of the machine that audits, as its driver names them."""

import re
from pathlib import Path

from auditor.catalog import accelerators
from auditor.errors import UsageError

__all__ = ["local_gpu"]

_DRIVER = Path("/proc/driver/nvidia/gpus")


def local_gpu(driver: Path = _DRIVER) -> str | None:
    """The catalogue's key of this machine's GPUs, by NVIDIA's driver; None without any, or with several kinds."""
    try:
        texts = [file.read_text("utf-8", "replace") for file in sorted(driver.glob("*/information"))]
    except OSError:
        return None
    names = {match[1].strip() for text in texts if (match := re.search(r"(?m)^Model:\s*(.+)$", text))}
    try:
        return accelerators.find(names.pop()).key if len(names) == 1 else None
    except UsageError:
        return None
