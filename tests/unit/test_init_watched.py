"""A week of a Prometheus in a profile: lengths, times and the most in flight."""

import asyncio
from pathlib import Path

import pytest

from auditor.init import watched
from auditor.init.draft import Draft, Said, merged
from auditor.init.write import profile_text
from auditor.loading.profile import parse_profile
from auditor.measurement import Histogram
from auditor.profile import Lengths
from auditor.watch import Observed

KEY = "prom-token-0123456789"
# 800 requests up to 100 tokens, 200 more up to 400: the 950th is the 150th of those 200
LONG = Histogram(sum=9e4, count=1000.0, buckets=((100.0, 800.0), (400.0, 1000.0), (float("inf"), 1000.0)))
SHORT = Histogram(sum=900.0, count=9.0, buckets=((100.0, 9.0), (float("inf"), 9.0)))
TPOT = Histogram(sum=50.0, count=1000.0, buckets=((0.04, 900.0), (0.08, 1000.0), (float("inf"), 1000.0)))
DEPLOYED = Draft(
    endpoint={"engine": Said("vllm"), "model": Said("m")},
    deployment={"engine_version": Said("0.18.0")},
    context=8192,
    notes=("traffic.classes: the engine saw 3 requests since it started",),
)


@pytest.fixture
def asked(monkeypatch):
    """Stands in for the Prometheus; `answers` maps a window to what it saw, and the subjects asked for are kept."""
    seen, answers = [], {}

    async def look(prometheus, subject, window, concepts):
        seen.append((window, subject.engine, subject.model, subject.version))
        return answers.get(window, Observed(source=prometheus.url, window=window))

    monkeypatch.setattr(watched, "look", look)

    def call(found, key=None):
        answers.update(found)
        url = "http://me:pass-word-1@127.0.0.1:9090/"
        return asyncio.run(watched.from_prometheus(url, "PROM_KEY" if key else None, key, DEPLOYED)), seen

    return call


def observed(histogram, **values):
    return Observed(
        source="p",
        window=1.0,
        histograms={"prompt_len": histogram, "output_len": histogram, "tpot": TPOT},
        values=values,
    )


def test_a_week_becomes_traffic(asked):
    found, seen = asked({604_800.0: observed(LONG, in_flight=41.2, running=30.0)})
    assert seen == [(604_800.0, "vllm", "m", "0.18.0")]
    assert found.prompt == Said(Lengths(p50=63, p95=325, max=400), "off a histogram of 1,000 requests")
    assert found.traffic["target_concurrency"].value == 42
    assert found.goals == {"tps": "Prometheus saw about p05 16.7/s in a week"}  # 0.04 + 0.04 x 50 / 100 = 0.06 s
    assert found.monitoring["prometheus"].value == "http://127.0.0.1:9090"
    assert [note.partition(":")[0] for note in found.notes] == ["monitoring.prometheus"]


def test_a_service_of_today_is_looked_at_more_closely(asked):
    found, seen = asked({604_800.0: observed(SHORT), 3600.0: observed(LONG, running=3.0)})
    assert [window for window, *_ in seen] == [604_800.0, 86_400.0, 3600.0]
    assert found.traffic["target_concurrency"] == Said(3, "the most in flight that Prometheus saw in an hour")


def test_without_users_everything_stays_assumed(asked):
    found, _ = asked({})
    assert found.lengths is None
    assert found.traffic == {}
    assert merged(found, DEPLOYED).notes[-1] == DEPLOYED.notes[0]


def test_the_profile_names_it_without_password_or_token(asked):
    found, _ = asked({604_800.0: observed(LONG, in_flight=8.0)}, key=KEY)
    joined = merged(found, DEPLOYED)
    assert not [note for note in joined.notes if note.startswith("traffic")]  # the lengths are there now
    text = profile_text(joined, "p.yaml")
    assert KEY not in text
    assert "pass-word-1" not in text
    assert "# prometheus:" not in text
    assert "# prometheus: http://127.0.0.1:9090" in profile_text(DEPLOYED, "p.yaml")  # where none was asked
    profile = parse_profile(text, Path("p.yaml"), {}).profile
    assert profile.monitoring.prometheus == "http://127.0.0.1:9090"
    assert profile.monitoring.prometheus_key_env == "PROM_KEY"
    assert profile.traffic.target_concurrency == 8
