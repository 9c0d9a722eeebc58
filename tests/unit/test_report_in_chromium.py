"""The HTML report in headless Chromium: on a phone and at a desk, in light and dark, and by axe-core's rules."""

import pytest
from browser import AXE, CHROMIUM, looked_at
from drawn_reports import failing, healthy, offline, stopped, unasked

from auditor.report.html import render

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason="no Chromium here")]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("report", [healthy, failing, offline, stopped, unasked])
def test_words_neither_collide_nor_leave_the_picture_nor_the_screen(report, width, tmp_path):
    told = looked_at(render(report()), tmp_path, width)
    assert told["inner"] == width
    assert told["wide"] <= width
    assert told["pictures"] > 0
    assert told["away"] == 0
    assert (told["collisions"], told["outside"], told["small"]) == ([], [], [])


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core here: npm install --no-save axe-core, or AUDIT_AXE=its file")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("report", [failing, offline])
def test_axe_finds_no_violation(report, dark, tmp_path):
    told = looked_at(render(report()), tmp_path, 390, dark=dark, axe=True)
    assert told["dark"] == dark
    assert told["checked"] > 20
    assert told["violations"] == []
