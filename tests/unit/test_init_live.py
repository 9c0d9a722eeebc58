"""A profile from a running endpoint: GETs alone, lengths off its histograms, hostile words harmless."""

import asyncio

import pytest
from fake_endpoint import reply, serving

from auditor.errors import PreflightFailed
from auditor.init.draft import Draft, Said
from auditor.init.live import from_endpoint
from auditor.init.merging import with_endpoint
from auditor.init.write import profile_text
from auditor.loading.profile import parse_profile
from auditor.probe.gpus import local_gpu
from auditor.profile import Lengths

KEY = "sk-live-0123456789abcdef"


def models(*entries):
    return reply({"object": "list", "data": [{"object": "model", "owned_by": "vllm", **entry} for entry in entries]})


def histogram(name, total, buckets):
    lines = [f"# TYPE {name} histogram"]
    lines += [f'{name}_bucket{{engine="0",le="{bound}",model_name="m"}} {count}' for bound, count in buckets]
    return [
        *lines,
        f'{name}_count{{engine="0",model_name="m"}} {buckets[-1][1]}',
        f'{name}_sum{{engine="0",model_name="m"}} {total}',
    ]


def page(requests=200, more=()):
    """A vLLM page that saw `requests`: half of the prompts up to 100 tokens, 90 % up to 200, all up to 500."""
    of = requests // 10
    prompt = [("100.0", 5 * of), ("200.0", 9 * of), ("500.0", 10 * of), ("+Inf", 10 * of)]
    output = [("20.0", 10 * of), ("50.0", 10 * of), ("+Inf", 10 * of)]
    ttft = [("0.5", 8 * of), ("1.0", 10 * of), ("+Inf", 10 * of)]
    lines = [
        "# TYPE vllm:num_requests_running gauge",
        'vllm:num_requests_running{engine="0",model_name="m"} 3.0',
        *histogram("vllm:request_prompt_tokens", 30000.0, prompt),
        *histogram("vllm:request_generation_tokens", 2000.0, output),
        *histogram("vllm:time_to_first_token_seconds", 70.0, ttft),
        *more,
    ]
    return reply("\n".join(lines) + "\n", kind="text/plain; version=0.0.4")


LLAMA = {"id": "prod-llama", "root": "meta-llama/Llama-3.1-8B-Instruct", "parent": None, "max_model_len": 8192}


def draft(answers, folder, *, userinfo="", key_name=None, key=None):
    """The draft of a server with these answers, and what it was asked."""

    async def go():
        async with serving(answers) as fake:
            url = fake.origin.replace("://", f"://{userinfo}") + "/v1"
            return await from_endpoint(url, key_name, key, folder), fake.asked

    return asyncio.run(go())


SEEN = {"GET /v1/models": models(LLAMA), "GET /version": reply({"version": "0.18.0"}), "GET /metrics": page()}


def test_what_a_server_tells_of_itself_and_of_its_users(tmp_path):
    found, asked = draft(SEEN, tmp_path)
    assert {one.method for one in asked} == {"GET"}
    assert found.endpoint["engine"] == Said("vllm", "by its own answers")
    assert found.endpoint["model"].value == "prod-llama"
    values = {name: said.value for name, said in found.deployment.items() if name != "accelerator"}
    assert values == {"model": "meta-llama/Llama-3.1-8B-Instruct", "engine_version": "0.18.0", "max_model_len": 8192}
    # 190 of 200 prompts is half of the 20 between 200 and 500 tokens; replies lie between 0 and 20
    assert found.prompt == Said(Lengths(p50=100, p95=350, max=500), "off a histogram of 200 requests")
    assert found.output.value == Lengths(p50=10, p95=19, max=20)
    # 190 of 200 first tokens: 30 of the 40 between 0.5 and 1 s
    assert found.goals == {"ttft": "the engine saw about p95 875 ms since it started"}
    assert found.notes == ()


def test_the_profile_of_it_is_valid(tmp_path):
    found, _ = draft(SEEN, tmp_path)
    profile = parse_profile(profile_text(found, "prod.yaml"), tmp_path / "prod.yaml", {}).profile
    (observed,) = profile.traffic.classes
    assert (observed.name, observed.prompt_tokens.p95, observed.output_tokens.max) == ("observed", 350, 20)
    assert profile.deployment.engine_version == "0.18.0"
    assert profile.endpoint.model == "prod-llama"


@pytest.mark.parametrize(
    ("requests", "said"), [(0, "saw 0 requests since it started"), (90, "saw 90 requests since it started")]
)
def test_few_requests_leave_the_lengths_assumed(tmp_path, requests, said):
    found, _ = draft({**SEEN, "GET /metrics": page(requests)}, tmp_path)
    assert found.lengths is None
    assert any(said in note for note in found.notes)
    assert "assumed, in tokens" in profile_text(found, "p.yaml")


@pytest.mark.parametrize(("hits", "notes"), [(2400, ("30% of the prompt tokens",)), (700, ())])
def test_a_cache_that_hits_says_that_prompts_begin_alike(tmp_path, hits, notes):
    counters = [
        "# TYPE vllm:prefix_cache_queries counter",
        'vllm:prefix_cache_queries_total{engine="0",model_name="m"} 8000.0',
        "# TYPE vllm:prefix_cache_hits counter",
        f'vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {hits}.0',
    ]
    found, _ = draft({**SEEN, "GET /metrics": page(more=counters)}, tmp_path)
    assert len(found.notes) == len(notes)
    assert all(said in note for said, note in zip(notes, found.notes, strict=True))


def test_without_a_metrics_page_the_draft_says_so(tmp_path):
    found, _ = draft({"GET /v1/models": models(LLAMA)}, tmp_path)
    assert found.lengths is None
    assert any("no metrics page" in note for note in found.notes)


def test_assumed_lengths_fit_into_the_context(tmp_path):
    found, _ = draft({"GET /v1/models": models({**LLAMA, "max_model_len": 1000})}, tmp_path)
    (cls,) = parse_profile(profile_text(found, "p.yaml"), tmp_path / "p.yaml", {}).profile.traffic.classes
    assert cls.prompt_tokens.max + cls.output_tokens.max <= 900


def test_several_models_and_adapters(tmp_path):
    entries = (LLAMA, {"id": "second", "parent": None}, {"id": "lora", "parent": "prod-llama"})
    found, _ = draft({"GET /v1/models": models(*entries)}, tmp_path)
    assert found.endpoint["model"].value == "prod-llama"
    assert "endpoint.model: the endpoint serves others as well: second" in found.notes


def test_a_password_in_the_address_is_used_and_not_written(tmp_path):
    found, asked = draft(SEEN, tmp_path, userinfo=f"team:{KEY}@")
    assert all(one.headers["authorization"].startswith("Basic ") for one in asked if one.path == "/v1/models")
    text = profile_text(found, "p.yaml")
    assert KEY not in text
    assert "team" not in text
    assert any("user and password were left out" in note for note in found.notes)


def test_a_key_is_sent_and_named_but_not_written(tmp_path):
    found, asked = draft(SEEN, tmp_path, key_name="MY_KEY", key=KEY)
    assert asked[0].headers["authorization"] == f"Bearer {KEY}"
    text = profile_text(found, "p.yaml")
    assert "api_key_env: MY_KEY" in text
    assert KEY not in text


def test_a_server_that_gives_its_key_away_does_not_get_it_written(tmp_path):
    info = {"model_path": "Qwen/Qwen3-8B", "api_key": KEY, "version": "0.5.3", "tp_size": 2, "context_length": 4096}
    info |= {"dp_size": 2, "enable_dp_attention": True, "mem_fraction_static": 0.8, "max_total_num_tokens": 8192}
    entry = {"id": KEY, "owned_by": "sglang", "root": "Qwen/Qwen3-8B"}
    found, _ = draft(
        {"GET /v1/models": models(entry), "GET /server_info": reply(info)}, tmp_path, key_name="A_KEY", key=KEY
    )
    assert KEY not in profile_text(found, "p.yaml")
    assert found.deployment["count"].value == 2


def test_hostile_words_stay_on_their_line(tmp_path):
    bad = "m\n  extra: {a: b}\x1b[2J # \u202e\r\ntraffic: [" + "x" * 3000
    answers = {
        "GET /v1/models": models({"id": bad, "root": bad, "parent": None}, {"id": bad + "2", "parent": None}),
        "GET /version": reply({"version": "0.18\nslo: 1"}),
    }
    found, _ = draft(answers, tmp_path)
    text = profile_text(found, "p\n.yaml")
    profile = parse_profile(text, tmp_path / "p.yaml", {}).profile
    assert profile.endpoint.model == bad
    assert not {"\x1b", "\r", "\u202e"} & set(text)
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert max(map(len, comments)) < 350


def test_failures_name_the_flags(tmp_path):
    with pytest.raises(PreflightFailed, match=r"^--url: nothing listens at"):
        asyncio.run(from_endpoint("http://127.0.0.1:1/v1", None, None, tmp_path))
    with pytest.raises(
        PreflightFailed, match=r"^--api-key-env: the server wants a key .* such as --api-key-env LLM_API_KEY"
    ):
        draft({"GET /v1/models": reply({"error": "no"}, 401)}, tmp_path)


def test_files_say_what_is_deployed_and_the_endpoint_where_it_is():
    deployed = Draft(
        name="llama",
        endpoint={"url": Said("http://svc/v1"), "api_key_env": Said("VLLM_API_KEY")},
        deployment={"model": Said("a"), "launch": Said("vllm serve a")},
        context=100,
    )
    live = Draft(
        name="tiny",
        endpoint={"url": Said("http://127.0.0.1/v1"), "model": Said("a")},
        deployment={"model": Said("b"), "max_model_len": Said(50), "engine_version": Said("1.0")},
        context=50,
    )
    found = with_endpoint(deployed, live)
    assert found.name == "llama"
    assert {name: said.value for name, said in found.endpoint.items()} == {
        "url": "http://127.0.0.1/v1",
        "api_key_env": "VLLM_API_KEY",
        "model": "a",
    }
    assert {name: said.value for name, said in found.deployment.items()} == {
        "model": "a",
        "launch": "vllm serve a",
        "engine_version": "1.0",
    }
    assert with_endpoint(Draft(), live) == live


def test_the_driver_names_the_gpus(tmp_path):
    for index in range(2):
        (tmp_path / str(index)).mkdir()
        (tmp_path / str(index) / "information").write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 1\n")
    assert local_gpu(tmp_path) == "h100-sxm"
    (tmp_path / "1" / "information").write_text("Model: NVIDIA L40S\n")
    assert local_gpu(tmp_path) is None
    assert local_gpu(tmp_path / "none") is None
