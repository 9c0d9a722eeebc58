"""The server's numbers beside the client's as lines and rows: what agrees, and where the difference lies."""

from collections.abc import Iterator, Sequence

from auditor.evidence import Evidence
from auditor.report import words
from auditor.watch import Agreement

__all__ = ["HEAD", "lines", "rows"]

HEAD = ("Load", "Quantity", "Server", "Here", "Outcome", "Where the difference lies")


def rows(evidence: Evidence) -> list[Sequence[str]]:
    """One row for each quantity of each load, under `HEAD`."""
    return [
        (words.clean(a.load, 60), a.quantity, *_sides(a), a.verdict, words.clean(a.note, 300)) for a in evidence.truth
    ]


def lines(evidence: Evidence, load: str) -> Iterator[str]:
    """What agrees on one load in one line, and each difference in one of its own."""
    told = [a for a in evidence.truth if a.load == load]
    agree = [a.quantity for a in told if a.verdict == "agrees"]
    if agree:
        yield f"server and client agree: {', '.join(agree)}"
    for each in (a for a in told if a.verdict == "differs"):
        server, client = _sides(each)
        yield f"{each.quantity}: {server} by the server, {client} here: {words.clean(each.note, 300)}"


def _sides(each: Agreement) -> tuple[str, str]:
    unit = {"s a token": "s", "requests": "", "tokens": ""}.get(each.unit, each.unit)
    server, client = (words.quantity(x, unit) if x is not None else "" for x in (each.server, each.client))
    return server, client
