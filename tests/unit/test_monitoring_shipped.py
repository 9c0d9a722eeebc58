"""The panels and alerts that ship with the embedded profile cover what question 4 asks, and each panel matters."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from auditor.monitoring.coverage import coverage

FOLDER = Path(__file__).parents[2] / "profiles" / "monitoring"
PANELS = (FOLDER / "embedded-panels.json").read_text(encoding="utf-8")
ALERTS = SimpleNamespace(
    name="embedded-alerts.yaml", text=(FOLDER / "embedded-alerts.yaml").read_text(encoding="utf-8"), kind="rules"
)


def rungs(text: str, version: str = "0.18.0") -> dict[str, str]:
    found = coverage([SimpleNamespace(name="p.json", text=text, kind="dashboard"), ALERTS], "vllm", version)
    assert found.unreadable == ()
    assert found.invalid_queries == ()
    return {item.concept: item.rung for item in found.items if not item.dead}


@pytest.mark.parametrize("version", ["0.11.0", "0.18.0", "0.32.0"])
def test_everything_is_covered_and_nothing_is_dead(version: str) -> None:
    found = rungs(PANELS, version)
    for concept in ("ttft", "tps", "memory", "running", "waiting", "preemptions"):
        assert found[concept] == "valid"


def test_alerts_watch_all_three() -> None:
    found = coverage([ALERTS], "vllm", "0.18.0")
    watched = {item.concept for item in found.items if item.alerts}
    assert {"ttft", "tps", "memory", "preemptions"} <= watched


@pytest.mark.parametrize(
    ("concept", "fragments"),
    [
        ("ttft", ("time_to_first_token",)),
        ("tps", ("generation_tokens_total", "output_token", "inter_token")),
        ("memory", ("kv_cache_usage", "DCGM")),
    ],
)
def test_taking_the_panels_of_one_concept_out_takes_it_and_no_other(concept: str, fragments: tuple[str, ...]) -> None:
    board = json.loads(PANELS)
    board["panels"] = [
        panel
        for panel in board["panels"]
        if not any(fragment in target["expr"] for target in panel.get("targets", []) for fragment in fragments)
    ]
    found = rungs(json.dumps(board))
    expected = {name: "missing" if name == concept else "valid" for name in ("ttft", "tps", "memory")}
    assert {name: found[name] for name in expected} == expected


def test_the_dashboard_can_be_imported() -> None:
    board = json.loads(PANELS)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    variables = {variable["name"] for variable in board["templating"]["list"]}
    assert variables == {"datasource", "model_name"}
    for panel in board["panels"]:
        assert {"x", "y", "w", "h"} == set(panel["gridPos"])
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
