"""The comparison of code sees every change, and no move."""

import subprocess
from pathlib import Path

import pytest

from tests.golden.same_code import main

OLD = '''"""A module."""
import os

LIMIT = 3


class Usher:
    """Subscribers."""

    rank: int = 1

    def join(self, subscriber: str) -> str:
        """Take a place."""
        return joiner.join(subscriber, self.rank)


def _size(text: str) -> int:
    return len(text)
'''
OTHER = "def _size(text: str) -> int:\n    return 0\n"


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Twice the same two modules."""
    for place in ("old", "new"):
        (tmp_path / place / "app").mkdir(parents=True)
        (tmp_path / place / "app" / "usher.py").write_text(OLD)
        (tmp_path / place / "app" / "other.py").write_text(OTHER)
    return tmp_path / "old", tmp_path / "new"


def compared(places: tuple[Path, Path], capsys: pytest.CaptureFixture[str], *more: str) -> str:
    status = main([*map(str, places), "app", *more])
    found = capsys.readouterr().out
    assert status == bool(found)
    return found


def test_a_move_changes_nothing(
    places: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    module = places[1] / "app" / "usher.py"
    moved = places[1] / "app" / "sessions" / "subscribers.py"
    moved.parent.mkdir()
    text = OLD.replace("Take a place", "Sit down").replace("import os", "from x import y")
    moved.write_text(text.replace("LIMIT = 3", "# bound\nLIMIT = (3)"))
    module.unlink()
    assert not compared(places, capsys)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("self.rank)", "self.rank + 1)", "changed Usher.join app/usher.py\n"),
        ("rank: int = 1", "rank: int = 2", "changed Usher app/usher.py\n"),
        ("LIMIT = 3", "LIMIT = 4", "changed LIMIT app/usher.py\n"),
        ("LIMIT = 3\n", "", "removed LIMIT app/usher.py\n"),
        ("LIMIT = 3\n", "LIMIT = 3\nFLOOR = 1\n", "added FLOOR app/usher.py\n"),
        ("len(text)", "len(text) - 1", "changed _size app/usher.py\n"),
        ("class Usher:", "class Usher(Base):", "changed Usher app/usher.py\n"),
    ],
)
def test_a_change_is_found(
    places: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    expected: str,
) -> None:
    (places[1] / "app" / "usher.py").write_text(OLD.replace(old, new))
    assert compared(places, capsys) == expected


def test_renames_are_followed(
    places: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    module = places[1] / "app" / "usher.py"
    module.write_text(OLD.replace("Usher", "Joiner").replace("joiner.join", "take_place"))
    assert "removed Usher " in compared(places, capsys)
    table = tmp_path / "renames"
    table.write_text("Usher Joiner  # the class\njoiner.join take_place\n")
    assert not compared(places, capsys, "--renames", str(table))


def test_paths_distinguish_equal_names(
    places: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for number, name in enumerate(("usher.py", "other.py")):
        text = (places[1] / "app" / name).read_text()
        (places[1] / "app" / name).unlink()
        text = text.replace("return len(text)", "return 7").replace("return 0", "return 8")
        (places[1] / "app" / f"moved{number}.py").write_text(text)
    table = tmp_path / "paths"
    table.write_text("app/usher.py app/moved0.py\napp/other.py app/moved1.py\n")
    found = compared(places, capsys, "--paths", str(table)).splitlines()
    assert found == [
        "changed _size app/other.py -> app/moved1.py",
        "changed _size app/usher.py -> app/moved0.py",
    ]


def test_two_bodies_that_change_places_are_changes(
    places: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (places[1] / "app" / "usher.py").write_text(OLD.replace("return len(text)", "return 0"))
    other = OTHER.replace("return 0", "return len(text)")
    (places[1] / "app" / "other.py").write_text(other)
    assert len(compared(places, capsys).splitlines()) == 2


@pytest.mark.nightly
def test_a_revision_is_read_as_a_folder_is(
    places: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(places[0])
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "old")):
        subprocess.run(("git", *command), check=True)
    assert main(["HEAD", str(places[1]), "app"]) == 0
    (places[1] / "app" / "other.py").unlink()
    assert main(["HEAD", str(places[1]), "app"]) == 1
    assert capsys.readouterr().out == "removed _size app/other.py\n"
