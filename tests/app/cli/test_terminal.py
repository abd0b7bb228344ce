"""Lines for people go to standard error, one each."""

from __future__ import annotations

import pytest

from tidegate.app.cli.terminal import complain, point_at, progress, say, tell


def test_lines_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say("one\n two")
    complain("three")
    tell("four")
    said = capsys.readouterr()
    assert said.err == "one two\ntidegate: three\n"
    assert said.out == "four\n"


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("publishing", "messages") as advance:
        advance(1000)
    assert capsys.readouterr() == ("", "")


def test_places_are_pointed_at_on_terminals_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    point_at(["  a", "  ^"])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    point_at(["  a", "  ^"])
    assert capsys.readouterr().err == "  a\n  ^\n"
