"""From findings to the verdict: validity, waivers, questions, exit codes."""

from dataclasses import replace

import pytest

from auditor.errors import UsageError
from auditor.evidence import Check, Evidence, Finding, Number, Rule, Waived
from auditor.profile import Endpoint, Monitoring, Profile, Waiver
from auditor.verdict import decide

PROFILE = Profile(version=1, name="chat", endpoint=Endpoint(url="http://h/v1"))
RULES = {
    "W": ("W110", "W111"),
    "H": ("H201",),
    "K": ("K302", "K304"),
    "M": ("M401",),
}
TITLES = {"W": "Workload shape", "H": "Bottleneck", "K": "KV capacity", "M": "Monitoring"}
CHECKS = tuple(
    Check(question=q, title=TITLES[q], rules=tuple(Rule(i, i, lambda _: ()) for i in ids)) for q, ids in RULES.items()
)


def finding(rule: str, status: str, **facts) -> Finding:
    facts = {"deciding": not rule.startswith("T"), "why": f"{rule} {status}", **facts}
    return Finding(rule=rule, status=status, title=rule, **facts)


ALL_PASS = [finding(rule, "pass") for rule in ("W110", "H201", "K302", "M401")]


def judge(findings, profile=PROFILE, checks=CHECKS, today="2026-06-01", **options):
    return decide(findings, checks, profile, Evidence(profile=profile, today=today), today=today, **options)


def statuses(report):
    return {q.question: q.status for q in report.questions}


def waived(*waivers: Waiver) -> Profile:
    return replace(PROFILE, waivers=waivers)


M401 = Waiver(rule="M401", reason="panel under review", expires="2026-06-01", owner="team-x")


# ----------------------------------------------------------------------------------------------------------- questions


def test_everything_passes():
    report = judge(ALL_PASS)
    assert (report.verdict, report.exit_code) == ("READY", 0)
    assert report.verdict_line == "READY: chat: W pass, H pass, K pass, M pass"
    assert report.name == "chat"
    assert report.date == "2026-06-01"
    assert report.schema_version == 1
    assert report.tool_version
    assert statuses(report) == {"W": "pass", "H": "pass", "K": "pass", "M": "pass"}
    assert report.questions[0].headline == "W110: W110 pass"
    assert report.questions[0].decided_by == ("W110",)


@pytest.mark.parametrize(
    ("status", "question", "verdict", "code"),
    [
        ("fail", "fail", "NOT READY", 1),
        ("inconclusive", "inconclusive", "INCONCLUSIVE", 4),
        ("skip", "inconclusive", "INCONCLUSIVE", 4),
        ("warn", "warn", "READY", 0),
        ("pass", "pass", "READY", 0),
    ],
)
def test_a_question_is_its_worst_deciding_finding(status, question, verdict, code):
    report = judge([*ALL_PASS, finding("K304", status)])
    assert statuses(report)["K"] == question
    assert (report.verdict, report.exit_code) == (verdict, code)


@pytest.mark.parametrize("status", ["fail", "inconclusive", "skip", "warn"])
def test_an_advisory_finding_decides_nothing(status):
    report = judge([*ALL_PASS, finding("K304", status, deciding=False)])
    assert statuses(report)["K"] == "pass"
    assert report.verdict == "READY"


def test_fail_beats_inconclusive_beats_warn():
    report = judge([*ALL_PASS, finding("K304", "inconclusive"), finding("K302", "fail"), finding("W111", "warn")])
    assert statuses(report) == {"W": "warn", "H": "pass", "K": "fail", "M": "pass"}
    assert report.verdict_line == "NOT READY: chat: W warn (W111), H pass, K fail (K302), M pass"


def test_a_question_with_nothing_that_decides_it_stays_open():
    report = judge([f for f in ALL_PASS if f.rule != "H201"] + [finding("H201", "pass", deciding=False)])
    assert statuses(report)["H"] == "inconclusive"
    assert report.questions[1].headline == "nothing decided it"
    assert report.verdict_line == "INCONCLUSIVE: chat: W pass, H inconclusive, K pass, M pass"


def test_what_is_inconclusive_says_what_is_missing():
    report = judge([*ALL_PASS, finding("W111", "inconclusive", missing="37 more good requests", subject="rag")])
    assert report.questions[0].headline == "W111 [rag]: missing: 37 more good requests"
    report = judge([*ALL_PASS, finding("W111", "inconclusive", missing="no metrics page")])
    assert report.questions[0].headline == "W111: no metrics page"
    report = judge([*ALL_PASS, finding("W111", "skip", why="no metrics page")])
    assert next(f for f in report.findings if f.rule == "W111").missing == "no metrics page"
    report = judge([*ALL_PASS, finding("K304", "skip", why="no metrics page", deciding=False)])
    assert next(f for f in report.findings if f.rule == "K304").missing is None


def test_the_headline_counts_the_other_decisive_findings():
    report = judge([*ALL_PASS, finding("K302", "fail"), finding("K304", "fail"), finding("K304", "fail", subject="b")])
    assert report.questions[2].headline == "K302: K302 fail (and 2 more findings)"
    assert report.questions[2].decided_by == ("K302", "K304")


def test_a_passing_questions_headline_is_the_first_figure_beside_what_it_must_be():
    limit = Number(name="requests at once", value=16, unit="requests", provenance="declared")
    seen = replace(limit, value=85, provenance="served")
    told = finding("K304", "pass", severity="high", measured=seen)
    held = finding("K304", "pass", severity="low", subject="p95", measured=seen, required=limit)
    report = judge([*ALL_PASS, told, held])
    assert report.questions[2].headline == "K304 [p95]: K304 pass"
    assert judge([*ALL_PASS, told]).questions[2].headline == "K304: K304 pass"
    worst = judge([*ALL_PASS, replace(told, status="fail"), replace(held, status="fail")])
    assert worst.questions[2].headline == "K304: K304 pass (and 1 more finding)"


ANSWERING = tuple(replace(c, answers=("K304", "K302 mix")) if c.question == "K" else c for c in CHECKS)


def test_a_question_says_its_answer_whatever_it_decided():
    found = [
        *ALL_PASS,
        finding("K304", "warn", deciding=False, why="The cache is 97 % full."),
        finding("K302", "pass", subject="mix", deciding=False, why="The pool carries 12 requests."),
        finding("K302", "pass", subject="p50", deciding=False, why="The pool carries 9 requests."),
    ]
    questions = {q.question: q for q in judge(found, checks=ANSWERING).questions}
    assert questions["K"].answers == ("The cache is 97 % full.", "The pool carries 12 requests.")
    assert questions["W"].answers == ()


def test_what_was_skipped_or_not_asked_answers_nothing():
    found = [*ALL_PASS, finding("K304", "skip", deciding=False), finding("K302", "pass", subject="mix", why="12.")]
    assert judge(found, checks=ANSWERING).questions[2].answers == ("12.",)
    assert judge(found, checks=ANSWERING, only=["W"]).questions[2].answers == ()


def test_an_answer_in_doubt_says_which_rule_doubts_it():
    found = [*ALL_PASS, finding("K304", "pass", why="Little used."), finding("T512", "warn", voids=("K304:pass",))]
    assert judge(found, checks=ANSWERING).questions[2].answers == ("Little used. (in doubt: T512)",)


def test_an_answer_takes_three_lines_at_most():
    found = [*ALL_PASS, *(finding("K304", "pass", why=f"Load {i}.") for i in range(5))]
    assert judge(found, checks=ANSWERING).questions[2].answers == ("Load 0.", "Load 1.", "Load 2.")


def test_monitoring_that_is_not_required_is_not_asked_and_the_line_says_so():
    profile = replace(PROFILE, monitoring=Monitoring(required=False))
    report = judge([*ALL_PASS[:3], finding("M401", "fail")], profile)
    assert (report.verdict, report.exit_code) == ("READY", 0)
    assert report.verdict_line == "READY: chat: W pass, H pass, K pass, M not asked (monitoring.required is false)"
    assert (report.questions[3].asked, report.questions[3].status) == (False, "skip")
    assert "M401" not in {f.rule for f in report.findings}


def test_only_names_the_questions_that_were_judged():
    report = judge([*ALL_PASS, finding("W111", "fail")], only=("K", "m"))
    assert report.verdict_line == "READY: chat: K pass, M pass; judged only K, M"
    assert [q.asked for q in report.questions] == [False, False, True, True]
    assert report.questions[0].headline == "not asked: left out by --only"


def test_only_beats_the_profile():
    profile = replace(PROFILE, monitoring=Monitoring(required=False))
    assert judge([finding("M401", "fail")], profile, only=["M"]).verdict == "NOT READY"


@pytest.mark.parametrize("only", [("Q",), (), ("T",), ("K", "Z")])
def test_only_an_unknown_question_is_a_usage_error(only):
    with pytest.raises(UsageError, match="no such question; choose from W, H, K, M"):
        judge(ALL_PASS, only=only)


def test_a_third_partys_question_counts():
    checks = (*CHECKS, Check(question="X", title="Extra", rules=(Rule("X101", "x", lambda _: ()),)))
    report = judge([*ALL_PASS, finding("X101", "fail")], checks=checks)
    assert report.verdict_line == "NOT READY: chat: W pass, H pass, K pass, M pass, X fail (X101)"
    assert statuses(judge(ALL_PASS, checks=checks))["X"] == "inconclusive"


def test_no_checks_decide_nothing():
    assert judge([], checks=()).verdict == "INCONCLUSIVE"


def test_findings_come_worst_first_in_a_fixed_order():
    found = [
        finding("W110", "pass"),
        finding("W111", "skip", deciding=False),
        finding("H201", "warn"),
        finding("M401", "fail"),
        finding("K304", "fail", severity="low"),
        finding("K304", "fail", severity="high", subject="b"),
        finding("K304", "fail", severity="high", subject="a"),
        finding("K302", "fail", deciding=False, severity="high"),
        finding("T503", "inconclusive"),
    ]
    profile = waived(M401)
    order = [(f.rule, f.subject) for f in judge(found, profile).findings]
    assert order == [
        ("K304", "a"),
        ("K304", "b"),
        ("K304", None),
        ("K302", None),
        ("T503", None),
        ("H201", None),
        ("M401", None),
        ("W111", None),
        ("W110", None),
    ]
    assert [(f.rule, f.subject) for f in judge(found[::-1], profile).findings] == order


# ------------------------------------------------------------------------------------------------------------ validity


def test_a_validity_finding_voids_the_status_it_names_and_only_that():
    doubt = finding("T501", "warn", voids=("W110:pass",), why="prompts were cached")
    report = judge([*ALL_PASS, doubt])
    voided = next(f for f in report.findings if f.rule == "W110")
    assert (voided.status, voided.voided_by, voided.missing) == ("inconclusive", ("T501",), "prompts were cached")
    assert statuses(report) == {"W": "inconclusive", "H": "pass", "K": "pass", "M": "pass"}
    assert report.exit_code == 4


def test_a_void_never_hides_a_real_failure():
    failed = [finding("W110", "fail"), *ALL_PASS[1:]]
    assert judge([*failed, finding("T501", "fail", voids=("W110:pass", "W:pass"))]).verdict == "NOT READY"
    assert judge([*failed, finding("T504", "fail", voids=("W:fail",))]).verdict == "INCONCLUSIVE"


def test_a_question_letter_voids_all_its_rules_and_several_doubts_add_up():
    doubts = [
        finding("T504", "warn", voids=("K:pass",), missing="a faster client"),
        finding("T503", "warn", voids=("K302:pass",)),
    ]
    report = judge([*ALL_PASS, finding("K304", "pass"), *doubts])
    by_rule = {f.rule: f for f in report.findings}
    assert by_rule["K302"].voided_by == ("T503", "T504")
    assert by_rule["K302"].missing == "T503 warn; a faster client"
    assert by_rule["K304"].voided_by == ("T504",)


@pytest.mark.parametrize("status", ["pass", "skip"])
def test_a_validity_rule_that_found_nothing_voids_nothing(status):
    assert judge([*ALL_PASS, finding("T501", status, voids=("W:pass",))]).verdict == "READY"


def test_validity_findings_belong_to_no_question_and_are_not_voided():
    report = judge([*ALL_PASS, finding("T505", "fail", voids=("T505:fail", "T:fail"), deciding=True)])
    assert report.verdict == "READY"
    assert next(f for f in report.findings if f.rule == "T505").status == "fail"


# ------------------------------------------------------------------------------------------------------------- waivers


def test_a_waived_failure_counts_as_a_warning_and_is_shown_until_its_last_day():
    found = [*ALL_PASS[:3], finding("M401", "fail")]
    report = judge(found, waived(M401))
    assert (report.verdict, report.exit_code) == ("READY", 0)
    assert statuses(report)["M"] == "warn"
    failed = next(f for f in report.findings if f.rule == "M401")
    assert failed.status == "fail"
    assert failed.waived == Waived(reason="panel under review", expires="2026-06-01", owner="team-x")
    assert report.expired_waivers == report.unused_waivers == ()


def test_an_expired_waiver_is_shown_and_covers_nothing():
    report = judge([*ALL_PASS[:3], finding("M401", "fail")], waived(M401), today="2026-06-02")
    assert report.verdict == "NOT READY"
    assert report.expired_waivers == ("M401 expired on 2026-06-01 (owner team-x): panel under review",)
    assert report.findings[0].waived is None


def test_an_expired_waiver_beside_one_that_holds():
    report = judge(
        [*ALL_PASS[:3], finding("M401", "fail")], waived(replace(M401, expires="2020-01-01", owner=None), M401)
    )
    assert report.verdict == "READY"
    assert report.expired_waivers == ("M401 expired on 2020-01-01: panel under review",)


def test_only_failures_are_waived():
    report = judge([*ALL_PASS[:3], finding("M401", "inconclusive")], waived(M401))
    assert report.verdict == "INCONCLUSIVE"
    assert report.unused_waivers == ()


@pytest.mark.parametrize("status", ["pass", "warn"])
def test_a_waiver_that_covers_nothing_is_named(status):
    report = judge([*ALL_PASS[:3], finding("M401", status)], waived(M401))
    assert report.unused_waivers == ("M401: nothing to waive, the rule does not fail; remove the waiver",)


def test_a_waiver_for_no_rule_is_named_and_one_of_a_question_not_asked_is_not():
    profile = waived(replace(M401, rule="M402"), replace(M401, rule="Z999"), M401)
    assert judge(ALL_PASS, profile, only=["W"]).unused_waivers == (
        "M402: there is no such rule, did you mean M401",
        "Z999: there is no such rule",
    )


# ----------------------------------------------------------------------------------------------------------- exit codes


@pytest.mark.parametrize(("policy", "code"), [("inconclusive", 4), ("warn", 0), ("pass", 0), ("fail", 1)])
def test_the_policy_for_inconclusive(policy, code):
    report = judge(ALL_PASS[1:], on_inconclusive=policy)
    assert (report.verdict, report.exit_code) == ("INCONCLUSIVE", code)
    assert judge([*ALL_PASS, finding("K302", "fail")], on_inconclusive=policy).exit_code == 1
    assert judge(ALL_PASS, on_inconclusive=policy).exit_code == 0


def test_an_interrupted_audit_exits_with_130_whatever_it_found():
    report = judge(ALL_PASS, interrupted="interrupted")
    assert (report.verdict, report.exit_code, report.interrupted) == ("READY", 130, "interrupted")


def test_an_expired_waiver_is_an_error_where_all_else_passes():
    """Nobody renewed it or took it out: a fault of the profile, exit code 2."""
    profile = waived(replace(M401, expires="2026-05-31"))
    report = judge(ALL_PASS, profile)
    assert (report.verdict, report.exit_code) == ("READY", 2)
    assert report.verdict_line.endswith("M pass; 1 waiver expired, renew or remove it")
    assert judge(ALL_PASS[1:], profile, on_inconclusive="warn").exit_code == 2
    assert judge(ALL_PASS[1:], profile).exit_code == 4
    assert judge([*ALL_PASS[1:], finding("W110", "fail")], profile).exit_code == 1
    assert judge(ALL_PASS, profile, interrupted="interrupted").exit_code == 130


# ------------------------------------------------------------------------------------------------------------ severity


@pytest.mark.parametrize(
    ("severity", "fail_on", "status"),
    [
        ("high", "high", "fail"),
        ("medium", "high", "warn"),
        ("low", "high", "warn"),
        ("medium", "medium", "fail"),
        ("low", "medium", "warn"),
        ("low", "low", "fail"),
    ],
)
def test_failures_less_severe_than_asked_for_only_warn(severity, fail_on, status):
    report = judge([*ALL_PASS[:3], finding("M401", "fail", severity=severity)], fail_on=fail_on)
    assert statuses(report)["M"] == status
    assert report.exit_code == (1 if status == "fail" else 0)
    shown = next(f for f in report.findings if f.rule == "M401")
    assert shown.status == status
    assert (f"--fail-on {fail_on}" in shown.why) == (status == "warn")
    assert report.verdict_line.endswith(f"; 1 failure less severe than {fail_on} only warns") == (status == "warn")


@pytest.mark.parametrize("status", ["inconclusive", "skip"])
def test_what_is_open_stays_open_however_little_severe_it_is(status):
    report = judge([*ALL_PASS[:3], finding("M401", status, severity="low")], fail_on="high")
    assert (report.verdict, report.exit_code) == ("INCONCLUSIVE", 4)


def test_a_waived_failure_is_shown_as_such_whatever_its_severity():
    report = judge([*ALL_PASS[:3], finding("M401", "fail", severity="low")], waived(M401), fail_on="high")
    (shown,) = (f for f in report.findings if f.rule == "M401")
    assert (shown.status, shown.waived is not None, report.exit_code) == ("fail", True, 0)
    assert report.unused_waivers == ()
