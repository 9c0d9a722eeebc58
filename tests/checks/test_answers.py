"""Each question's answering findings exist: a renamed rule or subject would leave the answer out in silence."""

import pytest

from auditor.plugins import load_checks
from auditor.testing import make_evidence, run_check

CHECKS = {check.question: check for check in load_checks()}


def test_the_first_three_questions_have_answers():
    assert {letter for letter, check in CHECKS.items() if check.answers} >= {"W", "H", "K"}


@pytest.mark.parametrize("letter", ["W", "H", "K"])
def test_answers_are_findings_of_their_check(letter):
    check = CHECKS[letter]
    found = {f"{f.rule} {f.subject or ''}".rstrip() for f in run_check(check, make_evidence()) if f.status != "skip"}
    assert set(check.answers) <= found
