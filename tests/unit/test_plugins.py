"""Installed checks: this project's and third parties', and one line for each that is broken."""

from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from auditor import plugins
from auditor.errors import UsageError
from auditor.evidence import Check, Rule
from auditor.plugins import load_checks


def rule(name: str) -> Rule:
    return Rule(name, name, lambda _: ())


CHECKS = {
    "M": Check(question="M", title="m", rules=(rule("M401"),)),
    "W": Check(question="W", title="w", rules=(rule("W101"),)),
    "X": Check(question="X", title="x", rules=(rule("X101"),)),
    "A": Check(question="A", title="a", rules=(rule("A101"),)),
    "newer": Check(question="X", title="x", rules=(), api=2),
    "older": Check(question="X", title="x", rules=(), api=0),
    "letters": Check(question="XY", title="x", rules=()),
    "validity": Check(question="T", title="x", rules=()),
    "foreign": Check(question="X", title="x", rules=(rule("W101"),)),
    "double": Check(question="W", title="x", rules=(rule("W101"),)),
    "more": Check(question="W", title="x", rules=(rule("W190"),)),
    "none": "not a check",
}


@pytest.fixture(autouse=True)
def module(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "made_checks", SimpleNamespace(**CHECKS))


def points(*names: str) -> list[EntryPoint]:
    return [EntryPoint(name.lower(), f"made_checks:{name}", plugins.GROUP) for name in names]


def test_own_questions_come_first_in_their_order_then_others_by_letter():
    assert [check.question for check in load_checks(points("X", "M", "A", "W"))] == ["W", "M", "A", "X"]


def test_two_packages_may_add_to_one_question():
    assert len(load_checks(points("W", "more"))) == 2


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["missing"], "check 'missing' of made_checks:missing cannot be loaded: .*; repair or uninstall it"),
        (["none"], "made_checks:none is no Check but str; repair or uninstall it"),
        (["newer"], "speaks version 2 of the check interface, this program 1; upgrade serving-audit"),
        (["older"], "speaks version 0 of the check interface, this program 1; upgrade the check"),
        (["letters"], "its question must be one upper-case letter, not T"),
        (["validity"], "its question must be one upper-case letter, not T"),
        (["foreign"], "rule id W101 is not X and three digits"),
        (["W", "double"], "rule W101 belongs to check 'double' of made_checks:double already"),
    ],
)
def test_a_broken_check_is_named_in_one_line(names, message):
    with pytest.raises(UsageError, match=message) as caught:
        load_checks(points(*names))
    assert "\n" not in str(caught.value)


def test_a_check_whose_import_raises_without_a_text(monkeypatch):
    point = EntryPoint("silent", "made_checks:silent", plugins.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: (_ for _ in ()).throw(RuntimeError()))
    with pytest.raises(UsageError, match="cannot be loaded: RuntimeError;"):
        load_checks([point])


def test_a_distribution_is_named():
    point = EntryPoint("x", "made_checks:none", plugins.GROUP)
    vars(point)["dist"] = SimpleNamespace(name="their-checks")
    with pytest.raises(UsageError, match=r"^check 'x' of their-checks: "):
        load_checks([point])
