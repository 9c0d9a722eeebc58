"""Question H on hand-made evidence: Llama-3.1-8B on an H100 (989 TFLOP/s, 3.35 TB/s), one request class.

Reading 8,000 prompt tokens takes 2 x 6.98e9 x 8,000 = 112 TFLOP and 2 x 32 x 32 x 128 x 8,000 x 8,001 = 17 TFLOP of
attention: 129 / 989 = 0.130 s. A decode step reads 15.0 GB of weights: 4.48 ms.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from auditor.evidence import Conflict, Evidence, Finding
from auditor.measurement import Measurement, Sample
from auditor.profile import Deployment, Lengths, SharedPrefix, Slo, Traffic, TrafficClass
from auditor.testing import (
    H100,
    make_evidence,
    make_load,
    make_measurement,
    make_profile,
    make_sample,
    make_served,
    make_settings,
    run_check,
    with_slo,
)
from checks.bottleneck import CHECK


def judge(rule: str, evidence: Evidence) -> list[Finding]:
    return list(run_check(CHECK, evidence, rule))


def only(rule: str, evidence: Evidence) -> Finding:
    (finding,) = judge(rule, evidence)
    return finding


def of(rule: str, subject: str, evidence: Evidence) -> Finding:
    return next(f for f in judge(rule, evidence) if f.subject == subject)


def declared(evidence: Evidence, **profile: object) -> Evidence:
    return replace(evidence, profile=replace(evidence.profile, **profile))  # type: ignore[arg-type]


def asked(slo: Slo, prompt: int = 8000, output: int = 100, target: int = 16, **rest: object) -> Evidence:
    """Every request has these lengths."""
    cls = TrafficClass(
        name="chat",
        prompt_tokens=Lengths(p50=prompt),
        output_tokens=Lengths(p50=output),
        **rest,  # type: ignore[arg-type]
    )
    return declared(make_evidence(), slo=slo, traffic=Traffic(target_concurrency=target, classes=(cls,)))


# -------------------------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(("limit", "status"), [(0.135, "pass"), (0.125, "fail")])
def test_ttft_below_the_physical_prefill_fails(limit, status):
    finding = only("H201", asked(Slo(ttft={"p95": limit})))
    assert (finding.status, finding.deciding) == (status, True)
    assert finding.measured is not None
    assert finding.measured.value == pytest.approx(0.130, abs=0.001)
    assert finding.measured.provenance == "computed"


def test_a_failure_shows_its_arithmetic_and_ways_out():
    """In fp8 the H100 does 1,979 TFLOP/s: 64.9 ms."""
    finding = only("H201", asked(Slo(ttft={"p95": 0.1})))
    numbers = {n.name: n for n in finding.numbers}
    assert numbers["work of the prompt"].value == pytest.approx(129e12, rel=0.01)
    assert numbers["peak"].value == pytest.approx(989e12)
    assert numbers["time of the prompt's work"].value == pytest.approx(0.130, abs=0.001)
    assert numbers["bandwidth"].provenance == "catalogue"
    assert finding.why == (
        "Reading 8,000 prompt tokens takes 130 ms at least (128.5 TFLOP at 989 TFLOP/s), the SLO allows 100 ms: "
        "no tuning meets it."
    )
    assert any(r.startswith("--quantization fp8 brings the limit to 64.9 ms") for r in finding.remedies)


def test_other_accelerators_that_meet_the_slo_are_named():
    fast = replace(H100, key="fast", name="Fast One", flops={"bf16": 4e15}, bandwidth=8e12)
    evidence = replace(asked(Slo(ttft={"p95": 0.05})), candidates=(fast, H100))
    text = " ".join(only("H201", evidence).remedies)
    assert "Fast One instead" in text
    assert "H100 SXM5 80GB instead" not in text


@pytest.mark.parametrize(("floor", "status"), [(80.0, "pass"), (100.0, "warn"), (230.0, "fail")])
def test_tps_beyond_the_bandwidth_fails(floor, status):
    """64 streams at 3,075 tokens: 15.0 GB + 64 x 3,075 x 131,072 B (25.8 GB) at 3.35 TB/s: 12.2 ms, 82 tok/s.

    One stream alone: 15.0 + 0.4 GB, 4.6 ms, 217 tok/s. In between, fewer streams at once would do.
    """
    finding = only("H201", asked(Slo(tps={"p05": floor}), prompt=3000, output=150, target=64))
    assert finding.status == status
    assert finding.measured is not None
    assert finding.measured.value == pytest.approx(82.1, abs=0.5)


def test_a_floor_that_only_fewer_streams_can_meet_needs_requests():
    """Physics leaves open whether the engine runs fewer at once: without requests nobody knows."""
    evidence = asked(Slo(tps={"p05": 100.0}), prompt=3000, output=150, target=64)
    finding = only("H201", replace(evidence, measurements=()))
    assert (finding.status, finding.deciding) == ("inconclusive", True)
    assert "requests at the target" in (finding.missing or "")


def test_drafted_tokens_raise_the_tps_limit():
    evidence = asked(Slo(tps={"p05": 100.0}), prompt=3000, output=150, target=64)
    speculating = replace(evidence, settings=make_settings(speculative_tokens=3))
    assert only("H201", speculating).status == "pass"


def test_the_arithmetic_of_a_step_says_what_shares_it():
    """12.2 ms for 4 tokens; the cache at 3,075 tokens: 64 x 3,075 x 131,072 B and 15.0 GB are 38 GiB."""
    evidence = asked(Slo(tps={"p05": 900.0}), prompt=3000, output=150, target=64)
    finding = only("H201", replace(evidence, settings=make_settings(speculative_tokens=3)))
    start = "A decode step of 64 streams, shared by the 4 tokens that it may yield, takes 3.05 ms at least (38 GiB at"
    assert finding.why.startswith(start)
    reply = only("H201", asked(Slo(e2e={"p95": 1.0})))
    assert "Reading 8,000 prompt tokens and writing 100 takes 1.072 s at least" in reply.why
    assert "then steps of" in reply.why


def test_e2e_below_prefill_and_replies_fails():
    """8,000 tokens: 0.130 s; 99 steps of (15.0 + 16 x 8,050 x 131,072 = 16.9 GB) / 3.35 TB/s = 9.52 ms: 1.07 s."""
    for limit, status in ((1.2, "pass"), (1.0, "fail")):
        finding = only("H201", asked(Slo(e2e={"p95": limit})))
        assert finding.status == status
        assert finding.measured is not None
        assert finding.measured.value == pytest.approx(1.07, abs=0.01)


def test_only_the_prompts_beyond_the_percentile_count():
    """p95 at 1,000 tokens, the longest 16,000: a p95 of 50 ms can hold, a p99 can not."""
    lengths = TrafficClass(
        name="chat", prompt_tokens=Lengths(p50=500, p95=1000, max=16000), output_tokens=Lengths(p50=100)
    )
    traffic = Traffic(target_concurrency=16, classes=(lengths,))
    evidence = declared(make_evidence(), traffic=traffic, slo=Slo(ttft={"p95": 0.05, "p99": 0.05}))
    assert of("H201", "ttft p95", evidence).status == "pass"
    assert of("H201", "ttft p99", evidence).status == "fail"


def test_a_rare_class_breaks_only_what_its_share_can():
    """Long prompts are 3 % of requests: they break a p99, not a p95."""
    classes = tuple(
        TrafficClass(name=n, share=s, prompt_tokens=Lengths(p50=p), output_tokens=Lengths(p50=100))
        for n, s, p in (("short", 0.97, 200), ("long", 0.03, 16000))
    )
    slo = Slo(ttft={"p95": 0.1, "p99": 0.1}, classes={"long": Slo(ttft={"p50": 0.1})})
    evidence = declared(make_evidence(), traffic=Traffic(target_concurrency=16, classes=classes), slo=slo)
    assert of("H201", "ttft p95", evidence).status == "pass"
    assert of("H201", "ttft p99", evidence).status == "fail"
    assert of("H201", "ttft long p50", evidence).status == "fail"


def test_a_shared_prefix_and_earlier_turns_need_not_be_read():
    assert only("H201", asked(Slo(ttft={"p95": 0.1}), shared_prefix=SharedPrefix(tokens=4000))).status == "pass"
    assert only("H201", asked(Slo(ttft={"p95": 0.1}), turns=4)).status == "pass"


@pytest.mark.parametrize(("limit", "status"), [(0.3, "pass"), (0.2, "inconclusive"), (0.01, "inconclusive")])
def test_provisional_hardware_never_fails_and_passes_only_by_twice(limit, status):
    evidence = replace(asked(Slo(ttft={"p95": limit})), device=replace(H100, confidence="C"))
    assert only("H201", evidence).status == status


def test_a_limit_that_rests_on_certain_figures_fails_whatever_else_is_provisional():
    """64 streams at 3,075 tokens read 40.8 GB: 12.2 ms at 3.35 TB/s, which two sources confirm."""
    device = replace(H100, confidence="C", figures={"memory": "A", "bandwidth": "B", "flops": "C"})
    evidence = replace(asked(Slo(tps={"p05": 230.0}), prompt=3000, output=150, target=64), device=device)
    assert only("H201", evidence).status == "fail"
    prompt = replace(asked(Slo(ttft={"p95": 0.125})), device=device)
    assert only("H201", prompt).status == "inconclusive"
    reading = replace(asked(Slo(ttft={"p95": 0.004}), prompt=8), device=device)
    assert only("H201", reading).status == "fail"  # 15 GB of weights take 4.48 ms


def test_a_class_too_rare_to_break_the_percentile_leaves_room():
    cls = TrafficClass(name="a", share=0.03, prompt_tokens=Lengths(p50=16000), output_tokens=Lengths(p50=10))
    traffic = Traffic(target_concurrency=16, classes=(cls,))
    finding = only("H201", declared(make_evidence(), traffic=traffic, slo=Slo(ttft={"p95": 0.001})))
    assert (finding.status, finding.measured) == ("pass", None)


def test_without_hardware_target_or_slo_the_limit_is_open():
    for evidence in (
        replace(make_evidence(), device=None),
        declared(make_evidence(), traffic=Traffic()),
        declared(make_evidence(), slo=Slo(error_rate=0.01)),
    ):
        finding = only("H201", evidence)
        assert (finding.status, finding.deciding) == ("skip", True)


# ---------------------------------------------------------------------------------------------- bottleneck, efficiency


def ladder(t0: float, per_token: float, base: float, per_sequence: float, per_cached: float) -> Evidence:
    """Ladders that follow exactly this law."""
    measurements: list[Measurement] = []

    def add(purpose: str, name: str, samples: list[Sample], **load: object) -> None:
        made = make_load(purpose, id=name, **load)  # type: ignore[arg-type]
        measurements.append(make_measurement(samples, load=made, gauges={}, counters={}))

    for n in (32, 256, 1024, 4096, 8000):
        samples = [
            make_sample(i, load="p", ttft=t0 + per_token * n, output_tokens=1, prompt_tokens=n) for i in range(5)
        ]
        add("prefill", f"p{n}", samples, prompt_tokens=n)
    for batch, context in ((1, 1000), (1, 8000), (8, 1000), (8, 8000), (16, 8000)):
        step = base + per_sequence * batch + per_cached * batch * (context + 24)
        samples = [
            make_sample(i, load="d", start=0.0, ttft=0.1, tpot=step, output_tokens=48, prompt_tokens=context)
            for i in range(batch)
        ]
        add("decode", f"d{batch}x{context}", samples, concurrency=batch, context=context)
    return replace(asked(Slo(ttft={"p95": 1.0})), measurements=tuple(measurements))


@pytest.mark.parametrize(("cached", "points"), [(None, [1000] * 5), (1, [999] * 5), (100, [900] * 5), (101, [])])
def test_a_prompt_that_a_cache_holds_is_not_read(cached, points):
    """llama.cpp keeps the first token that all prompts share; a tenth at most may be cached."""
    samples = [make_sample(i, load="p", output_tokens=1, prompt_tokens=1000, cached_tokens=cached) for i in range(5)]
    load = make_measurement(samples, load=make_load("prefill", prompt_tokens=1000), gauges={}, counters={})
    assert [n for n, _ in replace(make_evidence(), measurements=(load,)).prefill_points] == points


LAW = {"t0": 0.02, "per_token": 22e-6, "base": 0.0072, "per_sequence": 1e-6, "per_cached": 5e-8}
CACHED = LAW | {"per_cached": 1e-7}


def test_ladder_steps_are_read_while_all_streams_decode():
    points = ladder(**LAW).decode_points
    assert points[0] == (1, 1024, pytest.approx(0.0072 + 1e-6 + 5e-8 * 1024, rel=1e-6))
    assert points[-1][:2] == (16, 8024)


def test_streams_share_the_replicas():
    """Sixteen streams over two replicas are eight on each: no limit of sixteen is held against their steps."""
    evidence = ladder(**LAW)
    two = replace(evidence, profile=replace(evidence.profile, deployment=Deployment(replicas=2)))
    assert two.decode_points[-1][:2] == (8, 8024)
    assert two.decode_points[0][0] == 1


def test_the_bottleneck_is_predicted_and_measured():
    """Prefill of 8,000: 176 ms of compute against 20 ms. Decode: 16 x 8,050 x 5e-8 = 6.4 ms of cache against 7.2 ms."""
    evidence = ladder(**LAW)
    prefill, decode = of("H202", "prefill", evidence), of("H202", "decode", evidence)
    assert (prefill.status, prefill.confidence) == ("pass", "high")
    assert "bound by compute (measured and predicted)" in prefill.why
    assert "; a prompt takes 196 ms, 1.51 times the physical limit of 130 ms." in prefill.why  # 0.020 + 8,000 x 22 us
    assert "no single bound" in decode.why
    parts = {n.name: n for n in decode.numbers}
    assert parts["kv, measured"].value == pytest.approx(16 * 8050 * 5e-8, rel=0.02)
    assert parts["kv, measured"].provenance == "measured"
    assert parts["kv, predicted"].provenance == "computed"


def test_what_a_ladder_leaves_open_is_said():
    """Cache 6.4 ms and weights of 4.5 ms at the most bandwidth, 5.8 at the least that is usual: either may lead."""
    finding = of("H202", "decode", ladder(**LAW))
    assert finding.confidence == "medium"
    assert "the ladder allows kv too" in finding.why
    weights = next(n for n in finding.numbers if n.name == "weights, measured")
    assert weights.low is not None
    assert weights.low < (weights.value or 0) < (weights.high or 0)


def test_shares_of_the_peaks_are_shown_where_the_ladder_identifies_them():
    """A cached token takes 131,072 bytes / 3.35 TB/s = 39.1 ns at full bandwidth, and 100 ns here: 39 %."""
    numbers = {n.name: n for n in of("H202", "decode", ladder(**CACHED)).numbers}
    share = numbers["share of the bandwidth, KV cache"]
    assert share.value == pytest.approx(0.391, abs=0.01)
    assert share.low is not None
    assert numbers["streams up to which tokens a second grow"].value == 16
    prompts = {n.name for n in of("H202", "prefill", ladder(**CACHED)).numbers}
    assert "share of the compute peak, longest prompt" not in prompts  # three lengths leave more than 7 % open


def test_slopes_that_speak_against_a_bound_make_it_inconclusive():
    """Sixteen streams take 340 ms and eight 180, of which products explain little: no overhead grows like that."""
    finding = of("H202", "decode", ladder(**(LAW | {"base": 0.02, "per_sequence": 0.02})))
    assert finding.status == "inconclusive"
    assert "almost in proportion to its streams" in finding.why
    doubted = replace(H100, confidence="C")  # of which no figure is needed to see it
    assert of(
        "H202", "decode", replace(ladder(**(LAW | {"base": 0.02, "per_sequence": 0.02})), device=doubted)
    ).status == ("inconclusive")


def test_a_cache_that_costs_less_than_its_bytes_is_doubted():
    """16 x 7,000 more tokens take 0.1 us: their 14.7 GB would take 4.4 ms at least."""
    finding = of("H202", "decode", ladder(**(LAW | {"per_cached": 1e-12})))
    assert finding.status == "inconclusive"
    assert "read faster than the device can" in finding.why


def test_a_ladder_that_contradicts_the_arithmetic_is_inconclusive():
    """Prefill whose time does not depend on the prompt: 0.5 s whatever comes."""
    finding = of("H202", "prefill", ladder(**(LAW | {"t0": 0.5, "per_token": 1e-7})))
    assert finding.status == "inconclusive"
    assert "compute" in finding.why
    assert finding.deciding is False


def test_arithmetic_on_provisional_figures_contradicts_no_ladder():
    device = replace(H100, confidence="C", figures={"memory": "A", "bandwidth": "B", "flops": "C"})
    finding = of("H202", "prefill", replace(ladder(**(LAW | {"t0": 0.5, "per_token": 1e-7})), device=device))
    assert (finding.status, finding.confidence) == ("pass", "medium")
    assert "(measured; arithmetic on provisional figures says compute)" in finding.why
    assert "times the provisional physical limit" in finding.why
    decode = of("H202", "decode", replace(ladder(**CACHED), device=device))
    assert decode.confidence == "high"  # bandwidth is certain


HERE = replace(H100, key="this-cpu", kind="cpu", figures={"memory": "A", "bandwidth": "B", "flops": "C"})


def test_no_arithmetic_on_a_cpu_contradicts_a_ladder():
    """Sixteen streams take 340 ms and eight 180: no bytes explain it, and products only if the peak is far away."""
    evidence = replace(ladder(**(LAW | {"base": 0.02, "per_sequence": 0.02})), device=HERE)
    finding = of("H202", "decode", evidence)
    assert finding.status == "pass"
    assert "bound by compute (measured" in finding.why


def test_a_cpu_is_not_classified_by_arithmetic_where_a_ladder_failed():
    noisy = replace(scattered(ladder(**LAW), "decode", 3.0), device=HERE)
    finding = of("H202", "decode", noisy)
    assert (finding.status, finding.confidence) == ("inconclusive", "low")
    assert "with nothing else running" in (finding.missing or "")
    alone = of("H202", "decode", replace(noisy, measurements=()))
    assert (alone.status, alone.confidence) == ("pass", "low")


def test_the_bottleneck_is_predicted_alone_without_ladders():
    evidence = replace(asked(Slo(ttft={"p95": 1.0})), measurements=())
    assert "(predicted)" in of("H202", "decode", evidence).why
    assert of("H202", "decode", evidence).confidence == "medium"


def test_the_bottleneck_is_measured_alone_without_hardware():
    finding = of("H202", "prefill", replace(ladder(**LAW), device=None))
    assert "(measured)" in finding.why


def scattered(evidence: Evidence, purpose: str, factor: float) -> Evidence:
    """The ladders with every second load of one purpose slower by a factor."""
    loads = [m for m in evidence.measurements if m.load.purpose == purpose]
    slow = {m.load.id for m in loads[::2]}
    changed = [replace(m, samples=tuple(map(stretched(factor), m.samples))) for m in loads if m.load.id in slow]
    kept = [m for m in evidence.measurements if m.load.id not in slow]
    return replace(evidence, measurements=(*kept, *changed))


def stretched(factor: float) -> Callable[[Sample], Sample]:
    def change(s: Sample) -> Sample:
        arrivals = tuple(factor * t for t in s.arrivals)
        return replace(s, arrivals=arrivals, ttft=factor * (s.ttft or 0.0), e2e=arrivals[-1])

    return change


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_ladder_that_scatters_is_not_read(phase):
    """Every second step takes three times as long: relative errors around any law are about 0.5, over 0.2."""
    evidence = scattered(ladder(**(LAW | {"per_cached": 2e-7})), phase, 3.0)
    alone = of("H202", phase, replace(evidence, device=None))
    assert alone.status == "skip"
    assert "not identifiable from this ladder" in alone.why
    predicted = of("H202", phase, evidence)
    assert predicted.status == "pass"
    assert "(predicted; not identifiable from this ladder" in predicted.why
    assert of("H203", phase, evidence).status == "skip"
    assert of("H202", "decode" if phase == "prefill" else "prefill", evidence).confidence == "high"


def test_a_ladder_below_the_target_s_prompts_says_so():
    """The target's prompts have 8,000 tokens."""
    evidence = ladder(**LAW)
    for most, why in ((4096, "it ends at 4096 tokens, below the target's prompts"), (32, "it ends at 32 tokens")):
        kept = tuple(m for m in evidence.measurements if (m.load.prompt_tokens or 0) <= most)
        assert (
            f"(predicted; not identifiable from this ladder: {why}"
            in of("H202", "prefill", replace(evidence, measurements=kept)).why
        )


def test_a_decode_ladder_that_cannot_tell_the_cache_says_so():
    """Without the loads at 1,000 tokens each batch was measured at one context."""
    evidence = replace(ladder(**LAW), device=None, device_error="no accelerator is declared")
    finding = of("H202", "decode", evidence)
    assert "measured" in finding.why
    long = tuple(m for m in evidence.measurements if m.load.context != 1000)
    finding = of("H202", "decode", replace(evidence, measurements=long))
    assert finding.missing == (
        "decode measured, not identifiable from this ladder: no batch was measured at two contexts; "
        "and for a prediction: no accelerator is declared"
    )


def test_the_bottleneck_needs_one_of_both():
    found = judge("H202", replace(make_evidence(), device=None, measurements=()))
    assert [f.status for f in found] == ["skip", "skip"]


def test_usual_efficiency_passes_and_a_slow_step_warns():
    """One stream at 1,024 tokens: 4.52 ms at the limit; 7.25 ms is 62 %, 20 ms is 23 %."""
    assert {f.status for f in judge("H203", ladder(**(LAW | {"base": 0.0065})))} == {"pass"}
    slow = of("H203", "decode", ladder(**(LAW | {"base": 0.020})))
    assert (slow.status, slow.deciding) == ("warn", False)
    assert slow.required is not None
    assert slow.required.note
    assert "23 %" in slow.why


def test_more_than_usual_passes_and_more_than_all_is_doubted():
    """One stream at 1,024 tokens: 4.52 ms at the limit; 5 ms are 90 %, 2 ms 226 %."""
    fast = of("H203", "decode", ladder(**(LAW | {"base": 0.005, "per_sequence": 0.0, "per_cached": 1e-12})))
    assert (fast.status, "more than most" in fast.why) == ("pass", True)
    faster = of("H203", "decode", ladder(**(LAW | {"base": 0.002})))
    assert (faster.status, faster.deciding) == ("inconclusive", False)


def test_a_ladder_of_many_streams_is_held_against_none_of_few():
    """Efficiencies are published for up to 8 streams, 11 to 74 % of the bandwidth by class."""
    evidence = ladder(**LAW)
    many = tuple(m for m in evidence.measurements if m.load.purpose != "decode" or m.load.concurrency > 8)
    skipped = of("H203", "decode", replace(evidence, measurements=many))
    assert (skipped.status, "fewer streams" in (skipped.missing or "")) == ("skip", True)


def test_prefill_efficiency_is_that_of_a_further_token():
    """129 TFLOP at 989 TFLOP/s: 0.130 s, of 22 us x 8,000 = 0.176 s: 74 %, however large the fixed cost."""
    for t0 in (0.02, 0.5):
        finding = of("H203", "prefill", ladder(**(LAW | {"t0": t0})))
        assert finding.measured is not None
        assert finding.measured.value == pytest.approx(0.743, rel=0.07)
        assert (finding.measured.low or 0) < 0.743 < (finding.measured.high or 0)


def test_efficiency_against_figures_in_doubt_says_so():
    """The peak is in dispute, the bandwidth is not."""
    figures = {"memory": "A", "bandwidth": "B", "flops": "C"}
    device = replace(H100, confidence="C", figures=figures)
    prefill = of("H203", "prefill", replace(ladder(**LAW), device=device))
    assert ("the provisional peak" in prefill.why, prefill.confidence) == (True, "low")
    decode = of("H203", "decode", replace(ladder(**LAW), device=device))
    assert ("provisional" in decode.why, decode.confidence) == (False, "medium")


def test_nothing_is_usual_for_a_cpu():
    here = replace(H100, key="this-cpu", kind="cpu", figures={"flops": "C"})
    skipped = only("H203", replace(ladder(**LAW), device=here))
    assert (skipped.status, "CPUs" in (skipped.missing or "")) == ("skip", True)


def test_short_prompts_do_not_fill_a_device():
    evidence = ladder(**LAW)
    short = tuple(m for m in evidence.measurements if (m.load.prompt_tokens or 0) < 512)
    assert [f.subject for f in judge("H203", replace(evidence, measurements=short))] == ["decode"]


def test_efficiency_needs_hardware_and_ladders():
    assert only("H203", replace(make_evidence(), device=None)).status == "skip"
    assert only("H203", replace(make_evidence(), measurements=())).status == "skip"


# ------------------------------------------------------------------------------------------------- start-up and kernels


@pytest.mark.parametrize(("first", "status"), [(0.05, "pass"), (0.4, "pass"), (9.0, "warn")])
def test_a_cold_first_token_warns(first, status):
    """An 800-token prompt takes 20 + 20 = 40 ms once warm; 0.4 s is ten times that, but nobody waits for it."""
    cold = make_measurement([make_sample(load="cold", ttft=first)], load=make_load("cold"), gauges={}, counters={})
    evidence = make_evidence()
    finding = only("H204", replace(evidence, measurements=(cold, *evidence.measurements[2:])))
    assert (finding.status, finding.deciding) == (status, False)


def test_a_cold_start_needs_both_requests():
    assert only("H204", replace(make_evidence(), measurements=())).status == "skip"
    assert only("H204", with_slo(replace(make_evidence(), measurements=()), make_measurement())).status == "skip"


@pytest.mark.parametrize(
    ("served", "settings", "status"),
    [
        ({"enforce_eager": False}, {"enforce_eager": True, "captured_batch": 512}, "pass"),
        ({"enforce_eager": False}, {"captured_batch": None}, "skip"),
        ({"enforce_eager": True}, {}, "warn"),
        ({"enforce_eager": None}, {"enforce_eager": True}, "warn"),
        ({}, {"captured_batch": 8}, "warn"),
        ({}, {"captured_batch": 16}, "pass"),
    ],
)
def test_kernels_should_be_captured_up_to_the_target(served, settings, status):
    evidence = replace(make_evidence(), served=make_served(**served), settings=make_settings(**settings))
    assert only("H205", evidence).status == status


def test_captured_kernels_are_held_against_a_target_that_is_known():
    """Without traffic nobody knows which batches run."""
    evidence = replace(make_evidence(), settings=make_settings(captured_batch=512))
    assert only("H205", replace(evidence, profile=make_profile(traffic=Traffic()))).status == "skip"


def test_capture_is_no_question_without_a_gpu():
    assert only("H205", replace(make_evidence(), device=replace(H100, kind="cpu"))).status == "skip"
    assert only("H205", replace(make_evidence(), device=None)).status == "skip"


@pytest.mark.parametrize(
    ("backend", "status"),
    [
        ("FLASH_ATTN", "pass"),
        ("flashinfer", "pass"),
        ("FLASHMLA", "pass"),
        ("torch_native", "warn"),
        ("TORCH-SDPA", "warn"),
        ("homemade", "warn"),
        (None, "skip"),
    ],
)
def test_the_attention_backend_should_be_fused(backend, status):
    evidence = replace(make_evidence(), served=make_served(attention_backend=backend))
    assert only("H206", evidence).status == status


def pausing(count: int, pause: float = 0.24, **rest: object) -> Evidence:
    """Of 40 streams `count` pause once. The longest prompt alone takes 20 + 75 = 95 ms: three explain 0.285 s."""
    steady = [0.04 + 0.006 * i for i in range(100)]
    broken = [t if i < 50 else t + pause for i, t in enumerate(steady)]
    samples = [make_sample(i, arrivals=tuple(broken if i < count else steady), e2e=broken[-1]) for i in range(40)]
    return with_slo(make_evidence(), make_measurement(samples, **rest))


def test_pauses_with_room_in_the_cache_are_other_users_prompts():
    finding = only("H207", pausing(10))
    assert (finding.status, finding.deciding) == ("warn", False)
    assert "--max-num-batched-tokens" in finding.remedies[0]
    small = only("H207", replace(pausing(10), settings=make_settings(max_num_batched_tokens=2048)))
    assert "(a step full of them, 2,048 tokens, takes 71.2 ms)" in small.why  # 20 ms + 2,048 x 25 us
    assert only("H207", pausing(1)).status == "pass"


def test_pauses_that_prompts_do_not_explain_have_no_visible_cause():
    """0.3 s and a step of 6 ms are longer than three prompts of 95 ms."""
    finding = only("H207", pausing(10, 0.3))
    assert (finding.status, finding.confidence) == ("warn", "medium")
    assert "25 % of the streams pause" in finding.why
    assert "longer than other users' prompts explain (285 ms)" in finding.why
    assert "--max-num-batched-tokens" not in " ".join(finding.remedies)


def test_pauses_without_a_ladder_have_no_cause_that_can_be_told():
    evidence = pausing(10)
    finding = only("H207", replace(evidence, measurements=evidence.loads("slo")))
    assert (finding.status, finding.confidence) == ("warn", "low")
    assert "the cause cannot be told" in finding.why


def test_pauses_under_kv_pressure_are_left_to_the_cache():
    assert only("H207", pausing(10, counters={"preemptions": 5.0})).status == "skip"
    assert only("H207", replace(make_evidence(), measurements=())).status == "skip"


# -------------------------------------------------------------------------------------------------------------- inputs


def conflict(field: str) -> Conflict:
    return Conflict(field, "a", "profile.yaml:3:1", "b", "served /get_server_info")


@pytest.mark.parametrize(
    "field", ["endpoint.model", "deployment.tensor_parallel", "deployment.quantization", "deployment.speculative"]
)
def test_declared_inputs_that_are_served_otherwise_fail(field):
    finding = only("H208", replace(make_evidence(), conflicts=(conflict(field),)))
    assert (finding.status, finding.deciding, finding.subject) == ("fail", True, field)
    assert "served /get_server_info" in finding.why


def test_a_version_served_otherwise_warns():
    warning, rest = judge("H208", replace(make_evidence(), conflicts=(conflict("deployment.engine_version"),)))
    assert (warning.status, warning.deciding) == ("warn", False)
    assert (rest.status, rest.deciding) == ("pass", True)


def test_capacity_settings_and_launch_flags_belong_to_question_k():
    launch = Conflict("deployment.tensor_parallel", "2", "profile.yaml:3:1", "4", "launch --tensor-parallel-size")
    evidence = replace(make_evidence(), conflicts=(conflict("deployment.max_model_len"), launch))
    assert only("H208", evidence).status == "pass"


def test_ladders_faster_than_physics_contradict_the_declaration():
    """8,000 tokens cannot be read in 20 + 40 = 60 ms, nor 15 GB in 2 ms."""
    evidence = ladder(**(LAW | {"per_token": 5e-6, "base": 0.002}))
    found = judge("H208", evidence)
    assert {f.subject for f in found} == {"prefill", "decode"}
    assert {(f.status, f.deciding) for f in found} == {("inconclusive", True)}
    assert only("H208", replace(evidence, device=replace(H100, confidence="C"))).status == "pass"


def test_what_would_explain_a_contradiction_is_named():
    """Decode in 3.0 ms a step cannot read 15.0 GB (4.48 ms); 8-bit weights or two devices could.

    16 x 8,024 tokens: 8.1 ms for 15.0 + 16.8 GB (9.5 ms), or 7.5 + 16.8 GB (7.3 ms), or half of all (4.7 ms).
    """
    evidence = ladder(**(LAW | {"base": 0.003, "per_cached": 4e-8}))
    fix = of("H208", "decode", evidence).remedies
    assert [text.partition(" would")[0] for text in fix[:2]] == ["quantization fp8", "tensor_parallel 2"]
    fast = replace(H100, key="fast", name="Fast One", flops={"bf16": 4e15}, bandwidth=8e12)
    text = " ".join(of("H208", "decode", replace(evidence, candidates=(fast,))).remedies)
    assert "Fast One would explain it" in text


def test_a_bandwidth_that_is_certain_is_held_against_provisional_compute_or_not():
    """15 GB in 2 ms beat 3.35 TB/s, 60 ms for 8,000 tokens only a peak that is in dispute."""
    device = replace(H100, confidence="C", figures={"memory": "A", "bandwidth": "B", "flops": "C"})
    evidence = replace(ladder(**(LAW | {"per_token": 5e-6, "base": 0.002})), device=device)
    assert [f.subject for f in judge("H208", evidence)] == ["decode"]
    rest = only("H208", replace(ladder(**LAW), device=device))
    assert (rest.status, rest.confidence) == ("pass", "medium")
    assert "not held against the hardware's peak FLOP/s, which is provisional" in rest.why


def test_times_that_are_unusually_short_warn_and_decide_nothing():
    """A step of 4.6 ms is no faster than physics (4.48 ms), but engines reach 0.87 of the bandwidth at most here."""
    evidence = ladder(**(LAW | {"base": 0.0046, "per_sequence": 0.0, "per_cached": 4e-8}))
    warning, rest = judge("H208", evidence)
    assert (warning.status, warning.deciding, warning.subject) == ("warn", False, "decode")
    assert "where such hardware usually needs" in warning.why
    assert (rest.status, rest.deciding, rest.confidence) == ("pass", True, "medium")
    assert "nor does anything measured" not in rest.why


def test_inputs_say_what_they_were_held_against():
    """Without hardware only what the endpoint says was compared."""
    full = only("H208", ladder(**LAW))
    assert "the endpoint tells its engine, version, model), nor does anything measured" in full.why
    assert full.confidence == "high"
    bare = only("H208", replace(ladder(**LAW), device=None, device_error="no accelerator is declared"))
    assert (bare.status, bare.confidence) == ("pass", "medium")
    assert "no time was held against physics: no accelerator is declared" in bare.why
    assert "no prefill or decode ladder" in only("H208", replace(ladder(**LAW), measurements=())).why


def test_speculation_of_unknown_yield_leaves_decode_out():
    evidence = replace(ladder(**(LAW | {"base": 0.002})), served=make_served(speculative="eagle"))
    assert only("H208", evidence).status == "pass"


def test_inputs_are_open_without_an_endpoint():
    finding = only("H208", replace(make_evidence(), served=None))
    assert (finding.status, finding.deciding) == ("skip", True)
    faster = judge("H208", replace(ladder(**(LAW | {"per_token": 5e-6, "base": 0.002})), served=None))
    assert {(f.status, f.deciding, f.subject) for f in faster} == {
        ("inconclusive", True, "prefill"),
        ("inconclusive", True, "decode"),
    }


@pytest.mark.parametrize(
    ("device", "status"), [(H100, "pass"), (replace(H100, confidence="C"), "warn"), (None, "warn")]
)
def test_unknown_and_provisional_hardware_warns(device, status):
    assert only("H209", replace(make_evidence(), device=device)).status == status


def test_figures_are_shown_with_their_confidence():
    device = replace(H100, confidence="C", figures={"memory": "A", "bandwidth": "B", "flops": "C"})
    finding = only("H209", replace(make_evidence(), device=device))
    assert "peak FLOP/s" in finding.why
    assert "bandwidth" not in finding.why
    numbers = {n.name: n for n in finding.numbers}
    assert (numbers["bandwidth"].value, numbers["bandwidth"].note) == (3.35e12, "confidence B")
    assert (numbers["peak of bf16"].provenance, numbers["peak of bf16"].note) == ("catalogue", "confidence C")
