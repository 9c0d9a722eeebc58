"""Numbers and strings as reports show them."""

import math
from dataclasses import replace

import pytest
from made_reports import ABSENT, CACHED, EAGER, GOOD, KV, READY, REPORT, TTFT, UNSEEN, VOIDED, WAIVED

from auditor.evidence import Number
from auditor.loads import Plan, PlanNote
from auditor.report import words
from auditor.report.terminal import render
from auditor.testing import make_evidence
from auditor.watch import Observed


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "s", "0 s"),
        (0.0125, "s", "12.5 ms"),
        (0.8, "s", "800 ms"),
        (1.2345, "s", "1.234 s"),
        (90.0, "s", "90 s"),
        (600.0, "s", "10 min"),
        (4 * 3600.0, "s", "4 h"),
        (25.04, "tokens/s", "25 tok/s"),
        (0.0295, "share", "2.95 %"),
        (1.0, "share", "100 %"),
        (15 * 1024**3, "bytes", "15 GiB"),
        (3.35e12, "bytes/s", "3.35 TB/s"),
        (989e12, "FLOP/s", "989 TFLOP/s"),
        (1234567, "tokens", "1,234,567 tokens"),
        (64, "requests", "64 requests"),
        (671e9, "parameters", "671 B"),
        (7, "", "7"),
        (None, "s", "not observed"),
        (math.nan, "s", "not observed"),
        (math.inf, "s", "unbounded"),
    ],
)
def test_quantities_read_as_people_write_them(value, unit, text):
    assert words.quantity(value, unit) == text


def test_a_number_shows_interval_n_and_provenance():
    number = Number(name="TTFT p95", value=1.32, unit="s", provenance="measured", low=1.2, high=math.inf, n=40)
    assert words.number(number, 0.95) == "TTFT p95 1.32 s (95 % interval 1.2 s to unbounded; n=40; measured)"


def test_a_band_without_requests_names_no_confidence():
    number = Number(name="step", value=0.01, unit="s", provenance="computed", low=0.008, high=0.012, note="prior")
    assert words.number(number, 0.95) == "step 10 ms (interval 8 to 12 ms; computed; prior)"


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[2J\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07rest", "rest"),
        ("\x1b]8;;http://evil\x1b\\link", "link"),
        ("a\r\nb\tc", "a b c"),
        ("left\u202eright", "left right"),
        ("zero\u200bwidth", "zero width"),
        ("half\ud800", "half"),
        ("bell\x07\x9b31m", "bell 31m"),
        ("::error::x ::stop-commands::y", ":error::x :stop-commands::y"),
        ("std::vector a:: ::", "std::vector a:: ::"),
        ("##[add-mask]x a##vso[task.complete]y # ##", "## [add-mask]x a## vso[task.complete]y # ##"),
        ("\u00fcber \u6f22", "\u00fcber \u6f22"),
    ],
)
def test_strings_lose_what_could_harm_a_terminal(hostile, harmless):
    assert words.clean(hostile) == harmless


def test_a_megabyte_is_cut_and_counted():
    text = words.clean("x" * 1_000_000, 100)
    assert text == "x" * 100 + " ... (999900 more characters)"


def test_a_cell_is_cut_to_its_width():
    assert words.clip("abcdefghij", 8) == "abcde..."
    assert words.clip("abc", 8) == "abc"


def test_worst_come_first():
    low = replace(TTFT, severity="low", rule="W999")
    assert sorted([GOOD, EAGER, KV, ABSENT, low, TTFT], key=words.sort_key) == [TTFT, low, KV, EAGER, GOOD, ABSENT]
    assert words.shown(REPORT) == [TTFT, KV, CACHED, VOIDED, EAGER, WAIVED]
    assert words.shown(READY) == []
    assert words.skipped(REPORT) == [UNSEEN, ABSENT]


def test_rules_that_miss_the_same_thing_share_a_line():
    again = replace(UNSEEN, rule="K306", subject="p95")
    groups = words.skipped_by_reason(replace(REPORT, findings=(UNSEEN, again, ABSENT)))
    assert [(key, words.headings(found)) for key, found in groups.items()] == [
        ((True, "no metrics page"), "K304, K306"),
        ((False, "the server does not tell it"), "H206 Attention backend"),
    ]


def test_a_rule_that_found_something_elsewhere_passes_by_its_parts():
    """A rule that failed in bursts and passed in the closed loop is not listed as passed alone."""
    slo, bursts = replace(GOOD, rule="K305", subject="slo"), replace(KV, rule="K305", subject="bursts")
    again = replace(GOOD, rule="K304", subject="slo")
    assert words.passed(replace(REPORT, findings=(slo, bursts, again))) == ["K304", "K305 [slo]"]


def test_counts_in_one_line():
    counted = "1 failed, 3 inconclusive, 1 warned, 1 waived, 1 passed, 1 undecided, 1 skipped"
    assert words.counts(REPORT.findings) == counted
    assert words.counts(()) == "no rule was judged"


def test_what_a_finding_voids_reads_as_words():
    both = replace(CACHED, voids=("W110:pass", "W113:fail", "K:pass", "X1"))
    assert words.voids(both) == "passes of W110, K; failures of W113; verdicts of X1"
    assert words.voids(GOOD) == ""


def test_the_context_says_where_and_that_an_emulator_only_plays():
    evidence = make_evidence()
    profile = evidence.profile
    parts = ["vllm 0.18.0", "meta-llama/Llama-3.1-8B-Instruct", "1 x H100 SXM5 80GB", "16 requests in flight"]
    real = replace(REPORT, evidence=evidence)
    assert words.context(real) == [*parts, "http://127.0.0.1:8000/v1", "2026-03-01"]
    endpoint = replace(profile.endpoint, url="emulator")
    deployment = replace(profile.deployment, replicas=6)
    played = replace(evidence, profile=replace(profile, endpoint=endpoint, deployment=deployment), offline=True)
    assert words.context(replace(REPORT, evidence=played))[2:] == [
        "6 replicas of 1 x H100 SXM5 80GB, emulated",
        "16 requests in flight",
        "offline",
        "2026-03-01",
    ]
    unknown = replace(played, device=None)
    assert words.context(replace(REPORT, evidence=unknown))[2] == "emulated"


@pytest.mark.parametrize(("window", "told"), [(595.2, "9.92 min"), (7200.0, "2 h"), (604800.0, "168 h")])
def test_a_passive_audit_tells_how_far_back_it_looked(window, told):
    seen = Observed(source="http://prom:9090", window=window, passive=True)
    told = f"passive, {told} of http://prom:9090"
    assert told in words.context(replace(REPORT, evidence=replace(make_evidence(), observed=seen)))


def test_why_no_load_was_sent_is_said_once_and_first():
    reason = "the endpoint is not on this machine: it is loaded only with probe.allow_load: true"
    plan = Plan(loads=(), requests=0, tokens=0, seconds=0.0, notes=(PlanNote("another", ()), PlanNote(reason, ())))
    idle = replace(REPORT, evidence=replace(REPORT.evidence, plan=plan))
    assert words.unsent(idle) == reason
    assert "  no load: the endpoint is not on this machine" in render(idle)
    assert words.unsent(replace(idle, evidence=replace(idle.evidence, offline=True))) is None
    assert words.unsent(REPORT) is None
