"""Put the program's own help texts into README.md: `python tests/readme.py`. The house test calls `filled`."""

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
_BLOCK = re.compile(r"(<!-- audit ?(\w*) --help -->\n```text\n).*?(\n```)", re.DOTALL)


def help_text(command: str) -> str:
    """What `audit COMMAND --help` prints at 80 columns; of `audit` itself if `command` is empty."""
    arguments = [sys.executable, "-m", "auditor", *([command] if command else []), "--help"]
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60, env=environment)
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def filled(text: str) -> str:
    """`text` with every block that follows a `<!-- audit COMMAND --help -->` mark replaced by the current help."""
    return _BLOCK.sub(lambda match: match[1] + help_text(match[2]) + match[3], text)


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
