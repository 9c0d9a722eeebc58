"""Reports that try the formats: failing, ready, empty, open, let through, interrupted, hostile."""

from dataclasses import replace

from made_reports import EVIDENCE, QUESTIONS, READY, REPORT, TTFT

from auditor.evidence import Evidence, Location, Number, Report
from auditor.measurement import Served
from auditor.profile import Endpoint, Profile

MARKUP = "<script>alert(1)</script> ]]> --> [x](http://evil) `c` **b** | @all #1 $x$ &amp; {0} \"'"
COMMANDS = "\r\n::error::taken\n::stop-commands::x\n##[add-mask]y ##vso[task.complete]z %0A::warning::w"
CODES = "\x1b[31m \x00 \x07 \x9b31m \u202e \u2028 \ufffe \ud800 \x85"
HOSTILE = f"{CODES}{MARKUP}{COMMANDS}" + "y" * 1_000_000
"""A server's words: markup, control codes, pipelines' commands, halves of characters, and a megabyte."""

BARE = replace(
    READY,
    questions=(),
    findings=(),
    evidence=Evidence(profile=Profile(version=1, name="b", endpoint=Endpoint(url="emulator")), today="2026-03-01"),
)
"""A report in which nothing is."""

OPEN = replace(REPORT, verdict="INCONCLUSIVE", verdict_line="INCONCLUSIVE: chat-prod", exit_code=4)
ACCEPTED = replace(OPEN, exit_code=0, findings=tuple(f for f in OPEN.findings if f.rule != "W110"))
"""INCONCLUSIVE and let through: --on-inconclusive pass."""


def hostile(text: str = HOSTILE) -> Report:
    """A report in which every string that a server or a file could have chosen is `text`."""
    number = Number(name=text, value=1.0, unit=text, provenance="measured", note=text, n=3)
    finding = replace(
        TTFT,
        rule=text,
        title=text,
        why=text,
        subject=text,
        measured=number,
        required=number,
        numbers=(number,),
        where=Location(text[:200], 1),
        remedies=(text,),
        missing=text,
        voids=(text,),
        voided_by=(text,),
    )
    served = Served(engine=text, api="chat", model=text, engine_version=text, warnings=(text,))
    measured = EVIDENCE.measurements[0]
    said = {"detail": text, "server_id": text, "via": text, "finish_reason": text, "error": text, "cls": text}
    failed = replace(measured.samples[3], **said)
    measured = replace(measured, samples=(*measured.samples[:3], failed), stopped=text)
    evidence = replace(
        EVIDENCE, served=served, problems=(text,), setting_sources={text: text}, measurements=(measured,)
    )
    known = replace(finding, rule="W112", status="warn")
    skip, good = replace(finding, status="skip", rule="H206"), replace(finding, status="pass", rule="M401")
    questions = (replace(QUESTIONS[0], headline=text, title=text, answers=(text,)), *QUESTIONS[1:])
    return replace(
        REPORT,
        name=text,
        tool_version=text,
        verdict_line=f"NOT READY: {text}",
        findings=(finding, known, skip, good),
        evidence=evidence,
        questions=questions,
        interrupted=text,
        unused_waivers=(text,),
        expired_waivers=(text,),
    )


REPORTS = {
    "failing": REPORT,
    "ready": READY,
    "bare": BARE,
    "open": OPEN,
    "accepted": ACCEPTED,
    "interrupted": replace(REPORT, exit_code=130, interrupted="Ctrl-C"),
    "cut short": replace(READY, exit_code=130, interrupted="Ctrl-C"),
    "undecided": replace(BARE, verdict="INCONCLUSIVE", verdict_line="INCONCLUSIVE: chat-prod", exit_code=4),
    "expired": replace(READY, exit_code=2, expired_waivers=("M420 expired on 2026-01-31: later",)),
    "hostile": hostile(),
}
