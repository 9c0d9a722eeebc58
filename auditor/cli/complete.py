"""What the shell offers to complete: profiles, rules, models, accelerators. Nothing here may ever fail or be slow."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import typer

__all__ = ["accelerator_names", "entry_names", "model_names", "profile_names", "rule_ids"]


def _offers(names: Callable[[], Iterable[str]], start: str, *, exact: bool = False) -> list[str]:
    """Names that begin so, whatever their case unless `exact`; they keep what was typed, which the shell compares."""
    typed = start if exact else start.casefold()
    with suppress(Exception):  # a broken installation must not write into the line that somebody types
        every = [name for name in names() if (name if exact else name.casefold()).startswith(typed)]
        return [start + name[len(start) :] for name in every]
    return []


def profile_names(incomplete: str) -> list[str]:
    """Shipped profiles by name, and YAML files and folders from here."""
    return [*_offers(_shipped, incomplete), *_offers(lambda: _files(incomplete), incomplete, exact=True)]


def rule_ids(incomplete: str) -> list[str]:
    """The ids of all rules."""
    return _offers(_rules, incomplete)


def model_names(incomplete: str) -> list[str]:
    """Models of the catalogue, with and without their organisation."""
    return _offers(_models, incomplete)


def accelerator_names(incomplete: str) -> list[str]:
    """Accelerators of the catalogue, and this machine's CPU."""
    return _offers(_accelerators, incomplete)


def entry_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Entries of the kind that `audit catalog KIND` names."""
    kind = ctx.params.get("kind")
    named = {"accelerators": _accelerators, "models": _models, "engines": _engines}
    return _offers(named.get(getattr(kind, "value", str(kind)), tuple), incomplete)


def _engines() -> Iterable[str]:
    from auditor.engines.flavours import FLAVOURS

    return FLAVOURS


def _shipped() -> Iterable[str]:
    from auditor.loading.profile import shipped_profiles

    return shipped_profiles()


def _files(start: str) -> Iterable[str]:
    folder = Path(start if start.endswith("/") else Path(start).parent)
    prefix = "" if folder == Path() else f"{folder}/".replace("//", "/")
    for path in sorted(folder.iterdir()):
        if path.suffix in (".yaml", ".yml"):
            yield prefix + path.name
        elif path.is_dir() and not path.name.startswith("."):
            yield f"{prefix}{path.name}/"


def _rules() -> Iterable[str]:
    from auditor.cli.explain import pages
    from auditor.plugins import load_checks

    return pages(dict.fromkeys(check.pages for check in load_checks()))


def _models() -> Iterable[str]:
    from auditor.catalog.models import names

    every = names()
    return (*every, *(name.rpartition("/")[2] for name in every))


def _accelerators() -> Iterable[str]:
    from auditor.catalog.accelerators import names

    return (*names(), "this-cpu")
