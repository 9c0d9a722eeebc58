"""Every model of the catalogue has the parameters that its publisher states; names are forgiven, not guessed."""

import json
from importlib import resources

import pytest

from auditor.catalog import hf_facts, models
from auditor.catalog.architectures import FAMILIES
from auditor.errors import UsageError

PUBLISHED = [  # name, billions of parameters as published (model card, safetensors metadata, paper)
    ("meta-llama/Llama-3.1-8B-Instruct", 8.03),
    ("meta-llama/Llama-3.1-70B-Instruct", 70.55),
    ("meta-llama/Llama-3.1-405B-Instruct", 405.85),
    ("meta-llama/Llama-3.2-1B-Instruct", 1.236),
    ("meta-llama/Llama-3.2-3B-Instruct", 3.213),
    ("meta-llama/Llama-2-7b-chat-hf", 6.738),
    ("codellama/CodeLlama-34b-Instruct-hf", 33.74),
    ("01-ai/Yi-6B", 6.061),
    ("01-ai/Yi-34B", 34.39),
    ("mistralai/Mistral-7B-Instruct-v0.2", 7.242),
    ("mistralai/Devstral-Small-2507", 23.57),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 107.8),
    ("Qwen/Qwen2.5-0.5B-Instruct", 0.494),
    ("Qwen/Qwen2.5-7B-Instruct", 7.616),
    ("Qwen/Qwen2.5-72B-Instruct", 72.706),
    ("mosaicml/mpt-7b", 6.6493),
    ("mosaicml/mpt-30b", 29.957),
    ("Qwen/Qwen1.5-0.5B-Chat", 0.464),
    ("Qwen/Qwen1.5-7B-Chat", 7.721),
    ("Qwen/Qwen1.5-14B-Chat", 14.167),
    ("Qwen/Qwen1.5-72B-Chat", 72.288),
    ("Qwen/Qwen1.5-110B-Chat", 111.21),
    ("mistralai/Ministral-8B-Instruct-2410", 8.020),
    ("Qwen/Qwen3.5-9B", 8.95),  # of the text model, as llama.cpp counts
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
    ("deepseek-ai/DeepSeek-V4-Flash", 284.33),  # as llama.cpp counts: github.com/ggml-org/llama.cpp/issues/22319
    ("moonshotai/Kimi-K2-Instruct", 1026.4),
    ("openai/gpt-oss-20b", 20.91),
    ("openai/gpt-oss-120b", 116.83),
    ("zai-org/GLM-4.5-Air", 106.85),
    ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1.100),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31.58),
    ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", 8.888),
    ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", 49.87),
    ("nvidia/Nemotron-H-56B-Base-8K", 56.33),
    ("moonshotai/Kimi-Linear-48B-A3B-Instruct", 49.12),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", 79.67),
    ("zai-org/GLM-4-32B-0414", 32.57),
    ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", 23.57),
    ("mistralai/Mistral-Large-Instruct-2407", 122.61),
    ("mistral-community/pixtral-12b", 12.248),
    ("microsoft/Phi-4-mini-instruct", 3.836),
    ("microsoft/Phi-3.5-MoE-instruct", 41.873),
    ("CohereLabs/c4ai-command-r7b-12-2024", 8.028),
    ("CohereLabs/c4ai-command-a-03-2025", 111.06),
    ("CohereLabs/c4ai-command-r-plus", 103.81),
    ("allenai/OLMo-2-1124-13B-Instruct", 13.716),
    ("allenai/Olmo-3-7B-Instruct", 7.298),
    ("allenai/Olmo-3-32B-Think", 32.234),
    ("ByteDance-Seed/Seed-OSS-36B-Instruct", 36.15),
    ("tencent/Hunyuan-A13B-Instruct", 80.39),
    ("baidu/ERNIE-4.5-21B-A3B-PT", 21.83),
    ("LGAI-EXAONE/EXAONE-4.0-32B", 32.0),
    ("LGAI-EXAONE/EXAONE-4.0-1.2B", 1.279),
    ("LiquidAI/LFM2-1.2B", 1.170),
    ("LiquidAI/LFM2-8B-A1B", 8.339),
    ("ibm-granite/granite-4.0-h-small", 32.2),
    ("ibm-granite/granite-4.0-h-tiny", 6.94),
    ("ibm-granite/granite-3.3-8b-instruct", 8.17),
    ("tiiuae/Falcon-H1-34B-Instruct", 33.64),
    ("ai21labs/AI21-Jamba-Mini-1.7", 51.57),
    ("ibm-ai-platform/Bamba-9B-v2", 9.78),
    ("HuggingFaceTB/SmolLM3-3B", 3.075),
    ("facebook/opt-125m", 0.1252),
    ("openai-community/gpt2", 0.1244),
    ("bigcode/starcoder2-15b", 15.957),
    ("inclusionAI/Ling-mini-2.0", 16.26),
    ("inclusionAI/Ling-flash-2.0", 102.9),
    ("inclusionAI/Ling-1T", 999.7),
    ("rednote-hilab/dots.llm1.inst", 142.77),
    ("MiniMaxAI/MiniMax-Text-01", 456.09),
    ("deepseek-ai/deepseek-moe-16b-chat", 16.376),
]
WITH_ENCODERS = [  # as above, vision encoder and multi-token-prediction layers included
    ("google/gemma-3-4b-it", 4.300),
    ("google/gemma-3-12b-it", 12.187),
    ("google/gemma-3-27b-it", 27.432),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 108.64),
    ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 401.58),
    ("Qwen/Qwen3-VL-2B-Instruct", 2.127),
    ("Qwen/Qwen3-VL-8B-Instruct", 8.767),
    ("Qwen/Qwen3-VL-30B-A3B-Instruct", 31.07),
    ("Qwen/Qwen2.5-VL-7B-Instruct", 8.292),
    ("Qwen/Qwen2.5-VL-72B-Instruct", 73.41),
    ("Qwen/Qwen3.5-27B", 27.78),
    ("Qwen/Qwen3.5-35B-A3B", 35.95),
    ("Qwen/Qwen3.5-122B-A10B", 125.09),
    ("Qwen/Qwen3.5-397B-A17B", 403.4),
    ("mistralai/Ministral-3-14B-Instruct-2512", 13.95),
    ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", 123.6),
    ("XiaomiMiMo/MiMo-7B-Base", 7.83),
    ("zai-org/GLM-4.7-Flash", 31.2),
]


def test_gemma_4_has_ears():
    """E4B: 8.0 billion with embeddings, of them some 150 million to see and 300 million to hear (its model card); the
    55 million of keys and values that 18 layers read from others are in the file, and in no layer.
    """
    found = models.find("gemma-4-e4b")
    towers = sum(tensor.parameters for tensor in found.tensors if tensor.part == "tower")
    assert towers == pytest.approx(0.45e9, rel=0.1)
    unused = 15 * 2 * 2560 * 512 + 3 * 2 * 2560 * 1024
    assert found.parameters + towers + unused == pytest.approx(8.0e9, rel=0.005)


def test_a_small_model_shares_its_embeddings_with_the_head():
    """Qwen3.5-4B in Q8_0 is a file of 4.48 GB: 4.22e9 values of 8.5 bits, header included."""
    assert models.find("qwen3.5-4b").parameters == pytest.approx(4.48e9 * 8 / 8.5, rel=0.005)


@pytest.mark.parametrize(("name", "billions"), PUBLISHED)
def test_parameters_as_published(name, billions):
    assert models.find(name).parameters / 1e9 == pytest.approx(billions, rel=0.001)


@pytest.mark.parametrize(("name", "billions"), WITH_ENCODERS)
def test_parameters_with_encoders_as_published(name, billions):
    stored = sum(tensor.parameters for tensor in models.find(name).tensors)
    assert stored / 1e9 == pytest.approx(billions, rel=0.002)


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


@pytest.mark.parametrize(("name", "total", "active"), [("flash", 284, 13), ("pro", 1573, 49)])
def test_deepseek_v4_in_whole_billions(name, total, active):
    """284B with 13B active and 1.6T with 49B active (huggingface.co/deepseek-ai/DeepSeek-V4-Pro), the head counted."""
    model = models.find(f"deepseek-v4-{name}")
    assert round(model.parameters / 1e9) == total
    assert round((model.active_parameters + model.embedding_parameters) / 1e9) == active


def test_next_token_layers_complete_the_file():
    """Repositories: DeepSeek-V3 685 B, GLM-4.5 358 B, GLM-4.5-Air 110 B with their MTP layer."""
    for name, billions in (("deepseek-v3", 684.5), ("glm-4.5", 358.3), ("glm-4.5-air", 110.5)):
        model = models.find(name)
        assert sum(tensor.parameters for tensor in model.tensors) / 1e9 == pytest.approx(billions, rel=0.001)


CACHES = [  # name, layers by kind (count, KV heads, head size, window)
    ("llama-3.1-8b", [("full", 32, 8, 128, None)]),
    ("mistral-7b-instruct-v0.1", [("sliding", 32, 8, 128, 4096)]),
    ("mistral-7b-instruct-v0.3", [("full", 32, 8, 128, None)]),  # published with "sliding_window": null, as are:
    ("mistral-nemo-instruct-2407", [("full", 40, 8, 128, None)]),
    ("mistral-large-instruct-2407", [("full", 88, 8, 128, None)]),
    ("mistralai/Mistral-Large-Instruct-2411", [("full", 88, 8, 128, None)]),
    ("mistral-small-24b-instruct-2501", [("full", 40, 8, 128, None)]),
    ("mixtral-8x7b", [("full", 32, 8, 128, None)]),
    ("gemma-2-9b", [("sliding", 21, 8, 256, 4096), ("full", 21, 8, 256, None)]),
    ("gemma-3-27b", [("sliding", 52, 16, 128, 1024), ("full", 10, 16, 128, None)]),
    ("gpt-oss-120b", [("sliding", 18, 8, 64, 128), ("full", 18, 8, 64, None)]),
    ("llama-4-maverick", [("chunked", 36, 8, 128, 8192), ("full", 12, 8, 128, None)]),
    ("qwen2.5-7b", [("full", 28, 4, 128, None)]),
    ("deepseek-v2-lite", [("mla", 27, 1, 192, None)]),
    ("gemma-4-e4b", [("sliding", 20, 2, 256, 512), ("full", 4, 2, 512, None)]),
    ("gemma-4-31b", [("sliding", 50, 16, 256, 1024), ("full", 10, 4, 512, None)]),
    ("gemma-3n-e4b", [("sliding", 16, 2, 256, 512), ("full", 4, 2, 256, None)]),
    ("mimo-v2-flash", [("full", 9, 4, 192, None), ("sliding", 39, 8, 192, 128)]),
    ("step-3.7-flash", [("full", 12, 8, 128, None), ("sliding", 33, 8, 128, 512)]),
    ("exaone-4.0-32b", [("sliding", 48, 8, 128, 4096), ("full", 16, 8, 128, None)]),
    ("olmo-3-7b", [("sliding", 24, 32, 128, 4096), ("full", 8, 32, 128, None)]),
    ("command-r7b", [("sliding", 24, 8, 128, 4096), ("full", 8, 8, 128, None)]),
    ("qwen3.5-27b", [("full", 16, 4, 256, None)]),
    ("qwen3-next-80b-a3b", [("full", 12, 2, 256, None)]),
    ("nemotron-3-nano", [("full", 6, 2, 128, None)]),
    ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", [("full", 49, 8, 128, None)]),
    ("glm-5", [("mla", 78, 1, 256, None)]),
    ("kimi-k3", [("mla", 24, 1, 192, None)]),
    ("falcon-7b", [("full", 32, 1, 64, None)]),
    ("llava-v1.6-mistral-7b-hf", [("full", 32, 8, 128, None)]),
]


@pytest.mark.parametrize(("name", "layers"), CACHES)
def test_attention_layers(name, layers):
    found = models.find(name).layers
    assert [(g.kind, g.count, g.kv_heads, g.qk_head_dim, g.window) for g in found] == layers


STATES = [  # name, kind, layers, heads, head size, state size, groups, kernel, bytes of an element
    ("qwen3.5-27b", ("linear", 48, 48, 128, 128, 16, 4, 4.0)),
    ("qwen3-next-80b-a3b", ("linear", 36, 32, 128, 128, 16, 4, None)),
    ("kimi-k3", ("linear", 69, 96, 128, 128, 96, 4, 4.0)),
    ("nemotron-3-nano", ("mamba2", 23, 64, 64, 128, 8, 4, 4.0)),
    ("granite-4.0-h-small", ("mamba2", 36, 128, 64, 128, 1, 4, None)),
    ("falcon-h1-34b", ("mamba2", 72, 32, 128, 256, 2, 4, None)),
    ("ai21-jamba-mini-1.7", ("mamba1", 28, 8192, 1, 16, 0, 4, None)),
    ("lfm2-1.2b", ("short_conv", 10, 2048, 1, 0, 0, 3, None)),
    ("minimax-text-01", ("linear", 70, 64, 128, 128, 0, 1, None)),
]


@pytest.mark.parametrize(("name", "state"), STATES)
def test_recurrent_layers(name, state):
    (found,) = models.find(name).recurrent
    shape = (found.heads, found.head_dim, found.state_size, found.groups, found.conv_kernel, found.state_bytes)
    assert (found.kind, found.count, *shape) == state


INDEXERS = [("deepseek-v3.2", 61, 132), ("glm-5.1", 78, 132), ("glm-5.2", 21, 132), ("minimax-m3", 57, 256)]


@pytest.mark.parametrize(("name", "layers", "size"), INDEXERS)
def test_indexers(name, layers, size):
    found = models.find(name).indexer
    assert found is not None
    assert (found.count, found.token_bytes) == (layers, size)


def test_gemma_3n_shares_caches():
    assert [group.readers for group in models.find("gemma-3n-e4b").layers] == [12, 3]


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
    ("deepseek-r1:14b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B"),  # Ollama's tags
    ("gemma3:27b", "google/gemma-3-27b-it"),
    ("phi4", "microsoft/phi-4"),
]


@pytest.mark.parametrize(("written", "name"), SPELLINGS)
def test_spelling_is_forgiven(written, name):
    assert models.find(written).name == name


QUANTISED = [
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "meta-llama/Llama-3.1-70B-Instruct", "fp8-dynamic"),
    ("Qwen/Qwen2.5-72B-Instruct-AWQ", "Qwen/Qwen2.5-72B-Instruct", "awq"),
    ("Qwen/Qwen3-30B-A3B-GPTQ-Int4", "Qwen/Qwen3-30B-A3B", "gptq"),
    ("RedHatAI/gemma-3-27b-it-quantized.w4a16", "google/gemma-3-27b-it", "int4"),
    ("RedHatAI/Qwen2.5-7B-Instruct-quantized.w8a8", "Qwen/Qwen2.5-7B-Instruct", "int8"),
    ("Intel/Qwen3-30B-A3B-int4-AutoRound", "Qwen/Qwen3-30B-A3B", "auto-round"),
    ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", "Qwen/Qwen2.5-72B-Instruct", "int8"),
    ("nvidia/DeepSeek-R1-FP4", "deepseek-ai/DeepSeek-R1", "nvfp4"),
    ("nvidia/Qwen3.6-27B-NVFP4", "Qwen/Qwen3.6-27B", "nvfp4"),
    ("unsloth/Llama-3.2-3B-Instruct-bnb-4bit", "meta-llama/Llama-3.2-3B-Instruct", "bnb-4bit"),
    ("unsloth/DeepSeek-V3-bf16", "deepseek-ai/DeepSeek-V3", None),
    ("mlx-community/Qwen3-8B-4bit", "Qwen/Qwen3-8B", "mlx-4bit"),
    ("mlx-community/Qwen3-8B-8bit", "Qwen/Qwen3-8B", "mlx-8bit"),
    ("Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B-FP8", "fp8"),  # an entry of its own
]


@pytest.mark.parametrize(("written", "name", "method"), QUANTISED)
def test_quantised_copies_are_their_model_in_that_format(written, name, method):
    found = models.find(written)
    assert (found.name, found.quantization) == (name, method)
    assert (written == name) or any(note.startswith(f"{written} is read as {name}") for note in found.notes)


def test_a_date_may_be_left_out_and_is_never_another():
    assert models.find("ministral-3-14b").name == "mistralai/Ministral-3-14B-Instruct-2512"
    assert models.find("qwen3-4b").name == "Qwen/Qwen3-4B"
    with pytest.raises(UsageError, match="unknown model"):
        models.find("Qwen3-8B-2507")


def test_a_name_of_two_models_is_refused(monkeypatch):
    entry = {"source": "x", "config": {}}
    pair = ("a/one-instruct", "b/one-instruct")
    made = models._Catalogue(dict.fromkeys(pair, entry), {}, {"one-instruct": pair, "one": pair})
    monkeypatch.setattr(models, "_catalogue", lambda: made)
    with pytest.raises(UsageError, match=r"model 'One' is ambiguous: a/one-instruct, b/one-instruct"):
        models.find("One")


def test_the_unknown_is_refused_with_neighbours():
    with pytest.raises(UsageError, match=r"unknown model 'Llama-3\.1-9B', did you mean .*Llama-3\.1-8B-Instruct"):
        models.find("Llama-3.1-9B")
    with pytest.raises(UsageError, match=r"unknown model 'zzz' \(give a catalogue name"):
        models.find("zzz")


@pytest.mark.parametrize(
    ("name", "block"),
    [("qwen3-235b-a22b-fp8", 128), ("minimax-m2.5", 128), ("qwen3-32b-fp8", None), ("qwen3-8b", None)],
)
def test_experts_that_are_quantised_in_blocks(name, block):
    assert models.find(name).extra.get("expert_block") == block


def entries():
    folder = resources.files("auditor.catalog") / "models"
    return [json.loads(f.read_text("utf-8")) for f in folder.iterdir() if f.name.endswith(".json")]


def test_a_window_that_a_class_has_by_default_is_told_by_every_entry():
    """The default (transformers configuration_*.py) holds only where the published config.json lacks the key."""
    silent = []
    for entry in entries():
        facts = hf_facts.text_config(entry["config"])
        _, architecture = hf_facts.decoder(entry["config"], entry["name"])
        if "sliding_window" in FAMILIES[architecture].defaults and not {"sliding_window", "layer_types"} & set(facts):
            silent.append(entry["name"])
    assert silent == []


def test_every_entry_is_read_from_sourced_facts():
    assert len(entries()) == len(models.names()) >= 150
    assert {entry["name"] for entry in entries()} == set(models.names())
    for entry in entries():
        assert set(entry) <= {"name", "aliases", "source", "config", "weight_bytes"}
        assert entry["source"].startswith("huggingface.co/")
        assert models.find(entry["name"]).name == entry["name"]
        for alias in entry.get("aliases", ()):
            assert models.find(alias).name == entry["name"]
