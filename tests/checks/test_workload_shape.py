"""Question W on hand-made evidence. Counts for pass and fail are those of the exact binomial rule, worked by hand."""

from dataclasses import replace

import pytest

from auditor.evidence import Evidence, Finding
from auditor.loads import Load, Plan
from auditor.measurement import Measurement, Sample
from auditor.profile import Lengths, Slo, Traffic, TrafficClass
from auditor.testing import (
    H100,
    LLAMA_8B,
    make_evidence,
    make_measurement,
    make_profile,
    make_sample,
    make_served,
    make_settings,
    run_check,
    with_slo,
)
from checks.workload_shape import CHECK


def judge(rule: str, evidence: Evidence) -> list[Finding]:
    return list(run_check(CHECK, evidence, rule))


def only(rule: str, evidence: Evidence) -> Finding:
    (finding,) = judge(rule, evidence)
    return finding


def cls(name: str = "chat", share: float = 1.0, prompt: int = 800, output: int = 100, **tail: int) -> TrafficClass:
    """A class with p50 lengths; `prompt_max` and `output_max` give it a tail."""
    return TrafficClass(
        name=name,
        share=share,
        prompt_tokens=Lengths(p50=prompt, max=tail.get("prompt_max")),
        output_tokens=Lengths(p50=output, max=tail.get("output_max")),
    )


def traffic(*classes: TrafficClass, **rest: object) -> Traffic:
    fields: dict[str, object] = {"target_concurrency": 16, "optimize_for": "tps", "classes": classes}
    return Traffic(**(fields | rest))  # type: ignore[arg-type]


def declared(given: Evidence | None = None, **profile: object) -> Evidence:
    """Evidence with fields of the profile replaced."""
    evidence = given or make_evidence()
    return replace(evidence, profile=replace(evidence.profile, **profile))  # type: ignore[arg-type]


def measured(samples: list[Sample], slo: Slo | None = None, **rest: object) -> Evidence:
    """The healthy evidence with these requests as its SLO load."""
    evidence = with_slo(make_evidence(), make_measurement(samples, **rest))
    return declared(evidence, slo=slo) if slo else evidence


def spaced(n: int, bad: int, good: dict[str, object], over: dict[str, object]) -> list[Sample]:
    """`n` requests of which `bad`, evenly spaced, are as `over` says."""
    every = n // bad if bad else n + 1
    return [
        make_sample(i, **(over if bad and i % every == every - 1 and i // every < bad else good))  # type: ignore[arg-type]
        for i in range(n)
    ]


# ----------------------------------------------------------------------------------------------------------- dominance


def test_a_declared_shape_passes():
    assert only("W101", make_evidence()).status == "pass"


@pytest.mark.parametrize(("log", "word"), [(None, "Nothing says"), ("traffic.jsonl", "no classes came of it")])
def test_no_shape_leaves_the_question_open(log, word):
    finding = only("W101", declared(traffic=traffic(log=log)))
    assert (finding.status, finding.deciding) == ("inconclusive", True)
    assert word in finding.why
    assert "traffic.classes" in (finding.missing or "")


def test_user_time_is_measured_at_the_declared_reply_length():
    """TTFT 0.5 s; 10 ms x 99 further tokens = 0.99 s: 0.5 / 1.49 = 33.6 %."""
    evidence = measured([make_sample(i, ttft=0.5, tpot=0.01) for i in range(20)])
    finding = only("W102", declared(evidence, traffic=traffic(cls(output=100))))
    assert finding.measured is not None
    assert finding.measured.value == pytest.approx(0.3356, abs=1e-4)
    assert finding.measured.provenance == "measured"
    assert "TPS matters" in finding.why


def test_each_class_has_its_own_user_time():
    """long: 1 / (1 + 0.01 x 9) = 92 %; short: 0.1 / (0.1 + 0.01 x 199) = 4.8 %; both weigh half:
    (1 + 0.1) / (1.09 + 2.09) = 34.6 %."""
    samples = [make_sample(i, cls="long", ttft=1.0, tpot=0.01, output_tokens=10) for i in range(10)]
    samples += [make_sample(i + 10, cls="short", ttft=0.1, tpot=0.01, output_tokens=200) for i in range(10)]
    mix = traffic(cls("long", 0.5, output=10), cls("short", 0.5, output=200))
    overall, long, short = judge("W102", declared(measured(samples), traffic=mix))
    assert overall.measured is not None
    assert overall.measured.value == pytest.approx(0.3459, abs=1e-4)
    assert (long.subject, short.subject) == ("long", "short")
    assert "TTFT matters" in long.why
    assert "TPS matters" in short.why


def test_without_a_load_user_time_is_predicted_and_says_so():
    finding = only("W102", replace(make_evidence(), measurements=()))
    assert finding.measured is not None
    assert finding.measured.provenance == "computed"
    assert finding.confidence == "medium"


def test_without_a_load_and_hardware_user_time_is_unknown():
    evidence = replace(make_evidence(), measurements=(), device=None)
    assert [only(rule, evidence).status for rule in ("W102", "W103")] == ["skip", "skip"]
    assert only("W102", declared(traffic=traffic())).missing == "traffic.classes"


def test_8b_on_an_h100_at_64_streams_works_on_prompts_while_users_wait_for_replies():
    """3000/150 tokens: a first token takes 90 ms and the prompts of one step, 28 ms, the reply 149 steps of 44 ms: 98 %
    of a user's time; 63 % of the device's is prefill.
    """
    heavy = traffic(cls("rag", prompt=3000, output=150), target_concurrency=64)
    evidence = replace(declared(traffic=heavy), measurements=(), geometry=LLAMA_8B, device=H100)
    finding = only("W103", evidence)
    assert finding.status == "warn"
    assert "98 % of their time on the reply" in finding.why
    assert "63 % of its own on prompts" in finding.why
    assert "--enable-prefix-caching" in " ".join(finding.remedies)


def test_a_device_busy_with_replies_while_users_wait_for_the_first_token():
    """TTFT 30 s against 10 tokens of 10 ms: users 99.7 % first token. The ladders say: 25 us a token x 400 = 10 ms of
    prefill against 9 steps of (7 + 16 x (0.02 + 5e-5 x 405)) = 7.64 ms / 16: 4.3 ms. Replies need more tokens to weigh:
    at 1000 tokens 999 x 8.4 ms / 16 = 520 ms against 10 ms."""
    evidence = measured([make_sample(i, ttft=30.0, tpot=0.001, output_tokens=1000) for i in range(20)])
    finding = only("W103", declared(evidence, traffic=traffic(cls(prompt=400, output=1000))))
    assert finding.status == "warn"
    assert "the first token" in finding.why
    assert "max_tokens" in finding.remedies[0]


def test_ladders_that_scatter_say_nothing_of_device_time():
    """Every second prompt length takes five times as long: no law fits within 20 %."""
    evidence = make_evidence()
    loads = [
        replace(m, samples=tuple(replace(s, ttft=5 * (s.ttft or 0.0)) for s in m.samples))
        if m.load.id in ("prefill-256", "prefill-1600")
        else m
        for m in evidence.measurements
    ]
    noisy = replace(evidence, measurements=tuple(loads))
    assert {n.provenance for n in only("W103", noisy).numbers} == {"measured", "computed"}
    alone = only("W103", replace(noisy, device=None, device_error="no accelerator is declared"))
    assert alone.status == "skip"
    assert "whose times scatter less" in alone.why


def test_user_time_and_device_time_that_agree_pass():
    assert only("W103", make_evidence()).status == "pass"


# ---------------------------------------------------------------------------------------------------------- goal, SLO


@pytest.mark.parametrize(("goal", "status"), [("tps", "pass"), ("cost", "pass"), ("ttft", "warn"), (None, "warn")])
def test_the_goal_is_held_against_what_users_wait_for(goal, status):
    lengths = traffic(cls(), optimize_for=goal)
    finding = only("W104", declared(traffic=lengths))
    assert (finding.status, finding.deciding) == (status, False)


def test_a_goal_without_known_dominance_is_skipped():
    assert only("W104", replace(make_evidence(), measurements=(), device=None)).status == "skip"


@pytest.mark.parametrize(
    ("slo", "status"),
    [
        (Slo(tps={"p05": 25.0}), "pass"),
        (Slo(ttft={"p95": 1.0}), "inconclusive"),
        (Slo(e2e={"p95": 20.0}), "warn"),
        (Slo(), "inconclusive"),
        (Slo(classes={"chat": Slo(tps={"p05": 25.0})}), "pass"),
    ],
)
def test_what_dominates_needs_its_slo(slo, status):
    """Replies dominate the healthy traffic."""
    finding = only("W105", declared(slo=slo))
    assert (finding.status, finding.deciding) == (status, True)
    if status == "inconclusive":
        assert finding.missing == "slo.tps"


def test_slos_without_known_dominance_are_left_to_their_own_rules():
    finding = only("W105", replace(make_evidence(), measurements=(), device=None))
    assert (finding.status, finding.deciding) == ("skip", False)


@pytest.mark.parametrize(
    ("context", "status"),
    [
        (4096, "pass"),  # longest 3000 + 100
        (2900, "warn"),  # 2200 of 2600 tokens above the median are over 2900 - 100 only in the last 0.5 x 200/2200
        (1500, "fail"),
    ],
)
def test_the_tail_must_fit_in_the_served_context(context, status):
    """Prompts: median 800, up to 3000; replies 100. Over 2800 prompt tokens: 0.5 x 200 / 2200 = 4.5 % of requests."""
    evidence = replace(make_evidence(), served=make_served(max_model_len=context))
    slo = Slo(error_rate=0.1)
    finding = only("W106", declared(evidence, traffic=traffic(cls(prompt=800, prompt_max=3000)), slo=slo))
    assert (finding.status, finding.deciding) == (status, True)
    if status == "warn":
        assert finding.why.startswith("4.5 %")
        assert "--max-model-len to 3100" in finding.remedies[0]


def test_the_tail_uses_the_declared_context_where_none_is_served():
    evidence = replace(make_evidence(), served=None, settings=make_settings(max_model_len=1000))
    finding = only("W106", evidence)
    assert finding.status == "fail"
    assert finding.required is not None
    assert finding.required.provenance == "declared"
    assert only("W106", replace(evidence, settings=None)).status == "skip"


# ----------------------------------------------------------------------------------------------------------------- SLO

RULES = [
    ("W110", Slo(ttft={"p95": 1.0}), {"ttft": 0.5}, {"ttft": 2.0}),
    ("W111", Slo(tps={"p05": 50.0}), {"tpot": 0.01}, {"tpot": 0.05}),
    ("W112", Slo(e2e={"p95": 2.0}), {"ttft": 0.1, "tpot": 0.01}, {"ttft": 1.5, "tpot": 0.01}),
    ("W114", Slo(first_answer={"p95": 3.0}), {"first_answer": 2.0}, {"first_answer": 4.0}),
]


@pytest.mark.parametrize(("rule", "slo", "good", "over"), RULES)
@pytest.mark.parametrize(
    ("n", "bad", "status"),
    [(60, 0, "pass"), (58, 0, "inconclusive"), (100, 1, "pass"), (100, 2, "inconclusive"), (100, 10, "fail")],
)
def test_latency_slos_follow_the_exact_binomial_rule(rule, slo, good, over, n, bad, status):
    """p95 at confidence 0.95: n = 59 is the fewest with none over; of 100 one may be, ten are too many."""
    finding = only(rule, measured(spaced(n, bad, good, over), slo))
    assert (finding.status, finding.deciding) == (status, True)
    assert finding.measured is not None
    assert finding.measured.n == n
    assert f": {bad} of {n} requests miss it or fail, 5 % may: " in finding.why


def test_inconclusive_says_how_many_more_good_requests_are_missing():
    """None over: 59 - 22 = 37 more; one over: 93 - 60 = 33 more."""
    slo = Slo(ttft={"p95": 1.0})
    assert only("W110", measured(spaced(22, 0, {"ttft": 0.5}, {}), slo)).missing == "37 more good requests"
    assert only("W110", measured(spaced(60, 1, {"ttft": 0.5}, {"ttft": 2.0}), slo)).missing == "33 more good requests"


@pytest.mark.parametrize(("rule", "slo", "good", "over"), RULES)
def test_failed_requests_count_as_over_every_limit(rule, slo, good, over):
    finding = only(rule, measured(spaced(100, 10, good, {"error": "http_5xx", "ttft": None}), slo))
    assert finding.status == "fail"


def test_requests_that_the_auditor_cancelled_are_no_failures():
    finding = only("W110", measured(spaced(100, 10, {"ttft": 0.5}, {"error": "cancelled", "ttft": None})))
    assert finding.status == "pass"
    assert finding.measured is not None
    assert finding.measured.n == 90


def test_tps_is_reported_as_a_rate_with_its_interval():
    """60 streams of 10 ms a token: 100 tok/s; the slowest rank bounds it from below only as far as data go."""
    finding = only("W111", measured(spaced(60, 0, {"tpot": 0.01}, {}), Slo(tps={"p05": 50.0})))
    assert finding.measured is not None
    assert finding.measured.value == pytest.approx(100, rel=1e-6)
    assert finding.measured.low is None or finding.measured.low <= 100.0001
    assert finding.required is not None
    assert (finding.required.value, finding.required.unit) == (50.0, "tok/s")


def test_a_percentile_that_falls_on_failed_requests_has_no_value():
    failed = [make_sample(i, error="timeout", ttft=None) for i in range(30)]
    finding = only("W110", measured(failed))
    assert finding.status == "fail"
    assert finding.measured is not None
    assert finding.measured.value is None
    assert "failed requests" in finding.measured.note


def test_a_class_has_its_own_slo_over_its_own_requests():
    samples = [make_sample(i, cls="rag" if i % 2 else "chat", ttft=2.0 if i % 2 else 0.1) for i in range(200)]
    slo = Slo(ttft={"p95": 3.0}, classes={"rag": Slo(ttft={"p95": 1.0})})
    overall, rag = judge("W110", measured(samples, slo))
    assert (overall.status, overall.subject) == ("pass", "p95")
    assert (rag.status, rag.subject) == ("fail", "rag p95")
    assert rag.measured is not None
    assert rag.measured.n == 100


def test_a_class_that_alone_would_miss_an_slo_of_all_is_named():
    """Ten of 400 requests are long ones of 2 s, 2.5 %: all together meet a p95 of 1 s."""
    samples = [
        make_sample(i, cls="long" if i % 40 == 7 else "chat", ttft=2.0 if i % 40 == 7 else 0.1) for i in range(400)
    ]
    finding = only("W110", measured(samples, Slo(ttft={"p95": 1.0})))
    assert finding.status == "pass"
    assert finding.why.endswith(" Class long alone: p95 2 s.")
    assert "alone" not in only("W110", measured(samples, Slo(ttft={"p95": 2.5}))).why


def test_neighbours_that_fare_alike_count_for_less():
    """200 requests in blocks of ten that are alike: 16 bad ones would fail if independent (200: fail from 16 on)."""
    samples = [make_sample(i, ttft=2.0 if i // 10 in (4, 11) and i % 10 < 8 else 0.5) for i in range(200)]
    finding = only("W110", measured(samples, Slo(ttft={"p95": 1.0})))
    assert finding.status == "inconclusive"
    assert finding.measured is not None
    assert "independent" in finding.measured.note


def test_without_requests_the_slo_is_not_judged():
    finding = only("W110", replace(make_evidence(), measurements=()))
    assert (finding.status, finding.deciding) == ("skip", True)
    assert only("W114", make_evidence()).deciding is False


def test_a_stream_buffered_on_the_way_fails_ttft_and_tps_even_below_the_limit():
    at_once = [make_sample(i, ttft=0.9, tpot=0.0, arrivals=(0.9,), first_tokens=100) for i in range(100)]
    evidence = measured(at_once)
    for rule in ("W110", "W111"):
        finding = only(rule, evidence)
        assert finding.status == "fail"
        assert "all at once" in finding.why
    assert only("W112", evidence).status == "pass"


def test_the_sentence_tells_figure_and_limit():
    """200 requests of 0.5 s against 1 s; half of them failed: the p95 is none."""
    slo = Slo(ttft={"p95": 1.0}, tps={"p05": 50.0})
    good = measured(spaced(200, 0, {"ttft": 0.5, "tpot": 0.01}, {}), slo)
    assert only("W110", good).why == (
        "TTFT p95 500 ms against 1 s: 0 of 200 requests miss it or fail, 5 % may: few enough to be sure."
    )
    assert only("W111", good).why.startswith("TPS p05 100 tok/s against 50 tok/s: 0 of 200")
    failed = measured(spaced(200, 100, {"ttft": 0.5}, {"error": "timeout", "ttft": None}), slo)
    assert only("W110", failed).why.startswith("TTFT p95 falls on failed requests (limit 1 s): 100 of 200")


def test_too_few_requests_are_no_reason_to_tune():
    """22 of 59: 37 more. 2 of 22 over are more than 5 %: there tuning may be what is missing."""
    slo = Slo(ttft={"p95": 1.0}, error_rate=0.05)
    evidence = measured(spaced(22, 0, {"ttft": 0.5}, {}), slo)
    more = "measure 37 more requests at the target, 59 in all: raise probe.budget"
    assert only("W110", evidence).remedies == (more,)
    assert only("W113", evidence).remedies == (more,)
    [m] = evidence.loads("slo")
    cut = with_slo(evidence, replace(m, stopped="the time budget of 150 s is spent"))
    assert only("W110", cut).remedies[0].endswith("raise probe.budget.duration (the time budget of 150 s is spent)")
    assert len(only("W110", measured(spaced(22, 2, {"ttft": 0.5}, {"ttft": 2.0}), slo)).remedies) > 2


def test_levers_that_the_engine_lacks_are_left_out():
    """llama.cpp has no tensor parallelism; an unknown engine's levers are named in plain words."""
    evidence = measured(spaced(100, 50, {"ttft": 0.5}, {"ttft": 9.0}))
    bare = replace(evidence, settings=make_settings(engine="llamacpp", kv_bytes=1.0625), device=None)
    llama = replace(bare, flags={"max_num_batched_tokens": "-b", "slots": "-np", "kv_cache_dtype": "-ctk"})
    assert only("W110", llama).remedies[1] == "let prompts through faster: larger steps (-b)"
    assert "devices" not in " ".join(only("W110", llama).remedies)
    sglang = replace(evidence, flags={"prefix_caching": "without --disable-radix-cache"}, device=None)
    assert "the prefix cache on (without --disable-radix-cache)" in " ".join(only("W110", sglang).remedies)
    unknown = " ".join(only("W110", replace(bare, flags={})).remedies)
    assert "more devices" in unknown
    assert "tensor_parallel" not in unknown
    assert "_" not in unknown


def test_levers_that_are_pulled_are_left_out():
    slow = measured(spaced(100, 50, {"tpot": 0.01}, {"tpot": 0.2}), Slo(tps={"p05": 50.0}))
    assert "8-bit KV" in " ".join(only("W111", slow).remedies)
    lean = replace(slow, settings=make_settings(kv_bytes=1.0, weight_bits=4.5))
    assert "8-bit KV" not in " ".join(only("W111", lean).remedies)
    assert "quantised" not in " ".join(only("W111", lean).remedies)


def test_remedies_name_the_engines_flags_and_what_they_would_bring():
    finding = only("W110", measured(spaced(100, 50, {"ttft": 0.5}, {"ttft": 9.0})))
    text = " ".join(finding.remedies)
    assert "--max-num-batched-tokens" in text
    assert "--tensor-parallel-size 2: a 1600-token prompt alone" in text
    assert "--quantization fp8" in text


@pytest.mark.parametrize(
    ("n", "bad", "rate", "status"),
    [(299, 0, 0.01, "pass"), (298, 0, 0.01, "inconclusive"), (100, 4, 0.01, "fail"), (100, 0, 0.0, "inconclusive")],
)
def test_the_error_rate_follows_the_same_rule(n, bad, rate, status):
    """1 % at confidence 0.95 needs 299 good requests; 4 of 100 are too many; nothing proves 0 %."""
    finding = only("W113", measured(spaced(n, bad, {}, {"error": "timeout", "ttft": None}), Slo(error_rate=rate)))
    assert (finding.status, finding.deciding) == (status, True)
    if rate == 0.0:
        assert "finite number" in (finding.missing or "")


def test_one_failure_breaks_an_error_rate_of_zero():
    finding = only("W113", measured(spaced(100, 1, {}, {"error": "timeout", "ttft": None}), Slo(error_rate=0.0)))
    assert finding.status == "fail"
    assert "(timeout)" in finding.why


def test_without_an_error_slo_only_a_clear_failure_decides():
    slo = Slo(ttft={"p95": 1.0})
    passing = only("W113", measured(spaced(300, 0, {}, {}), slo))
    failing = only("W113", measured(spaced(100, 50, {}, {"error": "http_5xx", "ttft": None}), slo))
    assert (passing.status, passing.deciding) == ("pass", False)
    assert (failing.status, failing.deciding) == ("fail", True)
    assert only("W113", replace(make_evidence(), measurements=())).status == "skip"


# ------------------------------------------------------------------------------------------------------------ overload


def growing(waiting: list[float]) -> Evidence:
    """TTFT from 0.1 to 4 s over 40 requests, with the server's queue as given."""
    from auditor.measurement import Snapshot

    samples = [make_sample(i, start=float(i), ttft=0.1 + 0.1 * i) for i in range(40)]
    during = tuple(Snapshot(at=4.0 * i, phase="during", values={"waiting": w}) for i, w in enumerate(waiting))
    return with_slo(make_evidence(), make_measurement(samples, snapshots=during))


def test_a_queue_that_grows_with_ttft_is_overload():
    finding = only("W120", growing([0, 0, 1, 3, 5, 7, 9, 11, 13, 15]))
    assert (finding.status, finding.deciding) == ("fail", True)


def test_ttft_that_grows_without_a_queue_is_a_warning():
    finding = only("W120", growing([0.0] * 10))
    assert finding.status == "warn"
    assert {n.name: n.value for n in finding.numbers}["TTFT at first"] == pytest.approx(0.7)  # the seventh of 0.1, 0.2


def test_ttft_that_rises_and_settles_is_no_overload():
    """Up by 40 ms a request for 22 requests, then steady: the first third's median is 0.1 + 9.5 x 0.04 = 0.48 s."""
    samples = [make_sample(i, start=float(i), ttft=0.1 + 0.04 * min(i, 22)) for i in range(60)]
    finding = only("W120", with_slo(make_evidence(), make_measurement(samples)))
    assert finding.status == "pass"
    assert finding.why == "TTFT rises from 480 ms to 980 ms and settles, with no queue to be seen: no overload."


def test_a_steady_load_is_no_overload():
    assert only("W120", make_evidence()).status == "pass"


@pytest.mark.parametrize("count", [0, 8])
def test_too_few_requests_cannot_show_overload(count):
    finding = only("W120", measured([make_sample(i) for i in range(count)]))
    assert (finding.status, finding.deciding) == ("skip", True)


def test_in_flight_of_an_open_loop_stands_in_for_the_queue():
    """Without counters: every request stays longer than the last, so ever more are open."""
    samples = [make_sample(i, start=float(i), ttft=1.0 + i, tpot=0.01) for i in range(40)]
    finding = only("W120", with_slo(make_evidence(), make_measurement(samples, gauges={}, counters={})))
    assert finding.status == "fail"


def test_a_declared_rate_takes_the_concurrency_that_was_planned():
    load = Load(id="slo", purpose="slo", concurrency=24, shapes=())
    rate = Traffic(request_rate=5.0, classes=(cls(),))
    evidence = declared(traffic=rate)
    planned = replace(evidence, plan=Plan(loads=(load,), requests=0, tokens=0, seconds=0), measurements=())
    assert planned.target == 24
    assert replace(planned, plan=None).target is None
    assert Measurement(load=load, samples=()).judged == ()


def test_titles_and_ids_are_the_published_ones():
    assert [r.id for r in CHECK.rules] == [
        *("W101", "W102", "W103", "W104", "W105", "W106", "W107"),
        *("W110", "W111", "W112", "W113", "W114", "W120", "W130", "W140"),
    ]
    assert make_profile().name == "healthy"
