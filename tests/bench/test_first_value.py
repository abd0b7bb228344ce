"""The benchmark of the first value follows the steps of a new user, and detects a wrong price."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import first_value

pytestmark = pytest.mark.nightly


def test_the_first_value_is_the_last_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Path(sys.executable).parent
    first_value.first_value(commands, tmp_path)
    monkeypatch.setattr(first_value, "LAST", "another")
    with pytest.raises(SystemExit, match=r"151\.10"):
        first_value.first_value(commands, tmp_path)


def test_a_step_that_fails_shows_its_output(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no such thing"):
        first_value.run(tmp_path, sys.executable, "-c", "raise OSError('no such thing')")


def test_an_unknown_way_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert first_value.main(["conda"]) == 2
    assert "first_value.py" in capsys.readouterr().err
