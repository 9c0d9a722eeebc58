"""Hand-made reports for the tests of the formats and the command line."""

from dataclasses import replace

from auditor.evidence import Evidence, Finding, Location, Number, QuestionResult, Report, Waived
from auditor.loads import Load, Plan, PlanNote, Shape
from auditor.measurement import ClientHealth, Histogram, Measurement, Sample, Served, Snapshot
from auditor.profile import Deployment, Endpoint, Lengths, Profile, Traffic, TrafficClass

SHAPE = Shape(cls="rag", prompt_tokens=3000, output_tokens=150)

PROFILE = Profile(
    version=1,
    name="chat-prod",
    endpoint=Endpoint(url="http://127.0.0.1:8000/v1"),
    deployment=Deployment(model="meta-llama/Llama-3.1-8B-Instruct", accelerator="h100-sxm", price_per_hour=2.5),
    traffic=Traffic(
        target_concurrency=4,
        classes=(TrafficClass(name="rag", prompt_tokens=Lengths(p50=3000), output_tokens=Lengths(p50=150)),),
    ),
)


def sample(index: int, ttft: float | None, error: str | None = None) -> Sample:
    """A request of 11 output tokens that arrive 20 ms apart after `ttft`."""
    arrivals = tuple(ttft + 0.02 * step for step in range(11)) if ttft is not None else ()
    return Sample(
        load="slo",
        index=index,
        cls="rag",
        start=0.5 * index,
        asked_prompt_tokens=3000,
        asked_output_tokens=11,
        ttft=ttft,
        e2e=arrivals[-1] if arrivals else None,
        prompt_tokens=3000 if arrivals else None,
        output_tokens=11 if arrivals else None,
        arrivals=arrivals,
        error=error,
    )


LOAD = Load(id="slo", purpose="slo", concurrency=4, shapes=(SHAPE,) * 4, warmup=(SHAPE,), why="the SLOs at the target")

MEASUREMENT = Measurement(
    load=LOAD,
    samples=(sample(0, 1.0), sample(1, 1.2), sample(2, 2.4), sample(3, None, "timeout")),
    duration=2.0,
    snapshots=(
        Snapshot(
            at=0.0,
            phase="before",
            values={"preemptions": 3.0, "kv_usage": 0.1},
            histograms={"ttft": Histogram(sum=10.0, count=4.0)},
        ),
        Snapshot(at=1.0, phase="during", values={"preemptions": 5.0, "kv_usage": 0.97}),
        Snapshot(
            at=2.5,
            phase="after",
            values={"preemptions": 9.0, "kv_usage": 0.2},
            histograms={"ttft": Histogram(sum=14.2, count=7.0)},
        ),
    ),
    client=ClientHealth(peak_inflight=4),
)

EVIDENCE = Evidence(
    profile=PROFILE,
    today="2026-03-01",
    lines={"slo.ttft.p95": Location("chat.yaml", 31, 12)},
    served=Served(engine="vllm", api="chat", model="meta-llama/Llama-3.1-8B-Instruct", engine_version="0.18.0"),
    plan=Plan(
        loads=(LOAD,),
        requests=5,
        tokens=15750,
        seconds=120.0,
        notes=(PlanNote("the p99 of e2e needs 299 requests, the budget allows 200", ("W112",)),),
    ),
    measurements=(MEASUREMENT,),
)

TTFT = Finding(
    rule="W110",
    status="fail",
    title="TTFT misses its SLO",
    why="38 of 200 requests took longer than 1.5 s; at most 4 may for p95 to hold with 95 % confidence.",
    deciding=True,
    severity="high",
    subject="rag p95",
    measured=Number(name="TTFT p95", value=2.4, unit="s", provenance="measured", low=2.3125, high=2.52, n=200),
    required=Number(name="TTFT p95", value=1.5, unit="s", provenance="declared"),
    numbers=(Number(name="share over the SLO", value=0.19, unit="share", provenance="measured", n=200),),
    where=Location("chat.yaml", 31, 12),
    remedies=("raise --max-num-batched-tokens from 2048 to 8192", "add a replica"),
)
KV = Finding(
    rule="K302",
    status="inconclusive",
    title="Target concurrency against the pool",
    why="The pool is unknown.",
    deciding=True,
    missing="no metrics page",
)
CACHED = Finding(
    rule="T501",
    status="inconclusive",
    title="Cached prompts",
    why="9 of 10 prompt tokens came from the cache.",
    missing="prompts that the server has not seen",
    voids=("W112:pass",),
)
VOIDED = Finding(
    rule="W113",
    status="inconclusive",
    title="Error rate",
    why="0 of 200 requests failed.",
    deciding=True,
    voided_by=("T501",),
)
EAGER = Finding(rule="H205", status="warn", title="Kernel capture is off", why="enforce_eager is set.", severity="low")
PANELS = Number(name="panels", value=3, unit="", provenance="declared")
GOOD = Finding(
    rule="M401", status="pass", title="TTFT is covered", why="Panel 'TTFT' shows it.", deciding=True, measured=PANELS
)
ABSENT = Finding(rule="H206", status="skip", title="Attention backend", why="", missing="the server does not tell it")

ACCEPTED = Waived(reason="the batch job ends in May", expires="2027-01-31", owner="team-x")
WAIVED = replace(
    TTFT, rule="W112", title="E2E misses its SLO", measured=None, required=None, numbers=(), waived=ACCEPTED
)
UNSEEN = Finding(
    rule="K304", status="skip", title="Preemption", why="No counters.", deciding=True, missing="no metrics page"
)

QUESTIONS = (
    QuestionResult(
        question="W", title="Workload shape", status="fail", decided_by=("W110",), headline="TTFT p95 2.4 s over 1.5 s"
    ),
    QuestionResult(
        question="H",
        title="Bottleneck",
        status="pass",
        headline="H201 [ttft p95]: Reading the prompt takes 0.0361 s at least: the SLO leaves room.",
        answers=("Prefill is bound by compute (measured and predicted).", "Decode is bound by weights (predicted)."),
    ),
    QuestionResult(question="K", title="KV capacity", status="inconclusive", headline="no metrics page"),
    QuestionResult(question="M", title="Monitoring", status="skip", asked=False, headline="not required"),
)

REPORT = Report(
    schema_version=1,
    tool_version="0.1.0",
    name="chat-prod",
    date="2026-03-01",
    verdict="NOT READY",
    verdict_line="NOT READY: chat-prod misses its TTFT SLO",
    exit_code=1,
    questions=QUESTIONS,
    findings=(GOOD, EAGER, VOIDED, KV, CACHED, ABSENT, UNSEEN, WAIVED, TTFT),
    evidence=EVIDENCE,
    unused_waivers=("M420 (chat.yaml:40:5)",),
    expired_waivers=("H206, expired 2026-01-31",),
)

READY = replace(
    REPORT,
    verdict="READY",
    verdict_line="READY: chat-prod",
    exit_code=0,
    findings=(GOOD,),
    unused_waivers=(),
    expired_waivers=(),
)

if __name__ == "__main__":
    from pathlib import Path

    from auditor.report.renderers import RENDERERS

    GOLDEN = Path(__file__).parents[1] / "golden"
    for form, file in (("terminal", "report.txt"), ("markdown", "report.md"), ("json", "report.json")):
        (GOLDEN / file).write_text(RENDERERS[form](REPORT), encoding="utf-8")
