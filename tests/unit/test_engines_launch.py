"""Launch lines as people write them, read into the fields they set."""

import pytest

from auditor.engines.flavours import FLAVOURS, flag_names, flavour_of_launch
from auditor.engines.launch import parse_launch
from auditor.errors import UsageError


def test_vllm_serve_with_short_long_and_underscored_flags():
    launch = parse_launch(
        "vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2 --max-model-len 32k --max_num_seqs=512 --kv-cache-dtype fp8"
    )
    assert launch.engine == "vllm"
    assert launch.fields == {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "tensor_parallel": 2,
        "max_model_len": 32000,  # vLLM: k is a thousand, K is 1024
        "max_num_seqs": 512,
        "kv_cache_dtype": "fp8",
    }
    assert launch.flag_of["tensor_parallel"] == "-tp"
    assert launch.flag_of["max_num_seqs"] == "--max_num_seqs"
    assert launch.unknown == launch.problems == ()


@pytest.mark.parametrize(("text", "tokens"), [("32K", 32768), ("25.6k", 25600), ("4096", 4096), ("1M", 1048576)])
def test_human_readable_numbers_are_read_as_vllm_reads_them(text, tokens):
    assert parse_launch(f"vllm serve m --max-model-len {text}").fields["max_model_len"] == tokens


@pytest.mark.parametrize("text", ["auto", "-1"])
def test_a_length_left_to_the_engine_sets_nothing(text):
    assert "max_model_len" not in parse_launch(f"vllm serve m --max-model-len {text}").fields


def test_switches_and_their_negation():
    on = parse_launch("vllm serve m --enforce-eager --no-enable-prefix-caching --disable-hybrid-kv-cache-manager")
    assert on.fields["enforce_eager"] is True
    assert on.fields["prefix_caching"] is False
    assert on.fields["hybrid_kv_manager"] is False
    assert parse_launch("vllm serve m --no-enforce-eager").fields["enforce_eager"] is False


def test_a_switch_between_flags_does_not_swallow_the_next_word():
    launch = parse_launch("vllm serve --trust-remote-code some/model --enforce-eager --port 8001")
    assert launch.fields["model"] == "some/model"
    assert launch.fields["port"] == 8001


def test_expert_parallelism_is_a_switch_of_tp_times_dp():
    assert parse_launch("vllm serve m -tp 4 -dp 2 --enable-expert-parallel").fields["expert_parallel"] == 8


def test_json_and_dotted_json_make_the_same_mapping():
    json = parse_launch("""vllm serve m --speculative-config '{"method": "eagle3", "num_speculative_tokens": 3}'""")
    dotted = parse_launch(
        "vllm serve m --speculative-config.method eagle3 --speculative-config.num_speculative_tokens=3"
    )
    assert (
        json.fields["speculative"] == dotted.fields["speculative"] == {"method": "eagle3", "num_speculative_tokens": 3}
    )
    assert json.flag_of["speculative"] == "--speculative-config"


@pytest.mark.parametrize(
    ("config", "apart"),
    [
        ('{"kv_connector": "NixlConnector", "kv_role": "kv_both"}', True),
        ('{"kv_connector": "Custom", "kv_role": "kv_producer"}', True),
        ('{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}', None),
    ],
)
def test_a_connector_between_prefill_and_decode_means_disaggregation(config, apart):
    launch = parse_launch(f"vllm serve m --kv-transfer-config '{config}'")
    assert launch.fields.get("disaggregated") is apart
    assert launch.flag_of.get("disaggregated") == ("--kv-transfer-config" if apart else None)


def test_docker_run_with_continuation_environment_and_image_version():
    launch = parse_launch(
        """docker run --gpus all -e HF_TOKEN=hf_secret_1 -p 8000:8000 --ipc=host \\
           registry.example/vllm/vllm-openai:v0.18.0 \\
           --model Qwen/Qwen3-8B   \\
           --gpu-memory-utilization 0.85"""
    )
    assert launch.engine == "vllm"
    assert launch.fields["model"] == "Qwen/Qwen3-8B"
    assert launch.fields["gpu_memory_utilization"] == 0.85
    assert launch.fields["engine_version"] == "0.18.0"
    assert launch.secrets == ("hf_secret_1",)
    assert launch.unknown == ()


def test_python_modules_are_recognised():
    assert parse_launch("python3 -m vllm.entrypoints.openai.api_server --model m").fields["model"] == "m"
    assert parse_launch("/opt/venv/bin/python -m sglang.launch_server --model-path m").engine == "sglang"


def test_sglang_flags():
    launch = parse_launch(
        "CUDA_VISIBLE_DEVICES=0,1 python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --dp 8 "
        "--enable-dp-attention --context-length 64K --chunked-prefill-size 4096 --mem-fraction-static 0.85 "
        "--max-running-requests 256 --page-size 64 --disable-radix-cache --disable-cuda-graph "
        "--speculative-algorithm EAGLE --speculative-num-steps 3 --disaggregation-mode null > log.txt 2>&1 &"
    )
    fields = dict(launch.fields)
    assert fields["tensor_parallel"] == fields["data_parallel"] == 8
    assert fields["max_model_len"] == 65536
    assert fields["max_num_batched_tokens"] == 4096
    assert fields["max_num_seqs"] == 256
    assert fields["block_size"] == 64
    assert fields["enforce_eager"] is True
    assert fields["prefix_caching"] is False
    assert fields["disaggregated"] is False
    assert fields["speculative"] == {"method": "EAGLE", "num_steps": 3, "num_speculative_tokens": 4}
    assert launch.unknown == ()


def test_chunking_switched_off_is_no_token_limit():
    launch = parse_launch("python -m sglang.launch_server --model m --chunked-prefill-size -1")
    assert "max_num_batched_tokens" not in launch.fields


def test_llama_server_splits_its_context_over_the_slots():
    launch = parse_launch(
        "./llama-server -m /models/Llama-3.1-8B-Q4_K_M.gguf -c 8192 -np 4 -ub 256 -ctk q8_0 -ctv q4_0 -fa on"
    )
    assert launch.engine == "llamacpp"
    assert launch.fields["context"] == 8192
    assert launch.fields["max_model_len"] == 2048
    assert launch.fields["max_num_seqs"] == launch.fields["slots"] == 4
    assert launch.fields["kv_cache_dtype"] == "q8_0"
    assert launch.fields["kv_cache_dtype_v"] == "q4_0"
    assert launch.fields["quantization"] == "q4_k_m"
    assert launch.flag_of["max_model_len"] == "-c"
    assert launch.flag_of["max_num_seqs"] == "-np"


@pytest.mark.parametrize(
    ("flags", "context"),
    [
        ("-c 5000 -np 3", 1792),  # n_ctx_slot of a running server: 5000 padded to 5120, a third padded to 1792
        ("-c 4096", 4096),  # automatic slots share one buffer
        ("-c 8192 -np 4 -kvu", 8192),
        ("-c 0 -np 2", None),
    ],
)
def test_the_context_of_one_slot(flags, context):
    assert parse_launch(f"llama-server -m m.gguf {flags}").fields.get("max_model_len") == context


def test_llama_environment_variables_stand_for_flags_and_flags_win():
    launch = parse_launch("LLAMA_ARG_CTX_SIZE=4096 LLAMA_ARG_N_PARALLEL=2 llama-server -m m.gguf -np 1")
    assert launch.fields["context"] == 4096
    assert launch.fields["slots"] == 1
    assert launch.flag_of["context"] == "LLAMA_ARG_CTX_SIZE"


def test_trtllm_serve():
    launch = parse_launch(
        "trtllm-serve serve nvidia/DeepSeek-R1-FP4 --backend pytorch --tp_size 8 --ep_size 4 --max_batch_size 161 "
        "--max_num_tokens 1160 --kv_cache_free_gpu_memory_fraction 0.8 --trust_remote_code"
    )
    assert launch.engine == "trtllm"
    assert launch.fields == {
        "model": "nvidia/DeepSeek-R1-FP4",
        "tensor_parallel": 8,
        "expert_parallel": 4,
        "max_num_seqs": 161,
        "max_num_batched_tokens": 1160,
        "memory_fraction": 0.8,
    }
    assert launch.unknown == ()


def test_unknown_flags_are_listed_with_what_was_probably_meant():
    launch = parse_launch("vllm serve m --gpu-memory-utilisation 0.9 --frobnicate 7 --seed 1")
    assert launch.unknown == ("--gpu-memory-utilisation (did you mean --gpu-memory-utilization?)", "--frobnicate")
    assert "gpu_memory_utilization" not in launch.fields


def test_an_unambiguous_beginning_counts_as_in_argparse():
    launch = parse_launch("vllm serve m --tensor-parallel 4 --max-num 3")
    assert launch.fields["tensor_parallel"] == 4
    assert launch.unknown == ("--max-num",)


@pytest.mark.parametrize(
    ("line", "secrets"),
    [
        ("vllm serve m --api-key sk-one sk-two --port 1", ("sk-one", "sk-two")),
        ("vllm serve m --api-key=sk-one --hf-token hf-two", ("sk-one", "hf-two")),
        ("VLLM_API_KEY=sk-env vllm serve m", ("sk-env",)),
        ("python -m sglang.launch_server --model m --admin-api-key sk-admin", ("sk-admin",)),
        ("llama-server -m m.gguf --api-key a-key,b-key", ("a-key,b-key", "a-key", "b-key")),
        ("vllm serve m --some-new-token s3cret", ("s3cret",)),
        ("llama-server --model-url https://me:pass-1@host/m.gguf", ("pass-1",)),
        ("vllm serve m --api-key $KEY", ()),
    ],
)
def test_secrets_are_found(line, secrets):
    launch = parse_launch(line)
    assert launch.secrets == secrets
    assert not any(secret in str(launch.fields) for secret in secrets)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("vllm serve m --max-model-len lots", "--max-model-len lots: needs a whole number"),
        ("vllm serve m --max-num-seqs 1k", "--max-num-seqs 1k: needs a whole number without a suffix"),
        (
            "vllm serve m --max-model-len 1.5K",
            "--max-model-len 1.5K: decimals are not allowed with K; did you mean 1.5k",
        ),
        ("vllm serve m --gpu-memory-utilization high", "--gpu-memory-utilization high: needs a number"),
        ("vllm serve m --speculative-config eagle", "--speculative-config eagle: needs a JSON object, in quotes"),
        ("vllm serve m --speculative-config [1]", "--speculative-config [1]: needs a JSON object"),
        ("vllm serve m --block-size", "--block-size has no value; give one or leave the flag out"),
        (
            "vllm serve m -tp $TP",
            "-tp is $TP, a shell variable that is not known here; write the value itself",
        ),
    ],
)
def test_values_that_the_engine_would_refuse(line, problem):
    assert parse_launch(line).problems == (problem,)


def test_a_line_that_starts_no_engine_says_what_is_needed():
    with pytest.raises(UsageError, match=r"^deployment\.launch: no known engine in this line; it needs the command"):
        parse_launch("./start.sh --model m")
    assert parse_launch("--model m --tp 2", engine="sglang").fields == {"model": "m", "tensor_parallel": 2}


def test_an_open_quote_is_a_usage_error():
    with pytest.raises(UsageError, match="no closing quotation; close the quote"):
        parse_launch("vllm serve 'm")


def test_flavour_of_launch():
    assert flavour_of_launch("cd /srv && vllm serve m").name == "vllm"
    assert flavour_of_launch("docker run ghcr.io/ggml-org/llama.cpp:server-cuda -m m.gguf").name == "llamacpp"
    assert flavour_of_launch("echo vllm") is None


def test_the_flag_for_each_field_of_each_engine():
    assert flag_names(FLAVOURS["vllm"])["max_model_len"] == "--max-model-len"
    assert flag_names(FLAVOURS["vllm"])["kv_pool_bytes"] == "--kv-cache-memory-bytes"
    assert flag_names(FLAVOURS["sglang"])["max_model_len"] == "--context-length"
    assert flag_names(FLAVOURS["sglang"])["max_num_seqs"] == "--max-running-requests"
    assert flag_names(FLAVOURS["llamacpp"])["max_model_len"] == "-c"
    assert flag_names(FLAVOURS["sglang"])["prefix_caching"] == "without --disable-radix-cache"
    assert flag_names(FLAVOURS["llamacpp"])["max_num_seqs"] == "-np"
    assert flag_names(FLAVOURS["trtllm"])["memory_fraction"] == "--free_gpu_memory_fraction"
    assert flag_names(FLAVOURS["generic"]) == {}


# ---------------------------------------------------------------------------------------------------- caches and states


def test_vllms_cache_flags():
    launch = parse_launch(
        "vllm serve m -dcp 4 --mamba-cache-mode align --mamba-cache-dtype auto --mamba-ssm-cache-dtype float32 "
        "--block-size 528 --performance-mode throughput --no-async-scheduling"
    )
    assert launch.fields == {
        "model": "m",
        "decode_context_parallel": 4,
        "mamba_cache_mode": "align",
        "mamba_cache_dtype": "auto",
        "mamba_ssm_cache_dtype": "float32",
        "block_size": 528,
        "performance_mode": "throughput",
        "async_scheduling": False,
    }
    assert launch.unknown == launch.problems == ()


def test_the_cpus_cache_may_be_sized_by_the_environment():
    """In GiB; a flag in bytes wins."""
    assert parse_launch("VLLM_CPU_KVCACHE_SPACE=40 vllm serve m").fields["kv_pool_bytes"] == 40 * 2**30
    both = parse_launch("VLLM_CPU_KVCACHE_SPACE=40 vllm serve m --kv-cache-memory-bytes 1G")
    assert both.fields["kv_pool_bytes"] == 2**30


@pytest.mark.parametrize(("role", "phase"), [("kv_producer", "prefill"), ("kv_consumer", "decode"), ("kv_both", None)])
def test_the_role_of_a_connector_is_the_instances_phase(role, phase):
    config = f'{{"kv_connector": "NixlConnector", "kv_role": "{role}"}}'
    assert parse_launch(f"vllm serve m --kv-transfer-config '{config}'").fields.get("disaggregated_role") == phase


def test_sglangs_cache_flags():
    launch = parse_launch(
        "SGLANG_MAMBA_CONV_DTYPE=float32 python -m sglang.launch_server --model m --max-mamba-cache-size 128 "
        "--mamba-full-memory-ratio 0.5 --mamba-ssm-dtype bfloat16 --dcp-size 2 --disable-hybrid-swa-memory "
        "--speculative-algorithm NEXTN --speculative-num-steps 2 --speculative-eagle-topk 1 "
        "--disaggregation-mode decode"
    )
    assert launch.unknown == launch.problems == ()
    fields = dict(launch.fields)
    assert (fields["mamba_slots"], fields["mamba_full_ratio"]) == (128, 0.5)
    assert (fields["mamba_ssm_cache_dtype"], fields["mamba_cache_dtype"]) == ("bfloat16", "float32")
    assert (fields["decode_context_parallel"], fields["hybrid_kv_manager"]) == (2, False)
    assert (fields["disaggregated"], fields["disaggregated_role"]) == (True, "decode")
    assert fields["speculative"]["num_speculative_tokens"] == 3  # two steps and the token that verifies them


@pytest.mark.parametrize(("flag", "fused"), [("-fa", True), ("-fa on", True), ("-fa off", False), ("-fa auto", None)])
def test_flash_attention_of_llamacpp_takes_a_word_or_none(flag, fused):
    launch = parse_launch(f"llama-server -m m.gguf {flag} -c 4096")
    assert launch.fields.get("fused_attention") is fused
    assert (launch.fields["context"], launch.unknown) == (4096, ())


def test_ik_llamacpp_is_told_by_its_path():
    launch = parse_launch("/opt/ik_llama.cpp/build/bin/llama-server -m m.gguf -c 4096 -mla 0")
    assert launch.engine == "llamacpp"
    assert launch.fields["full_swa_cache"] is True
    assert launch.fields["latent_cache"] is False
    assert launch.flag_of["full_swa_cache"] == "ik_llama.cpp"
    assert "full_swa_cache" not in parse_launch("/opt/llama.cpp/build/bin/llama-server -m m.gguf").fields


def test_lmdeploy_api_server():
    launch = parse_launch(
        "lmdeploy serve api_server internlm/internlm2_5-7b-chat --tp 2 --session-len 32768 --max-batch-size 64 "
        "--cache-max-entry-count 0.5 --quant-policy 8 --cache-block-seq-len 128 --model-format awq --api-keys k1 k2"
    )
    assert launch.engine == "lmdeploy"
    assert launch.fields == {
        "model": "internlm/internlm2_5-7b-chat",
        "tensor_parallel": 2,
        "max_model_len": 32768,
        "max_num_seqs": 64,
        "memory_fraction": 0.5,
        "kv_cache_dtype": "int8",
        "block_size": 128,
        "quantization": "awq",
    }
    assert launch.flag_of["kv_cache_dtype"] == "--quant-policy"
    assert launch.secrets == ("k1", "k2")
    assert "kv_cache_dtype" not in parse_launch("lmdeploy serve api_server m --quant-policy 0").fields


def test_trtllms_cache_config():
    launch = parse_launch(
        """trtllm-serve m --kv_cache_config '{"free_gpu_memory_fraction": 0.8, "max_tokens": 65536,
        "tokens_per_block": 64, "dtype": "fp8", "enable_block_reuse": false, "max_attention_window": [512]}'"""
    )
    assert launch.fields == {
        "model": "m",
        "memory_fraction": 0.8,
        "kv_pool_tokens": 65536,
        "block_size": 64,
        "kv_cache_dtype": "fp8",
        "prefix_caching": False,
        "window_pools": True,
    }
    dotted = parse_launch("trtllm-serve m --kv_cache_config.tokens_per_block 64 --free_gpu_memory_fraction 0.5")
    assert (dotted.fields["block_size"], dotted.fields["memory_fraction"]) == (64, 0.5)


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("vllm serve m --api-key sk-1234567 sk-1234567 --max-model-len sk-1234567 --is-sk-1234567", "sk-1234567"),
        ("API_KEY=sk-1234567 vllm serve m --tensor-parallel-size sk-1234567 --tokenizer sk-1234567", "sk-1234567"),
        ("vllm serve m --hf-token hf_ABCDEF --kv-cache-dtype hf_ABCDEF", "hf_ABCDEF"),
        ("vllm serve https://user:passw0rd@host/m --max-num-seqs passw0rd", "passw0rd"),
        ("vllm serve https://t0ken-of-mine@host/m", "t0ken-of-mine"),
        ("llama-server -m m.gguf --api-key a,bcdefghi -c bcdefghi", "bcdefghi"),
    ],
)
def test_a_secret_stands_nowhere_but_among_the_secrets(line, secret):
    """A key that a shell's slip put in another flag's place would else be printed with the flag."""
    found = parse_launch(line)
    assert secret not in str((found.fields, found.flag_of, found.unknown, found.problems))
    assert "***" in str((found.fields, found.unknown, found.problems))


@pytest.mark.parametrize(
    ("flag", "value", "told"),
    [
        ("--max-model-len", "9" * 400, "is larger than anything an engine takes"),
        ("--max-model-len", "9" * 400 + "k", "is larger than anything an engine takes"),
        ("--kv-cache-memory-bytes", "1" + "0" * 16, "is larger than anything an engine takes"),
        ("--gpu-memory-utilization", "9" * 400, "needs a number"),
        ("--gpu-memory-utilization", "nan", "needs a number"),
        ("--gpu-memory-utilization", "1e999", "needs a number"),
        ("--tensor-parallel-size", "0", "needs at least 1"),
        ("--decode-context-parallel-size", "-1", "needs at least 1"),
        ("--speculative-config.num_speculative_tokens", "1e999", "num_speculative_tokens: needs a whole number"),
        ("--speculative-config.num_speculative_tokens", "two", "num_speculative_tokens: needs a whole number"),
        ("--speculative-config", '{"num_speculative_tokens":[1]}', "num_speculative_tokens: needs a whole number"),
    ],
)
def test_numbers_that_no_engine_takes_are_problems_and_set_nothing(flag, value, told):
    found = parse_launch(f"vllm serve m {flag} '{value}'")
    assert found.fields == {"model": "m"}
    assert found.problems == (f"{flag} {value}: {told}",)
