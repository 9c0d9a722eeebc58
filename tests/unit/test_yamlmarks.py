"""The YAML loader: plain values, their places, and one line for each thing that is wrong."""

import math

import pytest

from auditor.yamlmarks import Mark, YamlError, load, scalar


def problems(text: str) -> list[str]:
    with pytest.raises(YamlError) as caught:
        load(text)
    return [f"{mark.line}:{mark.column}: {message}" for mark, message in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("y", "y"),
        ("12:30", "12:30"),
        ("1:2:3", "1:2:3"),
        ("2027-01-31", "2027-01-31"),
        ("1_000", "1_000"),
        ("0b101", "0b101"),
        ("True", True),
        ("FALSE", False),
        ("tRUE", "tRUE"),
        ("~", None),
        ("", None),
        ("Null", None),
        ("nil", "nil"),
        ("010", 10),
        ("+12", 12),
        ("-12", -12),
        ("0o17", 15),
        ("017", 17),
        ("0x1F", 31),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1.5E-3", -0.0015),
        ("1.2.3", "1.2.3"),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
        ("inf", "inf"),
        ("0.18.0", "0.18.0"),
    ],
)
def test_plain_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    result = scalar(text)
    assert result == value
    assert type(result) is type(value)


def test_nan_is_a_number() -> None:
    assert math.isnan(scalar(".NaN"))


def test_quoted_scalars_are_text() -> None:
    assert load("a: '1'\nb: \"true\"\nc: |\n  1\n").value == {"a": "1", "b": "true", "c": "1\n"}


def test_keys_are_the_text_that_was_written() -> None:
    assert load("on: 1\n5: 2\ntrue: 3\nnull: 4\n").value == {"on": 1, "5": 2, "true": 3, "null": 4}


def test_core_tags_are_applied_and_the_non_specific_tag_means_text() -> None:
    assert load("[!!str 5, !!float 1, !!int 0o7, ! 12, !!null ~, !!bool true]").value == ["5", 1.0, 7, "12", None, True]
    assert load("!!map {a: !!seq [1]}").value == {"a": [1]}


def test_every_key_and_value_has_its_place() -> None:
    marked = load("# head\nslo:\n  ttft: {p95: 2s}\nlist:\n  - a\n  - name: b\n")
    assert marked.keys[("slo",)] == Mark(2, 1)
    assert marked.values[("slo",)] == Mark(3, 3)
    assert marked.keys[("slo", "ttft", "p95")] == Mark(3, 10)
    assert marked.values[("slo", "ttft", "p95")] == Mark(3, 15)
    assert marked.values[("list", 0)] == Mark(5, 5)
    assert marked.values[("list", 1, "name")] == Mark(6, 11)


def test_place_is_a_scalar_itself_a_collections_key_or_the_nearest_parent() -> None:
    marked = load("slo:\n  ttft: {p95: 2s}\nlist: [1, {a: 2}]\n")
    assert marked.place(("slo", "ttft", "p95")) == Mark(2, 15)
    assert marked.place(("slo",)) == Mark(1, 1)
    assert marked.place(("slo", "ttft")) == Mark(2, 3)
    assert marked.place(("slo", "ttft", "p99")) == Mark(2, 3)
    assert marked.place(("list", 1)) == Mark(3, 11)
    assert marked.place(("nowhere", "at", "all")) == Mark(1, 1)
    assert load("").place(("a",)) == Mark(1, 1)


def test_a_byte_order_mark_is_no_content() -> None:
    assert load("\ufeffa: 1").value == {"a": 1}


def test_empty_and_comment_only_texts_hold_nothing() -> None:
    assert load("").value is None
    assert load("# nothing\n---\n").value is None


# ------------------------------------------------------------------------------------------------- anchors and merges


def test_an_alias_brings_its_own_copy_marked_where_it_was_written() -> None:
    marked = load("a: &x\n  k: [1]\nb: *x\n")
    assert marked.value == {"a": {"k": [1]}, "b": {"k": [1]}}
    assert marked.value["a"]["k"] is not marked.value["b"]["k"]
    assert marked.values[("b",)] == Mark(3, 4)
    assert marked.values[("b", "k", 0)] == Mark(2, 7)


def test_what_is_written_out_wins_over_what_is_merged_and_earlier_sources_over_later_ones() -> None:
    text = "one: &one {a: 1, b: 1}\ntwo: &two {a: 2, b: 2, c: 2}\nall:\n  b: 0\n  <<: [*one, *two]\n"
    assert load(text).value["all"] == {"b": 0, "a": 1, "c": 2}
    assert load("one: &one {a: 1}\nall: {<<: *one, a: 5}").value["all"] == {"a": 5}


def test_a_quoted_merge_key_is_a_key() -> None:
    assert load("{'<<': 1}").value == {"<<": 1}


def test_merging_anything_but_mappings_is_a_problem() -> None:
    assert problems("a: &x 1\nb:\n  <<: *x\n") == [
        "3:3: '<<' merges mappings; use an alias of a mapping or a list of them"
    ]
    assert problems("a: &x {k: 1}\nb:\n  <<: [*x, 2]\n")[0].startswith("3:3: '<<' merges")


# ---------------------------------------------------------------------------------------------------------- problems


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n\tb: 1", "2:1: a tab cannot indent YAML; use spaces"),
        ("a: 'x\nb: 2", "1:4: this quote is never closed"),
        ("a: [1,\n  2\n", "1:4: this bracket is never closed"),
        ("a: [\n", "1:4: this bracket is never closed"),
        ("a: {x: [1]\n", "1:4: this bracket is never closed"),
        ("a: b: c", "1:5: a ':' does not fit here; put the value in quotes, or check the indentation"),
        ("a: @x", "1:4: a value cannot start with @; put it in quotes"),
        ("a: *x", "1:4: no anchor &x before this alias"),
        ("&a [*a]", "1:5: the alias *a stands inside its own anchor"),
        ("a: 1\n---\nb: 1", "2:1: a second document starts here; one file holds one document"),
        ("{a: 1}}", "1:7: the document has already ended before this; check brackets and indentation"),
        ("a: !!python/object:os.system x", "1:4: the tag !!python/object:os.system is not supported"),
        ("a: !secret x", "1:4: the tag !secret is not supported"),
        ("a: !!int x", "1:4: the tag !!int does not fit this value"),
        ("a: !!set {x}", "1:4: the tag !!set is not supported"),
        ("a: !!omap [x]", "1:4: the tag !!omap is not supported"),
        ("? [a]\n: 1", "1:3: a key must be plain text"),
        ("x: é\x01", "1:5: the character U+0001 is not allowed in YAML"),
        ("a: 1\nb: \x07", "2:4: the character U+0007 is not allowed in YAML"),
        ('a: "\\q"', "1:6: found unknown escape character 'q'"),
        ("%YAML 2.0\n---\na: 1", "1:1: found incompatible YAML document (version 1.* is required)"),
        ("a: " + "9" * 400, "1:4: this number has more than 300 digits"),
        ("a: 1\na: 2", "2:1: duplicate key 'a', first at 1:1"),
        ('a: "\\ud800"', "1:4: holds half of a surrogate pair, which is no character"),
    ],
)
def test_a_problem_is_one_line_with_its_place(text: str, message: str) -> None:
    assert problems(text) == [message]


def test_wrong_indentation_names_where_the_block_started() -> None:
    assert problems("a:\n  b: 1\n c: 2")[0].startswith("3:2: the indentation does not fit")
    assert problems("a:\n  b: 1\n c: 2")[0].endswith("which starts at 1:1)")
    assert problems("- a\nb: 1")[0].startswith("2:1: the indentation does not fit")


def test_all_duplicates_are_listed_and_nested_ones_too() -> None:
    text = "a: 1\nb: {x: 1, x: 2}\na: 3\n"
    assert problems(text) == ["2:11: duplicate key 'x', first at 2:5", "3:1: duplicate key 'a', first at 1:1"]


def test_a_duplicate_before_a_syntax_error_is_still_listed() -> None:
    assert problems("a: 1\na: 2\nb: @\n") == [
        "2:1: duplicate key 'a', first at 1:1",
        "3:4: a value cannot start with @; put it in quotes",
    ]


def test_the_error_text_joins_the_problems() -> None:
    with pytest.raises(YamlError, match=r"^2:1: duplicate key 'a', first at 1:1$"):
        load("a: 1\na: 2")


# ------------------------------------------------------------------------------------------------------------ bounds


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    lines += [f"{c}: &{c} [{','.join(['*' + p] * 9)}]" for p, c in zip("abcdefgh", "bcdefghi", strict=True)]
    assert "more than 100000 values once its aliases are written out" in problems("\n".join(lines))[0]


def test_a_chain_of_aliases_cannot_nest_deeper_than_brackets_can() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 200)]
    assert problems("\n".join(lines))[0].endswith("nested deeper than 64 levels")
    assert load("[" * 64 + "]" * 64).value != []
    assert problems("[" * 65 + "]" * 65) == ["1:65: nested deeper than 64 levels"]
    assert problems("[" * 100_000) == ["1:65: nested deeper than 64 levels"]


def test_an_oversized_text_is_refused_unread() -> None:
    assert problems("#" * ((1 << 20) + 1)) == ["1:1: the file is larger than 1024 KiB"]
