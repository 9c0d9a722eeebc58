"""Helpers to test one check without an endpoint: evidence of a small healthy deployment, and a check run on it.

    from auditor.testing import make_evidence, run_check
    from my_checks import CHECK

    def test_an_empty_profile_is_skipped():
        evidence = make_evidence(measurements=())
        assert [f.status for f in run_check(CHECK, evidence, "X901")] == ["skip"]

The deployment is Llama-3.1-8B on one H100 under vLLM, 16 requests in flight; every shipped question passes on it. Times
follow a simple law of their own (20 ms + 25 us a prompt token; 8 ms + 0.1 ms a stream for each output token).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from auditor.catalog import accelerators, models
from auditor.evidence import Check, Coverage, CoverageItem, Evidence, Finding, Location
from auditor.loads import Load, Plan, Purpose, Shape
from auditor.measurement import ClientHealth, Measurement, MetricsPage, Sample, Served, Snapshot
from auditor.profile import Deployment, Endpoint, Lengths, Profile, Slo, Traffic, TrafficClass
from auditor.theory.settings import Settings

__all__ = [
    "make_coverage",
    "make_evidence",
    "make_load",
    "make_measurement",
    "make_profile",
    "make_sample",
    "make_served",
    "make_settings",
    "run_check",
    "with_slo",
]

LLAMA_8B = models.find("meta-llama/Llama-3.1-8B-Instruct")
H100 = accelerators.find("h100-sxm")
FLAGS = {
    "tensor_parallel": "--tensor-parallel-size",
    "quantization": "--quantization",
    "kv_cache_dtype": "--kv-cache-dtype",
    "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "enforce_eager": "--enforce-eager",
    "prefix_caching": "--enable-prefix-caching",
    "speculative": "--speculative-config",
}
TARGET = 16


# ------------------------------------------------------------------------------------------------------------ declared


def make_profile(**overrides: Any) -> Profile:
    """A profile with one traffic class, an SLO on everything, and monitoring not required. Fields by name."""
    chat = TrafficClass(
        name="chat",
        prompt_tokens=Lengths(p50=800, p95=1600, max=3000),
        output_tokens=Lengths(p50=100, p95=200, max=300),
    )
    fields: dict[str, Any] = {
        "version": 1,
        "name": "healthy",
        "endpoint": Endpoint(url="http://127.0.0.1:8000/v1"),
        "deployment": Deployment(model=LLAMA_8B.name, accelerator=H100.key, max_model_len=32768, max_num_seqs=256),
        "traffic": Traffic(target_concurrency=TARGET, optimize_for="tps", classes=(chat,)),
        "slo": Slo(ttft={"p95": 1.5}, tps={"p05": 25.0}, e2e={"p95": 20.0}, error_rate=0.02),
    }
    return Profile(**(fields | overrides))


def make_settings(**overrides: Any) -> Settings:
    """vLLM's settings of the healthy deployment. Fields by name."""
    fields: dict[str, Any] = {
        "engine": "vllm",
        "engine_version": "0.18.0",
        "block_size": 16,
        "max_model_len": 32768,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "memory_fraction": 0.92,
    }
    return Settings(**(fields | overrides))


def make_served(**overrides: Any) -> Served:
    """What the healthy endpoint says of itself. Fields by name."""
    fields: dict[str, Any] = {
        "engine": "vllm",
        "api": "chat",
        "model": LLAMA_8B.name,
        "engine_version": "0.18.0",
        "max_model_len": 32768,
        "kv_blocks": 29_000,
        "kv_tokens": 464_000,
        "block_size": 16,
        "attention_backend": "FLASH_ATTN",
        "enforce_eager": False,
        "streaming": True,
        "usage": True,
        "min_tokens": True,
        "round_trip": 0.0,
        "pages": (MetricsPage(url="http://127.0.0.1:8000/metrics", types={"vllm:num_requests_running": "gauge"}),),
    }
    return Served(**(fields | overrides))


# ------------------------------------------------------------------------------------------------------------ measured


def make_sample(index: int = 0, **overrides: Any) -> Sample:
    """One good request of class chat in load "slo". Fields by name; `arrivals` and `e2e` follow from `ttft`, `tpot`
    (seconds an output token) and `output_tokens` unless given.
    """
    ttft = overrides.get("ttft", 0.04)
    tpot = overrides.pop("tpot", 0.0096)
    output = overrides.get("output_tokens", 100)
    good = overrides.get("error") is None and ttft is not None and output
    arrivals = tuple(ttft + tpot * i for i in range(output)) if good else ()
    fields: dict[str, Any] = {
        "load": "slo",
        "index": index,
        "cls": "chat",
        "start": 0.06 * index,
        "asked_prompt_tokens": 800,
        "asked_output_tokens": output or 100,
        "ttft": ttft if good else None,
        "e2e": arrivals[-1] if arrivals else None,
        "prompt_tokens": 800 if good else None,
        "output_tokens": output if good else None,
        "arrivals": arrivals,
        "status": 200,
        "finish_reason": "length" if good else None,
    }
    return Sample(**(fields | overrides))


def make_load(purpose: Purpose = "slo", **overrides: Any) -> Load:
    """A load of one purpose; an SLO load asks 100 requests at the target. Fields by name."""
    shape = Shape(cls="chat", prompt_tokens=800, output_tokens=100)
    fields: dict[str, Any] = {
        "id": overrides.get("id", purpose),
        "purpose": purpose,
        "concurrency": TARGET if purpose == "slo" else 1,
        "shapes": (shape,) * 200 if purpose == "slo" else (shape,),
    }
    return Load(**(fields | overrides))


def make_measurement(samples: Iterable[Sample] | None = None, **overrides: Any) -> Measurement:
    """The healthy SLO load: 200 requests, 16 in flight, server counters beside them. Fields by name.

    `samples` replaces the requests; `gauges` and `counters` change what the server showed during the load and by how
    much its counters moved (`counters={}` and `gauges={}`: no metrics page).
    """
    given = tuple(samples) if samples is not None else tuple(_requests(200))
    gauges = overrides.pop("gauges", {"running": float(TARGET), "waiting": 0.0, "kv_usage": 0.05})
    counters = overrides.pop("counters", {"preemptions": 0.0, "requests": float(len(given))})
    fields: dict[str, Any] = {
        "load": make_load(),
        "samples": given,
        "duration": max((s.start + (s.e2e or 0.0) for s in given), default=0.0),
        "snapshots": make_snapshots(gauges, counters),
        "client": ClientHealth(loop_lag_p99=0.0005, loop_lag_max=0.002, peak_inflight=TARGET, cpu_share=0.2),
    }
    return Measurement(**(fields | overrides))


def make_snapshots(gauges: Mapping[str, float], counters: Mapping[str, float]) -> tuple[Snapshot, ...]:
    """Server snapshots: counters from 1000 up by `counters`, gauges as given ten times during the load."""
    if not gauges and not counters:
        return ()
    before = dict.fromkeys(counters, 1000.0)
    after = {name: 1000.0 + moved for name, moved in counters.items()}
    during = tuple(Snapshot(at=float(i), phase="during", values={**gauges, **before}) for i in range(1, 11))
    return (Snapshot(at=0.0, phase="before", values=before), *during, Snapshot(at=12.0, phase="after", values=after))


def _requests(count: int) -> Iterable[Sample]:
    """A closed loop in rounds: each slot starts its next request when the last has ended; lengths vary in a pattern."""
    free = [0.0] * TARGET
    for index in range(count):
        slot = min(range(TARGET), key=lambda i: free[i])
        prompt, output = 400 + 97 * (index * 7 % 13), 60 + 9 * (index * 5 % 11)
        ttft = 0.02 + 25e-6 * prompt + 0.004 * (index * 3 % 7)
        sample = make_sample(
            index,
            start=free[slot],
            ttft=ttft,
            asked_prompt_tokens=prompt,
            prompt_tokens=prompt,
            asked_output_tokens=output,
            output_tokens=output,
        )
        free[slot] += (sample.e2e or 0.0) + 0.001
        yield sample


def _ladders() -> Iterable[Measurement]:
    """The cold request, idle prompts of five lengths, and decode at four batches and two contexts."""
    cold = make_sample(load="cold", cls="ladder", ttft=0.05, output_tokens=16)
    yield make_measurement([cold], load=make_load("cold"), gauges={}, counters={})
    for tokens in (32, 256, 1024, 1600, 3000):
        name = f"prefill-{tokens}"
        samples = [
            make_sample(i, load=name, ttft=0.02 + 25e-6 * tokens, output_tokens=1, prompt_tokens=tokens)
            for i in range(5)
        ]
        load = make_load("prefill", id=name, prompt_tokens=tokens)
        yield make_measurement(samples, load=load, gauges={}, counters={})
    for batch, context in ((1, 200), (1, 1600), (2, 200), (2, 1600), (8, 200), (8, 1600), (16, 200), (16, 1600)):
        name = f"decode-{batch}x{context}"
        step = 0.007 + 2e-5 * batch + 5e-8 * batch * context
        samples = [
            make_sample(i, load=name, start=0.0, ttft=0.05, tpot=step, output_tokens=48, prompt_tokens=context)
            for i in range(batch)
        ]
        load = make_load("decode", id=name, concurrency=batch, context=context)
        yield make_measurement(samples, load=load, gauges={}, counters={})


# ------------------------------------------------------------------------------------------------------------ evidence


def make_evidence(**overrides: Any) -> Evidence:
    """Evidence of the healthy deployment, on which every shipped question passes. Fields of `Evidence` by name."""
    slo = make_measurement()
    plan = Plan(loads=(slo.load,), requests=200, tokens=180_000, seconds=20.0)
    paths = ("traffic", "traffic.target_concurrency", "slo.ttft.p95", "slo.tps.p05", "deployment", "probe.budget")
    fields: dict[str, Any] = {
        "profile": make_profile(),
        "today": "2026-01-01",
        "lines": {path: Location("profile.yaml", line) for line, path in enumerate(paths, 1)},
        "geometry": LLAMA_8B,
        "device": H100,
        "settings": make_settings(),
        "served": make_served(),
        "plan": plan,
        "measurements": (slo, *_ladders()),
        "coverage": make_coverage(),
        "flags": FLAGS,
    }
    return Evidence(**(fields | overrides))


def make_coverage() -> Coverage:
    """One dashboard that draws all three, each watched by an alert, of series that the engine's page has."""
    series = {
        "ttft": ("ttft", "vllm:time_to_first_token_seconds"),
        "tps": ("generation_tokens", "vllm:generation_tokens_total"),
        "memory": ("kv_usage", "vllm:kv_cache_usage_perc"),
    }
    items = tuple(
        CoverageItem(concept=c, rung="alerted", names=(name,), where=(f"panels.json: {c}",), alerts=(f"{c} is bad",))
        for c, (_, name) in series.items()
    )
    return Coverage(items=items, offered={c: (name,) for c, name in series.values()}, files=("panels.json",))


def with_slo(evidence: Evidence, measurement: Measurement) -> Evidence:
    """The evidence with its SLO load replaced."""
    ladders = tuple(m for m in evidence.measurements if m.load.purpose != "slo")
    return replace(evidence, measurements=(measurement, *ladders))


def run_check(check: Check, evidence: Evidence, rule: str | None = None) -> tuple[Finding, ...]:
    """The findings of a check, or of one of its rules. Raises ValueError for a rule that the check does not have."""
    rules = [r for r in check.rules if rule in (None, r.id)]
    if not rules:
        raise ValueError(f"no rule {rule} in check {check.question}; it has {', '.join(r.id for r in check.rules)}")
    return tuple(finding for r in rules for finding in r.judge(evidence))
