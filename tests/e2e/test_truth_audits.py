"""Whole audits of the emulator: its page beside what the client saw, alone, among other users, and behind a proxy."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from auditor.emulator.spec import Faults
from tests.e2e.scenario import Outcome, Scenario, running

pytestmark = pytest.mark.slow

FEW = {"probe.budget": {"requests": 150, "tokens": "1M", "duration": "10m"}}
SCENARIOS = {
    "test_alone_both_accounts_agree": Scenario(profile=FEW),
    "test_other_users_are_in_the_panels_numbers": Scenario(profile=FEW, faults=Faults(foreign_rate=3.0)),
    "test_what_a_proxy_adds_is_on_no_panel": Scenario(profile=FEW, faults=Faults(buffered=True)),
}


@pytest.fixture(scope="module")
def started(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Future[Outcome]]]:
    with running(SCENARIOS, request) as futures:
        yield futures


@pytest.fixture
def outcome(started: Mapping[str, Future[Outcome]], request: pytest.FixtureRequest) -> Outcome:
    return started[request.node.name].result()


def _verdicts(outcome: Outcome, load: str = "slo") -> dict[str, str]:
    return {a.quantity: a.verdict for a in outcome.report.evidence.truth if a.load == load}


def test_alone_both_accounts_agree(outcome: Outcome) -> None:
    found = _verdicts(outcome, "bursts")
    assert set(found.values()) == {"agrees"}
    assert {"requests", "prompt tokens", "output tokens", "mean TTFT", "mean time per token", "mean KV usage"} < set(
        found
    )
    assert [f.status for f in outcome.of("M430")] == ["pass"]


def test_other_users_are_in_the_panels_numbers(outcome: Outcome) -> None:
    found = _verdicts(outcome)
    assert found["requests"] == "differs"
    assert set(found.values()) == {"differs", "unknown"}
    assert all("other users, whose times are in its means" in f.why for f in outcome.of("M430"))


def test_what_a_proxy_adds_is_on_no_panel(outcome: Outcome) -> None:
    """The whole reply comes at its end: the engine's first token is early, the user's is not."""
    found = _verdicts(outcome)
    assert (found["requests"], found["mean TTFT"]) == ("agrees", "differs")
    why = next(f.why for f in outcome.of("M430") if f.subject == "mean TTFT in slo")
    assert "between engine and client, which no panel of it shows" in why
    assert "in its queue" in why
