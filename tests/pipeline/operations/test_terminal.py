"""What a command tells, and where."""

from __future__ import annotations

import pytest

from tidegate.pipeline.operations.shutdown import complain, say


def test_lines_go_out_and_complaints_go_beside(capsys: pytest.CaptureFixture[str]) -> None:
    say("so far")
    complain("no")
    assert capsys.readouterr() == ("so far\n", "tidegate: no\n")
