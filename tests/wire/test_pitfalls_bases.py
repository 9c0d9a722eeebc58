"""Pitfalls of bases and verdicts: who is counted, over what, and what so many requests can prove."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from auditor.instruments.probe import Probed, Question, document
from auditor.loads import Shape
from auditor.profile import Slo
from tests.wire.benches import LIMIT, bench_row, evidence_of, statuses
from tests.wire.byteserver import HOLD, Request, Script, head
from tests.wire.habits import Serial
from tests.wire.pitfalls import Row, check, delta, ended, finish, measure, plain, usage

BUSY = b'{"error":{"message":"overloaded","code":503}}'
REFUSED: Script = [(0.001, head("503 Service Unavailable", framing=f"content-length: {len(BUSY)}") + BUSY)]
QUOTA: Script = [(0.001, head("429 Too Many Requests", framing="retry-after: 7\r\ncontent-length: 0"))]
FAST = plain(0.1, 0.01, 4)
SLOW = plain(3.0, 0.01, 4)
SILENT: Script = [(0.0, head()), HOLD]
UNKNOWN: Script = [(0.1, head() + delta(thinking="x")), *[(0.01, delta(thinking="x"))] * 3, (0.0, ended(4))]
Choice = Callable[[Request, int], Script]


def every(step: int, other: Script, good: Script = FAST) -> Choice:
    """Every so manieth request gets the other reply."""
    return lambda _request, number: other if number % step == 0 else good


def first(count: int, other: Script) -> Choice:
    """The first ones get the other reply."""
    return lambda _request, number: other if number < count else FAST


ROWS: list[Row] = [
    bench_row(
        "half of the requests are refused at once, the rest are fast",
        "https://github.com/SemiAnalysisAI/InferenceX/issues/357",
        every(2, REFUSED),
        requests=60,
        concurrency=10,
        sent=60,
        failed=30,
        verdict="fail",
        W113="fail",
    ),
    bench_row(
        "36 of 60 fail and 24 are fast: 40 % attain",
        "https://github.com/vllm-project/guidellm/pull/1085",
        lambda _request, number: FAST if number % 5 < 2 else REFUSED,
        requests=60,
        concurrency=10,
        sent=60,
        attained=0.4,
        verdict="fail",
    ),
    bench_row(
        "3 of 60 streams break off: they are misses, not gaps in the table",
        "https://github.com/hmchangw/newchat/pull/200",
        every(20, [(0.1, head() + delta(content="x"))]),
        requests=60,
        concurrency=10,
        sent=60,
        failed=3,
        attained=0.95,
        verdict="inconclusive",
    ),
    bench_row(
        "nothing comes before the deadline: a result, and no division by zero",
        "https://github.com/openshift-psap/llm-load-test/issues/90",
        SILENT,
        requests=20,
        concurrency=20,
        sent=20,
        failed=20,
        attained=0.0,
        p50=math.inf,
        verdict="fail",
    ),
    bench_row(
        "half of the streams carry their tokens in a field of the server's own",
        "https://github.com/modelscope/evalscope/issues/1694",
        every(2, UNKNOWN),
        requests=40,
        concurrency=10,
        failed=0,
        sent=40,
        p50=0.1,
        p95=0.1,
    ),
    bench_row(
        "a failed request is not sent again behind one's back",
        "https://github.com/Azure/azure-openai-benchmark/issues/20",
        every(2, REFUSED),
        requests=20,
        concurrency=1,
        also=lambda _got, server: {"arrived": len(server.requests)},
        sent=20,
        failed=10,
        arrived=20,
    ),
    bench_row(
        "users go on after a reply that never came",
        "https://github.com/vllm-project/vllm/pull/28493",
        every(5, SILENT),
        requests=20,
        concurrency=4,
        sent=20,
        failed=4,
        p50=0.1,
    ),
    bench_row(
        "one slow reply of nine is no p95",
        "https://github.com/sgl-project/sglang-omni/issues/1202",
        every(9, plain(1.0, 0.01, 4)),
        requests=9,
        concurrency=1,
        verdict="inconclusive",
    ),
    bench_row(
        "nine fast replies are no p95 either",
        "https://github.com/majiayu000/vibeguard/issues/611",
        FAST,
        requests=9,
        concurrency=1,
        verdict="inconclusive",
    ),
    bench_row(
        "three slow replies of 20 ...",
        "https://github.com/aarora79/agentic-coding-harness-benchmarks/pull/32",
        first(3, SLOW),
        requests=20,
        concurrency=2,
        p50=0.1,
        verdict="inconclusive",
    ),
    bench_row(
        "... are not forgiven because a hundred were sent",
        "https://github.com/aarora79/agentic-coding-harness-benchmarks/pull/32",
        first(3, SLOW),
        requests=100,
        concurrency=10,
        p50=0.1,
        verdict="inconclusive",
    ),
    bench_row(
        "as many requests as slots are one wave and no steady state",
        "https://github.com/vllm-project/vllm/issues/4252",
        Serial(0.02, 0.1),
        requests=50,
        concurrency=50,
        limit=2.0,
        T509="inconclusive",
        verdict="inconclusive",
    ),
    bench_row(
        "the opening wave waits for itself: slots pass from warm-up without draining",
        "https://github.com/modelscope/evalscope/pull/1641",
        Serial(0.1, 0.8),
        requests=40,
        concurrency=8,
        warmup=8,
        limit=0.21,
        p95=0.1,
    ),
    bench_row(
        "refused by the quota of a key: no word on the service",
        "https://github.com/patibandlavenkatamanideep/memoryops-ai/pull/147",
        every(6, QUOTA),
        requests=60,
        concurrency=10,
        T505="inconclusive",
        verdict="inconclusive",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_request_counts_and_few_prove_nothing(row: Row) -> None:
    check(row)


# ----------------------------------------------------------------------------------------------------------- throughput


def test_throughput_is_that_of_busy_streams() -> None:
    """Not of the warm-up before, nor of the last straggler, whom nobody accompanies.

    Four streams of four tokens in 0.4 s are 40 tokens/s; one more reply at the end takes ten seconds.
    Sources: https://github.com/sgl-project/sglang/pull/30918, https://github.com/aliostad/SuperBenchmarker/issues/35,
    https://github.com/elastic/rally/issues/175
    """
    script = plain(0.1, 0.1, 4)
    slow = [(10.0, head() + delta(content="x")), (0.0, ended(1))]
    got, _ = measure(lambda _request, number: slow if number == 99 else script, requests=80, warmup=20, concurrency=4)
    question = Question(concurrency=4, requests=80, prompt=(7, 7), output=(4, 4), warmup=20)
    said = document(Probed(question=question, url="", model="m", api="chat", counted="", measurement=got))
    assert said["duration_s"] == pytest.approx(20.0, rel=0.05)
    assert said["output_tokens_per_s"] == pytest.approx(40.0, rel=0.05)
    assert said["requests_per_s"] == pytest.approx(10.0, rel=0.05)


# ------------------------------------------------------------------------------------------------- classes of requests


def _mixed(request: Request, _number: int) -> Script:
    """Prompts of 16,000 tokens take a second, short ones a tenth."""
    words = len(request.body.split())
    return plain(1.0 if words > 1000 else 0.1, 0.01, 4, finish() + usage(4, prompt=16_000 if words > 1000 else 100))


def test_short_and_long_prompts_are_judged_apart() -> None:
    """A median over both is nobody's: macbench called a turn "37348x faster" by pooling cold and warm ones.

    Source: https://github.com/anthony-chaudhary/fak/issues/11854, https://github.com/ai-dynamo/dynamo/issues/5287
    """
    got, _ = measure(_mixed, load={"shapes": _shapes(100) + _shapes(16_000)}, concurrency=4)
    limits = {"p95": LIMIT}
    evidence = evidence_of(got, Slo(classes={"short": Slo(ttft=limits), "long": Slo(ttft=limits)}))
    traffic = evidence.profile.traffic
    classes = tuple(replace(traffic.classes[0], name=name) for name in ("short", "long"))
    evidence = replace(evidence, profile=replace(evidence.profile, traffic=replace(traffic, classes=classes)))
    found = statuses(evidence, per_subject=True)
    ttft = {rule: status for rule, status in found.items() if rule.startswith("W110")}
    assert set(ttft) == {"W110 short p95", "W110 long p95"}
    assert ttft["W110 long p95"] == "fail"
    assert ttft["W110 short p95"] != "fail"


def _shapes(tokens: int) -> tuple[Shape, ...]:
    name = "short" if tokens < 1000 else "long"
    return (Shape(cls=name, prompt_tokens=tokens, output_tokens=4),) * 70
