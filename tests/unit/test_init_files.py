"""Manifests, compose files, values of Helm charts and start scripts, read into drafts."""

import base64

import pytest

from auditor.errors import UsageError
from auditor.init.files import from_file
from auditor.init.write import profile_text
from auditor.loading.profile import parse_profile

KEY = "sk-prod-0123456789abcdef"

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: llama, namespace: serving}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: llama, tier: gpu}}
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
      containers:
        - {name: proxy, image: "istio/proxyv2:1.22.3", args: [proxy, sidecar]}
        - name: vllm
          image: registry.example.org/vllm/vllm-openai:v0.11.2
          args: [--model, $(MODEL), --tensor-parallel-size=2, --max-model-len, "16384", --api-key, $(VLLM_API_KEY)]
          env:
            - {name: MODEL, value: meta-llama/Llama-3.1-70B-Instruct}
            - {name: HF_TOKEN, value: KEY}
            - name: VLLM_API_KEY
              valueFrom: {secretKeyRef: {name: llm-keys, key: token}}
          resources: {limits: {nvidia.com/gpu: "2"}}
"""
SERVICE = """
---
apiVersion: v1
kind: Service
metadata: {name: llama-svc, namespace: serving}
spec: {selector: {app: llama}, ports: [{port: 8080, targetPort: 8000}]}
"""
WORKERS = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: deepseek}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
          - name: leader
            image: lmsysorg/sglang:v0.5.3-cu126
            command: [python3, -m, sglang.launch_server, --model-path, deepseek-ai/DeepSeek-V3, --tp, "16"]
            resources: {limits: {nvidia.com/gpu: 8}}
    workerTemplate:
      spec:
        containers:
          - {name: worker, image: "lmsysorg/sglang:v0.5.3-cu126", command: [sleep, inf]}
"""
KSERVE = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: qwen}
spec:
  predictor:
    minReplicas: 2
    containers:
      - name: kserve-container
        image: example.org/our-vllm:2024-1
        args: [serve, Qwen/Qwen3-32B, --max-model-len, 8k]
        resources: {requests: {nvidia.com/gpu: 1}}
"""
COMPOSE = """
x-gpu: &gpu
  deploy: {replicas: 2, resources: {reservations: {devices: [{driver: nvidia, device_ids: ["0", "1"]}]}}}
services:
  web: {image: "nginx:1.27", ports: ["80:80"]}
  llm:
    <<: *gpu
    image: lmsysorg/sglang:v0.5.3
    entrypoint: python3 -m sglang.launch_server
    command: --model-path ${MODEL:-Qwen/Qwen3-32B} --tp 2 --port 30000 --api-key ${KEY} --context-length ${CTX}
    environment: [HF_TOKEN=KEY]
    ports: ["127.0.0.1:8090:30000"]
"""
STACK = """
servingEngineSpec:
  vllmApiKey: KEY
  modelSpec:
    - name: llama8b
      repository: vllm/vllm-openai
      tag: v0.10.1
      modelURL: meta-llama/Llama-3.1-8B-Instruct
      replicaCount: 2
      requestGPU: 1
      hf_token: KEY-hf
      vllmConfig:
        {maxModelLen: 8192, gpuMemoryUtilization: 0.9, enablePrefixCaching: true, extraArgs: [--max-num-seqs, "64"]}
      nodeSelectorTerms: [{matchExpressions: [{key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-L40S]}]}]
"""
CHART = """
image:
  repository: vllm/vllm-openai
  tag: v0.9.0
  command: [vllm, serve, /data/, --served-model-name, opt-125m, --block-size, "16", --port, "8000"]
replicaCount: 4
resources: {limits: {nvidia.com/gpu: 1}}
extraInit: {image: {repository: amazon/aws-cli, tag: "2.6.4"}, command: [sh]}
"""
LLM_D = """
modelArtifacts: {uri: "hf://Qwen/Qwen3-32B", name: qwen}
decode:
  replicas: 3
  containers:
    - name: vllm
      image: ghcr.io/llm-d/llm-d-cuda:v0.3.0
      modelCommand: vllmServe
      args: [--max-model-len, "32000"]
      resources: {limits: {nvidia.com/gpu: "2"}}
"""


@pytest.fixture
def read(tmp_path):
    """The draft of a file's text; KEY in it is a secret."""

    def call(text, name="file.yaml", pick=None):
        path = tmp_path / name
        path.write_text(text.replace("KEY-hf", "hf_" + KEY).replace(": KEY", f": {KEY}").replace("=KEY", f"={KEY}"))
        return from_file(path, tmp_path, pick)

    return call


def values(section):
    return {name: said.value for name, said in section.items()}


def test_a_deployment_with_its_service(read):
    draft = read(DEPLOYMENT + SERVICE)
    assert draft.name == "llama"
    assert draft.sources == ("file.yaml, Deployment llama",)
    assert values(draft.endpoint) == {
        "url": "http://llama-svc.serving.svc:8080/v1",
        "engine": "vllm",
        "api_key_env": "VLLM_API_KEY",
    }
    assert draft.endpoint["api_key_env"].note == "its value: Secret llm-keys, entry token"
    assert draft.endpoint["url"].note == "from outside: kubectl port-forward -n serving svc/llama-svc 8000:8080"
    assert values(draft.deployment) == {
        "model": "meta-llama/Llama-3.1-70B-Instruct",
        "accelerator": "h100-sxm",
        "count": 2,
        "replicas": 3,
        "engine_version": "0.11.2",
        "launch": "registry.example.org/vllm/vllm-openai:v0.11.2 --model meta-llama/Llama-3.1-70B-Instruct "
        "--tensor-parallel-size=2 --max-model-len 16384",
    }
    assert draft.context == 16384


SCALER = """
---
spec: {scaleTargetRef: {kind: Deployment, name: llama}, minReplicas: 4, maxReplicas: 9}
"""
KEDA = """
---
kind: ScaledObject
spec: {scaleTargetRef: {name: llama}, minReplicaCount: 5}
"""


def test_the_fewest_replicas_of_an_autoscaler_count(read):
    """An autoscaler overrules the workload's own count; KEDA's means a Deployment where it names no kind."""
    kept = read(DEPLOYMENT + SCALER).deployment["replicas"]
    assert (kept.value, kept.note) == (4, "the fewest that its autoscaler keeps")
    assert read(DEPLOYMENT + KEDA).deployment["replicas"].value == 5
    assert read(DEPLOYMENT + SCALER.replace("name: llama", "name: other")).deployment["replicas"].value == 3
    assert read(DEPLOYMENT + SCALER.replace("minReplicas: 4, ", "")).deployment["replicas"].value == 3


def test_an_image_of_a_distribution_tells_no_version_of_the_engine(read):
    """LMCache's image of vLLM counts LMCache's versions."""
    assert "engine_version" not in read(CHART.replace("vllm/vllm-openai", "lmcache/vllm-openai")).deployment


def test_without_a_service_it_is_reached_by_a_forwarded_port(read):
    draft = read(DEPLOYMENT)
    assert draft.endpoint["url"].value == "http://127.0.0.1:8000/v1"
    assert "kubectl port-forward -n serving deployment/llama" in draft.endpoint["url"].note


def test_a_service_of_other_pods_is_not_taken(read):
    assert (
        read(DEPLOYMENT + SERVICE.replace("app: llama}", "app: other}")).endpoint["url"].value.startswith("http://127")
    )


def test_a_group_of_pods_is_one_replica(read):
    found = values(read(WORKERS).deployment)
    assert (found["count"], found["replicas"], found["engine_version"]) == (16, 2, "0.5.3")


def test_a_replica_over_several_pods_of_a_set(read):
    flags = "--tensor-parallel-size=4, --nnodes, '2', --node-rank, $(POD_INDEX)"
    draft = read(DEPLOYMENT.replace("--tensor-parallel-size=2", flags).replace("replicas: 3", "replicas: 4"))
    assert (draft.deployment["count"].value, draft.deployment["replicas"].value) == (4, 2)
    assert not [note for note in draft.notes if "gives a replica" in note]
    assert draft.endpoint["url"].note.startswith("after kubectl port-forward -n serving deployment/llama 8000, ")


def test_kserve_and_an_image_of_one_s_own(read):
    draft = read(KSERVE)
    assert draft.deployment["launch"].value == "vllm serve Qwen/Qwen3-32B --max-model-len 8k"
    assert draft.deployment["replicas"].value == 2
    assert "engine_version" not in draft.deployment


def test_compose(read, tmp_path):
    (tmp_path / ".env").write_text(f"CTX=8192\nKEY={KEY}\n")
    draft = read(COMPOSE)
    assert values(draft.endpoint) == {
        "url": "http://127.0.0.1:8090/v1",
        "engine": "sglang",
        "api_key_env": "LLM_API_KEY",
    }
    assert values(draft.deployment) == {
        "model": "Qwen/Qwen3-32B",
        "count": 2,
        "replicas": 2,
        "engine_version": "0.5.3",
        "launch": "python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 2 --port 30000 "
        "--context-length 8192",
    }


def test_values_of_the_production_stack(read):
    draft = read(STACK)
    assert values(draft.endpoint)["api_key_env"] == "VLLM_API_KEY"
    assert values(draft.deployment) == {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "accelerator": "l40s",
        "count": 1,
        "replicas": 2,
        "engine_version": "0.10.1",
        "launch": "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192 --gpu-memory-utilization 0.9 "
        "--enable-prefix-caching --max-num-seqs 64",
    }


def test_values_with_an_image_and_its_command(read):
    draft = read(CHART)
    assert draft.endpoint["model"].value == "opt-125m"
    assert values(draft.deployment) == {
        "model": "/data/",
        "count": 1,
        "replicas": 4,
        "engine_version": "0.9.0",
        "launch": "vllm serve /data/ --served-model-name opt-125m --block-size 16 --port 8000",
    }
    assert draft.notes[0].startswith("deployment.model: ")


def test_values_of_llm_d(read):
    draft = read(LLM_D)
    assert (draft.name, draft.deployment["replicas"].value, draft.deployment["count"].value) == ("qwen", 3, 2)
    assert draft.deployment["launch"].value == "vllm serve Qwen/Qwen3-32B --max-model-len 32000"


def test_prefill_and_decode_are_two_of_which_one_is_chosen(read):
    text = LLM_D + LLM_D.partition("\n")[2].partition("\n")[2].replace("decode:", "prefill:").replace("32000", "16000")
    with pytest.raises(UsageError, match=r"choose one with --pick: qwen/decode, qwen/prefill"):
        read(text)
    draft = read(text, pick="qwen/prefill")
    assert (draft.context, draft.sources) == (16000, ("file.yaml, prefill",))


def test_settings_in_a_file_of_the_engine_are_not_passed_over(read):
    notes = read("vllm serve m --config /etc/vllm.yaml\n", "x.sh").notes
    assert "deployment: what /etc/vllm.yaml sets is not read; write it as flags or as fields" in notes


def test_a_systemd_unit(read):
    unit = (
        f'[Service]\nEnvironment="VLLM_API_KEY={KEY}"\nExecStart=-/opt/v/bin/vllm serve m --port 9000\nRestart=always\n'
    )
    draft = read(unit, "vllm.service")
    assert draft.deployment["launch"].value == "/opt/v/bin/vllm serve m --port 9000"
    assert draft.endpoint["url"].value == "http://127.0.0.1:9000/v1"
    assert draft.endpoint["api_key_env"].value == "VLLM_API_KEY"
    assert KEY not in profile_text(draft, "p.yaml")


def test_what_a_cluster_says_of_what_runs_in_it(read):
    """A list, with the state that the server adds."""
    (deployment, service) = (
        part.replace("\n", "\n  ").replace("\n  ", "\n- ", 1) for part in (DEPLOYMENT, SERVICE.partition("---")[2])
    )
    status = "  status: {replicas: 7, readyReplicas: 7}\n"
    draft = read(f"apiVersion: v1\nkind: List\nitems:{deployment}\n{status}{service}\n", "-")
    assert (draft.name, draft.deployment["replicas"].value) == ("llama", 3)
    assert draft.endpoint["url"].value == "http://llama-svc.serving.svc:8080/v1"


def test_a_start_script(read):
    draft = read(
        f"#!/bin/bash\nMODEL=Qwen/Qwen3-32B\nexport HF_TOKEN={KEY}\nvllm serve $MODEL -tp 2 &\nwait\n", "start.sh"
    )
    assert draft.deployment["launch"].value == "vllm serve Qwen/Qwen3-32B -tp 2"
    assert draft.deployment["count"].value == 2


@pytest.mark.parametrize("text", [DEPLOYMENT + SERVICE, WORKERS, KSERVE, COMPOSE, STACK, CHART, LLM_D])
def test_the_profile_is_valid_and_holds_no_secret(read, tmp_path, text):
    (tmp_path / ".env").write_text(f"CTX=8192\nKEY={KEY}\n")
    written = profile_text(read(text), "prod.yaml")
    assert KEY not in written
    assert "***" not in written
    loaded = parse_profile(written, tmp_path / "prod.yaml", {})
    assert loaded.profile.deployment.launch
    assert loaded.launch is not None
    assert not loaded.launch.unknown


def test_what_a_secret_in_the_same_file_holds_is_written_nowhere(read):
    coded = base64.b64encode(KEY.encode()).decode()
    secret = f"---\nkind: Secret\nmetadata: {{name: s}}\ndata: {{token: {coded}}}\n"
    text = DEPLOYMENT.replace("name: llama,", f"name: llama, x: {coded},").replace("16384", "16384, --seed, " + KEY)
    written = profile_text(read(text + secret), "prod.yaml")
    assert KEY not in written
    assert coded not in written


def test_several_engines_need_a_choice(read):
    other = DEPLOYMENT.replace("name: llama", "name: second").replace("16384", "8192")
    with pytest.raises(UsageError, match="starts several engines; choose one with --pick: llama, second"):
        read(f"{DEPLOYMENT}---{other}")
    assert read(f"{DEPLOYMENT}---{other}", pick="second").context == 8192
    with pytest.raises(UsageError, match="--pick third: no such deployment; those that serve a model: llama, second"):
        read(f"{DEPLOYMENT}---{other}", pick="third")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("a: b\n", "v.yaml", "nothing here starts an engine that is known (no container); give it by --launch"),
        ("services: {web: {image: 'nginx:1'}}", "c.yaml", "nothing here starts an engine that is known (nginx:1)"),
        ("kind: Pod\nspec: {{ .Values.x }}\n{{- end }}", "t.yaml", "a Helm template, which only Helm can read"),
        ("a: [b", "v.yaml", "not YAML"),
        ("hello world", "x.sh", "no manifest, compose file, values file or start script"),
        ("", "v.yaml", "empty"),
        ("[" * 5000, "v.json", "nested too deeply to be read"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(read, text, name, message):
    with pytest.raises(UsageError) as told:
        read(text, name)
    assert message in str(told.value)
    assert name in str(told.value)
    assert "\n" not in str(told.value)


def test_the_parallelism_counts_where_a_file_gives_more(read):
    draft = read(DEPLOYMENT.replace('gpu: "2"', 'gpu: "8"'))
    assert draft.deployment["count"].value == 2
    assert "the file gives a replica 8 accelerators, its flags use 2" in draft.notes


def test_an_accelerator_that_nobody_knows_is_told(read):
    draft = read(DEPLOYMENT.replace("NVIDIA-H100-80GB-HBM3", "NVIDIA-X9000"))
    assert "accelerator" not in draft.deployment
    assert any("NVIDIA-X9000 is not in the catalogue" in note for note in draft.notes)


@pytest.mark.parametrize(
    "junk", ["spec: 5", "spec: {containers: 7}", "spec: {containers: [1, null, {env: x}]}", "[1, 2]"]
)
def test_data_of_the_wrong_kind_is_no_crash(read, junk):
    with pytest.raises(UsageError):
        read(f"kind: Pod\n{junk}\n" if junk[0] != "[" else junk)
