"""A real Prometheus for tests: on loopback, with data of its own; a test that needs one is skipped where it is not
installed (Debian: apt-get install prometheus).
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
import yaml

PATIENCE = 60.0  # seconds until it answers, on a machine that is busy
TRIES = 3

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="the program prometheus is not installed"
)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def prometheus(
    folder: Path,
    targets: Mapping[str, Sequence[str]],
    *,
    rules: Sequence[Path] = (),
    interval: str = "1s",
    flags: Sequence[str] = (),
    jobs: Sequence[Mapping[str, Any]] = (),
) -> Iterator[str]:
    """A Prometheus that scrapes `targets` (job -> host:port) every `interval`, and whole scrape configs in `jobs`.

    Gives its address.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scraped = [{"job_name": job, "static_configs": [{"targets": list(hosts)}]} for job, hosts in targets.items()]
    config = {
        "global": {"scrape_interval": interval, "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [*scraped, *jobs],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("wb") as log:
        process, url = _started(folder, flags, log)
        try:
            yield url
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _started(folder: Path, flags: Sequence[str], log: IO[bytes]) -> "tuple[subprocess.Popen[bytes], str]":
    """The process once it answers, and its address; on another port where somebody took the first one meanwhile."""
    for _ in range(TRIES):
        port = free_port()
        files = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        command = ["prometheus", *files, f"--web.listen-address=127.0.0.1:{port}", *flags]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        if _is_ready(process, f"http://127.0.0.1:{port}"):
            return process, f"http://127.0.0.1:{port}"
        process.kill()
        process.wait(PATIENCE)
        if "address already in use" not in (folder / "log").read_text(errors="replace"):
            break
    raise RuntimeError(f"prometheus did not start: {(folder / 'log').read_text(errors='replace')[-2000:]}")


def _is_ready(process: "subprocess.Popen[bytes]", url: str) -> bool:
    """Whether it answers within its time, or at all."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            with urlopen(f"{url}/-/ready", timeout=5) as reply:
                if reply.status == 200 and process.poll() is None:
                    return True
        except HTTPError as error:
            if error.code == 401:  # it is there, and wants a password
                return True
            time.sleep(0.1)
        except (URLError, OSError):
            time.sleep(0.1)
    return False
