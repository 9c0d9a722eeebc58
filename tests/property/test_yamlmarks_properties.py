"""Where YAML 1.1 and 1.2 agree, the loader agrees with PyYAML; and it never fails in another way than YamlError."""

import json
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from auditor.yamlmarks import YamlError, load

# Text without anything that the two versions read differently, in quotes where a plain scalar could be another type.
words = st.text(alphabet="abcdefghijklmnopqrstuvwxyz -:#'\"é", max_size=12)
numbers = st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False, width=32)
scalars = st.none() | st.booleans() | numbers | words
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words.map("k".__add__), inner, max_size=4),
    max_leaves=12,
)


@given(trees)
def test_json_is_yaml(tree: Any) -> None:
    assert load(json.dumps(tree)).value == tree


@given(trees, st.sampled_from([True, False, None]))
def test_agrees_with_pyyaml_on_what_both_versions_read_alike(tree: Any, flow: bool | None) -> None:
    text = yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True)
    assert load(text).value == yaml.safe_load(text) == tree


def outcome(text: str) -> YamlError | None:
    try:
        load(text)
    except YamlError as error:
        return error
    return None


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@ \n\t,?<0", max_size=40))
def test_any_text_is_read_or_refused_with_places_and_one_line_messages(text: str) -> None:
    error = outcome(text)
    problems = error.problems if error else ()
    assert error is None or problems
    assert all(1 <= mark.line <= text.count("\n") + 2 and mark.column >= 1 for mark, _ in problems)
    assert not any("\n" in message for _, message in problems)
