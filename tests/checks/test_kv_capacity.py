"""Question K on hand-made evidence.

Llama-3.1-8B keeps 2 x 8 heads x 128 x 2 bytes x 32 layers = 131,072 bytes a token; a block of 16 tokens is 2 MiB.
"""

from dataclasses import replace

import pytest

from auditor.engines.flavours import FLAVOURS, flag_names
from auditor.evidence import Evidence, Finding
from auditor.measurement import Sample, Snapshot
from auditor.profile import Deployment, Lengths, SharedPrefix, Traffic, TrafficClass
from auditor.testing import (
    H100,
    LLAMA_8B,
    make_evidence,
    make_measurement,
    make_sample,
    make_served,
    make_settings,
    run_check,
    with_slo,
)
from auditor.theory.carrying import computed_pool
from auditor.theory.kv.geometry import Layers, Recurrent
from checks.kv_capacity import CHECK


def judge(rule: str, evidence: Evidence) -> list[Finding]:
    return list(run_check(CHECK, evidence, rule))


def only(rule: str, evidence: Evidence) -> Finding:
    (finding,) = judge(rule, evidence)
    return finding


def p95(evidence: Evidence) -> Finding:
    return next(f for f in judge("K302", evidence) if f.subject == "p95")


def declared(evidence: Evidence, **profile: object) -> Evidence:
    return replace(evidence, profile=replace(evidence.profile, **profile))  # type: ignore[arg-type]


def fixed(target: int = 64, prompt: int = 1500, output: int = 500, **rest: object) -> Traffic:
    """Every request has these lengths: 2,000 tokens = 125 blocks of 16."""
    only_class = TrafficClass(
        name="chat",
        prompt_tokens=Lengths(p50=prompt),
        output_tokens=Lengths(p50=output),
        **rest,  # type: ignore[arg-type]
    )
    return Traffic(target_concurrency=target, classes=(only_class,))


def pool(blocks: int, **traffic: object) -> Evidence:
    """A served pool of so many blocks of 16 tokens under fixed lengths."""
    served = make_served(kv_blocks=blocks, kv_tokens=blocks * 16)
    return declared(replace(make_evidence(), served=served), traffic=fixed(**traffic))  # type: ignore[arg-type]


def under_load(samples: list[Sample] | None = None, **rest: object) -> Evidence:
    return with_slo(make_evidence(), make_measurement(samples, **rest))


# -------------------------------------------------------------------------------------------------------------- weights


def computed(**changes: object) -> Evidence:
    """Evidence without what the engine serves, so that memory is computed."""
    return replace(make_evidence(), served=None, measurements=(), **changes)  # type: ignore[arg-type]


def test_an_engine_that_serves_a_pool_has_room_for_its_weights():
    assert only("K301", make_evidence()).status == "pass"


def test_an_engine_that_answers_has_its_weights_loaded_whatever_it_tells():
    """llama.cpp tells no pool, and nobody declared the hardware."""
    silent = replace(under_load(), served=make_served(kv_tokens=None, kv_blocks=None), device=None)
    assert only("K301", silent).status == "pass"
    dead = replace(silent, measurements=())
    assert only("K301", dead).status == "skip"


def test_weights_that_fit_leave_room_for_the_cache():
    """0.92 x 79.2 GiB = 72.9 GiB; 8.03e9 parameters at 2 bytes are 15.0 GiB."""
    finding = only("K301", computed())
    assert (finding.status, finding.deciding) == ("pass", True)
    assert "72.9 GiB of memory less 15.0 GiB of weights" in finding.why


def test_weights_larger_than_the_memory_fail_and_name_levers():
    """16 GiB of memory x 0.92 = 14.7 GiB < 15.0 GiB; in fp8 (embeddings and head stay at 16 bit) they are 8.5 GiB."""
    small = replace(H100, memory_bytes=16 * 2**30, usable_bytes=16 * 2**30)
    finding = only("K301", computed(device=small))
    assert finding.status == "fail"
    assert any(r.startswith("--quantization fp8 leaves") for r in finding.remedies)


def test_weights_that_may_not_fit_are_inconclusive():
    """17.3 GiB x 0.92 = 15.9 GiB: 0.9 GiB beside the weights, about what the engine itself takes."""
    tight = replace(H100, memory_bytes=int(17.3 * 2**30), usable_bytes=int(17.3 * 2**30))
    finding = only("K301", computed(device=tight))
    assert finding.status == "inconclusive"
    assert "reports at start-up" in (finding.missing or "")


def test_weights_are_not_judged_without_hardware():
    finding = only("K301", computed(device=None, device_error="unknown accelerator 'h1000'"))
    assert (finding.status, finding.deciding) == ("skip", True)
    assert "h1000" in (finding.missing or "")


# ----------------------------------------------------------------------------------------------------------------- fit


@pytest.mark.parametrize(("blocks", "status"), [(8001, "pass"), (7900, "fail")])
def test_the_served_pool_decides_at_p95(blocks, status):
    """64 requests of 125 blocks need 8,000; vLLM keeps one block back."""
    finding = p95(pool(blocks))
    assert (finding.status, finding.deciding) == (status, True)
    assert finding.measured is not None
    assert finding.measured.provenance == "served"
    assert finding.measured.value == pytest.approx(blocks / 125)


def test_a_pool_that_fails_says_what_would_carry_the_target():
    """7,900 blocks, 126,400 tokens, carry 63 of 64; two replicas do; fp8 KV doubles the pool: 252,800."""
    text = " ".join(p95(pool(7900)).remedies)
    assert "2 such replicas carry the target; one carries 63" in text
    assert "--kv-cache-dtype fp8 makes a pool of 252800 tokens, 126 requests at p95 (2x the target)" in text


def test_replicas_share_the_target():
    evidence = declared(pool(4001), deployment=Deployment(replicas=2))
    finding = p95(evidence)
    assert finding.required is not None
    assert finding.required.value == 32
    assert finding.status == "pass"


def test_ranks_have_a_pool_each_whatever_the_model():
    """4,001 blocks of 16 on each of two ranks, of a model that is not known: twice what one rank carries."""
    one = replace(pool(4001), geometry=None)
    two = replace(one, settings=make_settings(data_parallel=2, devices=2))
    alone, both = (p95(evidence).measured for evidence in (one, two))
    assert alone is not None
    assert both is not None
    assert both.value == pytest.approx(2 * (alone.value or 0))
    assert alone.value


def test_data_parallel_ranks_have_a_pool_each():
    evidence = replace(pool(4001), settings=make_settings(data_parallel=2, devices=2))
    assert p95(evidence).status == "pass"
    assert p95(pool(4001)).status == "fail"


def mixed(**lengths: int) -> Traffic:
    """Half of the requests hold up to 200 tokens, 5 % 2,000 or more: 125 blocks at p95, 13 at p50."""
    prompt, output = Lengths(p50=100, p95=1500, **lengths), Lengths(p50=100, p95=500)
    return Traffic(
        target_concurrency=64, classes=(TrafficClass(name="chat", prompt_tokens=prompt, output_tokens=output),)
    )


def test_lengths_that_agree_with_p95_are_its_numbers():
    """8,001 blocks: 64 of 125; at p50 lengths 8,001 / 13 = 615. No class says how long the longest is."""
    finding = only("K302", declared(pool(8001), traffic=mixed()))
    assert finding.status == "pass"
    numbers = {n.name: n.value for n in finding.numbers}
    assert numbers["at p50 lengths"] == pytest.approx(8001 / 13, rel=0.01)
    assert set(numbers) == {"at p50 lengths", "in the mean over the mix"}
    assert "at p95 lengths and " in finding.why
    assert "in the mean over the mix; the target is 64 a replica." in finding.why


def test_lengths_that_differ_from_p95_stand_alone_and_advise():
    """The longest prompts hold 30,500 tokens, 1,907 blocks: 8,001 / 1,907 = 4 of them."""
    found = {f.subject: f for f in judge("K302", declared(pool(8001), traffic=mixed(max=30000)))}
    assert {name: (f.status, f.deciding) for name, f in found.items()} == {
        "p95": ("pass", True),
        "max": ("warn", False),
    }
    small = {f.subject: f for f in judge("K302", declared(pool(6000), traffic=mixed()))}
    assert {name: f.status for name, f in small.items()} == {"p95": "fail", "p50": "pass", "mix": "pass"}
    assert found["max"].remedies == ()


def test_the_flag_that_pins_the_pool_comes_first():
    """1,000 blocks of 2 MiB carry 8 of 16; 16 need 2,000 blocks: 4,194,304,000 bytes, 32,000 tokens."""
    settings, flags = make_settings(kv_pool_bytes=1000 * 2**21), {"kv_pool_bytes": "--kv-cache-memory-bytes"}
    evidence = replace(pool(1000, target=16), settings=settings, flags=flags)
    first = p95(evidence).remedies[0]
    assert first == ("--kv-cache-memory-bytes 4194304000 makes a pool of 32000 tokens, which carries the target at p95")
    bare = p95(replace(evidence, device=None))
    assert bare.remedies[0] == f"{first}, if the device's memory holds that"
    assert not [r for r in bare.remedies if "fp8" in r]
    thrash = replace(evidence, measurements=under_load(counters={"preemptions": 50.0}).measurements)
    assert only("K304", thrash).remedies[0] == first


def test_a_pool_larger_than_the_memory_is_no_remedy():
    """80 requests of 8,000 blocks each, 2 MiB a block: 1,250 GiB."""
    settings, flags = make_settings(kv_pool_bytes=1000 * 2**21), {"kv_pool_bytes": "--kv-cache-memory-bytes"}
    served = make_served(kv_blocks=1000, kv_tokens=16000, max_model_len=131072)
    evidence = replace(pool(1000), served=served, settings=settings, flags=flags)
    long = declared(evidence, traffic=fixed(target=80, prompt=127_500))
    assert not [r for r in p95(long).remedies if "--kv-cache-memory-bytes" in r]


def test_sglangs_token_limit_is_named_with_its_figure():
    """8 requests of 1,220 tokens in pages of one token: 9,760."""
    settings = make_settings(engine="sglang", kv_pool_tokens=8192, block_size=1, memory_fraction=0.8)
    served = make_served(engine="sglang", kv_tokens=8192, kv_blocks=None, block_size=1)
    evidence = replace(
        make_evidence(), settings=settings, served=served, flags={"kv_pool_tokens": "--max-total-tokens"}
    )
    finding = p95(declared(evidence, traffic=fixed(target=8, prompt=120, output=1100)))
    assert finding.status == "fail"
    assert finding.remedies[0].startswith("--max-total-tokens 9760 makes a pool of 9760 tokens")


def test_llamacpps_slots_and_context_are_named_together():
    """4 slots of 2,048 cells; 8 of them need 16,384."""
    settings = make_settings(engine="llamacpp", slots=4, max_model_len=2048, block_size=None, memory_fraction=None)
    served = make_served(engine="llamacpp", kv_tokens=None, kv_blocks=None, block_size=None, max_model_len=2048)
    flags = {"context": "-c", "slots": "-np"}
    evidence = replace(make_evidence(), settings=settings, served=served, device=None, flags=flags)
    finding = p95(declared(evidence, traffic=fixed(target=8)))
    assert finding.status == "fail"
    assert finding.remedies[0].startswith("-np 8 with -c 16384 makes a pool of 16384 tokens")


def test_requests_never_hold_more_than_the_context():
    """30,500 tokens asked, 2,000 allowed: 125 blocks each."""
    served = make_served(kv_blocks=8001, kv_tokens=8001 * 16, max_model_len=2000)
    evidence = declared(replace(make_evidence(), served=served), traffic=fixed(prompt=30000))
    assert p95(evidence).status == "pass"


def test_a_shared_prefix_is_kept_once_where_the_engine_caches_prefixes():
    """1,000 of 2,000 tokens shared: 63 blocks each, 4,032 for 64, and 1,000 tokens once: 63 blocks more."""
    shared = {"shared_prefix": SharedPrefix(tokens=1000)}
    assert p95(pool(4200, **shared)).status == "pass"
    off = replace(pool(4200, **shared), served=make_served(kv_blocks=4200, kv_tokens=67200, prefix_caching=False))
    assert p95(off).status == "fail"


def test_the_computed_pool_decides_only_outside_its_band():
    """The H100 leaves 54 to 58 GiB, 440,000 to 475,000 tokens: about 230 requests of 2,000."""
    evidence = computed()
    number = p95(declared(evidence, traffic=fixed(target=200))).measured
    assert number is not None
    assert number.low is not None
    assert number.high is not None
    assert number.provenance == "computed"
    assert 220 < number.low < number.high < 238
    middle = round((number.low + number.high) / 2)
    for target, status in ((int(number.low), "pass"), (int(number.high) + 1, "fail"), (middle, "inconclusive")):
        assert p95(declared(evidence, traffic=fixed(target=target))).status == status, target


def test_a_served_pool_needs_no_model():
    """100 pages of 16 tokens hold 0.8 requests of 2,000 tokens each."""
    bare = replace(pool(100), geometry=None, device=None, settings=None)
    finding = p95(bare)
    assert finding.status == "fail"
    assert finding.measured is not None
    assert finding.measured.value == pytest.approx(0.8)


@pytest.mark.parametrize("lacks", ["target", "pool"])
def test_without_target_or_pool_the_fit_is_open(lacks):
    evidence = declared(make_evidence(), traffic=Traffic()) if lacks == "target" else computed(geometry=None)
    finding = only("K302", evidence)
    assert (finding.status, finding.deciding) == ("skip", True)


def test_classes_weigh_by_how_long_they_stay():
    """Half the requests stay 1 s (1,000 tokens, 63 blocks), half 3 s (3,000 tokens, 188): in flight 1 to 3.
    8,000 blocks: 1 / (0.25 x 63 / 8000 + 0.75 x 188 / 8000) = 51 requests."""
    both = [
        TrafficClass(name=n, share=0.5, prompt_tokens=Lengths(p50=p), output_tokens=Lengths(p50=o))
        for n, p, o in (("short", 900, 100), ("long", 2700, 300))
    ]
    evidence = declared(pool(8000), traffic=Traffic(target_concurrency=50, classes=tuple(both)))
    finding = p95(replace(evidence, measurements=()))
    assert finding.measured is not None
    assert finding.measured.value == pytest.approx(8000 / (0.25 * 63 + 0.75 * 188), rel=0.01)


# -------------------------------------------------------------------------------------------------------- batch limits


def limits(target: int = 64, **served: object) -> Finding:
    evidence = replace(make_evidence(), served=make_served(**served))
    return only("K303", declared(evidence, traffic=fixed(target=target)))


def test_batch_limits_carry_the_target():
    assert limits(max_num_seqs=64).status == "pass"


def test_a_lower_batch_limit_makes_requests_wait():
    finding = limits(max_num_seqs=32)
    assert (finding.status, finding.deciding) == ("fail", True)
    assert "--max-num-seqs to 64" in finding.remedies[0]


def test_a_queue_limit_below_the_rest_refuses_them():
    assert "beyond 42 they are refused" in limits(max_num_seqs=32, queue_limit=10).why


def test_declared_limits_count_where_none_is_served():
    finding = limits(target=300)
    assert finding.status == "fail"
    assert finding.measured is not None
    assert finding.measured.provenance == "declared"


@pytest.mark.parametrize(("target", "status"), [(256, "pass"), (257, "fail")])
def test_every_data_parallel_rank_has_a_batch_of_its_own(target, status):
    """SGLang's DP attention: --max-running-requests 256 over 8 ranks is 32 on each, and 256 in all."""
    settings = make_settings(engine="sglang", tensor_parallel=8, data_parallel=8, devices=8, max_num_seqs=32)
    evidence = replace(make_evidence(), served=None, measurements=(), settings=settings)
    assert only("K303", declared(evidence, traffic=fixed(target=target))).status == status


@pytest.mark.parametrize(
    ("source", "provenance"),
    [("default of vLLM 0.18.0", "catalogue"), ("launch --max-num-seqs", "declared"), ("declared", "declared")],
)
def test_a_default_is_no_declaration(source, provenance):
    evidence = replace(make_evidence(), setting_sources={"max_num_seqs": source})
    found = only("K303", evidence)
    assert found.measured is not None
    assert (found.measured.value, found.measured.provenance) == (256, provenance)


def test_slots_of_llamacpp_are_its_batch_limit():
    settings = make_settings(engine="llamacpp", slots=4, max_num_seqs=None, max_num_batched_tokens=2048)
    evidence = replace(
        make_evidence(), settings=settings, served=make_served(engine="llamacpp"), flags={"slots": "-np"}
    )
    finding = only("K303", evidence)
    assert finding.status == "fail"
    assert "-np to 16" in finding.remedies[0]


@pytest.mark.parametrize(("running", "status"), [(16.0, "pass"), (9.0, "inconclusive")])
def test_unknown_limits_are_judged_by_what_ran_at_once(running, status):
    evidence = under_load(gauges={"running": running, "waiting": 0.0})
    bare = replace(evidence, settings=None, served=make_served(engine="generic"))
    assert only("K303", bare).status == status


def test_unknown_limits_without_a_gauge_are_skipped():
    evidence = under_load(gauges={}, counters={})
    finding = only("K303", replace(evidence, settings=None, served=make_served(engine="generic")))
    assert (finding.status, finding.deciding) == ("skip", True)


# ---------------------------------------------------------------------------------------------------------- preemption


@pytest.mark.parametrize(("moved", "status"), [(0.0, "pass"), (1.0, "warn"), (14.0, "fail")])
def test_preemptions_are_counted_over_the_load(moved, status):
    """Of 200 requests: 1 % is 2."""
    finding = only("K304", under_load(counters={"preemptions": moved}))
    assert (finding.status, finding.deciding) == (status, True)
    assert finding.measured is not None
    assert finding.measured.value == moved


def test_without_counters_preemption_is_left_to_the_clients_signature():
    finding = only("K304", under_load(gauges={}, counters={}))
    assert (finding.status, finding.deciding) == ("skip", False)


def test_a_page_without_the_counter_decides_nothing():
    finding = only("K304", under_load(counters={"requests": 200.0}))
    assert (finding.status, finding.deciding) == ("skip", False)


def test_a_counter_that_appears_during_the_load_started_at_zero():
    snapshots = (
        Snapshot(at=0, phase="before", values={"requests": 5.0}),
        Snapshot(at=9, phase="after", values={"requests": 205.0, "preemptions": 3.0}),
    )
    finding = only("K304", under_load(snapshots=snapshots))
    assert finding.status == "fail"
    assert finding.measured is not None
    assert finding.measured.value == 3.0


def test_relief_names_the_batch_size_that_the_pool_carries():
    """1,000 blocks carry 8 requests of 125 blocks."""
    served = make_served(kv_blocks=1000, kv_tokens=16000)
    evidence = replace(under_load(counters={"preemptions": 50.0}), served=served)
    finding = only("K304", declared(evidence, traffic=fixed(target=16)))
    assert finding.remedies[0] == "--max-num-seqs 8: wait at the door instead of losing work"


# --------------------------------------------------------------------------------------------------------------- queue


def queue(waiting: float, usage: float, **served: object) -> Finding:
    evidence = under_load(gauges={"running": 8.0, "waiting": waiting, "kv_usage": usage})
    return only("K305", replace(evidence, served=make_served(**served)))


def test_a_queue_with_a_full_cache_is_held_back():
    finding = queue(5.0, 0.93)
    assert (finding.status, finding.deciding) == ("fail", True)
    assert "no room" in finding.why


def test_a_queue_for_a_place_in_the_batch_names_the_limit():
    finding = queue(5.0, 0.3, max_num_seqs=8)
    assert finding.status == "fail"
    assert "--max-num-seqs" in finding.remedies[0]


def test_sglang_holds_back_with_an_emptier_cache_than_its_pool_promises():
    """It reserves room for replies: 8,192 tokens carry 4 requests of p95 1,800 while the cache looks empty."""
    finding = queue(5.0, 0.4, engine="sglang", kv_tokens=8192, kv_blocks=None)
    assert finding.status == "fail"
    assert "no room" in finding.why


def wavering(top: int) -> Evidence:
    """Five wait all the time while 4, 5, ... `top` requests run."""
    during = [
        Snapshot(at=i, phase="during", values={"running": float(n), "waiting": 5.0, "kv_usage": 0.3})
        for i, n in enumerate(range(4, top + 1))
    ]
    ends = (Snapshot(at=0, phase="before", values={}), Snapshot(at=99, phase="after", values={}))
    evidence = under_load()
    [m] = evidence.loads("slo")
    return with_slo(evidence, replace(m, snapshots=(ends[0], *during, ends[1])))


def test_a_batch_that_stands_still_below_the_target_is_held_by_a_limit():
    """8 of 16 run and the cache is 30 % full: whatever the profile says of --max-num-seqs, something lets 8 in."""
    finding = queue(5.0, 0.3)
    assert finding.status == "fail"
    assert "8 run at once and never more" in finding.why


@pytest.mark.parametrize(
    ("arrivals", "status", "why"),
    [
        (
            (0.0, 1.0),
            "fail",
            "9 requests wait in the mean, for a place in the batch: 16 run at once and never more, the cache has room.",
        ),
        (
            (),
            "warn",
            "9 of 16 requests wait in the mean, although the cache has room and no limit of the batch is seen.",
        ),
    ],
)
def test_a_crowd_that_waits_for_a_batch_as_large_as_the_target_is_held_by_its_limit(arrivals, status, why):
    """16 of 16 run and 9 more wait: only independent users can be more than 16, and 16 is all that the batch lets in.

    Where users wait for their replies, 16 of 16 that run hold still by themselves.
    """
    evidence = under_load(gauges={"running": 16.0, "waiting": 9.0, "kv_usage": 0.3})
    [m] = evidence.loads("slo")
    finding = only("K305", with_slo(evidence, replace(m, load=replace(m.load, arrivals=arrivals, rate=5.0))))
    assert (finding.status, finding.why) == (status, why)


def test_a_batch_that_runs_at_its_known_limit_is_full_however_the_readings_vary():
    """11 to 15 run, 13 in the middle, while 5 wait: nine tenths of 14 are 12.6."""
    evidence = wavering(15)
    [m] = evidence.loads("slo")
    late = tuple(s for s in m.snapshots if s.values.get("running", 11.0) >= 11.0)
    evidence = with_slo(evidence, replace(m, snapshots=late))
    assert only("K305", evidence).status == "warn"
    served = replace(evidence, served=make_served(max_num_seqs=14))
    assert only("K305", served).status == "fail"
    two = replace(served.profile.deployment, replicas=2)
    assert only("K305", declared(served, deployment=two)).status == "warn"  # 13 of 28 places


def test_a_queue_for_compute_is_no_failure_of_the_cache():
    finding = only("K305", wavering(15))
    assert finding.status == "warn"
    assert "compute" in finding.remedies[0]


def test_no_standing_queue_passes():
    assert queue(0.0, 0.99).status == "pass"
    assert only("K305", waited(2.0, 0.9)).status == "pass"


def waited(seconds: float, number: float, begin: float = 0.0, **rest: object) -> Evidence:
    """Readings every half second for 100 s, `number` waiting from 0.5 s on; the first judged request starts at
    `begin`. Requests take 20 s.
    """
    during = [
        Snapshot(
            at=0.5 * i,
            phase="during",
            values={"running": 15.0, "waiting": number if 0.5 <= 0.5 * i < 0.5 + seconds else 0.0, "kv_usage": 0.4},
        )
        for i in range(1, 201)
    ]
    ends = Snapshot(at=0, phase="before", values={}), Snapshot(at=101, phase="after", values={})
    samples = [make_sample(i, start=begin + (100 - begin) * i / 80, tpot=0.2) for i in range(80)]
    evidence = under_load(samples, snapshots=(ends[0], *during, ends[1]))
    return replace(evidence, served=make_served(**rest))


def test_a_queue_for_a_moment_at_the_start_is_named_as_that():
    finding = only("K305", waited(2.0, 9.0, begin=5.0))
    assert (finding.status, finding.why) == (
        "pass",
        "0 of 16 requests wait in the mean, 9 at the start: no standing queue.",
    )
    assert finding.measured is not None
    assert finding.measured.n is None
    assert finding.measured.note.endswith("readings, warm-up and drain left out")


def test_a_short_queue_that_lasts_warns_where_the_pool_is_short():
    """One of 16 waits for 12 s of 100; 8,192 tokens carry 8,192 / 1,800 = 4.5 requests at p95 lengths."""
    finding = only("K305", waited(12.0, 1.0, engine="sglang", kv_tokens=8192, kv_blocks=None))
    assert finding.status == "warn"
    assert "one for 12 s on end, for want of KV cache" in finding.why
    brief = waited(4.0, 1.0, engine="sglang", kv_tokens=8192, kv_blocks=None)
    assert only("K305", brief).status == "pass"


def test_a_short_queue_that_lasts_passes_where_there_is_room():
    assert only("K305", waited(12.0, 1.0)).status == "pass"


def test_a_request_that_always_waits_for_cache_warns():
    """0.9 of 16 in the mean, all the time, with the cache 99 % full."""
    assert queue(0.9, 0.99).status == "warn"


def blind(samples: list[Sample]) -> Evidence:
    """No metrics page at all, and nothing that tells the pool."""
    return replace(under_load(samples, gauges={}, counters={}), served=make_served(kv_tokens=None, kv_blocks=None))


def test_without_counters_ttft_as_long_as_replies_betrays_a_queue():
    """Idle, 800 tokens take 20 + 20 = 40 ms; here most wait 2 s, and replies take 0.95 s."""
    finding = only("K305", blind([make_sample(i, ttft=0.04 if i < 4 else 2.0) for i in range(40)]))
    assert (finding.status, finding.deciding, finding.confidence) == ("fail", True, "medium")


def test_without_counters_prompt_first_tokens_pass():
    assert only("K305", blind([make_sample(i) for i in range(40)])).status == "pass"


def test_without_good_requests_or_load_the_queue_is_open():
    assert only("K305", blind([make_sample(i, error="timeout", ttft=None) for i in range(9)])).status == "skip"
    assert only("K305", replace(make_evidence(), measurements=())).deciding is True


# ------------------------------------------------------------------------------------------------------- usage, jitter


@pytest.mark.parametrize(("usage", "status"), [(0.94, "pass"), (0.97, "warn")])
def test_usage_near_full_warns(usage, status):
    finding = only("K306", under_load(gauges={"kv_usage": usage}))
    assert (finding.status, finding.deciding) == (status, False)


def test_usage_needs_a_gauge():
    assert only("K306", under_load(gauges={}, counters={})).status == "skip"


def stalling(count: int) -> list[Sample]:
    """Of 40 streams `count` pause for 3.4 s halfway, as preempted ones do."""
    steady = [0.04 + 0.006 * i for i in range(100)]
    broken = [t if i < 50 else t + 3.4 for i, t in enumerate(steady)]
    return [
        make_sample(i, arrivals=tuple(broken if i < count else steady), e2e=(broken if i < count else steady)[-1])
        for i in range(40)
    ]


def test_stalls_with_preemption_are_the_caches():
    finding = only("K307", under_load(stalling(10), counters={"preemptions": 10.0}))
    assert (finding.status, finding.deciding) == ("warn", False)


def test_stalls_without_kv_pressure_are_left_to_the_bottleneck():
    finding = only("K307", under_load(stalling(10)))
    assert finding.status == "pass"
    assert "H207" in finding.why


def test_stalls_without_counters_decide():
    finding = only("K307", blind(stalling(10)))
    assert (finding.status, finding.deciding, finding.confidence) == ("fail", True, "medium")


def test_few_stalls_pass():
    """One of 40 is 2.5 %."""
    finding = only("K307", blind(stalling(1)))
    assert (finding.status, finding.deciding) == ("pass", True)


def test_stalls_where_the_pool_is_known_to_carry_everybody_are_not_the_caches():
    """llama.cpp has no counters, but its slots hold what they hold."""
    finding = only("K307", under_load(stalling(10), gauges={}, counters={}))
    assert (finding.status, finding.deciding) == ("pass", False)
    assert "H207" in finding.why


def test_stalls_without_the_prefill_ladder_prove_nothing():
    evidence = blind(stalling(10))
    ladderless = replace(evidence, measurements=evidence.loads("slo"))
    finding = only("K307", ladderless)
    assert (finding.status, finding.missing) == (
        "inconclusive",
        "the prefill ladder, to tell what prompts of others cost",
    )


def test_jitter_needs_streams():
    assert only("K307", blind([make_sample(0, output_tokens=1)])).status == "skip"
    assert only("K307", replace(make_evidence(), measurements=())).status == "skip"


def test_waiting_on_a_full_cache_is_pressure_without_a_preemption():
    m = make_measurement(gauges={"waiting": 2.0, "kv_usage": 0.9}, counters={})
    assert (m.held_back, m.kv_pressed) == (1.0, True)
    assert make_measurement(gauges={"waiting": 2.0, "kv_usage": 0.5}, counters={}).kv_pressed is False
    assert make_measurement(gauges={"waiting": 2.0}, counters={}).kv_pressed is None


# -------------------------------------------------------------------------------------------- several kinds of layers

STATES = Recurrent(
    kind="linear", count=30, heads=32, head_dim=128, state_size=128, groups=16, conv_kernel=4, state_bytes=4.0
)
HYBRID = replace(
    LLAMA_8B,
    name="hybrid",
    layers=(Layers(kind="full", count=10, kv_heads=2, qk_head_dim=256, v_head_dim=256),),
    recurrent=(STATES,),
)
"""A request of 2,000 tokens takes few blocks for the full layers, and for each group of recurrent ones a state."""


def hybrid(engine: str = "vllm", **settings: object) -> Evidence:
    """The hybrid offline: nothing is served, the pool is computed from what a flag sets."""
    version = {"vllm": "0.21.0", "sglang": "0.5.23"}[engine]
    own = make_settings(engine=engine, engine_version=version, vendor="nvidia", mamba_cache_mode="none", **settings)
    flags = flag_names(FLAVOURS[engine])
    return replace(computed(geometry=HYBRID, settings=own, flags=flags), setting_sources={})


def test_vllm_does_not_start_with_fewer_blocks_than_requests():
    """A block is a page of 10 layers: 2,146,304 bytes of state up to whole tokens of 2,048 bytes (10 layers of 2 KiB
    each): 1,056 x 2,048 x 10 = 21.6 MB. A GiB holds 49 of them, and 256 requests may run.
    """
    finding = only("K303", declared(hybrid(kv_pool_bytes=2**30), traffic=fixed(target=8)))
    assert (finding.status, finding.deciding) == ("fail", True)
    assert finding.why == (
        "The engine does not start: max_num_seqs 256 is more than the 49 blocks that can hold a request's state: "
        "lower it to those."
    )
    assert finding.remedies[0] == "lower --max-num-seqs"
    few = declared(hybrid(kv_pool_bytes=2**30, max_num_seqs=32), traffic=fixed(target=8))
    assert only("K303", few).status == "pass"


def _blocks(evidence: Evidence) -> tuple[int, int]:
    """The fewest and the most blocks of the computed pool."""
    found = computed_pool(evidence.geometry, evidence.settings, evidence.device)
    assert found is not None
    return found.low.blocks or 0, found.high.blocks or 0


def test_a_refusal_within_the_band_of_the_pool_is_open():
    """The H100 leaves about 55 GiB: some 2,700 blocks of 21.6 MB, give or take the memory overhead."""
    asked = {n: declared(hybrid(max_num_seqs=n, max_model_len=2048), traffic=fixed(target=8)) for n in (64, 9999)}
    assert only("K303", asked[9999]).status == "fail"
    assert only("K303", asked[64]).status == "pass"
    between = next(e for e in map(_asking, range(1500, 4000, 20)) if _blocks(e)[0] < _limit(e) < _blocks(e)[1])
    finding = only("K303", declared(between, traffic=fixed(target=8)))
    assert (finding.status, finding.missing) == ("inconclusive", "the pool that the engine reports at start-up")


def _asking(requests: int) -> Evidence:
    return hybrid(max_num_seqs=requests, max_model_len=2048)


def _limit(evidence: Evidence) -> int:
    assert evidence.settings is not None
    return evidence.settings.max_num_seqs or 0


def test_an_engine_that_runs_was_not_refused():
    evidence = replace(hybrid(kv_pool_bytes=2**30), served=make_served(kv_blocks=49, kv_tokens=800))
    assert only("K303", declared(evidence, traffic=fixed(target=8))).status == "pass"


def test_a_hybrids_pool_is_told_in_blocks_and_carries_by_its_states():
    """49 blocks: a request of 2,000 tokens takes 2 for the full layers and 3 for three groups of states."""
    evidence = hybrid(kv_pool_bytes=2**30, max_num_seqs=32, max_model_len=4096)
    finding = p95(declared(evidence, traffic=fixed(target=9)))
    assert finding.why.startswith("A pool of 49 blocks (declared) carries 9.8 requests at once at p95 lengths")
    assert finding.status == "pass"
    more = p95(declared(evidence, traffic=fixed(target=10)))
    assert more.status == "fail"
    # 10 x 5 blocks; 49 were 1,024 MiB, so 50 are 1,045
    assert more.remedies[0].startswith(
        "--kv-cache-memory-bytes 1095761920 makes a pool of 50 blocks, which carries the target at p95"
    )
    assert not [remedy for remedy in more.remedies if " tokens" in remedy]


def test_sglangs_slots_for_states_bound_the_requests():
    """100 slots, of which a request may need five where prefixes are kept: 20 requests run."""
    evidence = hybrid("sglang", mamba_slots=100, block_size=1, max_num_seqs=2048)
    finding = only("K303", declared(evidence, traffic=fixed(target=32)))
    assert finding.status == "fail"
    assert finding.why == "At most 20 of 32 requests run at once (--max-mamba-cache-size): the others wait."
    assert finding.remedies[0] == (
        "more slots for recurrent states (--max-mamba-cache-size), or more of the memory for them "
        "(--mamba-full-memory-ratio)"
    )
    assert only("K303", declared(evidence, traffic=fixed(target=20))).status == "pass"
    served = make_served(engine="sglang", max_num_seqs=48, kv_blocks=None, block_size=1)
    assert only("K303", declared(replace(evidence, served=served), traffic=fixed(target=32))).status == "pass"


def test_a_context_that_does_not_fit_keeps_vllm_from_starting():
    """1,000 blocks of 16 hold 15,984 tokens beside the null block; 32,768 are asked."""
    evidence = computed(settings=make_settings(kv_pool_bytes=1000 * 2**21))
    finding = p95(evidence)
    assert (finding.status, finding.deciding) == ("fail", True)
    assert finding.why == (
        "The engine does not start: a request of max_model_len 32768 does not fit in 1000 blocks: 15984 tokens are the "
        "most."
    )
    assert finding.remedies[0] == "lower --max-model-len"
