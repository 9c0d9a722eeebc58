"""`audit explain [RULE]`: the page of a rule, or the list of rules."""

import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated

import typer

from auditor.cli.complete import rule_ids
from auditor.cli.output import write
from auditor.errors import UsageError

__all__ = ["command", "listing", "pages", "title"]

RuleId = Annotated[
    str | None,
    typer.Argument(
        metavar="RULE",
        help="A rule's id, such as K302; all rules without it.",
        autocompletion=rule_ids,
        show_default=False,
    ),
]


def pages(folders: Iterable[str]) -> Mapping[str, str]:
    """Every rule page by rule id, from folders named as `package/folder`."""
    found: dict[str, str] = {}
    for folder in folders:
        package, _, inner = folder.partition("/")
        try:
            place: Traversable = files(package).joinpath(*filter(None, inner.split("/")))
            entries = [entry for entry in place.iterdir() if entry.name.endswith(".md")]
        except (ModuleNotFoundError, OSError):
            raise UsageError(
                f"the rule pages {folder} are missing; install the package that brings them again"
            ) from None
        found |= {entry.name.removesuffix(".md").upper(): entry.read_text(encoding="utf-8") for entry in entries}
    return dict(sorted(found.items()))


def title(page: str) -> str:
    """The title in a page's first line, `# K302 Target concurrency against the pool`."""
    return page.partition("\n")[0].lstrip("# ").partition(" ")[2]


def listing(found: Mapping[str, str], questions: Mapping[str, str]) -> str:
    """All rules, a line each, under the question that their first letter names."""
    lines, letter = [], ""
    for rule, page in found.items():
        if rule[0] != letter:
            letter = rule[0]
            lines += ["", f"{letter}  {questions.get(letter, 'Measurement validity')}"]
        lines.append(f"  {rule}  {title(page)}")
    return "\n".join([*lines[1:], "", "More about one: audit explain RULE"]) + "\n"


def _show(page: str) -> None:
    if not sys.stdout.isatty():
        write(page if page.endswith("\n") else f"{page}\n")
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(width=min(Console().width, 100)).print(Markdown(page))


def command(rule: RuleId = None) -> None:
    """Explain a rule and how to fix what it found.

    Shows its page: question, why, what it looks at, what it judges, what it cannot see, fix. Lists all rules when none
    is named.

    \b
    audit explain K302
    audit explain | grep -i queue
    """
    from auditor.plugins import load_checks

    checks = load_checks()
    found = pages(dict.fromkeys(check.pages for check in checks))
    if rule is None:
        write(listing(found, {check.question: check.title for check in checks}))
        return
    if rule.upper() not in found:
        near = get_close_matches(rule.upper(), found, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else "`audit explain` lists all rules"
        raise UsageError(f"no rule '{rule}'; {hint}")
    _show(found[rule.upper()])
