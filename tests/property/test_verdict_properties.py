"""Making one finding worse never makes the verdict better; the order of findings changes nothing."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from auditor.evidence import Check, Evidence, Finding, Rule
from auditor.profile import Endpoint, Profile
from auditor.verdict import decide

PROFILE = Profile(version=1, name="p", endpoint=Endpoint(url="http://h/v1"))
CHECKS = tuple(
    Check(question=q, title=q, rules=tuple(Rule(f"{q}10{n}", "r", lambda _: ()) for n in range(3))) for q in "WHKM"
)
GOODNESS = ("fail", "inconclusive", "warn", "pass")
VERDICTS = ("NOT READY", "INCONCLUSIVE", "READY")

findings = st.lists(
    st.builds(
        Finding,
        rule=st.sampled_from([rule.id for check in CHECKS for rule in check.rules]),
        status=st.sampled_from(GOODNESS),
        title=st.just("t"),
        why=st.just("w"),
        deciding=st.booleans(),
        subject=st.sampled_from([None, "a", "b"]),
    ),
    min_size=1,
    max_size=12,
)


def judge(found):
    return decide(found, CHECKS, PROFILE, Evidence(profile=PROFILE, today="2026-01-01"), today="2026-01-01")


@given(findings, st.data())
def test_a_worse_deciding_finding_never_improves_the_verdict(found, data):
    index = data.draw(st.integers(0, len(found) - 1))
    before = replace(found[index], deciding=True)
    worse = data.draw(st.sampled_from(GOODNESS[: GOODNESS.index(before.status) + 1]))
    rest = [f for i, f in enumerate(found) if i != index]
    good, bad = judge([*rest, before]), judge([*rest, replace(before, status=worse)])
    assert VERDICTS.index(bad.verdict) <= VERDICTS.index(good.verdict)
    for one, other in zip(bad.questions, good.questions, strict=True):
        assert GOODNESS.index(one.status) <= GOODNESS.index(other.status)


@given(findings, st.randoms(use_true_random=False))
def test_the_order_of_findings_changes_nothing(found, random):
    shuffled = list(found)
    random.shuffle(shuffled)
    assert judge(shuffled) == judge(found)


@given(findings, st.sampled_from(["W", "K", "K101", "M102"]), st.sampled_from(["pass", "warn"]))
def test_a_doubt_about_a_good_outcome_never_improves_the_verdict(found, target, status):
    doubt = Finding(rule="T501", status="warn", title="t", why="w", voids=(f"{target}:{status}",))
    before, after = judge(found), judge([*found, doubt])
    assert VERDICTS.index(after.verdict) <= VERDICTS.index(before.verdict)
