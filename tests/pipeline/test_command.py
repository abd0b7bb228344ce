"""The arguments of `python -m tidegate.pipeline`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.pipeline.command import command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run", "there is nothing to run"),
        ("run a.toml --checkpoints c", "--checkpoints goes with --topics"),
        ("run a.toml --gateway http://g", "--gateway goes with --topics"),
    ],
)
def test_what_makes_no_sense_is_2(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(words.split()) == 2
    assert capsys.readouterr().err.startswith(f"tidegate: {said}")


def test_a_definition_that_is_not_there_is_78(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["run", str(tmp_path / "none.toml")]) == 78
    assert capsys.readouterr().err.count("\n") == 1
