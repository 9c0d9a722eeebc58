"""What all tests share: the program in this process, and examples of property tests that may take as long as they take
on a machine that is busy.
"""

import sys

import pytest
from hypothesis import HealthCheck, settings

from auditor.__main__ import main

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture
def program(monkeypatch, capsys):
    """Run the program in this process; gives (exit code, stdout, stderr)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["audit", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call
