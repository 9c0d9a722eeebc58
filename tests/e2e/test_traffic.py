"""Traffic of every kind in one audit: conversations, shared prefixes, pictures; and a log that is replayed."""

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from tests.e2e.scenario import Scenario

pytestmark = pytest.mark.slow

TALKS = {
    "traffic.classes.0.turns": 3,
    "traffic.classes.0.prompt_tokens": {"p50": 400, "p95": 900, "max": 1200},
    "traffic.classes.0.shared_prefix": {"tokens": 64, "share": 0.5, "distinct": 2},
    "traffic.classes.0.images": {"width": 64, "height": 48, "share": 0.5},
    "slo.tps": {"p05": "5/s"},
    "probe.budget.requests": 260,
}


def test_conversations_with_prefixes_and_pictures(tmp_path: Path) -> None:
    outcome = Scenario(profile=TALKS, served={"prompt_tokens_details": True}).run(tmp_path)
    assert outcome.report.exit_code == 0, {f.rule: f.why for f in outcome.report.findings if f.status == "inconclusive"}
    measured = {m.load.id: m for m in outcome.report.evidence.measurements}
    for name in ("slo", "bursts"):
        m = measured[name]
        told = sum(s.cached_tokens or 0 for s in m.samples)
        declared = sum(s.prefix_tokens for s in m.load.shapes)
        assert 0.7 * declared < told <= declared  # whole blocks of 16, and turns whose reply is still being written
        assert {s.error for s in m.samples} == {None}
        for sample, shape in zip(m.samples, m.load.shapes, strict=True):
            assert sample.prompt_tokens == pytest.approx(shape.prompt_tokens, abs=16)
    assert "unshared" in measured


def test_a_log_is_replayed_at_its_own_rate(tmp_path: Path) -> None:
    """150 requests in 18.75 s, whose first 512 tokens are one of five texts."""
    rng = random.Random(0)
    times = sorted(rng.randrange(18_750) for _ in range(150))
    rows = [
        {
            "timestamp": at,
            "input_length": rng.randint(600, 900),
            "output_length": rng.randint(10, 40),
            "hash_ids": [rng.randrange(5)],
        }
        for at in times
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    replayed = {"traffic": {"log": "log.jsonl"}, "slo.tps": {"p05": "5/s"}}
    outcome = Scenario(profile=replayed, served={"prompt_tokens_details": True}).run(tmp_path)
    assert outcome.report.exit_code == 0, {f.rule: f.why for f in outcome.report.findings if f.status == "inconclusive"}
    [closed, bursts] = outcome.report.evidence.loads("slo")
    assert bursts.load.rate == pytest.approx(8.0, rel=0.02)
    first = sum(map(len, (closed.load.warmup, closed.load.shapes, bursts.load.warmup)))
    sent = [b.start - a.start for a, b in pairwise(bursts.samples)]
    logged = [(b - a) / 1000 for a, b in pairwise(times[first:])][: len(sent)]
    stretch = sum(sent[: len(logged)]) / sum(logged)
    assert 0.7 < stretch < 1.4
    assert sent[: len(logged)] == pytest.approx([stretch * gap for gap in logged], abs=0.002)
    assert sum(s.cached_tokens or 0 for s in bursts.samples) == 512 * len(bursts.samples)
