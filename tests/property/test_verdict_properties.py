"""Making one finding worse never makes the verdict better; the order of findings changes nothing. An SLO's outcome is
never bolder than the exact test on its counts.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from auditor.evidence import Check, Evidence, Finding, Rule
from auditor.profile import Endpoint, Profile
from auditor.theory.deciding import Part, decide_ceiling, look_confidences
from auditor.theory.statistics import passes
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


# ------------------------------------------------------------------------------------------------------------- an SLO

SECONDS = st.one_of(st.floats(0, 10, allow_subnormal=False), st.just(float("inf")), st.sampled_from([0.5, 2.0]))
PARTS = st.lists(
    st.builds(
        Part,
        st.lists(SECONDS, max_size=150).map(tuple),
        open=st.booleans(),
        look=st.sampled_from([1, 2]),
    ),
    min_size=1,
    max_size=4,
).filter(lambda parts: any(part.values for part in parts))
SHARES = st.sampled_from([0.5, 0.9, 0.95, 0.99])
LOOKS = st.sampled_from([look_confidences(0.95, reserve=reserve) for reserve in (False, True)])


@given(PARTS, SHARES, LOOKS)
def test_a_pass_is_one_of_the_counts_too_and_of_each_kind_of_load(parts, share, looks):
    judged = decide_ceiling(parts, 1.0, share, looks)
    if judged.status != "pass":
        return
    assert judged.bad <= (1 - share) * judged.n + 1e-9
    assert all(bad <= (1 - share) * n + 1e-9 for _, n, bad in judged.kinds)
    first = [part for part in parts if part.look == 1 or len(looks) == 1]
    seen = [(first, looks[0]), (parts, looks[-1])]
    counts = [(sum(len(p.values) for p in of), sum(p.bad(1.0) for p in of), c) for of, c in seen]
    assert any(passes(n, bad, share, confidence) for n, bad, confidence in counts)


@given(PARTS, SHARES, LOOKS)
def test_a_failure_has_more_misses_than_are_allowed(parts, share, looks):
    judged = decide_ceiling(parts, 1.0, share, looks)
    if judged.status == "fail":
        groups = [parts, *([p for p in parts if p.open == kind] for kind in (False, True))]
        groups += [[p for p in group if p.look == 1] for group in groups]
        shares = [sum(p.bad(1.0) for p in g) / n for g in groups if (n := sum(len(p.values) for p in g))]
        assert max(shares) > 1 - share


@given(PARTS, SHARES, LOOKS, st.sampled_from([0.25, 4.0]))
def test_the_unit_of_time_changes_nothing(parts, share, looks, factor):
    scaled = [replace(part, values=tuple(factor * x for x in part.values)) for part in parts]
    one, other = decide_ceiling(parts, 1.0, share, looks), decide_ceiling(scaled, factor, share, looks)
    assert (one.status, one.bad, one.missing) == (other.status, other.bad, other.missing)


@given(PARTS, SHARES, LOOKS)
def test_what_is_missing_is_told_where_nothing_is_decided(parts, share, looks):
    judged = decide_ceiling(parts, 1.0, share, looks)
    assert (judged.more is None) == (judged.status != "inconclusive")
    assert judged.missing is not None
    assert judged.missing >= (judged.status == "inconclusive")
