"""Rules K308 to K311 on hand-made evidence: what is computed, declared, launched and served, held against each other.

Llama-3.1-8B keeps 131,072 bytes a token; a block of 16 tokens is 2 MiB.
"""

from dataclasses import replace

import pytest

from auditor.evidence import Conflict, Evidence, Finding
from auditor.profile import Deployment, Slo
from auditor.testing import LLAMA_8B, make_evidence, make_served, make_settings, run_check
from auditor.theory.kv.geometry import Layers, Recurrent
from checks.kv_capacity import CHECK

MIB = 2**20


def judge(rule: str, evidence: Evidence) -> list[Finding]:
    return list(run_check(CHECK, evidence, rule))


def only(rule: str, evidence: Evidence) -> Finding:
    (finding,) = judge(rule, evidence)
    return finding


def declared(evidence: Evidence, **profile: object) -> Evidence:
    return replace(evidence, profile=replace(evidence.profile, **profile))  # type: ignore[arg-type]


def sized(blocks: int, told: int, **served: object) -> Evidence:
    """`blocks` of 2 MiB by a flag, and what the engine tells."""
    facts = {"kv_blocks": told, "kv_tokens": told * 16, **served}
    settings = make_settings(kv_pool_bytes=blocks * 2 * MIB)
    return replace(make_evidence(), settings=settings, served=make_served(**facts))


# ---------------------------------------------------------------------------------------------------------------- pools


def test_pools_that_agree_within_two_percent_pass():
    finding = only("K308", sized(10_000, 9_900))
    assert (finding.status, finding.deciding) == ("pass", False)
    assert finding.why == "Computed 10,000 blocks, served 9,900 (+1 %): they agree."


def test_an_exact_pool_that_differs_warns_with_both_derivations():
    """A pool of so many bytes holds so many blocks: there is no band to hide in."""
    finding = only("K308", sized(10_000, 9_500, sources={"kv_blocks": "/metrics, cache_config_info"}))
    assert (finding.status, finding.severity) == ("warn", "medium")
    assert finding.why.startswith("Computed 10,000 blocks, served 9,500 (+5.3 %). Computed: vLLM: pool / (32 layers, ")
    assert "Served: 9500 blocks of 16, 152000 tokens (/metrics, cache_config_info)." in finding.why
    assert finding.why.endswith(
        "No one setting explains it: another model, or a rule of this version that is not known here."
    )
    assert finding.required is not None
    assert (finding.required.value, finding.required.provenance) == (10_000, "computed")
    assert "blocks" in finding.required.note


def test_twice_the_blocks_are_an_8_bit_cache():
    finding = only("K308", sized(10_000, 20_000))
    assert finding.status == "warn"
    assert "It would agree with --kv-cache-dtype fp8" in finding.why
    assert finding.remedies[0] == "if it is served with --kv-cache-dtype fp8, say so in the profile"


def test_requests_at_once_test_the_arithmetic_alone():
    """32,768 tokens are 2,048 blocks: 29,000 / 2,048 = 14.16. Half of that is a request that takes 4,096."""
    served = {"max_model_len": 32768}
    right = only("K308", sized(29_000, 29_000, kv_max_concurrency=14.16, **served))
    assert right.status == "pass"
    assert {n.unit for n in right.numbers} == {"requests of 32,768 tokens"}
    wrong = only("K308", sized(29_000, 29_000, kv_max_concurrency=7.08, **served))
    assert wrong.status == "warn"
    assert wrong.why.startswith(
        "Computed 14.16 requests of 32,768 tokens, served 7.08 (+100 %). Computed: 29,000 blocks, "
    )
    assert wrong.measured is not None
    assert wrong.measured.value == 7.08


def test_an_estimated_pool_passes_within_its_band_and_warns_outside():
    """Without a flag the pool rests on the memory overhead, of which only a range is known."""
    number = only("K308", make_evidence()).required
    assert number is not None
    assert number.low is not None
    assert number.high is not None
    inside, outside = (
        only("K308", replace(make_evidence(), served=make_served(kv_blocks=blocks, kv_tokens=blocks * 16)))
        for blocks in (round(number.low) + 1, round(0.9 * number.low))
    )
    assert inside.status == "pass"
    assert outside.status == "warn"
    assert "expected" in outside.why
    assert "At the usual overhead that is --gpu-memory-utilization 0.8" in outside.why


def test_a_token_count_that_is_blocks_times_block_size_is_not_compared():
    """Older servers tell no count of their own: of several kinds of layers the product means nothing."""
    mixed = replace(
        LLAMA_8B,
        layers=(
            replace(LLAMA_8B.layers[0], count=16),
            replace(LLAMA_8B.layers[0], kind="sliding", window=512, count=16),
        ),
    )
    told = {"kv_tokens": "/metrics, cache_config_info, num_gpu_blocks x block_size"}
    evidence = replace(sized(10_000, 20_000, sources=told), geometry=mixed)
    finding = only("K308", evidence)
    assert finding.status == "pass"  # 16 layers of 64 KiB a block: 20,000
    assert "tokens" not in finding.why


def test_what_sglang_tells_of_its_memory_makes_the_pool_exact():
    """8 GiB / 131,072 bytes = 65,536 tokens."""
    settings = make_settings(engine="sglang", engine_version="0.5.23", block_size=1, memory_fraction=0.8)
    served = make_served(engine="sglang", kv_tokens=65_536, kv_blocks=None, block_size=1, kv_pool_bytes=8 * 2**30)
    evidence = replace(make_evidence(), settings=settings, served=served)
    assert only("K308", evidence).why == "Computed 65,536 tokens, served 65,536 (+0 %): they agree."
    short = only("K308", replace(evidence, served=replace(served, kv_tokens=60_000)))
    assert short.status == "warn"
    assert "60000 tokens, 8.00 GiB" in short.why


def test_llamacpps_slots_and_context_are_compared_with_the_flags():
    settings = make_settings(engine="llamacpp", slots=4, max_model_len=2048, block_size=None, memory_fraction=None)
    served = make_served(
        engine="llamacpp", kv_tokens=None, kv_blocks=None, block_size=None, max_model_len=2048, max_num_seqs=4
    )
    flags = {"max_model_len": "launch -c", "slots": "launch -np"}
    evidence = replace(make_evidence(), settings=settings, served=served, setting_sources=flags)
    assert only("K308", evidence).status == "pass"
    half = only("K308", replace(evidence, served=replace(served, max_num_seqs=2)))
    assert half.why.startswith("Computed 8,192 tokens, served 4,096 (+100 %).")
    told = replace(evidence, setting_sources={"max_model_len": "served /props"})
    assert only("K308", told).status == "skip"


def test_pools_need_both_sides():
    assert only("K308", replace(make_evidence(), geometry=None)).status == "skip"
    assert only("K308", replace(make_evidence(), served=None)).status == "skip"
    assert only("K308", replace(make_evidence(), served=make_served(kv_blocks=None, kv_tokens=None))).status == "skip"


# ---------------------------------------------------------------------------------------------------------------- heads


@pytest.mark.parametrize(("tensor", "shared", "status"), [(8, 1, "pass"), (16, 1, "warn"), (16, 2, "pass")])
def test_more_devices_than_kv_heads_store_them_twice(tensor, shared, status):
    settings = make_settings(tensor_parallel=tensor, devices=tensor, decode_context_parallel=shared)
    finding = only("K309", replace(make_evidence(), settings=settings))
    assert finding.status == status
    assert only("K309", make_evidence()).why == "One device holds all KV heads: none is stored twice."
    if status == "warn":
        assert "stored 2 times" in finding.why
    if shared == 2:
        assert "whose tokens 2 devices divide" in finding.why


def test_latent_caches_are_stored_on_every_device():
    latent = Layers(kind="mla", count=61, kv_heads=1, qk_head_dim=192, v_head_dim=128, latent_dim=576)
    evidence = replace(
        make_evidence(),
        geometry=replace(LLAMA_8B, layers=(latent,)),
        settings=make_settings(tensor_parallel=8, devices=8),
        flags={"decode_context_parallel": "--decode-context-parallel-size"},
    )
    finding = only("K309", evidence)
    assert "8 devices for one latent cache" in finding.why
    assert finding.remedies[0] == "divide each request's tokens over devices (--decode-context-parallel-size)"
    assert only("K309", replace(evidence, geometry=None)).status == "skip"


def test_a_model_without_attention_stores_no_head():
    mamba = Recurrent(kind="mamba2", count=64, heads=80, head_dim=64, state_size=128, groups=1, conv_kernel=4)
    evidence = replace(make_evidence(), geometry=replace(LLAMA_8B, layers=(), recurrent=(mamba,)))
    assert only("K309", evidence).why == "No layer keeps keys and values: none is stored twice."


# ----------------------------------------------------------------------------------------------------------- said twice


SERVED = Conflict("deployment.max_model_len", "32768", "profile.yaml:9:3", "4096", "served /v1/models")
LAUNCH = Conflict("deployment.max_num_seqs", "256", "profile.yaml:9:3", "64", "launch --max-num-seqs")
OTHER = Conflict("deployment.tensor_parallel", "2", "profile.yaml:9:3", "1", "served /get_server_info")


def test_settings_served_otherwise_name_both_places():
    finding = only("K310", replace(make_evidence(), conflicts=(SERVED, LAUNCH, OTHER)))
    assert (finding.status, finding.deciding, finding.subject) == ("warn", True, "deployment.max_model_len")
    assert "profile.yaml:9:3" in finding.why
    assert "served /v1/models" in finding.why


def test_launch_flags_that_contradict_the_profile_name_both_places():
    launched = Deployment(launch="vllm serve m --max-num-seqs 64")
    evidence = declared(replace(make_evidence(), conflicts=(SERVED, LAUNCH)), deployment=launched)
    finding = only("K311", evidence)
    assert (finding.status, finding.subject) == ("warn", "deployment.max_num_seqs")
    assert "launch --max-num-seqs" in finding.why
    assert only("K311", declared(make_evidence(), deployment=launched)).status == "pass"


def test_conflicts_need_two_sides():
    assert only("K310", make_evidence()).status == "pass"
    assert only("K310", replace(make_evidence(), served=None)).status == "skip"
    assert only("K311", declared(make_evidence(), slo=Slo())).status == "skip"
