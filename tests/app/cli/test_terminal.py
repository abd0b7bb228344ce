"""Lines for people go to standard error, one each."""

from __future__ import annotations

import pytest

from app.cli.terminal import complain, progress, say, tell


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
