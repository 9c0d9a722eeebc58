"""Whatever stands in a profile, it loads or is refused with places; never anything else."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.errors import ProfileError
from auditor.loading import Loaded
from auditor.loading.profile import parse_profile

FULL: dict[str, Any] = {
    "version": 1,
    "name": "t",
    "endpoint": {
        "url": "http://h/v1",
        "engine": "auto",
        "metrics": ["http://h/m"],
        "headers": {"a": "b"},
        "extra_body": {},
    },
    "deployment": {
        "model": "m",
        "count": 2,
        "tensor_parallel": 2,
        "max_model_len": "auto",
        "launch": "vllm serve m -tp 2",
    },
    "traffic": {
        "target_concurrency": 4,
        "classes": [
            {
                "name": "rag",
                "share": "100%",
                "prompt_tokens": {"p50": 3, "p95": 5, "max": 9},
                "output_tokens": {"p50": 3},
                "shared_prefix": {"tokens": 2},
            }
        ],
    },
    "slo": {
        "ttft": {"p95": "1s"},
        "tps": {"p05": "5/s"},
        "error_rate": 0.01,
        "classes": {"rag": {"e2e": {"p50": "2s"}}},
    },
    "probe": {"budget": {"duration": "10m", "tokens": "4M"}, "confidence": 0.95},
    "monitoring": {"required": True, "dashboards": ["x.json"]},
    "waivers": [{"rule": "M401", "reason": "r", "expires": "2027-01-01"}],
}
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1s", "5/s", "auto"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, item in items for deeper in paths(item, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {k: changed(v, path[1:], new) if k == path[0] else v for k, v in value.items()}
    return [changed(v, path[1:], new) if k == path[0] else v for k, v in enumerate(value)]


def outcome(text: str) -> Loaded | ProfileError:
    try:
        return parse_profile(text, Path("p.yaml"), {})
    except ProfileError as error:
        return error


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(paths(FULL)), VALUES), min_size=1, max_size=3))
def test_any_values_anywhere_are_read_or_refused_with_places(changes):
    data: Any = FULL
    for path, new in changes:
        if path in paths(data):
            data = changed(data, path, new)
    text = json.dumps(data, indent=1).replace("NaN", ".nan").replace("Infinity", ".inf")
    result = outcome(text)
    if isinstance(result, Loaded):
        assert result.profile.version == 1
        return
    lines = text.count("\n") + 1
    assert result.problems
    assert all(1 <= problem.line <= lines and problem.column >= 1 for problem in result.problems)
    assert all("\n" not in problem.message for problem in result.problems)
    assert len(set(map(str, result.problems))) == len(result.problems)
