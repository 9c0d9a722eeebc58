"""Between loads: what can still change the outcome, and whether the reserve would decide it."""

from dataclasses import replace

from auditor import looks
from auditor.evidence import Evidence
from auditor.loads import Load, Plan
from auditor.measurement import Measurement, Sample
from auditor.profile import Slo
from auditor.testing import make_evidence, make_load, make_measurement, make_profile, make_sample

TTFT = Slo(ttft={"p95": 1.0})
OPEN = {"arrivals": (0.0, 1.0), "rate": 1.0}


def requests(n: int, bad: int) -> list[Sample]:
    """`bad` of `n` requests, evenly spaced, take 2 s to the first token."""
    every = n // bad if bad else n + 1
    slow = {i * every + every - 1 for i in range(bad)}
    return [make_sample(i, start=float(i), ttft=2.0 if i in slow else 0.5) for i in range(n)]


def load(name: str, n: int, **rest: object) -> Load:
    return make_load(id=name, shapes=make_load().shapes[:1] * n, **rest)


def seen(name: str, n: int, bad: int, **rest: object) -> Measurement:
    return make_measurement(requests(n, bad), load=load(name, n, **rest))


def after(
    *measured: Measurement, left: tuple[Load, ...] = (), reserve: tuple[Load, ...] = (), slo: Slo = TTFT
) -> Evidence:
    """A plan under way: the loads that ran, those still to come, and its reserve."""
    plan = Plan(loads=(*(m.load for m in measured), *left), reserve=reserve, requests=0, tokens=0, seconds=0.0)
    return replace(make_evidence(), profile=make_profile(slo=slo), plan=plan, measurements=measured)


# ------------------------------------------------------------------------------------------------------ what is decided


def test_a_failure_that_good_bursts_could_not_mend_ends_the_probe():
    """Half of 100 miss a p95: with 100 good ones a quarter of all do."""
    evidence = after(seen("slo", 100, 50), left=(load("bursts", 100, **OPEN),))
    assert looks.decided(evidence) == "slo.ttft.p95 fails whatever further requests bring"


def test_a_failure_that_good_bursts_could_mend_goes_on():
    """10 of 100 fail alone (2.8 % of 5 %). With 100 good bursts it takes 17 of 200, or 11 in the closed loop (1.15 % of
    a quarter).
    """
    assert looks.decided(after(seen("slo", 100, 10))) is not None
    assert looks.decided(after(seen("slo", 100, 10), left=(load("bursts", 100, **OPEN),))) is None
    assert looks.decided(after(seen("slo", 100, 11), left=(load("bursts", 100, **OPEN),))) is not None


def test_what_passes_goes_on_to_the_bursts():
    assert looks.decided(after(seen("slo", 100, 0), left=(load("bursts", 100, **OPEN),))) is None


def test_a_class_is_mended_by_its_own_requests_alone():
    """10 of 100 requests of class chat miss; 1,000 further ones are of another class."""
    other = replace(make_load().shapes[0], cls="rag")
    left = make_load(id="bursts", shapes=(other,) * 1000, **OPEN)
    slo = Slo(classes={"chat": TTFT})
    assert looks.decided(after(seen("slo", 100, 10), left=(left,), slo=slo)) == (
        "slo.classes.chat.ttft.p95 fails whatever further requests bring"
    )
    assert looks.decided(after(seen("slo", 100, 10), left=(left,))) is None


# --------------------------------------------------------------------------------------------------------- the reserve


def test_the_reserve_runs_where_as_many_again_would_decide():
    """2 of 100 miss; two take 130 at confidence 0.96. At 0.99 four take 229 and six 288: 200 do not pass, 300 do."""
    closed = seen("slo", 100, 2)
    assert looks.reserve_wanted(after(closed, reserve=(load("slo-2", 100),))) is None
    assert looks.reserve_wanted(after(closed, reserve=(load("slo-2", 200),))) == (
        "slo.ttft.p95 would be decided by 200 more requests"
    )


def test_the_reserve_stays_where_nothing_is_open():
    assert looks.reserve_wanted(after(seen("slo", 100, 0), reserve=(load("slo-2", 200),))) is None
    assert looks.reserve_wanted(after(seen("slo", 100, 50), reserve=(load("slo-2", 200),))) is None
    assert looks.reserve_wanted(after(seen("slo", 100, 2))) is None


def test_the_reserve_runs_where_it_would_show_a_failure():
    """9 of 100 are open (P(>= 9) = 6.3 %); 27 of 300 fail at 0.99 (0.26 %)."""
    wanted = looks.reserve_wanted(after(seen("slo", 100, 9), reserve=(load("slo-2", 200),)))
    assert wanted == "slo.ttft.p95 would be decided by 200 more requests"


def test_the_reserve_stays_where_another_slo_would_be_open_all_the_same():
    """A p99.9 takes 4,603 requests at confidence 0.99."""
    slo = Slo(ttft={"p95": 1.0, "p99.9": 3.0})
    assert looks.reserve_wanted(after(seen("slo", 100, 2), reserve=(load("slo-2", 200),), slo=slo)) is None


def test_what_ran_of_the_reserve_is_not_wanted_again():
    closed, more = seen("slo", 100, 2), seen("slo-2", 100, 2)
    plan = Plan(loads=(closed.load,), reserve=(more.load,), requests=0, tokens=0, seconds=0.0)
    evidence = replace(make_evidence(), profile=make_profile(slo=TTFT), plan=plan, measurements=(closed, more))
    assert looks.reserve_wanted(evidence) is None
