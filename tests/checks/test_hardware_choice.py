"""Rules H210 to H212: what such hardware reaches, who would serve this traffic better, what it costs.

Llama-3.1-8B on an H100. 64 streams at 3,075 tokens read 15.0 GB of weights and 25.8 GB of cache a step: 12.2 ms at
3.35 TB/s (82 tok/s); at 0.87 and 0.90 of it 13.7 ms, and 1.6 ms for the kernels of 32 layers.
"""

from dataclasses import replace

import pytest

from auditor.evidence import Evidence, Finding
from auditor.measurement import ClientHealth
from auditor.profile import Deployment, Lengths, Slo, Traffic, TrafficClass
from auditor.testing import (
    H100,
    make_evidence,
    make_load,
    make_measurement,
    make_sample,
    run_check,
    with_slo,
)
from auditor.theory.ranking import Ranked
from checks import hardware_choice
from checks.bottleneck import CHECK


def judge(rule: str, evidence: Evidence) -> list[Finding]:
    return list(run_check(CHECK, evidence, rule))


def only(rule: str, evidence: Evidence) -> Finding:
    (finding,) = judge(rule, evidence)
    return finding


def asked(slo: Slo, prompt: int = 3000, output: int = 150, target: int = 64, **deployment: object) -> Evidence:
    """Every request has these lengths; nothing was measured."""
    evidence = make_evidence()
    cls = TrafficClass(name="chat", prompt_tokens=Lengths(p50=prompt), output_tokens=Lengths(p50=output))
    traffic = Traffic(target_concurrency=target, classes=(cls,))
    declared = replace(evidence.profile.deployment, **deployment)  # type: ignore[arg-type]
    profile = replace(evidence.profile, slo=slo, traffic=traffic, deployment=declared)
    return replace(evidence, profile=profile, measurements=())


def measured(evidence: Evidence, tpot: float, ttft: float = 0.3, count: int = 200) -> Evidence:
    """A load of the evidence's target whose requests all take the same times."""
    samples = [make_sample(i, tpot=tpot, ttft=ttft) for i in range(count)]
    target = evidence.profile.traffic.target_concurrency or 1
    load = make_load(concurrency=target)
    client = ClientHealth(peak_inflight=target)
    return with_slo(evidence, make_measurement(samples, load=load, client=client))


# --------------------------------------------------------------------------------------------------------------- reach


@pytest.mark.parametrize(
    ("floor", "status", "says"),
    [
        (78.0, "warn", "tuning alone is unlikely to reach it"),  # below the limit of 82, which no engine reaches
        (10.0, "pass", "Within reach"),
    ],
)
def test_an_slo_that_nothing_measured_is_held_against_what_is_usual(floor: float, status: str, says: str) -> None:
    finding = only("H210", asked(Slo(tps={"p05": floor})))
    assert (finding.status, finding.deciding) == (status, False)
    assert says in finding.why
    (usual,) = finding.numbers
    assert usual.low is not None
    assert usual.high is not None
    assert usual.low < (usual.value or 0.0) < usual.high < 82
    assert "H100" in usual.note


def test_an_slo_within_the_band_needs_a_measurement() -> None:
    usual = only("H210", asked(Slo(tps={"p05": 10.0}))).numbers[0].value
    assert usual is not None
    finding = only("H210", asked(Slo(tps={"p05": usual})))
    assert (finding.status, finding.missing) == ("inconclusive", "more requests at the target")


def test_what_is_met_says_with_how_much_headroom() -> None:
    """20 ms a token are 50 tok/s: twice the floor. 0.3 s of 1.5 s: 80 % unused."""
    evidence = measured(asked(Slo(tps={"p05": 25.0}, ttft={"p95": 1.5})), tpot=0.020)
    ttft, tps = judge("H210", evidence)
    assert (tps.status, ttft.status) == ("pass", "pass")
    assert tps.why.startswith("Met with 100 % headroom: TPS p05 50 tok/s against 25 tok/s; such hardware usually gives")
    assert ttft.why.startswith("Met with 80 % headroom: TTFT p95 300 ms against 1.5 s")
    assert tps.measured is not None
    assert tps.measured.value == pytest.approx(50)


def test_what_is_met_needs_no_hardware() -> None:
    finding = only("H210", replace(measured(asked(Slo(tps={"p05": 25.0})), tpot=0.020), device=None))
    assert finding.why == "Met with 100 % headroom: TPS p05 50 tok/s against 25 tok/s."
    skipped = only("H210", replace(asked(Slo(tps={"p05": 25.0})), device=None))
    assert (skipped.status, skipped.deciding) == ("skip", False)


def test_what_is_within_reach_and_missed_names_flags() -> None:
    """100 ms a token where 20 tok/s are asked and some 50 are usual: something else takes the time."""
    finding = only("H210", measured(asked(Slo(tps={"p05": 20.0})), tpot=0.100))
    assert finding.status == "warn"
    assert "Missed, but within reach" in finding.why
    assert "times the expected time" in finding.why
    assert finding.remedies[0].startswith("look for lost time first")
    assert any(text.startswith("--kv-cache-dtype fp8:") for text in finding.remedies)


def test_a_first_token_that_waited_says_so() -> None:
    """Alone a prompt of 3,000 tokens takes 20 + 75 = 95 ms here, under load 5 s."""
    evidence = replace(asked(Slo(ttft={"p95": 1.0})), measurements=make_evidence().measurements)
    finding = only("H210", measured(evidence, tpot=0.020, ttft=5.0))
    assert finding.status == "warn"
    assert finding.remedies[0] == "a 3000-token prompt alone takes 95 ms here: the rest is waiting (K302 to K305)"


def test_what_is_missed_at_the_usual_speed_takes_a_lever() -> None:
    evidence = asked(Slo(tps={"p05": 10.0}))
    usual = only("H210", evidence).numbers[0]
    assert usual.value is not None
    assert usual.high is not None
    floor = (usual.value + usual.high) / 2  # between the expected speed and the fast end of the band
    finding = only("H210", measured(asked(Slo(tps={"p05": floor})), tpot=1 / usual.value))
    assert "no slower than that: it takes a lever, not a repair" in finding.why
    assert any("streams at once on each replica (--max-num-seqs)" in text for text in finding.remedies)


def test_beyond_reach_other_accelerators_and_an_slo_are_named() -> None:
    fast = replace(H100, key="h200", name="Fast One", bandwidth=8e12, flops={"bf16": 16e15})
    finding = only("H210", replace(asked(Slo(tps={"p05": 78.0})), candidates=(fast, replace(fast, confidence="C"))))
    named = [text for text in finding.remedies if "Fast One instead" in text]
    assert len(named) == 1
    assert finding.remedies[-1].endswith("which such hardware usually meets")


def test_provisional_figures_mark_what_rests_on_them() -> None:
    device = replace(H100, confidence="C", figures={"memory": "A", "bandwidth": "B", "flops": "C"})
    ttft, tps = judge("H210", replace(asked(Slo(tps={"p05": 10.0}, ttft={"p95": 9.0})), device=device))
    assert ("(provisional)" in ttft.why, ttft.confidence) == (True, "low")
    assert ("(provisional)" in tps.why, tps.confidence) == (False, "medium")
    (cpu,) = judge("H210", replace(asked(Slo(tps={"p05": 10.0})), device=replace(device, kind="cpu")))
    assert ("(provisional)" in cpu.why, cpu.confidence) == (True, "low")  # whatever is known of its bandwidth


def test_replies_are_expected_from_prompt_and_steps() -> None:
    """149 steps of some 20 ms: 3 s; the limit alone is 1.9 s."""
    assert only("H210", asked(Slo(e2e={"p95": 1.9}))).status == "warn"
    assert only("H210", asked(Slo(e2e={"p95": 20.0}))).status == "pass"


def test_without_slos_there_is_nothing_to_reach() -> None:
    assert only("H210", asked(Slo(error_rate=0.01))).status == "skip"


# ---------------------------------------------------------------------------------------------------------- hardware


def row(key: str, request: float, cost: float | None = None, mine: bool = False, **rest: object) -> Ranked:
    fields = {"name": key.upper(), "confidence": "A", "ttft": 0.1, "tpot": 0.01, "holds": True} | rest
    return Ranked(key=key, request=request, cost=cost, mine=mine, **fields)  # type: ignore[arg-type]


def test_the_phase_that_takes_the_device_s_time_names_the_resource() -> None:
    """64 streams of 3,000 / 150: prompts take most of the device's time; of 100 / 1,000, replies do."""
    prompts = only("H211", asked(Slo()))
    assert "of the device's time goes to prompts, which need compute (FLOP/s)" in prompts.why
    assert prompts.numbers[0].provenance == "computed"
    replies = only("H211", asked(Slo(), prompt=100, output=1000))
    assert "goes to replies, which need memory bandwidth" in replies.why


def test_the_resource_is_the_one_that_was_measured() -> None:
    """Steps of 90 ms whatever the batch and the context, where weights take 4.5: no bandwidth shortens them."""
    evidence = asked(Slo(), prompt=100, output=1000, target=8)
    loads = []
    for batch, context in ((1, 200), (1, 1600), (8, 200), (8, 1600)):
        streams = [
            make_sample(i, start=0.0, ttft=0.05, tpot=0.09, output_tokens=48, prompt_tokens=context)
            for i in range(batch)
        ]
        load = make_load("decode", id=f"d{batch}x{context}", concurrency=batch, context=context)
        loads.append(make_measurement(streams, load=load, gauges={}, counters={}))
    assert "which need fewer or faster kernels" in only("H211", replace(evidence, measurements=tuple(loads))).why
    assert "which need memory bandwidth" in only("H211", evidence).why


@pytest.mark.parametrize(
    ("read", "step", "needs"),
    [
        ("compute", "weights", "compute (FLOP/s) and memory bandwidth"),
        ("mixed", "kv", "compute (FLOP/s) and memory bandwidth"),
        ("overhead", "overhead", "fewer or faster kernels and links"),
    ],
)
def test_each_resource_is_named_once(read: str, step: str, needs: str) -> None:
    assert hardware_choice._dominates(0.5, read, step).endswith(f"they need {needs}.")


def test_the_ranking_is_shown_in_time() -> None:
    ranking = (row("fast", 1.0), row("mine", 2.0, mine=True), row("slow", 3.0))
    finding = only("H211", replace(asked(Slo()), ranking=ranking))
    assert finding.status == "pass"
    assert finding.why.endswith("A request takes 2 s here by prediction; faster would be FAST 1 s.")
    assert [n.name for n in finding.numbers[1:]] == [
        "a request on 1 x fast",
        "a request on 1 x mine (declared)",
        "a request on 1 x slow",
    ]
    best = replace(asked(Slo()), ranking=(row("mine", 2.0, mine=True), row("slow", 3.0)))
    assert "No other accelerator known here serves it faster than 2 s" in only("H211", best).why


@pytest.mark.parametrize(
    ("cost", "seconds", "rest", "status"),
    [
        (0.0010, 1.5, {}, "warn"),
        (0.0019, 1.5, {}, "pass"),  # within what predictions differ by
        (0.0010, 2.5, {}, "pass"),  # slower
        (0.0010, 1.5, {"confidence": "C"}, "pass"),
        (0.0010, 1.5, {"holds": False}, "pass"),
        (None, 1.5, {}, "pass"),
    ],
)
def test_cheaper_and_no_slower_hardware_warns(
    cost: float | None, seconds: float, rest: dict[str, object], status: str
) -> None:
    ranking = (row("other", seconds, cost, **rest), row("mine", 2.0, 0.0020, mine=True))
    finding = only("H211", replace(asked(Slo()), ranking=ranking))
    assert finding.status == status
    if status == "warn":
        assert finding.remedies == ("OTHER at 1 for 1,000 requests",)


def test_hardware_is_not_weighed_without_arithmetic() -> None:
    assert only("H211", replace(asked(Slo()), device=None)).status == "skip"
    evidence = asked(Slo())
    assert only("H211", replace(evidence, profile=replace(evidence.profile, traffic=Traffic()))).status == "skip"


# ---------------------------------------------------------------------------------------------------------------- cost


def with_rate(evidence: Evidence, rate: float) -> Evidence:
    traffic = replace(evidence.profile.traffic, request_rate=rate)
    return replace(evidence, profile=replace(evidence.profile, traffic=traffic))


def test_the_rate_of_a_replica_is_what_is_in_flight_over_the_stay() -> None:
    """0.3 s and 99 tokens at 20 ms: 2.28 s; 64 in flight are 28.1 requests/s; 60 a second take three replicas."""
    evidence = with_rate(measured(asked(Slo(tps={"p05": 25.0})), tpot=0.020), 60.0)
    finding = only("H212", evidence)
    assert (finding.status, finding.deciding) == ("warn", False)
    numbers = {n.name: n for n in finding.numbers}
    assert numbers["requests a second, one replica"].value == pytest.approx(28.07, abs=0.01)
    assert numbers["requests a second, one replica"].provenance == "measured"
    assert numbers["replicas needed"].value == 3
    assert "60 requests/s take 3 replicas where 1 are declared" in finding.why
    three = replace(evidence, profile=replace(evidence.profile, deployment=Deployment(replicas=3)))
    assert only("H212", three).numbers[0].value == pytest.approx(28.07 / 3, abs=0.01)


def test_tokens_cost_what_their_device_time_costs() -> None:
    """2.50 an hour at 28.07 requests/s are 24.7e-6 a request: prompts and replies share it, whatever their parts."""
    evidence = measured(asked(Slo(tps={"p05": 25.0}), price_per_hour=2.5), tpot=0.020)
    finding = only("H212", evidence)
    numbers = {n.name: n.value or 0.0 for n in finding.numbers}
    assert numbers["1,000 requests"] == pytest.approx(0.02474, abs=1e-4)
    inputs, outputs = (numbers[f"a million {what} tokens"] for what in ("prompt", "output"))
    assert inputs * 3000 / 1e6 + outputs * 150 / 1e6 == pytest.approx(24.74e-6, rel=0.01)
    assert 0 < inputs < outputs
    assert (finding.status, finding.confidence) == ("pass", "medium")
    assert "With 64 requests in flight one replica serves 28.1 a second (measured; the SLOs are met)" in finding.why
    assert "At the SLOs a million prompt tokens cost" in finding.why
    assert {n.note for n in finding.numbers if n.name.startswith("a million")} == {
        "with 64 requests in flight on a replica"
    }


def test_a_load_that_misses_its_slo_tells_no_cost_at_the_slo() -> None:
    evidence = measured(asked(Slo(tps={"p05": 80.0}), price_per_hour=2.5), tpot=0.020)
    finding = only("H212", evidence)
    assert "(measured; an SLO is missed). At that load a million" in finding.why
    assert "where the SLOs are met, with fewer in flight, they cost more" in finding.why
    assert "At the SLOs" not in finding.why
    assert finding.confidence == "low"


def test_a_price_says_where_nothing_was_asked_or_decided() -> None:
    free = only("H212", measured(asked(Slo(), price_per_hour=2.5), tpot=0.020))
    assert "(measured; no latency SLO is declared). At that load a million" in free.why
    few = only("H212", measured(asked(Slo(tps={"p05": 25.0}), price_per_hour=2.5), tpot=0.020, count=20))
    assert "(measured; whether the SLOs are met is not decided). At that load a million" in few.why


def test_an_open_loop_tells_no_rate_of_its_own() -> None:
    """Bursts after the closed loop: what one replica serves is what the closed loop reached."""
    evidence = measured(asked(Slo()), tpot=0.020)
    slower = [make_sample(i, tpot=0.08, ttft=0.3, output_tokens=100) for i in range(20)]
    bursts = make_measurement(slower, load=replace(make_load(id="bursts", concurrency=64), arrivals=(0.0, 1.0)))
    both = replace(evidence, measurements=(*evidence.measurements, bursts))
    assert only("H212", both).numbers[0].value == only("H212", evidence).numbers[0].value


def test_failed_requests_are_not_served() -> None:
    evidence = asked(Slo())
    samples = [make_sample(i, tpot=0.02, ttft=0.3, error="timeout" if i % 2 else None) for i in range(40)]
    client = ClientHealth(peak_inflight=64)
    half = with_slo(evidence, make_measurement(samples, load=make_load(concurrency=64), client=client))
    assert only("H212", half).numbers[0].value == pytest.approx(28.07 / 2, abs=0.01)


def test_without_a_load_the_rate_is_computed() -> None:
    finding = only("H212", with_rate(asked(Slo(tps={"p05": 5.0}), price_per_hour=2.5), 1.0))
    assert "predicted, and whether the SLOs are met is not measured" in finding.why
    assert "At that load a million" in finding.why
    assert (finding.status, finding.confidence) == ("pass", "low")
    assert finding.numbers[0].provenance == "computed"
    assert only("H212", replace(asked(Slo()), device=None)).status == "skip"


def test_the_computed_rate_is_none_that_the_device_cannot_multiply() -> None:
    """3,000 tokens of Llama-3.1-8B are 42e12 FLOPs: an H100 reads fewer than 24 such prompts a second at 989e12."""
    rate = only("H212", asked(Slo(), output=1)).numbers[0].value
    assert rate is not None
    assert rate < 989e12 / (2 * 6.98e9 * 3000)
