"""Both schedulers: limits kept, tokens and slots conserved, every request ends; and the ways in which they differ."""

from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.emulator.blocks import Pool, unit_keys
from auditor.emulator.holdback import SglangScheduler
from auditor.emulator.scheduler import Job, Limits, VllmScheduler

BLOCK = 16


def vllm(capacity, **limits):
    return VllmScheduler(
        Pool(capacity, BLOCK, BLOCK), Limits(**{"max_num_seqs": 8, "max_num_batched_tokens": 256, **limits})
    )


def sglang(capacity, **limits):
    return SglangScheduler(
        Pool(capacity, 1, BLOCK), Limits(**{"max_num_seqs": 8, "max_num_batched_tokens": 256, **limits})
    )


def job(prompt, output, *, name="j", limit=None, **more):
    return Job(name=name, prompt=prompt, limit=limit or output, target=output, **more)


def run(scheduler, jobs, steps=20_000):
    """Plan and complete until nothing is left; the steps and the tokens given to each job."""
    for each in jobs:
        scheduler.add(each)
    done, given = [], {id(each): 0 for each in jobs}
    for _ in range(steps):
        step = scheduler.plan()
        if step.empty:
            break
        check(scheduler, step)
        for each, count in scheduler.complete(step):
            given[id(each)] = given.get(id(each), 0) + count
        done.append(step)
    return done, [given[id(each)] for each in jobs]


def check(scheduler, step):
    limits, pool = scheduler.limits, scheduler.pool
    assert len(scheduler.running) <= limits.max_num_seqs
    assert sum(new for _, new, _ in step.chunks) <= limits.max_num_batched_tokens
    assert pool.used + pool.idle + pool.free == pool.capacity
    assert pool.used <= pool.capacity
    planned = [each for each, *_ in (*step.chunks, *step.decodes)]
    assert len(planned) == len(set(map(id, planned)))
    for each in planned:
        held = len(each.sequence.keys) * pool.unit + each.sequence.own
        assert held >= each.computed


JOBS = st.lists(
    st.tuples(st.integers(1, 300), st.integers(1, 80), st.booleans(), st.integers(0, 2)), min_size=1, max_size=14
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([vllm, sglang]),
    JOBS,
    st.sampled_from([400, 640, 2000]),
    st.sampled_from([1.0, 2.4]),
    st.sampled_from([64, 256]),
)
def test_every_request_ends_with_exactly_its_tokens(make, wanted, capacity, accept, budget):
    scheduler = make(capacity, accept_length=accept, max_num_batched_tokens=budget)
    jobs = [
        job(prompt, output, ignore_eos=eos, keys=unit_keys([family] * prompt, BLOCK), limit=output + 5)
        for prompt, output, eos, family in wanted
    ]
    _, given = run(scheduler, jobs)
    assert given == [output for _, output, _, _ in wanted]
    assert all(each.done for each in jobs)
    assert not scheduler.running
    assert not scheduler.waiting
    assert scheduler.pool.used == 0
    assert scheduler.pool.idle + scheduler.pool.free == capacity


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([vllm, sglang]), JOBS, st.integers(0, 13), st.integers(0, 60))
def test_an_aborted_request_gives_its_slots_back_and_the_others_end(make, wanted, victim, after):
    scheduler = make(640, max_num_batched_tokens=100)
    jobs = [job(prompt, output) for prompt, output, _, _ in wanted]
    for each in jobs:
        scheduler.add(each)
    for number in range(20_000):
        step = scheduler.plan()
        if step.empty:
            break
        if number == after and not jobs[victim % len(jobs)].done:
            scheduler.abort(jobs[victim % len(jobs)])
        scheduler.complete(step)
    assert all(each.done for each in jobs)
    assert scheduler.pool.used == 0


def test_vllm_mixes_prefill_chunks_with_decodes():
    scheduler = vllm(4096, max_num_batched_tokens=64)
    first = job(10, 50)
    run(scheduler, [first], steps=3)
    second = job(150, 5)
    scheduler.add(second)
    chunks = []
    for _ in range(3):
        step = scheduler.plan()
        assert [each for each, _ in step.decodes] == [first]
        chunks += [(new, before) for _, new, before in step.chunks]
        scheduler.complete(step)
    assert chunks == [(63, 0), (63, 63), (24, 126)]  # 64 tokens a step, one of them the decode's
    assert second.output == 1


def test_sglang_runs_prefills_alone_and_first():
    scheduler = sglang(4096, max_num_batched_tokens=64)
    first = job(10, 50)
    run(scheduler, [first], steps=3)
    scheduler.add(job(150, 5))
    shapes = []
    for _ in range(4):
        step = scheduler.plan()
        shapes.append(([(new, before) for _, new, before in step.chunks], len(step.decodes)))
        scheduler.complete(step)
    assert shapes == [([(64, 0)], 0), ([(64, 64)], 0), ([(22, 128)], 0), ([], 2)]


def test_vllm_admits_by_the_prompt_and_preempts_the_youngest():
    scheduler = vllm(320)  # 20 blocks
    jobs = [job(64, 64, name=str(number)) for number in range(4)]  # 16 blocks of prompts, 32 blocks at their ends
    steps, given = run(scheduler, jobs)
    assert len(steps[0].chunks) == 4
    assert given == [64] * 4
    victims = [each.name for step in steps for each in step.preempted]
    assert victims[0] == "3"
    assert "0" not in victims


def test_a_preempted_request_is_computed_again():
    scheduler = vllm(320)
    jobs = [job(64, 64, name=str(number)) for number in range(4)]
    steps, _ = run(scheduler, jobs)
    again = [(new, before) for step in steps for each, new, before in step.chunks if each is jobs[3]][1:]
    assert sum(new for new, _ in again) > 64  # prompt and the tokens that it had given


def test_sglang_keeps_back_what_would_not_fit_to_the_end():
    """A pool of 8,192 tokens, eight requests of 100 + 1,400 with ignore_eos: five run, three wait, as SGLang does."""
    scheduler = sglang(8192, max_num_batched_tokens=4096)
    jobs = [job(100, 1400, ignore_eos=True) for _ in range(8)]
    for each in jobs:
        scheduler.add(each)
    scheduler.complete(scheduler.plan())
    for _ in range(200):
        scheduler.complete(scheduler.plan())
    assert len(scheduler.running) == 5
    assert len(scheduler.waiting) == 3


def test_sglang_retracts_when_its_estimate_was_low():
    """4,096 tokens, conservativeness 0.05, eight of 100 + 900 by min_tokens: four, three more, retractions."""
    scheduler = sglang(4096, max_num_batched_tokens=4096, conservativeness=0.05)
    jobs = [job(100, 900, name=str(number)) for number in range(8)]
    for each in jobs:
        scheduler.add(each)
    admitted = []
    for _ in range(3):
        step = scheduler.plan()
        admitted.append(len(step.admitted))
        scheduler.complete(step)
    assert admitted == [4, 3, 0]
    steps, _ = run(scheduler, [])
    assert sum(len(step.preempted) for step in steps) >= 1
    assert all(each.done for each in jobs)


def test_sglang_with_ignore_eos_does_not_retract():
    scheduler = sglang(4096, max_num_batched_tokens=4096, conservativeness=0.05)
    jobs = [job(100, 900, ignore_eos=True) for _ in range(8)]
    steps, given = run(scheduler, jobs)
    assert given == [900] * 8
    assert not any(step.preempted for step in steps)


def test_a_repeated_prompt_is_computed_once():
    scheduler = vllm(4096)
    keys = unit_keys(list(range(100)), BLOCK)
    first, second = (job(100, 2, keys=keys) for _ in range(2))
    run(scheduler, [first])
    steps, _ = run(scheduler, [second])
    assert first.cached == 0
    assert second.cached == 96  # six whole blocks of sixteen
    assert [(new, before) for _, new, before in steps[0].chunks] == [(4, 96)]


def test_speculation_gives_its_mean_and_never_too_many():
    scheduler = vllm(4096, accept_length=2.5)
    wanted = job(10, 401)
    steps, given = run(scheduler, [wanted])
    assert given == [401]
    decodes = [count for step in steps for _, count in step.decodes]
    assert set(decodes[:-1]) == {2, 3}
    assert 2.3 < sum(decodes) / len(decodes) < 2.7


def test_sglang_counts_a_cached_prefix_that_it_pins():
    """160 slots, 96 of them an idle cached prefix; a job that shares it leaves 64 for another's future, not 160."""
    scheduler = sglang(160)
    keys = unit_keys(list(range(96)), BLOCK)
    run(scheduler, [job(97, 1, keys=keys)])
    assert (scheduler.pool.idle, scheduler.pool.free) == (96, 64)
    first, second = job(100, 20, keys=keys), job(20, 30)
    scheduler.add(first)
    scheduler.add(second)
    step = scheduler.plan()
    assert [each.prompt for each in step.admitted] == [100]
    assert first.cached == 96


def test_an_aborted_half_prefilled_prompt_makes_way():
    scheduler = sglang(4096, max_num_batched_tokens=64)
    long, short = job(500, 5), job(10, 5)
    scheduler.add(long)
    scheduler.complete(scheduler.plan())
    scheduler.add(short)
    scheduler.abort(long)
    run(scheduler, [])
    assert short.done
    assert scheduler.pool.used == 0
