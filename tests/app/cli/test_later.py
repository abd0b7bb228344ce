"""What is promised says that it is not there, whatever follows it."""

from __future__ import annotations

import pytest

from app.cli.later import VERBS
from app.cli.main import main


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("rest", [[], ["--help"], ["list", "--x", "y"]])
def test_it_is_refused_in_a_sentence(
    capsys: pytest.CaptureFixture[str], verb: str, rest: list[str]
) -> None:
    assert main([verb, *rest]) == 2
    assert capsys.readouterr().err == f"tidegate: {verb} is not available yet\n"
