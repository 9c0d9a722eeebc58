"""Rows of an instrument: every key, engines, versions and accelerators as people write them, and one-line refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
from model_shapes import CONFIGS, GIB, LLAMA_8B

from auditor.errors import UsageError
from auditor.instruments import inputs as module
from auditor.instruments.inputs import inputs
from auditor.theory.kv.cells import all_bytes_per_token
from auditor.theory.weights import per_device_bytes

MLA = {"kind": "mla", "layers": 61, "latent_dim": 576}
FULL = {"kind": "full", "layers": 32, "num_kv_heads": 8, "head_dim": 128, "v_head_dim": 128}


def row(**keys: Any) -> dict[str, Any]:
    """Llama 3.1 8B on one H100 under vLLM 0.18.0, with keys changed; None takes one away."""
    fields = {"model_config_inline": LLAMA_8B, "engine": "vllm", "engine_version": "0.18.0", "accelerator": "h100-sxm"}
    return {key: value for key, value in (fields | keys).items() if value is not None}


def layers(*kinds: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """The same deployment with the layers of its cache alone."""
    return row(model_config_inline=None, kv_layers=list(kinds), **keys)


def refused(**keys: Any) -> str:
    with pytest.raises(UsageError) as caught:
        inputs(row(**keys))
    return str(caught.value)


# ---------------------------------------------------------------------------------------------------------------- keys


def test_every_key_reaches_the_field_that_it_names():
    found = inputs(
        row(
            id="r1",
            model="my-llama",
            count=8,
            gpu_memory_gib=139.81,
            tensor_parallel=4,
            pipeline_parallel=2,
            data_parallel=1,
            expert_parallel=1,
            decode_context_parallel=2,
            quantization="fp8(marlin w8)",
            compute_dtype="fp8/fp4",
            weights_gib=12.5,
            kv_cache_dtype="fp8",
            kv_bytes_per_element=1,
            kv_pool_gib=10.0,
            block_size=32,
            max_model_len=4096,
            max_num_seqs=99,
            max_num_batched_tokens=1000,
            gpu_memory_utilization=0.8,
            enforce_eager=True,
            hybrid_kv_cache_manager=False,
            num_speculative_tokens=2,
            extra_full_layers=3,
            mamba_cache_mode="align",
            mamba_slots=7,
            ssm_bytes=2,
        )
    )
    settings = found.settings
    assert found.geometry.name == "my-llama"
    assert found.device is not None
    assert found.device.usable_bytes == int(139.81 * GIB)
    assert (settings.devices, settings.tensor_parallel, settings.pipeline_parallel) == (8, 4, 2)
    assert (settings.decode_context_parallel, settings.quantization, settings.weight_bits) == (
        2,
        "fp8",
        pytest.approx(8, abs=0.01),
    )
    assert (settings.compute_dtype, settings.kv_cache_dtype, settings.kv_bytes) == ("fp8", "fp8", 1)
    assert (settings.weight_bytes, settings.kv_pool_bytes) == (12.5 * GIB, 10 * GIB)
    assert (settings.block_size, settings.max_model_len, settings.max_num_seqs) == (32, 4096, 99)
    assert (settings.max_num_batched_tokens, settings.memory_fraction, settings.enforce_eager) == (1000, 0.8, True)
    assert (settings.hybrid_kv_manager, settings.speculative_tokens, settings.draft_layers) == (False, 2, 3)
    assert (settings.mamba_cache_mode, settings.mamba_slots, settings.state_bytes) == ("align", 7, 2)
    assert found.sources["kv_pool_bytes"] == found.sources["weights"] == found.sources["max_model_len"] == "declared"


def test_what_a_row_leaves_out_is_the_engines_default():
    """vllm/engine/arg_utils.py: 8192 tokens and 1024 requests on devices of 70 GiB; vllm/config/cache.py: 0.9."""
    settings = inputs(row()).settings
    assert (settings.max_num_batched_tokens, settings.max_num_seqs, settings.memory_fraction) == (8192, 1024, 0.9)
    assert (settings.block_size, settings.max_model_len) == (16, 131072)


def test_the_callers_own_keys_are_left_alone_and_null_says_nothing():
    assert inputs(row(metric="tpot_ms", batch=3), also=("metric", "batch")).settings.tensor_parallel == 1
    assert inputs({**row(), "quantization": None, "weights_gib": None}).settings.quantization is None


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"tensor_paralel": 2}, "tensor_paralel: unknown key, did you mean 'tensor_parallel'"),
        ({"tensor_parallel": 0}, "tensor_parallel: 0, a whole number from 1 to 65536 is needed"),
        ({"tensor_parallel": True}, "tensor_parallel: True, a whole number"),
        ({"tensor_parallel": "two"}, "tensor_parallel: 'two', a whole number"),
        ({"num_speculative_tokens": 10**9}, "num_speculative_tokens: 1000000000, a whole number from 0 to 1024"),
        ({"launch": "vllm serve x --speculative-config '{\"num_speculative_tokens\": 99999}'"}, "speculative: 99,999"),
        ({"compute_dtype": "fp64"}, "compute_dtype: fp64 is not known; bf16, fp16, fp32"),
        ({"compute_dtype": "mmq"}, "compute_dtype: mmq is not known"),
        ({"gpu_memory_utilization": 90}, "gpu_memory_utilization: 90, a fraction"),
        ({"kv_pool_gib": float("nan")}, "kv_pool_gib: nan, a number of GiB from 0.000001"),
        ({"enforce_eager": "yes"}, "enforce_eager: 'yes', true or false"),
        ({"model_config_inline": {}}, "model_config_inline: {}, an object"),
        ({"model_config_inline": {"architectures": ["Foo"]}}, "model_config_inline: architecture Foo"),
        ({"model_config": "/nowhere/config.json"}, "model_config_inline: the model is already given by model_config"),
        ({"model_config_inline": None}, "model: none is given"),
        ({"model_config_inline": None, "model": "no-such-model"}, "model: unknown model 'no-such-model'"),
        ({"launch": "vllm serve 'x"}, "launch: no closing quotation"),
    ],
)
def test_a_mistake_is_one_line_that_names_its_key(keys, told):
    message = refused(**keys)
    assert message.startswith(told)
    assert "\n" not in message


COMPUTING = [  # what a row says, on which device, what it means there, and whether the device lacks it
    ("fp4", "h100-sxm", "bf16", True),
    ("fp8", "h100-sxm", "fp8", False),
    ("fp4", "b200-sxm", "fp4", False),
    ("int8/fp16 MMQ", "m4-max-64gb", "fp16", False),
    ("int8/fp16 MMQ", "rtx-4090", "int8", False),
    ("half", "h100-sxm", "fp16", False),
]


@pytest.mark.parametrize(("written", "device", "means", "lacks"), COMPUTING)
def test_products_run_in_a_format_that_the_device_has(written, device, means, lacks):
    found = inputs(row(compute_dtype=written, accelerator=device))
    assert found.settings.compute_dtype == means
    assert any("has no such units" in note for note in found.notes) == lacks


# vllm 0.32: fp8.py and modelopt.py ask for 7.5, mxfp4.py for 8.0; sglang 0.5: fp8.py for 8.0, w8a8_fp8.py for 8.9
OLD = [
    ("vllm", "v100-32gb", "fp8", "vLLM takes fp8 weights from compute capability 7.5 on, and Tesla V100"),
    ("vllm", "t4", "fp8", "Tesla T4 has no fp8 units: vLLM unpacks such weights and multiplies in"),
    ("vllm", "t4", "nvfp4", "has no fp4 units"),
    ("vllm", "t4", "mxfp4", "from compute capability 8.0 on"),
    ("vllm", "v100-32gb", "awq", "from compute capability 7.5 on"),
    ("vllm", "a100-80gb", "fp8", "has no fp8 units"),
    ("vllm", "h100-sxm", "nvfp4", "has no fp4 units"),
    ("sglang", "t4", "fp8", "SGLang takes fp8 weights from compute capability 8.0 on, and Tesla T4 has 7.5"),
    ("sglang", "a100-80gb", "w8a8_fp8", "from compute capability 8.9 on"),
    ("vllm", "h100-sxm", "fp8", ""),
    ("vllm", "b200-sxm", "nvfp4", ""),
    ("vllm", "t4", "awq", ""),
    ("llama.cpp", "v100-32gb", "q8_0", ""),
    ("vllm", "mi300x", "fp8", ""),
    ("vllm", "v100-32gb", None, ""),
]


@pytest.mark.parametrize(("engine", "device", "method", "said"), OLD)
def test_what_becomes_of_weights_that_a_device_is_too_old_for_is_said(engine, device, method, said):
    notes = inputs(row(engine=engine, accelerator=device, quantization=method)).notes
    about = [note for note in notes if "units:" in note or "may not start" in note]
    assert len(about) == bool(said)
    assert not said or said in about[0]


# -------------------------------------------------------------------------------------------------------------- engine


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"tensor_parallel": 2}, "-tp 4 is not taken: tensor_parallel says 2"),
        ({"memory_fraction": 0.5}, "--gpu-memory-utilization 0.8 is not taken: gpu_memory_utilization says 0.5"),
        ({"engine": "sglang"}, "command vLLM is not taken: engine says SGLang"),
        ({}, "--no-such-flag is not known and ignored"),
    ],
)
def test_what_is_not_taken_of_a_launch_line_is_said(keys, said):
    line = "vllm serve x -tp 4 --gpu-memory-utilization 0.8 --no-such-flag"
    assert f"launch: {said}" in inputs(row(**{"launch": line, "engine": "vllm"} | keys)).notes


def test_a_value_of_a_launch_line_that_is_none_is_refused():
    said = refused(launch="vllm serve x --tensor-parallel-size two")
    assert said == "launch: --tensor-parallel-size two: needs a whole number"
    assert inputs(row(launch="vllm serve $MODEL --port $PORT")).settings.tensor_parallel == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kind": ["full"]}, "kv_layers[0].kind: ['full'] is not known; known are full"),
        ({"kind": "mamba2", "ssm_bytes": "x"}, "kv_layers[0].ssm_bytes: 'x', bytes of an element are needed"),
        ({"kind": "mamba2", "ssm_bytes": 1e308}, "kv_layers[0].ssm_bytes: 1e+308, bytes of an element are needed"),
    ],
)
def test_a_layer_that_is_none_is_named(changed, said):
    state = {"num_heads": 64, "head_dim": 64, "state_size": 128, "n_groups": 8, "conv_kernel": 4, "layers": 23}
    with pytest.raises(UsageError) as caught:
        inputs(layers({**state, **changed}))
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("keys", "engine", "assumed"),
    [
        ({}, "vllm", "vLLM is assumed"),
        ({"accelerator": "apple-m4-max-32-36gb"}, "llamacpp", "llama.cpp is assumed for an Apple device"),
        ({"quantization": "q4_k_m"}, "llamacpp", "llama.cpp is assumed for a format of GGUF files"),
        ({"quantization": "UD-Q4_K_XL"}, "llamacpp", "llama.cpp is assumed for a format of GGUF files"),
        ({"model": "/x/Llama-3.1-8B-Q4_K_M.gguf"}, "llamacpp", "llama.cpp is assumed for a GGUF file"),
    ],
)
def test_without_an_engine_the_one_that_serves_it_is_assumed(keys, engine, assumed):
    found = inputs(row(engine=None, engine_version=None, **keys))
    assert found.settings.engine == engine
    assert f"no engine is named: {assumed}" in found.notes


@pytest.mark.parametrize(
    ("written", "engine"),
    [
        ("vllm", "vllm"),
        ("vLLM 2023", "vllm"),
        ("aphrodite(vllm fork)", "vllm"),
        ("sglang", "sglang"),
        ("llama.cpp", "llamacpp"),
        ("ik_llama.cpp", "llamacpp"),
        ("llamafile 0.9", "llamacpp"),
        ("llama-server", "llamacpp"),
        ("llamacpp", "llamacpp"),
        ("tensorrt-llm", "trtllm"),
        ("NIM 1.8.0 (TRT-LLM)", "trtllm"),
        ("trtllm 1.0.0rc3", "trtllm"),
        ("lmdeploy", "lmdeploy"),
    ],
)
def test_engines_are_known_by_the_words_people_use(written, engine):
    found = inputs(row(engine=written, engine_version=None, max_model_len=4096))
    assert (found.settings.engine, found.notes) == (engine, ())


def test_an_unknown_engine_pages_plainly_and_no_engine_is_vllm():
    assert inputs(row(engine="MLC-LLM")).settings.engine == "generic"
    assert inputs(row(engine="MLC-LLM")).notes == ("the engine MLC-LLM is not known: plain paging is assumed",)
    assert inputs(row(engine=None)).notes == ("no engine is named: vLLM is assumed",)


@pytest.mark.parametrize(
    ("written", "version"),
    [
        ("v0.11.2+rhai5", "0.11.2"),
        ("0.18-0.2x", "0.18-0.2x"),
        ("~v0.11 to 0.2x", "0.11-0.2x"),
        ("v0.18.2rc1.dev73+gdb7a17ecc", "0.18.2"),
        ("0.6.4?", "0.6.4"),
        ("0.8.x rocm", "0.8.x"),
        ("0.1x", "0.1x"),
        ("0.11+ rocm", "0.11"),
        ("0.5.x (2026-02)", "0.5.x"),
    ],
)
def test_versions_are_read_as_they_are_written(written, version):
    assert inputs(row(engine_version=written)).settings.engine_version == version


@pytest.mark.parametrize(
    ("engine", "written", "version"),
    [
        ("vllm", "2026-05", "0.20.0"),  # 0.20.0 came out in April, 0.20.1 in May
        ("vllm", "fork 2026-07", "0.24.0"),
        ("vllm", "2024-04", "0.3.3"),
        ("vllm", "2030-01", "0.33.0"),
        ("vllm", "2023-12", None),
        ("sglang", "2026-01 main", "0.5.7"),
    ],
)
def test_a_date_is_the_newest_release_before_its_month(engine, written, version):
    found = inputs(row(engine=engine, engine_version=written))
    assert found.settings.engine_version == version
    assert len(found.notes) == 1


@pytest.mark.parametrize("written", ["2025", "rocm"])
def test_what_names_no_release_is_the_newest_and_says_so(written):
    found = inputs(row(engine_version=written))
    assert found.settings.engine_version is None
    assert found.notes == (f"engine_version {written} names no release: the newest rules are assumed",)


def test_a_version_may_stand_behind_the_engine():
    assert inputs(row(engine="vllm 0.15.1", engine_version=None)).settings.engine_version == "0.15.1"


@pytest.mark.parametrize(
    ("written", "version"),
    [("b6918", "b6918"), ("llama.cpp b6918 CUDA FA", "b6918"), ("2026-04 (LM Studio 0.4.12)", None)],
)
def test_llamacpps_versions_are_builds(written, version):
    found = inputs(row(engine="llama.cpp", engine_version=written))
    assert (found.settings.engine_version, found.notes) == (version, ())


def test_ik_llamacpp_keeps_sliding_layers_in_full():
    assert inputs(row(engine="ik_llama.cpp")).settings.full_swa_cache
    assert not inputs(row(engine="llama.cpp")).settings.full_swa_cache
    assert not inputs(row(engine="ik_llama.cpp", swa_full=False)).settings.full_swa_cache


def test_a_pool_of_llamacpp_without_a_context_says_its_cells():
    assert inputs(row(engine="llama.cpp", kv_pool_gib=1)).settings.max_model_len is None
    assert inputs(row(engine="llama.cpp", kv_pool_gib=1, max_model_len=8192)).settings.max_model_len == 8192


def test_a_draft_models_layers_count_where_its_config_is_at_hand(tmp_path):
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "config.json").write_text(json.dumps(LLAMA_8B | {"num_hidden_layers": 4}))
    line = "vllm serve m --spec-model small --spec-tokens 4"
    found = inputs(row(launch=line, engine=None), tmp_path)
    assert [group.count for group in found.settings.draft] == [4]
    assert inputs(row(launch=line.replace("small", "missing"), engine=None), tmp_path).settings.draft == ()


def test_a_launch_line_is_read_and_explicit_keys_win():
    line = "vllm serve /models/x -tp 2 --max-model-len 16384 --gpu-memory-utilization 0.85 --kv-cache-dtype fp8"
    found = inputs(row(engine=None, launch=line, max_model_len=8192))
    settings = found.settings
    assert (settings.engine, settings.tensor_parallel, settings.kv_bytes) == ("vllm", 2, 1)
    assert (settings.max_model_len, settings.memory_fraction) == (8192, 0.85)
    assert found.sources["tensor_parallel"] == "launch -tp"


def test_flags_that_are_not_read_are_named():
    found = inputs(row(launch="vllm serve x --max-model-lenn 4096"))
    assert any("--max-model-lenn" in note for note in found.notes)


# --------------------------------------------------------------------------------------------------------------- device


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("H200", "h200-sxm"),
        ("A40/48G", "a40"),
        ("L40S/A40", "l40s"),
        ("A100-40G?", "a100-sxm-40"),
        ("MI300X", "mi300x"),
        ("ArcB70-32G", "arc-pro-b70"),
    ],
)
def test_accelerators_are_known_as_people_write_them(written, key):
    device = inputs(row(accelerator=written)).device
    assert device is not None
    assert device.key == key


@pytest.mark.parametrize(
    ("written", "vendor"),
    [
        ("unknown", "unknown"),
        ("RTX2080Ti-22G", "nvidia"),
        ("3050Ti", "nvidia"),
        ("TITAN V", "nvidia"),
        ("K80", "nvidia"),
        ("V100S", "nvidia"),
        ("MI25-16G", "amd"),
        ("Apple M4 Max", "apple"),
        ("AMD iGPU (gmk)", "amd"),
        ("Xeon CPU", "cpu"),
        (None, "unknown"),
    ],
)
def test_an_unknown_accelerator_serves_by_its_memory(written, vendor):
    device = inputs(row(accelerator=written, gpu_memory_gib=21.5)).device
    assert device is not None
    assert (device.usable_bytes, device.vendor, device.bandwidth) == (int(21.5 * GIB), vendor, 0)


def test_the_memory_in_its_name_is_nominal():
    found = inputs(row(accelerator="80G-class"))
    assert found.device is not None
    assert (found.device.memory_bytes, found.device.usable_bytes) == (80 * GIB, None)
    assert found.settings.max_num_batched_tokens == 8192  # as on any device of 70 GiB


def test_without_memory_it_says_why_there_is_no_device():
    found = inputs(row(accelerator="h1000"))
    assert found.device is None
    assert found.no_device.startswith("accelerator: unknown accelerator 'h1000', did you mean")
    assert found.no_device.endswith("; or give gpu_memory_gib")
    assert inputs(row(accelerator=None)).no_device.startswith("accelerator: none is named")


# ---------------------------------------------------------------------------------------------------------------- model


def test_a_config_is_read_once_however_many_rows_name_it(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama-gqa"]))
    reads: list[str] = []
    real = module.hf.read
    monkeypatch.setattr(module.hf, "read", lambda path: (reads.append(path), real(path))[1])
    for number in range(5):
        found = inputs(row(model_config_inline=None, model_config="config.json", model=f"m{number}"), tmp_path)
        assert found.geometry.name == f"m{number}"
    assert reads == [str(tmp_path / "config.json")]


def test_a_broken_config_is_the_same_error_each_time(tmp_path):
    (tmp_path / "config.json").write_text("{")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"^model_config: .*config.json: not a readable config.json"):
            inputs(row(model_config_inline=None, model_config="config.json"), tmp_path)


def test_a_catalogue_model_and_a_folder_need_no_config_key(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["qwen3"]))
    assert inputs(row(model_config_inline=None, model="llama-3.1-8b")).geometry.parameters == 8_030_261_248
    assert inputs(row(model_config_inline=None, model=str(tmp_path))).geometry.architecture == "Qwen3ForCausalLM"


def test_the_size_of_a_weight_file_is_that_of_the_quantisation_it_holds():
    found = inputs(row(weight_file_bytes=4_917_737_553, quantization="q4_k_m", engine="llama.cpp"))
    assert found.geometry.weight_bytes == 4_917_737_553
    assert per_device_bytes(found.geometry, found.settings) == pytest.approx(4_917_737_553, rel=1e-9)


def test_explicit_layers_are_a_cache_without_weights():
    found = inputs(layers(MLA, model="r1", model_facts={"hidden": 7168, "vocab": 129280, "heads": 128, "experts": 256}))
    geometry = found.geometry
    assert (geometry.name, geometry.vocab_size, geometry.parameters) == ("r1", 129280, 0)
    assert geometry.experts is not None
    assert all_bytes_per_token(geometry, found.settings) == 61 * 576 * 2


def test_every_kind_of_layer_can_be_spelled():
    sliding = {**FULL, "kind": "swa", "window": 1024}
    chunked = {**FULL, "kind": "chunk", "window": 8192, "v_head_dim": None}
    indexer = {"kind": "dsa_idx", "layers": 61, "bytes_per_token": 132}
    gdn = {"kind": "gdn", "layers": 36, "num_key_heads": 16, "key_head_dim": 128, "num_value_heads": 32}
    gdn |= {"value_head_dim": 96, "conv_kernel": 4, "ssm_bytes": 4}
    mamba = {"kind": "mamba2", "layers": 23, "num_heads": 64, "head_dim": 64, "state_size": 128, "n_groups": 8}
    mamba |= {"conv_kernel": 4}
    conv = {"kind": "short_conv", "layers": 10, "hidden_size": 1536, "conv_kernel": 3}
    geometry = inputs(layers(FULL, sliding, chunked, MLA, indexer, gdn, mamba, conv)).geometry
    assert [(g.kind, g.count, g.window) for g in geometry.layers] == [
        ("full", 32, None),
        ("sliding", 32, 1024),
        ("chunked", 32, 8192),
        ("mla", 61, None),
    ]
    assert geometry.indexer is not None
    assert (geometry.indexer.count, geometry.indexer.token_bytes) == (61, 132)
    states = [(r.kind, r.count, r.heads, r.head_dim, r.state_size, r.groups, r.state_bytes) for r in geometry.recurrent]
    assert states == [
        ("linear", 36, 32, 96, 128, 16, 4.0),
        ("mamba2", 23, 64, 64, 128, 8, None),
        ("short_conv", 10, 1536, 1, 0, 0, None),
    ]


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        ({"kind": "cross", "layers": 2}, "kv_layers[0].kind: 'cross' is not known"),
        ({"kind": "mla", "layers": 2}, "kv_layers[0].latent_dim: None, a positive whole number is needed"),
        ({**FULL, "kind": "swa"}, "kv_layers[0].window: None"),
        ({**FULL, "num_kv_head": 8}, "kv_layers[0].num_kv_head: unknown key, did you mean 'num_kv_heads'"),
        ({"kind": "dsa_idx", "layers": 2, "bytes_per_token": 132}, "kv_layers: no layer holds keys and values"),
    ],
)
def test_a_wrong_layer_is_named(layer, told):
    with pytest.raises(UsageError) as caught:
        inputs(layers(layer))
    assert str(caught.value).startswith(told)


def test_paths_are_relative_to_the_base():
    with pytest.raises(UsageError, match=r"/somewhere/config\.json: no such file"):
        inputs(row(model_config_inline=None, model_config="config.json"), Path("/somewhere"))
