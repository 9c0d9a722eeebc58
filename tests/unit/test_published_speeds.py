"""Speeds that others published of hardware classes of which few are known: each within its band, none beats a limit."""

import pytest

from auditor.instruments.guess import guess

GPT = {"quantization": "mxfp4", "engine": "llama.cpp", "weight_file_bytes": 12_101_070_356}
PACKED = {"quantization": "q4_k_m", "engine": "llama.cpp", "context_tokens": 64}
READ = {"quantization": "q4_k_m", "engine": "llama.cpp"}
FP8 = {"quantization": "fp8", "count": 8, "tensor_parallel": 8}
ROCM = {**FP8, "engine": "vllm 0.10.0", "prompt_tokens": 128, "output_tokens": 2048}
SGLANG = {"quantization": "fp8", "count": 2, "tensor_parallel": 2, "engine": "sglang", "kv_bytes_per_element": 1}
SGLANG |= {"prompt_tokens": 1000, "output_tokens": 1000}
PAIR = {"count": 2, "tensor_parallel": 2}
TRT = {"quantization": "fp8", "engine": "TensorRT-LLM", "kv_bytes_per_element": 1}

ROWS = [  # accelerator, model, the rest of the row, metric, value
    # ROCm/vllm docs/dev-docker/README.md: latency of 2048 output tokens / 2048
    ("mi300x", "llama-3.1-70b", {**ROCM, "batch": 8}, "tpot_ms", 9.61),
    ("mi300x", "llama-3.1-70b", {**ROCM, "batch": 128}, "tpot_ms", 22.70),
    ("mi300x", "llama-3.1-405b", {**ROCM, "batch": 1}, "tpot_ms", 23.66),
    # sgl-project/sglang pull 31044, vllm-project/recipes pull 431
    ("mi300x", "minimax-m2.7", {**SGLANG, "batch": 1}, "tpot_ms", 14.94),
    ("mi300x", "minimax-m2.7", {**SGLANG, "batch": 16}, "tpot_ms", 31.80),
    (
        "mi300x",
        "qwen3-8b",
        {"engine": "vllm", "prompt_tokens": 1024, "output_tokens": 1024, "batch": 32},
        "tpot_ms",
        9.42,
    ),
    # visorcraft/strix-halo-llm-perf BENCHMARKS.md, Vulkan, 120 W
    ("strix-halo", "llama-3.1-70b", {**PACKED, "weight_file_bytes": 42.51e9}, "decode_tok_s", 5.10),
    ("strix-halo", "qwen2.5-14b", {**PACKED, "weight_file_bytes": 8.987e9}, "decode_tok_s", 24.47),
    ("strix-halo", "qwen3-30b-a3b", {**PACKED, "weight_file_bytes": 18.55e9}, "decode_tok_s", 86.07),
    ("strix-halo", "gpt-oss-120b", {**GPT, "weight_file_bytes": 63.4e9, "prompt_tokens": 512}, "prefill_tok_s", 1034),
    # ggml-org/llama.cpp discussion 14640 and pull request 26284
    ("mi300x", "qwen3-8b", PACKED, "decode_tok_s", 161),
    ("mi300x", "qwen3-8b", {**READ, "prompt_tokens": 512}, "prefill_tok_s", 5839),
    ("rx-7900-xtx", "meta-llama-3-8b", PACKED, "decode_tok_s", 105.8),
    ("rx-7900-xtx", "meta-llama-3-8b", {**READ, "prompt_tokens": 2048}, "prefill_tok_s", 3227),
    # geerlingguy/ai-benchmarks: Llama 3.2 3B and DeepSeek-R1-Distill-Qwen-14B Q4_K_M, gpt-oss-20b
    ("apple-m1-ultra", "llama-3.2-3b", {**PACKED, "weight_file_bytes": 2.02e9}, "decode_tok_s", 127.6),
    ("apple-m1-ultra", "deepseek-r1-distill-qwen-14b", PACKED, "decode_tok_s", 41.51),
    ("apple-m1-ultra", "gpt-oss-20b", {**GPT, "context_tokens": 64}, "decode_tok_s", 100.43),
    ("apple-m3-ultra", "gpt-oss-20b", {**GPT, "context_tokens": 64}, "decode_tok_s", 115.29),
    # NVIDIA/TensorRT-LLM v0.6.1 docs/source/performance.md: first token of an engine that serves nobody else
    ("h100-sxm", "llama-2-7b", {**TRT, "prompt_tokens": 128}, "ttft_ms", 7),
    # tenstorrent/tt-inference-server issue 143: vLLM with one request at a time
    ("h100-sxm", "qwen2.5-72b", {"engine": "vllm", **PAIR, "prompt_tokens": 128}, "ttft_ms", 35.0),
    ("h100-sxm", "qwen2.5-72b", {"engine": "vllm", **PAIR, "prompt_tokens": 1024}, "ttft_ms", 129.2),
    ("h100-sxm", "llama-2-70b", {**TRT, "count": 4, "tensor_parallel": 4, "prompt_tokens": 128}, "ttft_ms", 26),
    # enescingoz/mac-llm-bench: mlx-community/Meta-Llama-3.1-8B-Instruct-4bit
    ("apple-m5", "llama-3.1-8b", {"quantization": "4bit", "engine": "MLX", "context_tokens": 64}, "decode_tok_s", 28.3),
]


@pytest.mark.parametrize(("accelerator", "model", "rest", "metric", "value"), ROWS)
def test_published_speeds_lie_within_the_band(accelerator, model, rest, metric, value):
    answer = guess({"accelerator": accelerator, "model": model, "metric": metric, **rest})
    assert answer["low"] <= value <= answer["high"]
    assert answer["limit"] < value if metric.endswith("_ms") else value < answer["limit"]
    if metric in {"tpot_ms", "decode_tok_s"}:
        assert answer[metric] == pytest.approx(value, rel=0.25)
