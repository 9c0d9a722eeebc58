"""Weights against public figures: parameter counts, Hugging Face index sizes, "Model loading took" lines of vLLM."""

from dataclasses import replace
from typing import Any

import pytest
from model_shapes import GIB, shape, total_bytes

from auditor.catalog import hf, models
from auditor.theory.kv.geometry import Geometry, Indexer
from auditor.theory.settings import Settings
from auditor.theory.weights import per_device_bytes, streamed_bytes
from auditor.theory.widths import bits_of, same_format


def settings(**facts: Any) -> Settings:
    return Settings(**{"engine": "vllm", **facts})


def on(devices: int, **facts: Any) -> dict[str, Any]:
    return {"tensor_parallel": devices, "devices": devices, **facts}


FP8: dict[str, Any] = {"quantization": "fp8", "weight_bits": 8.0}
SCALED = 1 + 4 / 128**2  # one byte and a 4-byte scale for each block of 128 x 128
HOPPER: dict[str, Any] = {"vendor": "nvidia", "capability": (9, 0)}
AMD: dict[str, Any] = {"vendor": "amd"}


def test_a_bf16_model_is_two_bytes_a_parameter():
    # model.safetensors.index.json of Llama-3.1-8B: total_size 16,060,522,496
    assert total_bytes(models.find("llama-3.1-8b"), settings()) == 16_060_522_496
    # Llama-3.2-1B, embedding tied and stored once: 2,471,628,800
    assert total_bytes(models.find("llama-3.2-1b"), settings()) == 2_471_628_800


# GiB of one device that vLLM printed ("Model loading took"): github.com/vllm-project/vllm issue 10517 and pull 14447,
# github.com/llm-d-incubation/llm-d-planner docs/empirical-vllm-memory-results.md, and
# github.com/ashishkamra/vllm-memory-estimator test_data/validation_db.json.
LOADED = [
    ("llama-3.1-8b", {"engine_version": "0.6.4"}, 14.9888),
    ("qwen3-32b", {"engine_version": "0.11.0"}, 61.03),
    ("qwen3-32b", on(2, engine_version="0.11.0"), 30.59),
    ("llama-3.3-70b", on(4, engine_version="0.11.2"), 32.8894),
    ("llama-3.3-70b", on(4, engine_version="0.18.0", quantization="compressed-tensors", weight_bits=8.0), 16.96),
    ("qwen3-235b-a22b", on(4, engine_version="0.11.2"), 109.6068),
    ("deepseek-r1", on(8, engine_version="0.11.0", **FP8), 79.5828),
    ("deepseek-r1", on(16, engine_version="0.8.2", quantization="awq", weight_bits=4.156), 21.21),
    ("gpt-oss-20b", {"engine_version": "0.11.0", "quantization": "mxfp4", "weight_bits": 4.25, **HOPPER}, 13.47),
]


@pytest.mark.parametrize(("name", "facts", "printed"), LOADED)
def test_what_vllm_loaded(name, facts, printed):
    assert per_device_bytes(models.find(name), settings(**facts)) / GIB == pytest.approx(printed, rel=0.003)


def qwen3_vl() -> Geometry:
    return hf.geometry(
        {
            "architectures": ["Qwen3VLMoeForConditionalGeneration"],
            "model_type": "qwen3_vl_moe",
            "text_config": {
                "model_type": "qwen3_vl_moe_text",
                **{"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48},
                **{"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936},
                **{"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
                **{"max_position_embeddings": 262144, "rope_scaling": {"mrope_section": [24, 20, 20]}},
            },
            "vision_config": {
                "model_type": "qwen3_vl_moe",
                **{"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "patch_size": 16},
                **{"out_hidden_size": 2048, "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24]},
            },
        },
        "Qwen/Qwen3-VL-30B-A3B-Instruct",
    )


def test_vision_towers_and_their_positions_are_loaded():
    """58.23 GiB on an H200 (validation_db.json): 31,070,754,032 parameters, 4 x 262,144 positions of 128 values, and
    three features of 2,048 values for each of a step's 8,192 tokens.
    """
    served = settings(engine_version="0.18.0", max_num_batched_tokens=8192)
    found = per_device_bytes(qwen3_vl(), served)
    assert found == 2 * (31_070_754_032 + 4 * 262_144 * 128 + 3 * 2048 * 8192)
    assert found / GIB == pytest.approx(58.23, abs=0.02)
    newer = per_device_bytes(qwen3_vl(), replace(served, engine_version="0.32.0"))
    assert found - newer == 2 * 3 * 262_144 * 128
    assert found - per_device_bytes(qwen3_vl(), replace(served, max_num_batched_tokens=None)) == 2 * 3 * 2048 * 6144


def test_an_8_bit_hybrid_on_a_pair():
    """14.28 GiB a device of Qwen3.8-27B-FP8 (github.com/vllm-project/recipes pull request 810)."""
    pair = settings(engine_version="0.26.0", **on(2), **FP8)
    assert per_device_bytes(models.find("Qwen/Qwen3.6-27B"), pair) / GIB == pytest.approx(14.28, abs=0.15)


def test_what_sparse_attention_chose_is_kept_for_every_token_of_a_step():
    """Four bytes for each of 2,048 keys (topk_indices_buffer in vllm/model_executor/models/deepseek_v2.py)."""
    sparse = replace(qwen3_vl(), indexer=Indexer(count=61, token_bytes=132, topk=2048))
    served = settings(engine_version="0.20.1", max_num_batched_tokens=8192)
    assert per_device_bytes(sparse, served) - per_device_bytes(qwen3_vl(), served) == 8192 * 2048 * 4


def test_rocm_pads_experts_and_loses_what_lies_between():
    """79.29 GiB on an MI300X (validation_db.json), 21 more than on an H200.

    Rows of 2048 and 768 two-byte values get 128 more, which costs 48 x (64 + 64) MiB over the up and the down
    projections of 128 experts. The padded down projections (448 MiB a layer) go where the unpadded up projections
    (768 MiB) were, and 320 MiB of each are lost.
    """
    plain = per_device_bytes(qwen3_vl(), settings(engine_version="0.16.0"))
    padded = per_device_bytes(qwen3_vl(), settings(engine_version="0.16.0", **AMD))
    ups, downs, lost = 128 * 2 * 768 * 128 * 2, 128 * 2048 * 128 * 2, (768 - 448) << 20
    assert padded - plain == 48 * (ups + downs + lost)
    assert padded / GIB == pytest.approx(79.29, rel=0.02)
    assert per_device_bytes(qwen3_vl(), settings(engine_version="0.32.0", **AMD)) < plain


def test_rows_that_are_no_whole_512_bytes_are_not_padded():
    """Qwen3-235B-A22B on eight MI300X, 56.65 GiB (validation_db.json): 192 values of down projections stay 192."""
    model = models.find("qwen3-235b-a22b")
    facts = on(8, engine_version="0.11.2")
    extra = per_device_bytes(model, settings(**facts, **AMD)) - per_device_bytes(model, settings(**facts))
    assert extra == 94 * 128 * 2 * 192 * 128 * 2
    assert per_device_bytes(model, settings(**facts, **AMD)) / GIB == pytest.approx(56.65, rel=0.015)


def test_rocm_pads_fp8_linear_layers_and_leaves_holes():
    """Ministral-3-14B in fp8 on an MI300X: 17.60 GiB (validation_db.json), 2.9 more than its values take.

    A layer's up projections (160 MiB) are padded into a segment of their own; the down projection (80, padded 81.25)
    goes where they were, the attention of the next layer into what is left, and the rest is lost.
    """
    config = {
        "architectures": ["Mistral3ForConditionalGeneration"],
        **{"model_type": "mistral3", "spatial_merge_size": 2, "multimodal_projector_bias": False},
        "text_config": {
            "model_type": "ministral3",
            **{"hidden_size": 5120, "intermediate_size": 16384, "num_hidden_layers": 40, "num_attention_heads": 32},
            **{"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072, "max_position_embeddings": 262144},
            "tie_word_embeddings": False,
        },
        "vision_config": {
            "model_type": "pixtral",
            **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
            **{"patch_size": 14, "image_size": 1540},
        },
    }
    model = hf.geometry(config, "Ministral-3-14B-Instruct-2512")
    facts = {"engine_version": "0.16.0", "vendor": "amd"}
    found = per_device_bytes(model, settings(**facts, **FP8))
    assert found / GIB == pytest.approx(17.60, rel=0.015)
    assert (found - per_device_bytes(model, settings(engine_version="0.16.0", **FP8))) / GIB == pytest.approx(
        2.7, abs=0.1
    )
    # Scales per channel (compressed-tensors) leave rows as they are.
    channel = {"quantization": "compressed-tensors", "weight_bits": 8.0}
    assert per_device_bytes(model, settings(**facts, **channel)) / GIB < 15


def test_mla_keeps_its_absorbed_projections_beside_the_quantised_ones():
    model = models.find("deepseek-v3")
    facts = on(8, **FP8)
    alike = replace(model, extra={k: v for k, v in model.extra.items() if k != "kv_lora_rank"})
    extra = per_device_bytes(model, settings(**facts)) - per_device_bytes(alike, settings(**facts))
    copies = 61 * 16 * (128 + 128) * 512 * 2  # 16 of 128 heads
    assert extra == copies
    # Left in 16 bit, vLLM uses the projection itself; SGLang copies it all the same, and tabulates rotations in fp32.
    plain = settings(**on(8))
    assert per_device_bytes(model, plain) == per_device_bytes(alike, plain)
    other = settings(**on(8), engine="sglang")
    tables = 4096 * 40 * 64
    assert per_device_bytes(model, other) - per_device_bytes(model, plain) == copies + 2 * tables


def test_experts_in_mxfp4_are_padded_for_their_kernels():
    """gpt-oss-120b, hidden 2880 and experts of 2880: four devices have 720 each."""
    model = models.find("gpt-oss-120b")

    def experts(**facts: Any) -> float:
        found = settings(**on(4, quantization="mxfp4", weight_bits=4.25, engine_version="0.11.0", **facts))
        return per_device_bytes(model, found)

    def padded(inner: int, hidden: int, down: int | None = None) -> float:
        values = 2 * inner * hidden + (hidden if down is None else 2880) * (down or inner)
        return 36 * 128 * values * 4.25 / 8

    bare = experts() - padded(720, 2880)
    assert experts(vendor="nvidia", capability=(8, 0)) - bare == pytest.approx(padded(768, 3072))
    assert experts(vendor="nvidia", capability=(10, 0)) - bare == pytest.approx(padded(768, 3072))
    assert experts(vendor="nvidia", capability=(9, 0)) - bare == pytest.approx(padded(768, 3072, 768))
    assert experts(vendor="amd") - bare == pytest.approx(padded(768, 2944))


def test_experts_without_gates_are_padded_for_flashinfer():
    """Nemotron-3-Nano FP8 on an H200: 30.52 GiB up to 0.16, 31.40 in 0.18 (validation_db.json)."""
    model = hf.geometry(
        {
            "architectures": ["NemotronHForCausalLM"],
            **{"hidden_size": 2688, "intermediate_size": 1856, "num_attention_heads": 32, "num_key_value_heads": 2},
            **{"head_dim": 128, "vocab_size": 131072, "mamba_num_heads": 64, "mamba_head_dim": 64},
            **{"ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "n_routed_experts": 128},
            **{"num_experts_per_tok": 6, "moe_intermediate_size": 1856, "n_shared_experts": 1},
            **{"moe_shared_expert_intermediate_size": 3712, "tie_word_embeddings": False},
            "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        },
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8",
    )
    facts = {"quantization": "modelopt", "weight_bits": 8.0, **HOPPER}
    before = per_device_bytes(model, settings(engine_version="0.16.0", **facts))
    after = per_device_bytes(model, settings(engine_version="0.18.0", **facts))
    assert after - before == pytest.approx(23 * 128 * 2 * 2688 * (1920 - 1856))
    assert before / GIB == pytest.approx(30.52, rel=0.02)
    assert after / GIB == pytest.approx(31.40, rel=0.02)


def test_only_experts_are_packed_in_gpt_oss():
    # model.safetensors.index.json of gpt-oss-20b: 13,761,264,768 bytes
    facts = settings(quantization="mxfp4", weight_bits=4.25)
    assert total_bytes(models.find("gpt-oss-20b"), facts) == pytest.approx(13_761_264_768, rel=0.0001)


def test_parts_that_a_checkpoint_leaves_alone_stay_wide():
    """Kimi-K2-Thinking: int4 with a scale for 32 values in routed experts alone; its repository holds 594 GB."""
    kept = dict.fromkeys(("attention", "dense"), "none")
    base = replace(models.find("kimi-k2"), quantization="int4-g32", formats=kept)
    mixed = replace(base, formats={**kept, "shared": "none"})
    facts = settings(quantization="compressed-tensors", weight_bits=4.156)
    shared = 60 * 3 * 7168 * 2048
    assert total_bytes(mixed, facts) - total_bytes(base, facts) == pytest.approx(shared * (2 - 4.5 / 8))
    assert total_bytes(mixed, facts) == pytest.approx(594e9, rel=0.005)


def test_copies_known_by_name_leave_what_their_recipes_do():
    """RedHatAI/Qwen3-Coder-Next-FP8-dynamic on an H200: 76.27 GiB (validation_db.json), linear attention in 16 bit."""
    config = {
        "architectures": ["Qwen3NextForCausalLM"],
        **{"hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 16},
        **{"num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936, "full_attention_interval": 4},
        **{"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128},
        **{"linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 512, "num_experts_per_tok": 10},
        **{"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "partial_rotary_factor": 0.25},
        "max_position_embeddings": 262144,
    }
    model = hf.geometry(config, "Qwen3-Coder-Next")
    linear = 36 * 2048 * (2 * 16 * 128 + 3 * 32 * 128)  # q and k; v and z and what leads out
    facts = {"quantization": "compressed-tensors", "weight_bits": 8.0, "engine_version": "0.18.0"}
    found = per_device_bytes(model, settings(**facts))
    assert found / GIB == pytest.approx(76.27, rel=0.005)
    fp8 = total_bytes(model, settings(**FP8))
    assert found - (fp8 + 2 * 262144 * 64) == pytest.approx(linear, rel=0.02)  # one byte more a value
    named = replace(model, quantization="nvfp4")  # as the catalogue reads "...-NVFP4"
    packed = total_bytes(named, settings(quantization="nvfp4", weight_bits=4.5))
    everything = total_bytes(replace(named, formats={"recurrent": "nvfp4"}), settings(quantization="nvfp4"))
    assert packed - everything == pytest.approx(linear * (2 - 4.5 / 8))


def test_gguf_widths_cover_embeddings_too():
    # Llama-3.1-8B Q4_K_M: 4.89 bits a weight over all 8.03 B (llama.cpp tools/quantize/README.md: 4.58 GiB)
    facts = settings(engine="llamacpp", quantization="q4_k_m", weight_bits=4.89)
    assert total_bytes(models.find("llama-3.1-8b"), facts) / GIB == pytest.approx(4.58, rel=0.005)


@pytest.mark.parametrize("word", ["4bit", "MLX 4bit", "mlx_q4"])
def test_mlx_quantises_embeddings_too(word):
    # mlx-community/Meta-Llama-3.1-8B-Instruct-4bit: 4.52 GB of 8.03 B weights (model.safetensors)
    facts = settings(engine="generic", quantization=word, weight_bits=4.5)
    assert total_bytes(models.find("llama-3.1-8b"), facts) / 1e9 == pytest.approx(4.52, rel=0.005)


def test_a_file_s_own_size_wins():
    model = replace(shape("llama-8b"), weight_bytes=16_200_000_000)
    assert total_bytes(model, settings()) == pytest.approx(16_200_000_000)
    # Quantised while loading, the file no longer says what is held: 6,979,321,856 values of linear layers at one byte
    # and their scales, two bytes for 1,050,673,152 of embedding and head and 266,240 of norms.
    quantised = 6_979_321_856 * SCALED + 2 * (1_050_673_152 + 266_240)
    assert total_bytes(model, settings(**FP8)) == pytest.approx(quantised)


def test_what_is_told_outright_is_taken():
    assert per_device_bytes(models.find("llama-3.1-8b"), settings(weight_bytes=7.0)) == 7.0


def test_a_model_of_which_only_the_size_is_known_is_divided_evenly():
    bare = replace(models.find("llama-3.1-8b"), tensors=(), extra={}, weight_bytes=16_000_000_000)
    assert per_device_bytes(bare, settings(**on(4))) == 4_000_000_000


def test_next_token_layers_are_loaded_for_speculation_only():
    """DeepSeek-V3: 13,463,426,304 parameters of the MTP layer, 1,853,358,080 of which are copies of embedding and head
    that engines share with the model's own."""
    model = models.find("deepseek-v3")
    without, with_draft = (total_bytes(model, settings(speculative_tokens=n, **FP8)) for n in (0, 1))
    assert with_draft - without == pytest.approx(13_463_426_304 - 1_853_358_080, rel=0.01)
    # The repository's index: 688,586,727,753 bytes, the MTP layer with its copies included.
    filed = replace(model, weight_bytes=688_586_727_753)
    assert total_bytes(filed, settings(**FP8)) == pytest.approx(without, rel=0.001)
    assert total_bytes(filed, settings(speculative_tokens=1, **FP8)) == pytest.approx(with_draft, rel=0.001)


def test_vision_weights_take_memory_but_no_step_reads_them():
    model = replace(shape("llama-8b"), weight_bytes=17_000_000_000, vision=True)
    assert total_bytes(model, settings()) == pytest.approx(17_000_000_000)
    plain = streamed_bytes(shape("llama-8b"), settings(), 1, limit=True)
    assert streamed_bytes(model, settings(), 1, limit=True) == pytest.approx(plain)
    assert streamed_bytes(qwen3_vl(), settings(), 512, limit=False) < total_bytes(qwen3_vl(), settings()) - 1e9


def test_a_step_reads_all_but_the_input_embedding():
    # 8,030,261,248 - 525,336,576 (one vocab x hidden matrix), 2 bytes each
    assert streamed_bytes(models.find("llama-3.1-8b"), settings(), 1, limit=True) == 2 * (8_030_261_248 - 525_336_576)
    # Tied: the one matrix is read as the head.
    tied = models.find("llama-3.2-1b")
    assert streamed_bytes(tied, settings(), 1, limit=True) == 2_471_628_800


def test_experts_touched_by_a_batch():
    model = models.find("mixtral-8x7b")
    expert = 3 * 4096 * 14336 * 2 * 32  # one expert of every layer, in bytes
    base = streamed_bytes(model, settings(), 1, limit=True)
    assert streamed_bytes(model, settings(), 1, limit=False) == pytest.approx(base)
    # Two tokens with two of eight experts each touch 8 (1 - 0.75^2) = 3.5 on average; physics asks for two only.
    assert streamed_bytes(model, settings(), 2, limit=False) - base == pytest.approx(1.5 * expert)
    assert streamed_bytes(model, settings(), 2, limit=True) == base
    everything = total_bytes(model, settings()) - 32000 * 4096 * 2
    assert streamed_bytes(model, settings(), 512, limit=False) == pytest.approx(everything)


def test_expert_parallel_and_data_parallel_ranks_share_experts():
    model = models.find("deepseek-v3")
    experts = 256 * 58 * 3 * 7168 * 2048 * SCALED  # bytes at fp8
    alone = settings(devices=8, data_parallel=8, expert_parallel=8, **FP8)
    saved = per_device_bytes(model, settings(**FP8)) - per_device_bytes(model, alone)
    assert saved == pytest.approx(experts * 7 / 8)


def test_keys_and_values_are_copied_beyond_their_heads():
    """Llama-3.3-70B on 16 devices: 8 KV heads, so each device has one of them, as on 8."""
    model = models.find("llama-3.3-70b")
    halves = [per_device_bytes(model, settings(**on(devices))) for devices in (8, 16)]
    keys = 80 * 2 * 8192 * 128 * 2
    copied = (80 * 2 + 1) * 8192 * 2 + 131072 * 128 * 2  # norms and rotary tables
    assert halves[0] - keys - copied == pytest.approx(2 * (halves[1] - keys - copied))


def test_vocabulary_is_rounded_up_to_64_before_it_is_divided():
    model = replace(models.find("qwen3-8b"), extra={})
    odd = shape("llama-8b", vocab_size=128_259)
    even = shape("llama-8b", vocab_size=128_320)
    assert per_device_bytes(odd, settings(**on(2))) == per_device_bytes(even, settings(**on(2)))
    assert per_device_bytes(model, settings()) == total_bytes(model, settings())


def test_attention_is_copied_inside_dp_attention():
    model = models.find("qwen3-235b-a22b")
    plain = settings(**on(8), engine="sglang")
    inside = settings(**on(8), engine="sglang", data_parallel=8)
    queries, keys, embedding = 94 * 2 * 4096 * 64 * 128, 94 * 2 * 4096 * 4 * 128, 151_936 * 4096
    # With plain TP each device has one of the four KV heads; with DP attention it has all of them.
    extra = 2 * (queries * 7 / 8 + keys * 3 / 4 + embedding * 7 / 8)
    assert per_device_bytes(model, inside) - per_device_bytes(model, plain) == pytest.approx(extra)


def test_pipeline_stages_hold_their_layers_and_one_end():
    model = models.find("llama-3.1-8b")
    tables = 131_072 * 128
    # half of the layer stack and one of the two vocabulary matrices
    half = (8_030_261_248 - 2 * 525_336_576) + 525_336_576 * 2
    assert per_device_bytes(model, settings(pipeline_parallel=2, devices=2)) == half + 2 * tables
    # Of 32 layers on three stages, the first two hold 11, the last 10: the first has the embedding too.
    third = (8_030_261_248 - 2 * 525_336_576) * 2 * 11 / 32 + 525_336_576 * 2
    assert per_device_bytes(model, settings(pipeline_parallel=3, devices=3)) == pytest.approx(third + 2 * tables)


WIDTHS = [
    ("fp8", 8 + 32 / 16384),
    ("nvfp4", 4.5),
    ("mxfp4", 4.25),
    ("mxfp8", 8.25),
    ("awq", 4 + 20 / 128),
    ("gptq-g32", 4 + 20 / 32),
    ("int4", 4 + 16 / 128),
    ("int4-g32", 4.5),
    ("bnb-4bit", 4.5),
    ("bf16", None),
]


@pytest.mark.parametrize(("word", "bits"), WIDTHS)
def test_bits_of_a_value_with_its_scales(word, bits):
    assert bits_of(word) == bits


def test_words_of_one_format():
    assert same_format("modelopt", "nvfp4")
    assert same_format("fp8", "fp8")
    assert same_format("awq_marlin", "awq")
    assert same_format("gptq_marlin", "int8")  # loads integers of any width
    assert not same_format("gptq_marlin", "fp8")
    assert not same_format("awq", "fp8")
