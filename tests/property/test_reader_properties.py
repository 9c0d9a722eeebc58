"""Whatever a config.json holds, reading it ends in a geometry or in one line."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.catalog import hf, models
from auditor.errors import UsageError
from auditor.theory.kv.geometry import Geometry

CONFIGS: list[dict[str, Any]] = [entry["config"] for _, entry in sorted(models._catalogue().entries.items())]
NUMBERS = st.one_of(st.integers(-3, 9), st.sampled_from([2**31 - 1, 10**12, 1.5, 1e9, float("nan"), float("inf")]))
NONSENSE = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    st.sampled_from(["", "x", "auto", "M*E-", "full_attention"]),
    st.lists(st.one_of(NUMBERS, st.none(), st.just("sliding_attention")), max_size=4),
    st.dictionaries(st.sampled_from(["a", "head_dim", "num_heads", "kda_layers"]), NUMBERS, max_size=2),
)


def places(config: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Every fact of a config and of the configs in it."""
    found = [(config, key) for key in config]
    for value in config.values():
        if isinstance(value, dict):
            found += places(value)
    return found


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_facts_of_any_form_end_in_a_geometry_or_in_one_line(data):
    config = copy.deepcopy(data.draw(st.sampled_from(CONFIGS)))
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(places(config)))
        holder[key] = data.draw(NONSENSE)
    found = read(config)
    if isinstance(found, Geometry):
        sane(found)
    else:
        assert found.startswith("somebody/model: ")
        assert "\n" not in found
        assert len(found) < 400


def read(config: dict[str, Any]) -> Geometry | str:
    try:
        return hf.geometry(config, "somebody/model")
    except UsageError as error:
        return str(error)


def sane(model: Geometry) -> None:
    """Layers that can be, each with a cache of its own."""
    assert model.layers
    for group in model.layers:
        assert group.count > 0
        assert group.readers >= 0
        assert min(group.kv_heads, group.qk_head_dim, group.v_head_dim) > 0
        assert (group.window is not None) == (group.kind in ("sliding", "chunked", "compressed"))
    assert all(state.count > 0 and state.heads > 0 for state in model.recurrent)
    assert model.parameters >= model.embedding_parameters > 0


@given(st.sampled_from(CONFIGS))
def test_published_configs_are_read(config):
    sane(hf.geometry(config, "m"))
