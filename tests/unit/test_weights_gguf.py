"""Weights of GGUF files: every part is in the file's format, but for the experts of MXFP4 files."""

from dataclasses import replace

import pytest
from model_shapes import total_bytes

from auditor.catalog import models
from auditor.theory.settings import Settings
from auditor.theory.weights import streamed_bytes

GIB = 1 << 30
MXFP4 = Settings(engine="llamacpp", quantization="mxfp4", weight_bits=4.25)


@pytest.mark.parametrize(("name", "gib"), [("gpt-oss-20b", 11.27), ("gpt-oss-120b", 59.02)])
def test_mxfp4_files_keep_all_but_experts_in_q8_0(name, gib):
    # ggml-org/llama.cpp benches/dgx-spark.md: "gpt-oss 20B MXFP4 MoE", 11.27 GiB; 120B, 59.02 GiB
    assert total_bytes(models.find(name), MXFP4) / GIB == pytest.approx(gib, rel=0.01)


def test_a_file_s_embedding_takes_its_share():
    # Llama-3-8B as Q4_K_M, 4,917,737,553 bytes over 8,030,261,248 weights: the embedding's 525,336,576 are not read
    model = replace(models.find("llama-3.1-8b"), weight_bytes=4_917_737_553, quantization="q4_k_m")
    facts = Settings(engine="llamacpp", quantization="q4_k_m", weight_bits=4.89)
    read = 4_917_737_553 * (1 - 525_336_576 / 8_030_261_248)
    assert streamed_bytes(model, facts, 1, limit=True) == pytest.approx(read, rel=1e-3)
