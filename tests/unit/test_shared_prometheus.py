"""One Prometheus for several services: what it holds of another engine covers nothing of this one."""

import json
from dataclasses import dataclass

import pytest

from auditor.monitoring.coverage import coverage
from auditor.watch import Answer, RuleState, Watch

OTHERS = "histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))"
ALERT = f"{OTHERS} > 2"
OWN_TTFT = "sglang:time_to_first_token_seconds_sum / sglang:time_to_first_token_seconds_count"
HELD = (Answer(query=OTHERS, series=1), Answer(query=ALERT, series=1))


@dataclass(frozen=True)
class Board:
    name: str = "d.json"
    text: str = json.dumps({"panels": [{"title": "TTFT", "targets": [{"expr": OTHERS}]}]})
    kind: str = "dashboard"


OWN = Board("a.yaml", json.dumps({"groups": [{"rules": [{"alert": "High", "expr": f"max({OWN_TTFT}) > 2"}]}]}), "rules")


@pytest.mark.parametrize(("engine", "names", "alerted"), [("sglang", 0, ()), ("vllm", 1, ("High",))])
def test_data_and_alerts_of_another_engine_cover_nothing(engine: str, names: int, alerted: tuple[str, ...]) -> None:
    watch = Watch(url="p", answers=HELD, rules=(RuleState(name="High", query=ALERT, state="inactive"),))
    (ttft,) = [item for item in coverage([Board()], engine, watch=watch).items if item.concept == "ttft"]
    assert (len(ttft.names), ttft.alerts) == (names, alerted)


def test_an_alert_is_not_loaded_where_only_another_services_has_its_name() -> None:
    others = RuleState(name="High", query=ALERT, state="inactive")
    own = RuleState(name="High", query=f"max({OWN_TTFT}) > 3", state="inactive")
    for rules, alerted, note in (((others,), (), "alert High is not loaded by p"), ((others, own), ("High",), "")):
        found = coverage([OWN], "sglang", watch=Watch(url="p", answers=HELD, rules=rules))
        (ttft,) = [item for item in found.items if item.concept == "ttft"]
        assert (ttft.alerts, ttft.note) == (alerted, note)
