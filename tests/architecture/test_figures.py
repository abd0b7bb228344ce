"""The product keeps to the bounds of its figures, and each figure counts what it says."""

from __future__ import annotations

import pytest

from tests.architecture import figures
from tests.architecture.figures import BOUNDS, FilesEntered
from tidegate.keys.jsontext import decoded, one_line
from tidegate.keys.text.size import parse_size


def test_every_figure_keeps_to_its_bound(capsys: pytest.CaptureFixture[str]) -> None:
    code = figures.main()
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert [line[:42].strip() for line in printed.splitlines()] == list(BOUNDS)


def test_a_figure_beyond_its_bound_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "figures", lambda: {"files entered by one subscription": 10_000})
    assert figures.main() == 1
    assert "beyond its bound" in capsys.readouterr().out


def test_the_longest_path_is_found() -> None:
    arrows = {"a": {"b", "d"}, "b": {"c"}, "c": {"d"}, "d": set(), "e": {"d"}}
    assert figures.longest_path(arrows) == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="a circle through a"):
        figures.longest_path({"a": {"b"}, "b": {"a"}})


def test_a_file_that_is_entered_is_counted_once() -> None:
    entered = FilesEntered()
    with entered:
        decoded(b"{}")
        decoded(b"[]")
    one_line(b"{}")
    assert entered.count == 1
    with entered:
        parse_size("1MB")
    assert entered.count == 2
