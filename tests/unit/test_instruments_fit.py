"""`audit fit` in detail: what is counted for which requests, the verdict, the document and the text of it."""

import json
from typing import Any

import pytest
from model_shapes import LLAMA_8B

from auditor.errors import UsageError
from auditor.instruments.document import document
from auditor.instruments.fit import Fit, fit
from auditor.instruments.inputs import inputs
from auditor.instruments.question import Question, lengths, one_class, tokens
from auditor.instruments.ruling import ruling
from auditor.profile import Lengths, SharedPrefix, TrafficClass
from auditor.report.fit import Part, bar, render

ROW = {
    "model_config_inline": LLAMA_8B,
    "model": "llama",
    "engine": "vllm",
    "engine_version": "0.18.0",
    "max_model_len": 32768,
    "kv_pool_gib": 10,  # 10 GiB / (16 x 128 KiB) = 5,120 blocks = 81,920 tokens
}
CHAT = TrafficClass(
    name="chat",
    share=0.75,
    prompt_tokens=Lengths(p50=600, p95=1200, max=2400),
    output_tokens=Lengths(p50=200, p95=400, max=800),
    shared_prefix=SharedPrefix(tokens=320, distinct=3),
)
RAG = TrafficClass(
    name="rag", share=0.25, prompt_tokens=Lengths(p50=3000, p95=6000), output_tokens=Lengths(p50=200, p95=400)
)


def answer(*classes: TrafficClass, target: int | None = None, replicas: int = 1, **keys: Any) -> Fit:
    """A pool of 5,120 blocks of 16, with keys changed; None takes one away."""
    row = {key: value for key, value in (ROW | keys).items() if value is not None}
    return fit(inputs(row), Question(classes=classes, target=target, replicas=replicas))


def one(prompt: str = "1500", output: str = "100") -> TrafficClass:
    return one_class(prompt, output)


def verdict(found: Fit) -> tuple[str, int]:
    ruled = ruling(found)
    return ruled.status, ruled.exit_code


# ------------------------------------------------------------------------------------------------------------- lengths


def test_lengths_are_one_number_or_percentiles():
    assert lengths("--prompt", "4000") == Lengths(p50=4000)
    assert lengths("--prompt", "3k:8k:16000") == Lengths(p50=3000, p95=8000, max=16000)
    assert tokens("--max-model-len", "32k") == 32000


@pytest.mark.parametrize("written", ["", "0", "x", "1:2:3:4", "8k:3k", "1.5", "-3", "3k:", "1e3"])
def test_other_lengths_are_refused(written):
    with pytest.raises(UsageError, match=r"^--prompt"):
        lengths("--prompt", written)


# --------------------------------------------------------------------------------------------------------------- start


def test_a_pool_that_was_logged_proves_a_start():
    """83 blocks of a hybrid against 256 requests: a flag's pool is refused, a known one was not."""
    layers = [
        {"kind": "full", "layers": 6, "num_kv_heads": 2, "head_dim": 128},
        {"kind": "mamba2", "layers": 23, "num_heads": 64, "head_dim": 64, "state_size": 128, "n_groups": 8}
        | {"conv_kernel": 4, "ssm_bytes": 4},
    ]
    hybrid = {"model_config_inline": None, "kv_layers": layers, "engine_version": "0.20.0", "max_num_seqs": 256}
    known = answer(max_model_len=8192, kv_pool_gib=1, **hybrid)
    assert not ruling(known).why.startswith("the engine refuses to start")
    assert any("it started with this pool" in note for note in known.notes)
    launch = "vllm serve m --kv-cache-memory-bytes 1073741824"
    asked = answer(max_model_len=8192, kv_pool_gib=None, launch=launch, **hybrid)
    assert ruling(asked).why.startswith("the engine refuses to start: max_num_seqs 256")
    assert not any("it started" in note for note in asked.notes)


# -------------------------------------------------------------------------------------------------------------- counts


def test_each_class_and_the_mix_are_counted_at_each_percentile():
    """chat at p50: 600 + 200 - 320 shared = 480 tokens, 30 blocks; 3 prefixes of 320 of 81,920 tokens stay."""
    found = answer(CHAT, RAG)
    assert [(c.name, c.at) for c in found.counts[:4]] == [
        ("chat", "p50"),
        ("rag", "p50"),
        ("mix", "p50"),
        ("chat", "p95"),
    ]
    assert {c.at for c in found.counts} == {"p50", "p95", "max", "mean"}
    chat, rag, mix = found.counts[:3]
    kept = 1 - 960 / 81_920
    assert (chat.tokens, chat.requests.point) == (480, pytest.approx(kept * 5120 / 30))
    assert (rag.tokens, rag.requests.point) == (3200, pytest.approx(5120 / 200))
    assert rag.requests.point < mix.requests.point < chat.requests.point


def test_a_shared_prefix_is_no_more_than_the_prompt():
    """4,000 of 6,000 tokens are shared at p95; at p50 all 2,000 are, and 300 of the reply are held."""
    found = answer(one_class("2000:6000", "300", 4000))
    p50, p95 = (next(c for c in found.counts if c.at == at) for at in ("p50", "p95"))
    assert (p50.tokens, p95.tokens) == (300, 2300)
    assert p50.requests.point == pytest.approx((5120 - 250) / 19, rel=1e-3)  # 250 blocks of the prefix, 19 of each
    with pytest.raises(UsageError, match=r"^--shared-prefix 6001: is a part of --prompt, whose longest has 6000"):
        one_class("2000:6000", "300", 6001)


def test_prefixes_count_in_full_where_the_engine_does_not_share_them():
    chat = answer(CHAT, engine="trtllm", engine_version=None, block_size=16).counts[0]
    assert (chat.tokens, chat.requests.point) == (800, pytest.approx(81_920 / 800, rel=1e-3))


def test_requests_of_one_length_have_no_percentiles():
    found = answer(one())
    assert [(c.name, c.at) for c in found.counts] == [
        ("requests", "end"),
        ("mix", "end"),
        ("requests", "mean"),
        ("mix", "mean"),
    ]
    assert found.decides.point == pytest.approx(51.2)  # 1,600 tokens are 100 blocks
    assert found.counts[2].tokens == 1550


def test_without_lengths_round_ones_are_counted_up_to_the_limit():
    found = answer()
    assert [c.tokens for c in found.counts] == [1024, 4096, 16_384, 32_768]
    assert found.decides.point == pytest.approx(2.5)
    assert found.max_concurrency is not None
    assert found.max_concurrency.point == pytest.approx(2.5)


def test_no_request_holds_more_than_the_limit():
    assert answer(one("30k", "10k")).counts[0].tokens == 32_768


# ------------------------------------------------------------------------------------------------- beyond the limit


def test_prompts_beyond_the_limit_are_refused_and_do_not_fit():
    found = answer(one("10k", "300"), target=2, max_model_len=8000)
    assert verdict(found) == ("does not fit", 1)
    assert ruling(found).why == (
        "100 % of the prompts are longer than the limit of 8,000 tokens a request (--max-model-len): "
        "the engine refuses them"
    )


def test_the_share_of_prompts_beyond_the_limit():
    """p50 8k, p95 16k: 10,000 is a quarter of the way, at share 0.5 + 0.45 / 4 = 0.6125; 38.8 % are longer."""
    found = answer(one("8k:16k", "1"), max_model_len=10_001)
    assert verdict(found) == ("does not fit", 1)
    assert ruling(found).why.startswith("38.8 % of the prompts are longer")


def test_replies_that_the_limit_cuts_do_not_fit():
    found = answer(one("8000", "300"), max_model_len=8192)
    assert verdict(found) == ("does not fit", 1)
    assert "100 % of the requests exceed the limit of 8,192 tokens" in ruling(found).why
    assert verdict(answer(one("8000", "192"), max_model_len=8192)) == ("fits", 0)


def test_beyond_p95_the_share_is_told_and_the_verdict_stands():
    """p95 5,000 and max 10,000: 8,000 is at share 0.95 + 0.05 x 3 / 5 = 0.98."""
    found = answer(one("1000:4900:9900", "100"), max_model_len=8000)
    assert verdict(found) == ("fits", 0)
    assert "; 1.9 % of the prompts are longer than the limit of 8,000 tokens" in ruling(found).why


def test_the_class_beyond_the_limit_is_named():
    found = answer(CHAT, RAG, max_model_len=4096)
    assert "of the prompts of class rag are longer than the limit of 4,096 tokens" in ruling(found).why
    assert verdict(found) == ("does not fit", 1)


def test_a_slot_of_llamacpp_is_a_limit_too():
    """-c 8192 -np 4: 2,048 tokens a slot."""
    launch = "llama-server -m x.gguf -c 8192 -np 4"
    keys = {"engine": None, "engine_version": None, "max_model_len": None, "kv_pool_gib": None, "launch": launch}
    found = answer(one("1000:4000", "400"), target=4, accelerator="h100-sxm", **keys)
    assert verdict(found) == ("does not fit", 1)
    assert "the limit of 2,048 tokens a request (-c)" in ruling(found).why


def test_llamacpp_takes_no_more_than_the_model_was_trained_on():
    """-c 200000 -np 1 for 131,072 positions: the slot is capped, unless rotations are scaled."""
    keys = {"engine": None, "engine_version": None, "max_model_len": None, "kv_pool_gib": None}
    launch = "llama-server -m x.gguf -c 200000 -np 1"
    found = answer(one("150k", "100"), target=1, accelerator="h100-sxm", launch=launch, **keys)
    assert verdict(found) == ("does not fit", 1)
    assert "the limit of 131,072 tokens a request" in ruling(found).why
    scaled = answer(one("150k", "100"), target=1, accelerator="h100-sxm", launch=f"{launch} --rope-scale 2", **keys)
    assert verdict(scaled) == ("fits", 0)


# ----------------------------------------------------------------------------------------------------- at the target


def test_what_admitted_prompts_still_grow():
    """32 of 1,500 + 100: 94 blocks when the prompts are read, 97 halfway, 100 at the end, of 5,120 / 32 = 160."""
    stages = [(s.name, s.tokens, s.share) for s in answer(one(), target=32).stages]
    assert stages == [
        ("prompts read", 1500, pytest.approx(94 / 160)),
        ("average over their lives", 1550, pytest.approx(97 / 160)),
        ("all at their end", 1600, pytest.approx(100 / 160)),
    ]


def test_the_memory_of_a_device_by_class():
    """A quarter of the requests is rag; both reply 200 tokens: 10 of 40 in flight hold 400 of 5,120 blocks each."""
    found = answer(CHAT, RAG, target=40, accelerator="h100-sxm")
    assert found.split is not None
    chat, rag, prefixes = found.split.classes
    assert (chat.name, chat.requests, rag.requests) == (
        "chat",
        pytest.approx(29.1, abs=1.5),
        pytest.approx(10.9, abs=1.5),
    )
    assert rag.bytes == pytest.approx(rag.requests * 400 * 16 * 131_072)
    assert (prefixes.name, prefixes.bytes) == ("shared prefixes", 960 * 131_072)


def test_a_target_is_that_of_one_replica():
    assert answer(one(), target=51).stages == answer(one(), target=51, replicas=2).stages


# ------------------------------------------------------------------------------------------------------------- verdict


def test_what_fits_at_p95_fits():
    assert verdict(answer(one(), target=51)) == ("fits", 0)
    assert verdict(answer(one(), target=52)) == ("does not fit", 1)


def test_what_fits_at_the_median_alone_says_so():
    """At p50 100 blocks: 51.2 fit; at p95 200: 25.6; at max 400: 12.8."""
    wide = one("1500:3000:6000", "100:200:400")
    assert verdict(answer(wide, target=26)) == ("fits at p50 only", 1)
    assert verdict(answer(wide, target=25)) == ("fits", 0)
    assert "25 requests at p95 lengths, 12 requests at the longest" in ruling(answer(wide, target=25)).why


def test_within_the_band_of_the_pool_it_may_fit():
    found = answer(one(), accelerator="h100-sxm", kv_pool_gib=None)
    low, high = int(found.decides.low), int(found.decides.high)
    assert low < high
    assert verdict(answer(one(), target=low, accelerator="h100-sxm", kv_pool_gib=None)) == ("fits", 0)
    assert verdict(answer(one(), target=high, accelerator="h100-sxm", kv_pool_gib=None)) == ("may fit", 4)
    assert verdict(answer(one(), target=high + 1, accelerator="h100-sxm", kv_pool_gib=None)) == ("does not fit", 1)


def test_a_batch_limit_below_the_target_does_not_fit():
    found = ruling(answer(one(), target=51, max_num_seqs=32))
    assert (found.status, found.exit_code) == ("does not fit", 1)
    assert "--max-num-seqs lets only 32 run at once" in found.why
    high = int(answer(one(), accelerator="h100-sxm", kv_pool_gib=None).decides.high)
    within = answer(one(), target=high, accelerator="h100-sxm", kv_pool_gib=None, max_num_seqs=32)
    assert verdict(within) == ("does not fit", 1)


def test_a_limit_beyond_the_pool_does_not_start():
    """5,119 blocks serve one request: 81,904 tokens."""
    found = ruling(answer(one(), target=10, max_model_len=100_000))
    assert (found.status, found.exit_code) == ("does not fit", 1)
    assert "one request of 100,000 tokens (--max-model-len)" in found.why
    assert "81,904 tokens fit" in found.why


def test_a_limit_beyond_the_models_positions_does_not_start():
    keys = {"accelerator": "h200-sxm", "max_model_len": 200_000}
    found = ruling(answer(one(), target=1, kv_pool_gib=None, **keys))
    assert (found.status, found.exit_code) == ("does not fit", 1)
    assert found.why.startswith("the engine refuses to start: --max-model-len 200000 is more than the model's 131072")
    assert verdict(answer(one(), target=1, kv_pool_gib=60, **keys)) == ("fits", 0)  # with this pool it did start


def test_weights_larger_than_memory_do_not_fit():
    found = answer(one(), accelerator="t4", kv_pool_gib=None, count=1)
    assert verdict(found) == ("does not fit", 1)
    assert ruling(found).why.startswith("15.0 GiB of weights and ")


def test_a_pinned_pool_beyond_memory_does_not_fit():
    assert verdict(answer(one(), target=8, accelerator="rtx-4090")) == ("does not fit", 1)
    assert "10.0 GiB of KV cache, 15.0 GiB of weights" in ruling(answer(one(), accelerator="rtx-4090")).why
    assert verdict(answer(one(), target=8, accelerator="h100-sxm")) == ("fits", 0)


def test_without_a_target_one_request_must_fit():
    assert verdict(answer()) == ("fits", 0)
    assert ruling(answer()).why == "it holds 2 requests of 32,768 tokens at once"


def test_what_lacks_is_named():
    with pytest.raises(UsageError, match=r"^accelerator: none is named"):
        answer(one(), kv_pool_gib=None)
    layers = [{"kind": "full", "layers": 2, "num_kv_heads": 1, "head_dim": 64}]
    with pytest.raises(UsageError, match=r"^weights_gib: needed"):
        answer(one(), kv_pool_gib=None, model_config_inline=None, kv_layers=layers, accelerator="h100-sxm")


# ------------------------------------------------------------------------------------------------------------ document


def numbers(part: Any) -> list[dict[str, Any]]:
    """Every number of a document, wherever it stands."""
    if isinstance(part, dict):
        own = [part] if "unit" in part else []
        return own + [n for value in part.values() for n in numbers(value)]
    return [n for value in part for n in numbers(value)] if isinstance(part, list) else []


def bare(part: Any, key: str = "") -> list[str]:
    """The keys of numbers that stand in a document without a unit."""
    if isinstance(part, dict):
        return [] if "unit" in part else [k for name, value in part.items() for k in bare(value, name)]
    if isinstance(part, list):
        return [k for value in part for k in bare(value, key)]
    return [key] if isinstance(part, int | float) and not isinstance(part, bool) else []


@pytest.mark.parametrize(
    ("keys", "origin"),
    [
        ({"engine": "vllm"}, "declared"),
        ({"engine": None}, "assumed"),
        ({"engine": None, "launch": "vllm serve m"}, "launch"),
    ],
)
def test_the_document_says_whose_the_engine_is(keys, origin):
    found = answer(one(), **keys)
    assert document(found, ruling(found))["settings"]["engine"] == {"value": "vllm", "from": origin}


def test_what_moves_with_a_change_is_told_by_its_flag():
    """10 GiB of pool do not hold 100,000 tokens of 128 KiB: some changes need a lower limit as well."""
    found = answer(one(), accelerator="l4", kv_pool_gib=None, target=40, max_model_len=100_000)
    also = [one for change in document(found, ruling(found))["changes"] for one in change["also"]]
    assert also
    assert all(set(one) == {"field", "flag", "value"} and one["flag"].startswith("--") for one in also)


def test_every_number_of_the_document_has_a_unit_and_an_origin():
    found = answer(CHAT, RAG, target=160, accelerator="h100-sxm", kv_pool_gib=None)
    shown = json.loads(json.dumps(document(found, ruling(found)), allow_nan=False))
    assert shown["schema_version"] == 1
    assert len(numbers(shown)) > 100
    assert all(number["from"] and isinstance(number["value"], int | float) for number in numbers(shown))
    assert shown["memory"]["usable"]["from"] == "catalogue"
    assert (
        shown["memory"]["overhead"]["low"] < shown["memory"]["overhead"]["value"] < shown["memory"]["overhead"]["high"]
    )
    assert shown["settings"]["max_model_len"] == {"value": 32768, "unit": "tokens", "from": "declared"}
    assert bare(shown) == ["schema_version", "exit_code"]
    assert shown["changes"][0]["flag"]


def test_the_document_without_a_device_leaves_memory_out():
    found = answer(one())
    shown = document(found, ruling(found))
    assert shown["accelerator"] is None
    assert list(shown["memory"]) == ["weights"]
    assert shown["pool"]["tokens"] == {"value": 81_920, "unit": "tokens", "from": "computed"}


def test_keys_of_the_document_do_not_change():
    found = answer(one(), target=8, accelerator="h100-sxm")
    assert list(document(found, ruling(found))) == [
        *("schema_version", "verdict", "model", "accelerator", "replicas", "target_per_replica", "settings", "memory"),
        *("pool", "requests", "context", "growth", "attention", "changes", "notes"),
    ]


# ---------------------------------------------------------------------------------------------------------------- text


def test_a_bar_is_as_wide_as_asked_and_shows_every_part():
    parts = [Part("#", "weights", 50), Part("+", "overhead", 0.001), Part(".", "free", 49.999), Part("-", "idle", 0)]
    assert bar(parts, 20) == "[" + "#" * 10 + "+" + "." * 9 + "]"
    assert bar([Part("#", "weights", 0)], 20) == ""


@pytest.mark.parametrize("target", [None, 4, 51, 2000])
@pytest.mark.parametrize("pool", [None, 10])
@pytest.mark.parametrize("classes", [(), (CHAT, RAG), (one(),)])
def test_the_text_is_80_columns_wide_and_plain(classes, pool, target):
    found = answer(*classes, target=target, accelerator="h100-sxm", kv_pool_gib=pool)
    text = render(found, ruling(found))
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()
    assert text.split(":")[0] in ("FITS", "DOES NOT FIT", "MAY FIT", "FITS AT P50 ONLY")
    roomy = target is not None and found.decides.low >= 2 * target
    assert ("--kv-cache-dtype fp8" in text) is not roomy


def test_the_text_says_what_is_missing_and_draws_no_more_than_there_is():
    found = answer(one(), target=200, accelerator="h100-sxm", kv_pool_gib=None)
    text = render(found, ruling(found))
    drawn = next(line for line in text.splitlines() if line.startswith("["))
    assert (len(drawn), "1" in drawn, "!" in drawn) == (80, True, False) if "missing" in text else ("." in drawn)


def test_a_model_name_cannot_break_the_text():
    found = answer(one(), model="evil\x1b[31m\nname")
    text = render(found, ruling(found))
    assert "\x1b" not in text
    assert "evil name" in text
