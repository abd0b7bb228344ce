"""The product keeps to the bounds of its figures, and each figure counts what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture import figures
from tests.architecture.figures import BOUNDS, Bound, FilesEntered
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
    monkeypatch.setattr(figures, "figures", lambda: {"product files": 10_000})
    assert figures.main() == 1
    assert "beyond its bound" in capsys.readouterr().out


def test_a_bound_is_the_last_that_is_admitted() -> None:
    assert (Bound(3).admits(3), Bound(3).admits(4)) == (True, False)
    assert (Bound(3, least=True).admits(3), Bound(3, least=True).admits(2)) == (True, False)


def test_the_longest_path_is_found() -> None:
    arrows = {"a": {"b", "d"}, "b": {"c"}, "c": {"d"}, "d": set(), "e": {"d"}}
    assert figures.longest_path(arrows) == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="a circle through a"):
        figures.longest_path({"a": {"b"}, "b": {"a"}})


@pytest.mark.parametrize(
    ("text", "comments", "lines"),
    [
        ("x = 1  # because of y\n", 1, 1),
        ("# why\n\nx = 1\n", 1, 1),
        ("# --- section ------\nx = 1\n", 0, 1),
        ("import x  # noqa: F401\n", 0, 1),
        ("import x  # type: ignore[import]\n", 0, 1),
        ('"""A docstring\n\nof lines."""\nx = "# none"\n', 0, 1),
        ('def f():\n    """Say."""\n    return """a\n    b"""\n', 0, 3),
    ],
)
def test_comments_and_code_are_counted(text: str, comments: int, lines: int) -> None:
    assert figures.comments_and_code(text) == (comments, lines)


def test_entries_and_rules_are_counted(tmp_path: Path) -> None:
    for folder in ("inner", "moved/__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").touch()
    for name in ("__init__.py", "one.py", "two.py", "page.md"):
        (tmp_path / name).touch()
    assert figures.entries(tmp_path) == ["inner", "one.py", "page.md", "two.py"]
    assert figures.files_in(tmp_path) == 2
    page = tmp_path / "page.md"
    page.write_text("1. A rule\n12. Another\n\n### interval-3\n\n- none\nalso 7. not\n")
    assert figures.rules_in([page]) == 3


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
