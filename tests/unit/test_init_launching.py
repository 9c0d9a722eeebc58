"""Launch lines as people write them, made fit for a profile: no shell, no secrets, no unknown variables."""

import json

import pytest

from auditor.errors import UsageError
from auditor.init.launching import filled, read_line, script_words

KEY = "sk-live-0123456789abcdef"


def line(text, **variables):
    return read_line(script_words(text), variables)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("vllm serve m --max-model-len 4k", "vllm serve m --max-model-len 4k"),
        ("sudo nohup vllm serve m -tp 2 > log 2>&1 &", "vllm serve m -tp 2"),
        ("cd /srv && exec vllm serve m; sleep 5", "vllm serve m"),
        ("/opt/venv/bin/vllm serve m | tee log", "/opt/venv/bin/vllm serve m"),
        ("python3 -m sglang.launch_server --model-path m", "python -m sglang.launch_server --model-path m"),
        ("docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.9.1 --model m", "vllm/vllm-openai:v0.9.1 --model m"),
        ("bash -lc 'pip install x && vllm serve m'", "vllm serve m"),
        ("#!/bin/sh\n# start\nexport A=1\nvllm serve m \\\n  -tp 2\necho done", "vllm serve m -tp 2"),
        (
            "VLLM_CPU_KVCACHE_SPACE=4 OMP_NUM_THREADS=8 vllm serve m",
            "VLLM_CPU_KVCACHE_SPACE=4 vllm serve m",  # the engine's own settings stay
        ),
    ],
)
def test_what_stands_around_the_command_goes(written, kept):
    assert line(written).text == kept


@pytest.mark.parametrize(
    ("written", "kept", "key"),
    [
        (f"vllm serve m --api-key {KEY} -tp 2", "vllm serve m -tp 2", "LLM_API_KEY"),
        (f"vllm serve m --api-key={KEY} -tp 2", "vllm serve m -tp 2", "LLM_API_KEY"),
        (f"vllm serve m --api_key {KEY} another-{KEY} -tp 2", "vllm serve m -tp 2", "LLM_API_KEY"),
        ("vllm serve m --api-key $MY_KEY", "vllm serve m", "MY_KEY"),
        ("vllm serve m --api-key=${MY_KEY}", "vllm serve m", "MY_KEY"),
        ("vllm serve m --api-key '$(MY_KEY)'", "vllm serve m", "MY_KEY"),
        (f"vllm serve m --hf-token {KEY}", "vllm serve m", None),
        (f"VLLM_API_KEY={KEY} vllm serve m", "vllm serve m", "VLLM_API_KEY"),
        (f"LLAMA_API_KEY={KEY} llama-server -m a.gguf", "llama-server -m a.gguf", "LLAMA_API_KEY"),
        (f"docker run -e HF_TOKEN={KEY} vllm/vllm-openai --model m", "vllm/vllm-openai --model m", None),
        (f"vllm serve m --otlp-traces-endpoint http://u:{KEY}@h/x", "vllm serve m --otlp-traces-endpoint '***'", None),
        (
            f"python -m sglang.launch_server --model m --admin-api-key {KEY}",
            "python -m sglang.launch_server --model m",
            None,
        ),
        (f"vllm serve m --some-secret {KEY} -tp 2", "vllm serve m -tp 2", None),
    ],
)
def test_secrets_go_and_a_key_becomes_a_variable(written, kept, key):
    found = line(written)
    assert found.key == key
    assert KEY not in found.text
    assert KEY not in repr(found.launch.fields)
    if "***" in kept:
        kept, found_text = kept.partition("***")[0].rstrip("'"), found.text
        assert found_text.startswith(kept)
    else:
        assert found.text == kept
    if KEY in written:
        assert any(KEY in secret for secret in found.secrets)


def test_a_key_inside_json_is_hidden():
    config = json.dumps({"kv_role": "kv_both", "api_key": KEY})
    found = line(f"vllm serve m --kv-transfer-config '{config}'")
    assert KEY not in found.text
    assert found.launch.fields["kv_transfer"] == {"kv_role": "kv_both", "api_key": "***"}


def test_variables_are_filled_in_and_what_nobody_knows_is_left_out():
    found = line("vllm serve $MODEL --max-model-len ${LEN:-4096} --max-num-seqs $SEQS -tp $(TP)", MODEL="org/m", TP="2")
    assert found.text == "vllm serve org/m --max-model-len 4096 -tp 2"
    assert found.left_out == ("--max-num-seqs $SEQS",)
    assert found.launch.fields["max_model_len"] == 4096


def test_a_script_s_own_variables_count():
    assert line("MODEL=org/m; export TP=4\nvllm serve $MODEL -tp $TP").text == "vllm serve org/m -tp 4"


def test_a_secret_variable_is_never_filled_in():
    assert filled("$HF_TOKEN ${HF_TOKEN:-abc}", {"HF_TOKEN": KEY}) == "$HF_TOKEN ${HF_TOKEN:-abc}"


def test_the_version_is_that_of_the_image():
    assert line("docker run vllm/vllm-openai:v0.9.1 sh -c 'vllm serve m'").version == "0.9.1"


def test_what_starts_no_engine_is_refused():
    with pytest.raises(UsageError, match="no engine is started here that is known: vllm serve, "):
        line("python app.py")
    with pytest.raises(UsageError, match="close the quote"):
        line("vllm serve 'm")
