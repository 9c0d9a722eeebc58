"""Profiles: what is read, and each mistake as one line with its place, all at once."""

from pathlib import Path

import pytest

from auditor.errors import ProfileError, UsageError
from auditor.evidence import Location
from auditor.loading import load_profile, shipped_profiles
from auditor.loading.profile import find_profile
from auditor.profile import Lengths, Profile

HEAD = "version: 1\nname: t\nendpoint: {url: 'http://127.0.0.1:8000/v1'}\n"
CLASS = "{name: rag, prompt_tokens: {p50: 3k, p95: 8k, max: 16k}, output_tokens: {p50: 150}}"


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "p.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def problems(write):
    """The problems of a profile as `line:column: message`; none if it loads. `<>` in the text marks a place."""

    def problems(text: str, environ=None) -> list[str]:
        before, marker, after = text.partition("<>")
        here = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}: "
        path = write(before + after)
        found = ()
        try:
            load_profile(path, environ or {})
        except ProfileError as error:
            found = error.problems
        assert {problem.file for problem in found} <= {str(path)}
        places = [(f"{p.line}:{p.column}: ", p.message) for p in found]
        return [("<>: " if marker and place == here else place) + message for place, message in places]

    return problems


FULL = """\
version: 1
name: chat-prod
endpoint:   {url: "https://api.example.org/v1", engine: auto, model: auto, api: auto, api_key_env: LLM_API_KEY,
             metrics: ["http://a:1/metrics", "http://b:1/metrics"], headers: {X-Tenant: blue}, verify_tls: true,
             extra_body: {top_k: 5}}
deployment: {model: meta-llama/Llama-3.1-8B-Instruct, accelerator: h100-sxm, count: 2, replicas: 1, tensor_parallel: 2,
             quantization: none, kv_cache_dtype: auto, engine_version: "0.18.0", max_model_len: 32768,
             max_num_seqs: 256, max_num_batched_tokens: auto, gpu_memory_utilization: 0.92, mem_fraction_static: null,
             block_size: auto, enforce_eager: false, speculative: null, disaggregated: false, price_per_hour: 2.50}
traffic:    {target_concurrency: 64, optimize_for: ttft,
             classes: [{name: rag, share: 0.7, prompt_tokens: {p50: 3000, p95: 8000, max: 16000},
                        output_tokens: {p50: 150, p95: 400, max: 800},
                        shared_prefix: {tokens: 1500, share: 0.9, distinct: 3}, images: null, turns: 1},
                       {name: chat, share: 30%, prompt_tokens: {p50: 1k}, output_tokens: {p50: 400}}],
             log: null, prompts: null}
slo:        {ttft: {p95: 1500ms}, first_answer: null, tps: {p05: 25/s}, e2e: {p95: 20s, p99.9: 1m}, error_rate: 1%,
             classes: {rag: {ttft: {p95: 2s}}}}
probe:      {budget: {duration: 10m, requests: 2000, tokens: 4M}, confidence: 0.95, seed: 0, allow_load: false}
monitoring: {required: true, exporters: [], prometheus: null, grafana: null, dashboards: [], rules: []}
waivers:    [{rule: M401, reason: "panel under review", expires: 2027-01-31, owner: team-x}]
"""


def test_a_full_profile_is_read_with_its_units(write):
    profile = load_profile(write(FULL), {}).profile
    assert profile.slo.ttft == {"p95": 1.5}
    assert profile.slo.e2e == {"p95": 20.0, "p99.9": 60.0}
    assert profile.slo.tps == {"p05": 25.0}
    assert profile.slo.error_rate == 0.01
    assert profile.slo.classes["rag"].ttft == {"p95": 2.0}
    assert profile.probe.budget.duration == 600.0
    assert profile.probe.budget.tokens == 4_000_000
    assert profile.traffic.classes[1].share == 0.3
    assert profile.traffic.classes[1].prompt_tokens == Lengths(p50=1000)
    assert profile.deployment.max_num_batched_tokens == "auto"
    assert profile.deployment.max_model_len == 32768
    assert profile.endpoint.metrics == ("http://a:1/metrics", "http://b:1/metrics")
    assert profile.endpoint.extra_body == {"top_k": 5}
    assert profile.waivers[0].expires == "2027-01-31"


def test_every_path_has_its_place(write):
    path = write(FULL)
    lines = load_profile(path, {}).lines
    assert lines["slo.ttft.p95"] == Location(str(path), 16, 26)
    assert lines["slo.e2e.p99.9"].line == 16
    assert lines["traffic.classes.1.share"] == Location(str(path), 14, 44)
    assert lines["traffic"] == Location(str(path), 10, 1)
    assert lines["traffic.classes.0"] == Location(str(path), 11, 24)


def test_defaults_fill_what_is_not_written(write):
    profile = load_profile(write(HEAD), {}).profile
    assert profile == Profile(version=1, name="t", endpoint=profile.endpoint)
    assert profile.probe.budget.requests == 2000


def test_an_empty_section_is_a_section_of_defaults(write):
    assert load_profile(write(HEAD + "traffic:\nslo:\nprobe: {budget: }\n"), {}).profile.slo.classes == {}


# ---------------------------------------------------------------------------------------------------- types and units


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sloo: {}", ["4:1: unknown key 'sloo', did you mean 'slo'"]),
        ("zzz: 1", ["4:1: unknown key 'zzz'"]),
        ('"z\\n\\e[1m": 1', ["4:1: unknown key 'z\\n\\x1b[1m'"]),
        (f"{'z' * 900}: 1", [f"4:1: unknown key '{'z' * 487} ..."]),
        ('"a\\n": 1\n"a\\n": 2', ["5:1: duplicate key 'a\\n', first at 4:1"]),
        ("slo: {tfft: {p95: 1s}}", ["4:7: unknown key 'tfft' in slo, did you mean 'ttft'"]),
        (
            "slo: {ttft: {p95: 1500}}",
            ["4:19: slo.ttft.p95: needs its unit: write 1500s for seconds or 1500ms for milliseconds"],
        ),
        ("slo: {ttft: 2s}", ["4:13: slo.ttft: needs keys with values"]),
        ("slo: {tps: {p05: 25}}", ["4:18: slo.tps.p05: needs its unit: write 25/s if it is per second"]),
        ("slo: {error_rate: 5}", ["4:19: slo.error_rate: needs a share between 0 and 1; write 5% if it is per cent"]),
        ("deployment: {count: 1.5}", ["4:21: deployment.count: needs a whole number"]),
        ("deployment: {count: '2'}", ["4:21: deployment.count: needs a whole number"]),
        ("deployment: {count: true}", ["4:21: deployment.count: needs a whole number"]),
        ("deployment: {engine_version: 0.18}", ["4:30: deployment.engine_version: needs text; put it in quotes"]),
        (
            "deployment: {enforce_eager: yes}",
            ["4:29: deployment.enforce_eager: needs true or false, did you mean true"],
        ),
        ("deployment: {enforce_eager: 1}", ["4:29: deployment.enforce_eager: needs true or false"]),
        (
            "deployment: {max_model_len: automatic}",
            ["4:29: deployment.max_model_len: needs a whole number of tokens, such as 4096, 32k or 4M, or auto"],
        ),
        (
            "deployment: {max_num_seqs: aut}",
            ["4:28: deployment.max_num_seqs: needs a whole number or auto, did you mean 'auto'"],
        ),
        ("deployment: {speculative: [1]}", ["4:14: deployment.speculative: needs keys with values or text"]),
        (
            "deployment: {gpu_memory_utilization: .nan}",
            ["4:38: deployment.gpu_memory_utilization: needs a finite number"],
        ),
        ("traffic: {optimize_for: latency}", ["4:25: traffic.optimize_for: needs ttft, tps or cost"]),
        ("monitoring: {dashboards: a.json}", ["4:26: monitoring.dashboards: needs a list, such as [a, b]"]),
        ("probe: []", ["4:1: probe: needs keys with values"]),
        ("waivers: [1]", ["4:11: waivers.0: needs keys with values"]),
        ("waivers: [{rule: M401, reason: x}]", ["4:11: the key 'expires' is missing in waivers.0"]),
        (
            "traffic: {classes: [{name: a, output_tokens: {p50: 1}}]}",
            ["4:21: the key 'prompt_tokens' is missing in traffic.classes.0"],
        ),
    ],
)
def test_one_mistake_one_line(problems, text, expected):
    assert problems(HEAD + text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["1:1: the file holds no profile; it needs keys such as version, name and endpoint"]),
        ("- a", ["1:1: the file holds no profile; it needs keys such as version, name and endpoint"]),
        (
            "slo: {}",
            [f"1:1: the key '{key}' is missing" for key in ("endpoint", "name", "version")],
        ),
        ("version: 1\nname: t\nendpoint: {engine: vllm}", ["3:1: the key 'url' is missing in endpoint"]),
        ("version: 1\nname: t\nendpoint:\n", ["3:10: endpoint: needs keys with values"]),
        ("version: '1'\nname: t\nendpoint: {url: 'http://h/v1', engine: vLLM}", None),
        ("a: b: c", ["1:5: a ':' does not fit here; put the value in quotes, or check the indentation"]),
        ("version: 1\nversion: 1\n", ["2:1: duplicate key 'version', first at 1:1"]),
    ],
)
def test_what_is_no_profile(problems, text, expected):
    if expected is not None:
        assert problems(text) == expected
        return
    assert problems(text)[:2] == [
        "1:10: version: needs a whole number",
        "3:40: endpoint.engine: needs auto, vllm, sglang, llamacpp, trtllm, lmdeploy or generic, did you mean 'vllm'",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "# ours\napiVersion: v1\nkind: Namespace\n---\nkind: Deployment\n",
        '{\n    "apiVersion": "v1",\n    "items": []\n}\n',
        "services:\n  llm: {image: vllm/vllm-openai}\n",
        "servingEngineSpec: {}\n",
        "#!/bin/sh\nvllm serve m\n",
        "[Unit]\n[Service]\nExecStart=vllm serve m\n",
    ],
)
def test_what_deploys_a_service_is_sent_to_init(tmp_path, text):
    (tmp_path / "x y.yaml").write_text(text)
    with pytest.raises(ProfileError) as caught:
        load_profile(tmp_path / "x y.yaml", {})
    (line,) = str(caught.value).splitlines()
    assert "x y.yaml:1:1: this deploys a service and is no profile; audit init '" in line


def test_a_newer_version_is_one_line(problems):
    text = "version: 2\nname: t\nnew_section: {}\nendpoint: {uri: x}\n"
    advice = "is newer than this program understands; upgrade serving-audit"
    assert problems(text) == [f"1:10: version: profile version 2 {advice}"]
    assert problems("version: 0\n") == ["1:10: version: profile version 0 never existed; write 1"]


def test_all_mistakes_are_listed_at_once_and_what_follows_from_one_is_not(problems):
    text = """\
version: 1
name: 5
endpoint: {url: "127.0.0.1:8000", verify_tls: no}
traffic:
  target_concurrency: 0
  classes:
    - {name: a, share: 70, prompt_tokens: {p50: 5, p95: 4}, output_tokens: {p50: 1}}
    - {name: a, prompt_tokens: {p95: 1}, output_tokens: {p50: 1}}
slo: {ttft: {p95: 1500}, e2e: {p100: 3s}, classes: {b: {ttft: {p95: 1s}}}}
waivers: [{rule: x, reason: " ", expires: tomorrow}]
"""
    assert problems(text) == [
        "2:7: name: needs text; put it in quotes",
        "3:17: endpoint.url: needs an address with its scheme, such as http://127.0.0.1:8000/v1",
        "3:47: endpoint.verify_tls: needs true or false, did you mean false",
        "5:23: traffic.target_concurrency: needs at least 1",
        "7:24: traffic.classes.0.share: needs a share between 0 and 1; write 70% if it is per cent",
        "8:17: the key 'p50' is missing in traffic.classes.1.prompt_tokens",
        "9:19: slo.ttft.p95: needs its unit: write 1500s for seconds or 1500ms for milliseconds",
        "9:38: slo.e2e.p100: 'p100' cannot be shown by any number of requests; give a percentile such as p99.9",
        "10:18: waivers.0.rule: needs a rule id such as M401",
        "10:29: waivers.0.reason: a waiver needs a reason",
        "10:43: waivers.0.expires: needs a date such as 2027-01-31",
    ]


# ------------------------------------------------------------------------------------------------------ cross-checks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "traffic: {target_concurrency: 4, request_rate: 5/s}",
            ["4:48: traffic.request_rate: give either target_concurrency or request_rate, not both"],
        ),
        (
            "traffic: {request_rate: 5/s, arrivals: closed}",
            ["4:40: traffic.arrivals: closed means workers that wait for their replies: give target_concurrency"],
        ),
        ("traffic: {request_rate: 0/s}", ["4:25: traffic.request_rate: needs to be above zero"]),
        (
            "traffic:\n  classes:\n    - " + CLASS + "\n    - " + CLASS.replace("rag", "b"),
            ["5:3: traffic.classes: the shares of the classes sum to 2, not 1 (1 + 1)"],
        ),
        (
            "traffic: {classes: ["
            + CLASS.replace("rag,", "rag, share: 0.5,")
            + ", "
            + CLASS.replace("rag,", "<>rag, share: 0.5,")
            + "]}",
            ["<>: traffic.classes.1.name: the class 'rag' is declared twice"],
        ),
        (
            "traffic: {classes: [" + CLASS.replace("rag", "''") + "]}",
            ["4:28: traffic.classes.0.name: needs a name on one line"],
        ),
        (
            "traffic: {classes: [" + CLASS.replace("8k", "20k").replace("16k", "<>16k") + "]}",
            ["<>: traffic.classes.0.prompt_tokens.max: max (16000) is below p95 (20000)"],
        ),
        (
            "traffic: {classes: [" + CLASS.replace("}}", "}, shared_prefix: {tokens: <>17k}}") + "]}",
            ["<>: traffic.classes.0.shared_prefix.tokens: is longer than any prompt of the class"],
        ),
        (
            "traffic: {classes: [" + CLASS + "]}\nslo: {classes: {rga: {ttft: {p95: 1s}}}}",
            ["5:17: slo.classes.rga: there is no class 'rga', did you mean 'rag'"],
        ),
        ("slo: {classes: {x: {}}}", ["4:17: slo.classes.x: there is no class 'x'; declare it in traffic.classes"]),
        (
            "traffic: {classes: [" + CLASS + "]}\nslo: {classes: {rag: {classes: {x: {}}}}}",
            ["5:23: slo.classes.rag.classes: a class has no classes of its own"],
        ),
        ("slo: {ttft: {p50: 2s, p95: 1s}}", ["4:28: slo.ttft.p95: the limit at p95 is below the one at p50"]),
        ("slo: {ttft: {p95: 0s}}", ["4:19: slo.ttft.p95: needs to be above zero"]),
        (
            "slo: {ttft: {95: 1s}}",
            ["4:18: slo.ttft.95: '95' is no percentile such as p50, p95 or p99.9, did you mean 'p95'"],
        ),
        (
            "slo: {ttft: {P95: 1s}}",
            ["4:19: slo.ttft.P95: 'P95' is no percentile such as p50, p95 or p99.9, did you mean 'p95'"],
        ),
        (
            "slo: {ttft: {median: 1s}}",
            ["4:22: slo.ttft.median: 'median' is no percentile such as p50, p95 or p99.9, did you mean 'p50'"],
        ),
        (
            "slo: {ttft: {mean: 1s}}",
            ["4:20: slo.ttft.mean: 'mean' hides the slow requests; give a percentile such as p95"],
        ),
        (
            "slo: {ttft: {max: 1s}}",
            ["4:19: slo.ttft.max: 'max' cannot be shown by any number of requests; give a percentile such as p99.9"],
        ),
        ("slo: {ttft: {p0: 1s}}", ["4:18: slo.ttft.p0: 'p0' is no percentile such as p50, p95 or p99.9"]),
        (
            "slo: {error_rate: 1}",
            ["4:19: slo.error_rate: lets half of the requests fail; write 1% for one in a hundred"],
        ),
        ("deployment: {count: 0}", ["4:21: deployment.count: needs at least 1"]),
        (
            "deployment: {gpu_memory_utilization: 1.2}",
            ["4:38: deployment.gpu_memory_utilization: needs a fraction above 0 and up to 1, such as 0.9"],
        ),
        (
            "deployment: {mem_fraction_static: 0}",
            ["4:35: deployment.mem_fraction_static: needs a fraction above 0 and up to 1, such as 0.9"],
        ),
        ("deployment: {price_per_hour: -1}", ["4:30: deployment.price_per_hour: needs to be zero or more"]),
        ("deployment: {prices: {l4: 0}}", ["4:27: deployment.prices.l4: needs a price above zero"]),
        (
            "deployment: {prices: {l5: 1.5}}",
            ["4:27: deployment.prices.l5: unknown accelerator 'l5' (audit catalog accelerators lists all)"],
        ),
        ("probe: {confidence: 95}", ["4:21: probe.confidence: needs a confidence between 0.5 and 1, such as 0.95"]),
        ("probe: {budget: {requests: 0}}", ["4:28: probe.budget.requests: needs at least 1"]),
        (
            "deployment: {tensor_parallel: 2}",
            ["4:31: deployment.tensor_parallel: tensor_parallel 2 = 2 devices, but count is 1"],
        ),
        (
            "deployment: {tensor_parallel: 2, pipeline_parallel: 2, count: 8}",
            ["4:31: deployment.tensor_parallel: tensor_parallel 2 x pipeline_parallel 2 = 4 devices, but count is 8"],
        ),
        (
            "deployment: {launch: 'vllm serve m -tp 4'}",
            ["4:22: deployment.launch: tensor_parallel 4 = 4 devices, but count is 1"],
        ),
        ("deployment: {launch: 'ls -l'}", None),
        ("deployment: {launch: 'vllm serve m --max-model-len'}", None),
        (
            "waivers: [{rule: M401, reason: x, expires: 2027-02-30}]",
            ["4:44: waivers.0.expires: needs a date such as 2027-01-31"],
        ),
        (
            "waivers: [{rule: M401, reason: x, expires: 20270130}]",
            ["4:44: waivers.0.expires: needs text; put it in quotes"],
        ),
        (
            "waivers: [{rule: M401, reason: x, expires: '20270130'}]",
            ["4:44: waivers.0.expires: needs a date such as 2027-01-31"],
        ),
        (
            "monitoring: {prometheus: 'prom:9090'}",
            ["4:26: monitoring.prometheus: needs an address with its scheme, such as http://127.0.0.1:8000/v1"],
        ),
    ],
)
def test_what_types_cannot_tell(problems, text, expected):
    found = problems(HEAD + text)
    if expected is not None:
        assert found == expected
    else:
        assert len(found) == 1
        assert found[0].startswith("4:22: deployment.launch: ")


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        (
            "{url: '127.0.0.1:8000/v1'}",
            "3:17: endpoint.url: needs an address with its scheme, such as http://127.0.0.1:8000/v1",
        ),
        ("{url: 'http:///v1'}", "3:17: endpoint.url: needs a host, such as http://127.0.0.1:8000/v1"),
        (
            "{url: 'http://h:99999/v1'}",
            "3:17: endpoint.url: this is no valid address; check its host, port and brackets",
        ),
        ("{url: 'http://[::1/v1'}", "3:17: endpoint.url: this is no valid address; check its host, port and brackets"),
        ("{url: 'http://h:0/v1'}", "3:17: endpoint.url: needs a host, such as http://127.0.0.1:8000/v1"),
        ("{url: 'http://h/v1?x=1'}", "3:17: endpoint.url: needs an address without '?' or '#'"),
        ("{url: 'http://h /v1'}", "3:17: endpoint.url: an address holds no blanks, control characters or backslashes"),
        ("{url: 'http://h/metrics'}", "3:17: endpoint.url: give the root of the API, without /metrics"),
        (
            "{url: 'http://h/v1', <>metrics: []}",
            "<>: endpoint.metrics: the list is empty; write auto, or null for none",
        ),
        (
            "{url: 'http://h/v1', metrics: page}",
            "3:41: endpoint.metrics: needs an address with its scheme, such as http://127.0.0.1:8000/v1",
        ),
        (
            "{url: 'http://h/v1', metrics: [x]}",
            "3:42: endpoint.metrics.0: needs an address with its scheme, such as http://127.0.0.1:8000/v1",
        ),
        (
            "{url: 'http://h/v1', headers: {'a b': c}}",
            "3:49: endpoint.headers.a b: HTTP cannot carry this header; use plain letters, digits and punctuation",
        ),
        (
            "{url: 'http://h/v1', headers: {x: <>'é'}}",
            "<>: endpoint.headers.x: HTTP cannot carry this header; use plain letters, digits and punctuation",
        ),
        ("{url: 'http://h/v1', headers: {Host: <>c}}", "<>: endpoint.headers.Host: the audit sets this header itself"),
        (
            "{url: 'http://h/v1', extra_body: {stream: false}}",
            "3:53: endpoint.extra_body.stream: the audit sets this key itself",
        ),
        (
            "{url: 'http://h/v1', api_key_env: 'two words'}",
            "3:45: endpoint.api_key_env: needs the name of an environment variable (such as LLM_API_KEY), or file:PATH",
        ),
    ],
)
def test_endpoints(problems, endpoint, expected):
    assert expected in problems(f"version: 1\nname: t\nendpoint: {endpoint}\n")


def test_the_emulator_needs_a_model_and_an_accelerator(problems):
    text = "version: 1\nname: t\nendpoint: {url: emulator}\n"
    assert problems(text) == ["3:17: endpoint.url: the emulator needs deployment.accelerator"]
    assert problems(text + "deployment: {model: m, accelerator: a}\n") == []
    launch = "deployment: {launch: 'vllm serve m', accelerator: a}\n"
    assert problems(text + launch) == []


def test_sglang_attention_data_parallelism_runs_within_tensor_parallelism(problems):
    head = HEAD.replace("'}", "', engine: sglang}")
    assert problems(head + "deployment: {tensor_parallel: 8, data_parallel: 8, count: 8}") == []
    head = HEAD.replace("'}", "', engine: vllm}")
    assert problems(head + "deployment: {tensor_parallel: 2, data_parallel: 4, count: 8}") == []
    assert "= 64 devices" in problems(head + "deployment: {tensor_parallel: 8, data_parallel: 8, count: 8}")[0]


def test_an_engine_that_the_launch_line_contradicts(problems):
    head = HEAD.replace("'}", "', engine: <>sglang}")
    found = problems(head + "deployment: {launch: 'vllm serve m'}")
    assert found == ["<>: endpoint.engine: says sglang, but deployment.launch starts vllm"]


# ------------------------------------------------------------------------------------------------------------ secrets


@pytest.mark.parametrize(
    "key",
    ["sk-proj-abcdef123456", "hf_abcdefgh", "nvapi-0123456789", "Bearer abcdef", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"],
)
def test_a_key_in_the_profile_is_refused_and_never_repeated(problems, key):
    found = problems(f"version: 1\nname: t\nendpoint: {{url: 'http://h/v1', api_key_env: '{key}'}}\n")
    assert found == [
        "3:45: endpoint.api_key_env: this looks like a key itself; put it into an environment variable and give the "
        "variable's name"
    ]


def test_an_unknown_api_key_field_names_the_right_one_and_not_its_value(problems):
    found = problems("version: 1\nname: t\nendpoint: {url: 'http://h/v1', api_key: sk-secret-secret}\n")
    assert found == [
        "3:32: unknown key 'api_key' in endpoint, did you mean 'api_key_env'; a key comes from the environment, see "
        "api_key_env"
    ]


def test_the_key_comes_from_the_environment_or_a_file(write, tmp_path):
    (tmp_path / "key.txt").write_text("file-key-1\n")
    path = write("version: 1\nname: t\nendpoint: {url: 'http://h/v1', api_key_env: MY_KEY}\n")
    assert load_profile(path, {"MY_KEY": " env-key-1\n"}).key == "env-key-1"
    path = write("version: 1\nname: t\nendpoint: {url: 'http://h/v1', api_key_env: 'file:key.txt'}\n")
    loaded = load_profile(path, {})
    assert loaded.key == "file-key-1"
    assert loaded.secrets == ("file-key-1",)


@pytest.mark.parametrize("name", ["HF_TOKEN", "KEY_OF_LLM", "GSK_API_KEY", "LLM_API_KEY", "_k", "openai_key"])
def test_a_variable_s_name_is_no_key(problems, name):
    assert problems(f"version: 1\nname: t\nendpoint: {{url: 'http://h/v1', api_key_env: {name}}}\n") == []


def test_what_watches_the_service_has_keys_of_its_own(write, problems):
    head = "version: 1\nname: t\nendpoint: {url: 'http://h/v1', api_key_env: MY_KEY}\n"
    path = write(head + "monitoring: {prometheus: 'http://p:9090', prometheus_key_env: PROM, grafana_key_env: GRAF}\n")
    loaded = load_profile(path, {"MY_KEY": "env-key-1", "PROM": "prom-key-2"})
    assert loaded.keys == {"endpoint": "env-key-1", "prometheus": "prom-key-2"}
    assert loaded.secrets == ("env-key-1", "prom-key-2")
    assert loaded.warnings == (f"{path}:4:86: monitoring.grafana_key_env: the environment variable GRAF is not set",)
    assert problems(head + "monitoring: {prometheus_key_env: hf_abcdefgh}\n") == [
        "4:34: monitoring.prometheus_key_env: this looks like a key itself; put it into an environment variable and "
        "give the variable's name"
    ]


def test_headers_for_what_watches_are_checked_and_their_secrets_known(write, problems):
    head = "version: 1\nname: t\nendpoint: {url: 'http://h/v1'}\n"
    path = write(head + "monitoring: {headers: {X-Scope-OrgID: team, X-Api-Key: header-key-9}}\n")
    assert load_profile(path, {}).secrets == ("header-key-9",)
    assert problems(head + 'monitoring: {headers: {X-A: "a\\nb"}}\n') == [
        "4:29: monitoring.headers.X-A: HTTP cannot carry this header; use plain letters, digits and punctuation"
    ]


def test_replicas_that_prometheus_is_to_know_need_one(problems):
    head = "version: 1\nname: t\nendpoint: {url: 'http://h/v1', metrics: prometheus}\n"
    assert problems(head) == ["3:41: endpoint.metrics: needs monitoring.prometheus, whose targets are the replicas"]
    assert problems(head + "monitoring: {prometheus: 'http://p', selector: {a-b: x}}\n") == [
        "4:54: monitoring.selector.a-b: is no name of a label: letters, digits and _"
    ]


@pytest.mark.parametrize(
    ("name", "environ", "warning"),
    [
        ("MY_KEY", {}, "the environment variable MY_KEY is not set"),
        ("MY_KEY", {"MY_KEY": " "}, "the environment variable MY_KEY is empty"),
        (
            "MY_KEY",
            {"MY_KEY": "a\nb"},
            "the environment variable MY_KEY holds characters that no HTTP header can carry",
        ),
        ("file:none", {}, "the key file cannot be used: there is no such file"),
        ("file:empty", {}, "the key file is empty"),
    ],
)
def test_a_key_that_is_not_there_is_a_warning(write, tmp_path, name, environ, warning):
    (tmp_path / "empty").write_text("\n")
    path = write(f"version: 1\nname: t\nendpoint: {{url: 'http://h/v1', api_key_env: '{name}'}}\n")
    loaded = load_profile(path, environ)
    assert loaded.key is None
    assert loaded.warnings == (f"{path}:3:45: endpoint.api_key_env: {warning}",)


def test_secrets_are_collected_from_wherever_the_profile_spells_them_out(write):
    text = """\
version: 1
name: t
endpoint: {url: "http://bob:pass-word@h/v1", headers: {X-Api-Key: header-key-1}, api_key_env: K}
deployment: {launch: "HF_TOKEN=hf-token-2 vllm serve m --api-key launch-key-3"}
"""
    secrets = load_profile(write(text), {"K": "env-key-4"}).secrets
    assert {"pass-word", "header-key-1", "hf-token-2", "launch-key-3", "env-key-4"} <= set(secrets)


# ----------------------------------------------------------------------------------------------------------- warnings


def test_what_is_probably_not_meant_is_a_warning(write):
    text = HEAD + (
        "deployment: {launch: 'vllm serve m --no-such-flag'}\n"
        f"traffic: {{log: x.jsonl, classes: [{CLASS}]}}\n"
        "slo: {tps: {p95: 25/s}}\n"
    )
    path = write(text)
    assert load_profile(path, {}).warnings == (
        f"{path}:4:22: deployment.launch: flags that are not known: --no-such-flag",
        f"{path}:6:18: slo.tps.p95: asks only the fastest 5 % of the streams for this speed; p05 asks 95 %",
        f"{path}:5:16: traffic.log: is not used, because traffic.classes are declared",
    )


def test_the_launch_line_is_read(write):
    loaded = load_profile(write(HEAD + "deployment: {launch: 'vllm serve m --max-num-seqs 64'}\n"), {})
    assert loaded.launch is not None
    assert loaded.launch.engine == "vllm"
    assert loaded.launch.fields["max_num_seqs"] == 64


# -------------------------------------------------------------------------------------------------------------- files


def test_a_shipped_profile_is_found_by_its_name_and_a_file_wins(tmp_path, monkeypatch):
    assert find_profile("embedded") == shipped_profiles()["embedded"]
    monkeypatch.chdir(tmp_path)
    Path("embedded").write_text("x")
    assert find_profile("embedded") == Path("embedded")
    Path("embedded").unlink()
    Path("embedded").mkdir()
    assert find_profile("embedded") == shipped_profiles()["embedded"]


def test_places_are_relative_where_the_file_lies_below_the_current_folder(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(HEAD)
    assert load_profile(path, {}).lines["name"].file == "p.yaml"
    monkeypatch.chdir(tmp_path.parent.parent)
    assert load_profile(path, {}).lines["name"].file == f"{tmp_path.parent.name}/{tmp_path.name}/p.yaml"


def test_a_wheel_ships_its_profiles_beside_the_code(tmp_path, monkeypatch):
    package = tmp_path / "site" / "auditor"
    (package / "profiles").mkdir(parents=True)
    (package / "profiles" / "mine.yaml").write_text("x")
    monkeypatch.setattr("auditor.loading.profile.__file__", str(package / "loading" / "profile.py"))
    assert shipped_profiles() == {"mine": package / "profiles" / "mine.yaml"}


def test_no_shipped_profiles_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr("auditor.loading.profile.__file__", str(tmp_path / "a" / "auditor" / "loading" / "profile.py"))
    with pytest.raises(
        UsageError, match=r"^x: there is no such profile \(shipped: none; audit init writes your own\)$"
    ):
        find_profile("x")


def test_an_unknown_profile_names_the_nearest_shipped_one():
    with pytest.raises(UsageError, match=r"^embeded: there is no such profile, did you mean 'embedded'") as caught:
        load_profile("embeded")
    assert "\n" not in str(caught.value)


def test_a_folder_or_binary_or_oversized_file_is_one_line(tmp_path, write, monkeypatch):
    with pytest.raises(ProfileError, match="this is a folder, not a file"):
        load_profile(tmp_path)
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"version: 1\nname: caf\xe9\n")
    with pytest.raises(ProfileError, match=r"latin.yaml:2:10: is not UTF-8 \(byte 0xe9\)"):
        load_profile(path)
    monkeypatch.setattr("auditor.loading.files.MAX_BYTES", 10)
    path.write_bytes(b"#" * (17 << 20))
    with pytest.raises(ProfileError, match="is larger than 16 MiB"):
        load_profile(path)


def test_the_real_environment_is_used_by_default(write, monkeypatch):
    monkeypatch.setenv("AUDIT_TEST_KEY", "real-key-1")
    assert load_profile(write("version: 1\nname: t\nendpoint: {url: 'http://h/v1', api_key_env: AUDIT_TEST_KEY}\n")).key
