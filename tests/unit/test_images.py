"""Images: what vision encoders take beside weights, by hand and against what vLLM logged."""

from dataclasses import replace
from typing import Any

import pytest

from auditor.catalog import accelerators, hf, models
from auditor.theory.kv.geometry import Images
from auditor.theory.memory import memory
from auditor.theory.overhead import activations
from auditor.theory.settings import Settings

GIB = 1 << 30
CLUB = "https://github.com/noonghunna/club-3090/issues"
PAIR: dict[str, Any] = {"devices": 2, "tensor_parallel": 2, "max_num_batched_tokens": 8192, "max_num_seqs": 2}
LOGS: list[tuple[str, str, str, str, float, float, dict[str, Any], float, float]] = [
    # source, model, device, version, its GiB, utilisation, settings, weights, left for the cache
    (f"{CLUB}/642", "Qwen3.6-27B", "rtx-3090", "0.24.0", 23.58, 0.92, {**PAIR, "captured_batch": 4}, 8.95, 11.05),
    (f"{CLUB}/104", "Qwen3.6-27B", "rtx-3090", "0.20.2", 23.58, 0.92, {**PAIR, "captured_batch": 4}, 8.95, 11.06),
    (
        "https://myoceane.fr/index.php/ai-vllm-a100-gemma-4/",
        *("gemma-4-26B-A4B-it", "a100-sxm-80", "0.19.0", 79.15, 0.9),
        {"max_num_batched_tokens": 2048, "max_num_seqs": 256, "enforce_eager": True},
        *(48.5, 21.5),
    ),
]


@pytest.mark.parametrize("log", LOGS, ids=[log[0].partition("//")[2] for log in LOGS])
def test_the_memory_that_vllm_found_left_beside_an_encoder(log):
    _, model, device, version, gib, share, facts, weights, left = log
    settings = Settings(
        engine="vllm",
        engine_version=version,
        memory_fraction=share,
        weight_bytes=weights * GIB,
        max_model_len=131_072,
        **facts,
    )
    card = replace(accelerators.find(device), usable_bytes=int(gib * GIB))
    answer = memory(models.find(model), settings, card)
    assert answer.pool / GIB == pytest.approx(left, abs=0.25)
    assert any("--limit-mm-per-prompt" in note for note in answer.notes)


def test_the_largest_image_of_qwen3_by_hand():
    """65,536 patches of 16 x 16: four vectors of 1,152 values, 3 x 2 x 16 x 16 pixels, and twice 4,304 in the MLP."""
    model = models.find("Qwen/Qwen3.5-27B")
    assert model.images == Images(
        tokens=16_384, patches=65_536, whole=4 * 1152 + 1536, split=2 * 4304, output=5120, videos=1
    )
    alone, pair = (Settings(engine="vllm", devices=devices, tensor_parallel=devices) for devices in (1, 2))
    left = 16_384 * 5120 * 2
    assert activations.encoder(model, alone, 8192) == (65_536 * 14_752 * 2, left)
    assert activations.encoder(model, pair, 8192) == (65_536 * 10_448 * 2, left)
    assert activations.encoder(model, alone, 32_768) == (2 * 65_536 * 14_752 * 2, 2 * left)
    assert activations.encoder(replace(model, images=None), alone, 8192) == (0.0, 0.0)


def test_features_of_several_layers_are_left_for_qwen3_vl():
    model = models.find("Qwen/Qwen3-VL-30B-A3B-Instruct")
    assert activations.encoder(model, Settings(engine="vllm"), 8192)[1] == 16_384 * 4 * 2048 * 2


@pytest.mark.parametrize(("length", "largest"), [(4096, 1), (32_768, 2), (131_072, 7)])
def test_a_video_of_qwen25_grows_with_the_context(length, largest):
    """Fourteen frames in pairs, each as large as the largest image (vllm/model_executor/models/qwen2_vl.py)."""
    model = models.find("Qwen/Qwen2.5-VL-7B-Instruct")
    patch = 3 * 1280 + 3 * 2 * 14 * 14 + 3 * 3420
    peak, left = activations.encoder(model, Settings(engine="vllm", max_model_len=length), 8192)
    assert (peak, left) == (largest * 65_536 * patch * 2, largest * 16_384 * 3584 * 2)


def test_gemmas_images_are_small():
    three, four = models.find("google/gemma-3-27b-it"), models.find("google/gemma-4-31B-it")
    batch = Settings(engine="vllm")
    # 2,048 tokens hold eight images of 64 x 64 patches at once
    assert activations.encoder(three, batch, 2048)[0] == 8 * 4096 * (3 * 1152 + 3 * 14 * 14 + 2 * 4304) * 2
    # one of 280 tokens after the other, nine patches each
    assert activations.encoder(four, batch, 2048) == (
        280 * 9 * (3 * 1152 + 3 * 4304 + 3 * 16 * 16) * 2,
        7 * 280 * 5376 * 2,
    )


def test_an_encoder_that_lacks_sizes_is_not_computed():
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34},
        "vision_config": {"model_type": "siglip_vision_model"},
    }
    assert hf.geometry(config, "m").images is None
    assert hf.geometry({**config, "vision_config": {"hidden_size": [1], "patch_size": "x"}}, "m").images is None


def test_embeddings_of_every_layer_are_kept_for_a_step():
    """gemma4_mm.py: layers x hidden_size_per_layer_input values for each token of a step."""
    config = {
        "architectures": ["Gemma3nForConditionalGeneration"],
        "text_config": {"num_hidden_layers": 30, "hidden_size": 2048, "intermediate_size": 8192}
        | {"hidden_size_per_layer_input": 256},
        "vision_config": {"model_type": "gemma3n_vision"},
    }
    assert hf.geometry(config, "m").extra["step_values"] == 30 * 256
