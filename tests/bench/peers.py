"""How the load generators of `compare` are asked for one load, and how what they report is read.

An entry of PEERS is a function that gives the arguments, and one that reads the files which the program left. All get
the same prompts (one file, in the two forms that they read) but `audit probe`, which writes its own of that length.
Where a program takes a deadline for replies it gets the same one. Where it offers more than one figure by the name of
TPOT, the one that leaves the first token out is read.
"""

import csv
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PEERS", "Job", "Said", "Seen"]


@dataclass(frozen=True, slots=True)
class Job:
    """One load to send, and the folder with its prompts, a tokenizer that counts words, and room for results."""

    url: str
    model: str
    streams: int
    requests: int
    prompt: int
    output: int
    patience: int
    """Seconds that one reply may take."""
    folder: Path

    @property
    def prompts(self) -> Path:
        return self.folder / "prompts.jsonl"

    @property
    def talks(self) -> Path:
        return self.folder / "talks.json"

    @property
    def tokenizer(self) -> Path:
        return self.folder / "tokenizer"

    @property
    def result(self) -> Path:
        """The file or folder that the program writes."""
        return self.folder / "result"


@dataclass(frozen=True, slots=True)
class Seen:
    """One request that a program counts as a success: times in ms, tokens."""

    ttft: float
    tpot: float | None
    """None: not told."""
    prompt: int
    output: int


@dataclass(frozen=True, slots=True)
class Said:
    """What a program reports of a load."""

    good: list[Seen]
    failed: int


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _split(rows: Iterable[Any], good: Callable[[Any], bool], seen: Callable[[Any], Seen]) -> Said:
    rows = list(rows)
    return Said([seen(row) for row in rows if good(row)], sum(not good(row) for row in rows))


def _audit(job: Job) -> list[str]:
    return [
        *("probe", "--url", f"{job.url}/v1", "--model", job.model, "--json", "--requests-out", str(job.result)),
        *("--concurrency", str(job.streams), "--requests", str(job.requests), "--stall", f"{job.patience}s"),
        *("--prompt-tokens", str(job.prompt), "--output-tokens", str(job.output)),
    ]


def _read_audit(job: Job) -> Said:
    return _split(
        _lines(job.result),
        lambda row: row["ok"],
        lambda row: Seen(row["ttft_ms"], row["tpot_ms"], row["prompt_tokens"], row["output_tokens"]),
    )


def _vllm(job: Job) -> list[str]:
    return [
        *("bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--base-url", job.url),
        *("--model", job.model, "--tokenizer", str(job.tokenizer), "--max-concurrency", str(job.streams)),
        *("--dataset-name", "custom", "--dataset-path", str(job.prompts), "--skip-chat-template"),
        *("--num-prompts", str(job.requests), "--custom-output-len", str(job.output), "--disable-tqdm"),
        *("--save-result", "--save-detailed", "--result-filename", str(job.result)),
    ]


def _columns(said: Any) -> Said:
    """vLLM's and SGLang's form: a list for each figure, seconds; TPOT is the sum of the gaps over the tokens after."""
    names = ("errors", "ttfts", "itls", "input_lens", "output_lens")
    return _split(
        zip(*(said[name] for name in names), strict=True),
        lambda row: not row[0],
        lambda row: Seen(1e3 * row[1], 1e3 * sum(row[2]) / max(1, row[4] - 1), row[3], row[4]),
    )


def _read_vllm(job: Job) -> Said:
    return _columns(json.loads(job.result.read_text(encoding="utf-8")))


def _sglang(job: Job) -> list[str]:
    return [
        *("--backend", "sglang-oai-chat", "--base-url", job.url, "--model", job.model, "--warmup-requests", "0"),
        *("--tokenizer", str(job.tokenizer), "--dataset-name", "sharegpt", "--dataset-path", str(job.talks)),
        *("--num-prompts", str(job.requests), "--max-concurrency", str(job.streams), "--disable-tqdm"),
        *("--sharegpt-output-len", str(job.output), "--disable-retokenize"),
        *("--output-file", str(job.result), "--output-details"),
    ]


def _read_sglang(job: Job) -> Said:
    return _columns(_lines(job.result)[-1])


def _aiperf(job: Job) -> list[str]:
    return [
        *("profile", "--url", job.url, "--model", job.model, "--endpoint-type", "chat", "--streaming"),
        *("--tokenizer", str(job.tokenizer), "--input-file", str(job.prompts), "--custom-dataset-type", "single_turn"),
        *("--concurrency", str(job.streams), "--request-count", str(job.requests), "--ui", "none"),
        *("--extra-inputs", f"max_tokens:{job.output}", "--request-timeout-seconds", str(job.patience)),
        *("--artifact-dir", str(job.result)),
    ]


def _read_aiperf(job: Job) -> Said:
    def seen(row: Any) -> Seen:
        said = {name: figure["value"] for name, figure in row["metrics"].items()}
        times = said["time_to_first_token"], said["inter_token_latency"]
        return Seen(*times, said["input_sequence_length"], said["output_sequence_length"])

    return _split(_lines(job.result / "profile_export.jsonl"), lambda row: not row.get("error"), seen)


def _guidellm(job: Job) -> list[str]:
    backend = f"kind=openai_http,target={job.url},model={job.model},request_format=/v1/chat/completions"
    return [
        *("run", "--backend", f"{backend},max_tokens={job.output},timeout={job.patience}", "--disable-progress"),
        *("--profile", f"kind=concurrent,streams={job.streams}"),
        *("--constraint", f"kind=max_requests,count={job.requests}"),
        *("--tokenizer", f"kind=huggingface_auto,model={job.tokenizer}"),
        *("--data", f"kind=json_file,path={job.prompts}", "--output", f"kind=json,path={job.result}.json"),
    ]


def _read_guidellm(job: Job) -> Said:
    (load,) = json.loads(job.result.with_suffix(".json").read_text(encoding="utf-8"))["benchmarks"]
    names = ("time_to_first_token_ms", "inter_token_latency_ms", "prompt_tokens", "output_tokens")
    good = [Seen(*(row[name] for name in names)) for row in load["requests"]["successful"]]
    return Said(good, len(load["requests"]["errored"]) + len(load["requests"]["incomplete"]))


def _inference_perf(job: Job) -> list[str]:
    fields = {"request": False, "response": False, "response_chunks": False, "computed_metrics": True}
    settings = {
        "api": {"type": "completion", "streaming": True},
        "data": {"type": "shareGPT", "path": str(job.talks)},
        "load": {
            "type": "concurrent",
            "num_workers": 1,
            "worker_max_concurrency": job.streams,
            "request_timeout": job.patience,
            "stages": [{"num_requests": job.requests, "concurrency_level": job.streams}],
        },
        "server": {"type": "vllm", "model_name": job.model, "base_url": job.url},
        "tokenizer": {"pretrained_model_name_or_path": str(job.tokenizer)},
        "report": {"request_lifecycle": {"per_request": True, "per_request_fields": fields}},
        "storage": {"local_storage": {"path": str(job.result)}},
    }
    path = job.folder / "inference-perf.yaml"
    path.write_text(json.dumps(settings), encoding="utf-8")
    return ["--config_file", str(path)]


def _read_inference_perf(job: Job) -> Said:
    def seen(row: Any) -> Seen:
        said = row["computed_metrics"]
        times = 1e3 * said["time_to_first_token"], 1e3 * said["time_per_output_token"]
        return Seen(*times, said["input_tokens"], said["output_tokens"])

    rows = json.loads((job.result / "per_request_lifecycle_metrics.json").read_text(encoding="utf-8"))
    return _split(rows, lambda row: not row["error"], seen)


def _servebench(job: Job) -> list[str]:
    return [
        *("run", "--url", f"{job.url}/v1", "--model", job.model, "--warmup", "0", "--no-gpu"),
        *("--concurrency", str(job.streams), "--num-requests", str(job.requests), "--prompts", str(job.prompts)),
        *("--output-len", str(job.output), "--timeout", str(job.patience)),
        *("--out", str(job.folder / "servebench.json"), "--csv-requests", str(job.result)),
    ]


def _read_servebench(job: Job) -> Said:
    with job.result.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return _split(
        rows,
        lambda row: row["ok"] == "True",
        lambda row: Seen(
            float(row["ttft_ms"]), float(row["tpot_ms"]), int(row["prompt_tokens"]), int(row["output_tokens"])
        ),
    )


PEERS: dict[str, tuple[Callable[[Job], list[str]], Callable[[Job], Said]]] = {
    "audit": (_audit, _read_audit),
    "sglang": (_sglang, _read_sglang),
    "servebench": (_servebench, _read_servebench),
    "vllm": (_vllm, _read_vllm),
    "inference-perf": (_inference_perf, _read_inference_perf),
    "aiperf": (_aiperf, _read_aiperf),
    "guidellm": (_guidellm, _read_guidellm),
}
"""By the name that `--tool` uses; sglang is its Rust client (sglang.benchmark.rust_client), vllm `vllm bench serve`."""
