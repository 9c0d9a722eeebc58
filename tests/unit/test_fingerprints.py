"""Fingerprints: the same finding of the next run has the same one, another finding has another."""

import hashlib
from dataclasses import replace

from made_reports import GOOD, KV, REPORT, TTFT

from auditor.evidence import Location, Waived
from auditor.fingerprints import fingerprints


def test_a_fingerprint_is_that_of_profile_rule_subject_and_number():
    """The recipe in words, so that it cannot change unnoticed: baselines of others rest on it."""
    text = '["1", "chat-prod", "W110", "rag p95", 0]'
    assert fingerprints("chat-prod", [TTFT]) == (hashlib.sha256(text.encode()).hexdigest()[:32],)


def test_what_differs_from_run_to_run_changes_nothing():
    again = replace(
        TTFT,
        status="inconclusive",
        title="TTFT is over its SLO",
        why="41 of 210 requests took longer than 1.5 s.",
        measured=replace(TTFT.measured, value=2.5, n=210),
        where=Location("/elsewhere/chat.yaml", 33, 12),
        voided_by=("T501",),
        severity="low",
        waived=Waived(reason="known", expires="2027-01-31"),
    )
    assert fingerprints("chat-prod", [again]) == fingerprints("chat-prod", [TTFT])


def test_profile_rule_and_subject_tell_findings_apart():
    others = (TTFT, replace(TTFT, rule="W112"), replace(TTFT, subject="rag p99"), replace(TTFT, subject=None), KV, GOOD)
    assert len({*fingerprints("chat-prod", others), *fingerprints("chat-staging", others)}) == 12


def test_findings_of_one_rule_and_subject_differ_whatever_their_order():
    first, second = (
        replace(GOOD, why=why, where=Location("grafana/vllm.json", line)) for why, line in (("b", 3), ("a", 9))
    )
    there, back = fingerprints("chat-prod", [first, second]), fingerprints("chat-prod", [second, first])
    assert there == back[::-1]
    assert len(set(there)) == 2
    assert there[0] == fingerprints("chat-prod", [GOOD])[0]


def test_equal_findings_have_fingerprints_of_their_own():
    assert len(set(fingerprints("chat-prod", [GOOD] * 3))) == 3


def test_a_report_s_findings_all_differ():
    assert len(set(fingerprints(REPORT.name, REPORT.findings))) == len(REPORT.findings)


def test_hostile_text_has_a_fingerprint_too():
    subjects = ("\ud800", "\x1b[31m", "y" * 1_000_000, "", None, '", "')
    found = fingerprints("\ud800", [replace(TTFT, subject=subject) for subject in subjects])
    assert len(set(found)) == 6
    assert {len(text) for text in found} == {32}
