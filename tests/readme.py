"""What is written by the program itself: help texts in README.md, and the index of the rules in checks/RULES.md.

`python tests/readme.py` renews both; the house test calls `filled` and `index`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
RULES = README.parent / "checks" / "RULES.md"
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


def index() -> str:
    """Every rule with its question, under the question that it belongs to, by the pages of the installed checks."""
    from auditor.cli.explain import pages, title
    from auditor.plugins import load_checks

    own = [check for check in load_checks() if check.pages == "checks/rules"]
    found = pages(["checks/rules"])
    letters = {**{check.question: check.title for check in own}, "T": "Measurement validity"}
    lines = ["# Rules", "", "`audit explain RULE` shows a page. Written by `python tests/readme.py`."]
    for letter, name in letters.items():
        rows = [(rule, page) for rule, page in found.items() if rule[0] == letter]
        lines += ["", f"## {letter}: {name}", "", "| rule | | asks |", "|---|---|---|"]
        lines += [f"| [{rule}](rules/{rule}.md) | {title(page)} | {_question(page)} |" for rule, page in rows]
    return "\n".join(lines) + "\n"


def _question(page: str) -> str:
    """The first paragraph under a page's heading "Question", on one line."""
    text = re.split(r"^## Question\s*$", page, maxsplit=1, flags=re.MULTILINE)[1].strip().split("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    RULES.write_text(index(), encoding="utf-8")
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
