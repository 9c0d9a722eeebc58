"""Every model of the catalogue has the parameters that its publisher states; names are forgiven, not guessed."""

import json
from importlib import resources

import pytest

from auditor.catalog import models
from auditor.errors import UsageError

PUBLISHED = [  # name, billions of parameters as published (model card, safetensors metadata, paper)
    ("meta-llama/Llama-3.1-8B-Instruct", 8.03),
    ("meta-llama/Llama-3.1-70B-Instruct", 70.55),
    ("meta-llama/Llama-3.1-405B-Instruct", 405.85),
    ("meta-llama/Llama-3.2-1B-Instruct", 1.236),
    ("meta-llama/Llama-3.2-3B-Instruct", 3.213),
    ("meta-llama/Llama-2-7b-chat-hf", 6.738),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 107.8),
    ("Qwen/Qwen2.5-0.5B-Instruct", 0.494),
    ("Qwen/Qwen2.5-7B-Instruct", 7.616),
    ("Qwen/Qwen2.5-72B-Instruct", 72.706),
    ("Qwen/Qwen3-0.6B", 0.596),
    ("Qwen/Qwen3-8B", 8.191),
    ("Qwen/Qwen3-32B", 32.762),
    ("Qwen/Qwen3-30B-A3B", 30.532),
    ("Qwen/Qwen3-235B-A22B", 235.09),
    ("Qwen/Qwen3-Coder-480B-A35B-Instruct", 480.15),
    ("mistralai/Mistral-7B-Instruct-v0.3", 7.248),
    ("mistralai/Mistral-Nemo-Instruct-2407", 12.248),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46.703),
    ("mistralai/Mixtral-8x22B-Instruct-v0.1", 140.62),
    ("google/gemma-2-9b-it", 9.242),
    ("google/gemma-2-27b-it", 27.227),
    ("google/gemma-3-270m-it", 0.268),
    ("google/gemma-3-1b-it", 1.000),
    ("microsoft/phi-4", 14.66),
    ("microsoft/Phi-3-mini-4k-instruct", 3.821),
    ("deepseek-ai/DeepSeek-V2-Lite-Chat", 15.706),
    ("deepseek-ai/DeepSeek-V3", 671.03),
    ("deepseek-ai/DeepSeek-R1", 671.03),
    ("moonshotai/Kimi-K2-Instruct", 1026.4),
    ("openai/gpt-oss-20b", 20.91),
    ("openai/gpt-oss-120b", 116.83),
    ("zai-org/GLM-4.5-Air", 106.85),
    ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1.100),
]


@pytest.mark.parametrize(("name", "billions"), PUBLISHED)
def test_parameters_as_published(name, billions):
    assert models.find(name).parameters / 1e9 == pytest.approx(billions, rel=0.001)


ACTIVE = [  # billions active as published: with embeddings and head where the publisher counts them
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", 12.9, 2),
    ("Qwen/Qwen3-30B-A3B", 3.3, 2),
    ("Qwen/Qwen3-235B-A22B", 22.2, 2),
    ("deepseek-ai/DeepSeek-V3", 37.6, 2),
    ("deepseek-ai/DeepSeek-V2-Lite-Chat", 2.66, 2),
    ("openai/gpt-oss-20b", 3.61, 1),
    ("openai/gpt-oss-120b", 5.13, 1),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 17.2, 2),
]


@pytest.mark.parametrize(("name", "billions", "matrices"), ACTIVE)
def test_active_parameters_as_published(name, billions, matrices):
    model = models.find(name)
    active = model.active_parameters + matrices * model.embedding_parameters
    assert active / 1e9 == pytest.approx(billions, rel=0.02)


def test_next_token_layers_complete_the_file():
    """Repositories: DeepSeek-V3 685 B, GLM-4.5 358 B, GLM-4.5-Air 110 B with their MTP layer."""
    for name, billions in (("deepseek-v3", 684.5), ("glm-4.5", 358.3), ("glm-4.5-air", 110.5)):
        model = models.find(name)
        stored = model.parameters + model.extra["next_token_parameters"]
        assert stored / 1e9 == pytest.approx(billions, rel=0.001)


CACHES = [  # name, layers by kind (count, KV heads, head size, window)
    ("llama-3.1-8b", [("full", 32, 8, 128, None)]),
    ("mistral-7b-instruct-v0.1", [("sliding", 32, 8, 128, 4096)]),
    ("gemma-2-9b", [("sliding", 21, 8, 256, 4096), ("full", 21, 8, 256, None)]),
    ("gemma-3-27b", [("sliding", 52, 16, 128, 1024), ("full", 10, 16, 128, None)]),
    ("gpt-oss-120b", [("sliding", 18, 8, 64, 128), ("full", 18, 8, 64, None)]),
    ("llama-4-maverick", [("chunked", 36, 8, 128, 8192), ("full", 12, 8, 128, None)]),
    ("qwen2.5-7b", [("full", 28, 4, 128, None)]),
    ("deepseek-v2-lite", [("mla", 27, 1, 192, None)]),
]


@pytest.mark.parametrize(("name", "layers"), CACHES)
def test_attention_layers(name, layers):
    found = models.find(name).layers
    assert [(g.kind, g.count, g.kv_heads, g.qk_head_dim, g.window) for g in found] == layers


def test_mla_keeps_one_latent():
    (group,) = models.find("deepseek-r1").layers
    assert (group.latent_dim, group.v_head_dim) == (576, 128)


SPELLINGS = [
    ("Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"),
    ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
    ("llama 3.1 8b instruct", "meta-llama/Llama-3.1-8B-Instruct"),
    ("meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B-Instruct"),
    ("QWEN3_8B", "Qwen/Qwen3-8B"),
    ("qwen3-235b-a22b-fp8", "Qwen/Qwen3-235B-A22B-FP8"),
    ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1"),
    ("Qwen/QwQ-32B", "Qwen/QwQ-32B"),
    ("phi-4", "microsoft/phi-4"),
    ("gemma-3-270m", "google/gemma-3-270m-it"),
]


@pytest.mark.parametrize(("written", "name"), SPELLINGS)
def test_spelling_is_forgiven(written, name):
    assert models.find(written).name == name


def test_the_unknown_is_refused_with_neighbours():
    with pytest.raises(UsageError, match=r"unknown model 'Llama-3\.1-9B', did you mean .*Llama-3\.1-8B-Instruct"):
        models.find("Llama-3.1-9B")
    with pytest.raises(UsageError, match=r"unknown model 'zzz' \(give a catalogue name"):
        models.find("zzz")


def test_every_entry_is_read_from_sourced_facts():
    folder = resources.files("auditor.catalog") / "models"
    entries = [json.loads(f.read_text("utf-8")) for f in folder.iterdir() if f.name.endswith(".json")]
    assert len(entries) == len(models.names()) >= 60
    assert {entry["name"] for entry in entries} == set(models.names())
    for entry in entries:
        assert set(entry) <= {"name", "aliases", "source", "config", "weight_bytes"}
        assert entry["source"].startswith("huggingface.co/")
        assert models.find(entry["name"]).name == entry["name"]
        for alias in entry.get("aliases", ()):
            assert models.find(alias).name == entry["name"]
