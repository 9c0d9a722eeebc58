"""Whatever a manifest, compose or values file holds, `audit init` writes a profile that loads, or says in a line why
not; and no secret of the file is in it.
"""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from auditor.errors import ProfileError, UsageError
from auditor.init.files import from_file
from auditor.init.write import profile_text
from auditor.loading.profile import parse_profile

SECRET = "s3cr3t-0123456789-abcdef"
KEYS = st.sampled_from(
    [
        *(
            "apiVersion",
            "kind",
            "metadata",
            "spec",
            "template",
            "containers",
            "name",
            "image",
            "command",
            "args",
            "env",
        ),
        *("value", "valueFrom", "secretKeyRef", "configMapKeyRef", "resources", "limits", "nvidia.com/gpu", "replicas"),
        *("services", "environment", "ports", "deploy", "devices", "entrypoint", "env_file", "gpus", "scale", "<<"),
        *("servingEngineSpec", "modelSpec", "vllmConfig", "modelURL", "repository", "tag", "vllmApiKey", "hf_token"),
        *("nodeSelector", "nvidia.com/gpu.product", "labels", "selector", "port", "predictor", "model", "modelFormat"),
        *("leaderWorkerTemplate", "size", "modelArtifacts", "uri", "API_KEY", "VLLM_API_KEY", "HF_TOKEN", "data"),
    ]
)
WORDS = st.sampled_from(
    [
        *("vllm serve m", "vllm", "serve", "m", "--api-key", f"--api-key={SECRET}", f"--hf-token={SECRET}"),
        *("llama-server", "-m", "a.gguf", "python3", "-m sglang.launch_server", "--tp", "2", "-tp", "$TP", "${X:-3}"),
        *("vllm/vllm-openai:v0.11.2", "lmsysorg/sglang:v0.5.3", "nginx", "Deployment", "Service", "Pod", "Secret"),
        *("$(API_KEY)", "${HF_TOKEN}", f"HF_TOKEN={SECRET}", f"http://u:{SECRET}@h/x", "8000:8000", "8", "-1", "all"),
        *("sh", "-c", "exec vllm serve m", "'", "\n", ">", "|", "&&", ";", "\x1b[2J", "x: y # z", "", "NVIDIA-L40S"),
    ]
)
TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 10**12), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(KEYS, inner, max_size=6)),
    max_leaves=40,
)
PAIRS = st.sampled_from([["--api-key", SECRET], ["--api_key", SECRET, SECRET], ["--hf-token", SECRET], ["-tp", "2"]])
FLAGS = st.lists(st.one_of(WORDS.map(lambda word: [word]), PAIRS), max_size=6).map(
    lambda parts: [word for part in parts for word in part]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("init")


def check(document, folder):
    path = folder / "file.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    text = written(path, folder)
    if text is None:
        return
    assert SECRET not in text
    assert not [
        problem for problem in problems(text, folder) if "deployment" not in problem and "launch" not in problem
    ]


def written(path, folder):
    """The profile of a file; None where it is refused, in one line."""
    try:
        return profile_text(from_file(path, folder), "prod.yaml")
    except UsageError as error:
        lines = str(error).splitlines()
    assert len(lines) == 1
    return None


def problems(text, folder):
    """What the profile has wrong: the file itself may hold flags that no engine takes, and devices that do not fit."""
    try:
        parse_profile(text, folder / "prod.yaml", {})
    except ProfileError as error:
        return [str(problem) for problem in error.problems]
    return []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=TREES)
def test_any_document(document, folder):
    check(document, folder)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rest=TREES, words=FLAGS, shell=st.booleans())
def test_any_container(rest, words, shell, folder):
    """Documents of the right shape with anything in them."""
    args = ["vllm serve m " + " ".join(words)] if shell else ["vllm", "serve", "m", *words]
    container = {"name": "c", "image": "vllm/vllm-openai:v0.11.2", "args": args, "env": rest, "resources": rest}
    if shell:
        container["command"] = ["/bin/sh", "-c"]
    pod = {"containers": [container], "nodeSelector": rest, "affinity": rest}
    check({"kind": "Deployment", "metadata": rest, "spec": {"replicas": rest, "template": {"spec": pod}}}, folder)


def test_a_name_that_stands_where_a_secret_does_is_hidden_and_the_profile_loads(folder):
    args = ["vllm", "serve", "m", "--api-key", SECRET, "chat prod"]
    pod = {"containers": [{"name": "c", "image": "vllm/vllm-openai:v0.11.2", "args": args}]}
    check({"kind": "Deployment", "metadata": {"name": "chat prod"}, "spec": {"template": {"spec": pod}}}, folder)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rest=TREES, words=FLAGS)
def test_any_service(rest, words, folder):
    service = {"image": "x", "command": ["vllm", "serve", "m", *words], "environment": rest, "ports": rest}
    check({"services": {"llm": {**service, "deploy": rest, "gpus": rest, "env_file": rest, "<<": rest}}}, folder)
