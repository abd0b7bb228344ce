from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.pipeline.definitions.toml import read_toml
from tidegate.pipeline.errors import DefinitionInvalid


def said_of(folder: Path, content: bytes) -> str:
    path = folder / "s.toml"
    path.write_bytes(content)
    with pytest.raises(DefinitionInvalid) as caught:
        read_toml(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


def test_tables_are_read_whatever_editor_has_saved_them(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes('\ufeff[a]\r\nb = "\u00e9"\r\n'.encode())
    assert read_toml(path) == {"a": {"b": "\u00e9"}}


def test_bytes_that_are_no_text_are_told_with_their_line(tmp_path: Path) -> None:
    assert said_of(tmp_path, b'a = 1\n\nb = "\xff"\n') == "line 3: not UTF-8, save the file as that"
    assert said_of(tmp_path, "a = 1".encode("utf-16")).startswith("line 1: not UTF-8")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"\na = 1s",
            "line 2, column 6: not TOML, expected newline or end of document after a statement;",
        ),
        (
            b"a = /b\n",
            'line 1, column 5: not TOML, invalid value; a text stands in quotes, such as "1s"',
        ),
        (b'a = "b\n', "line 1, column 7: not TOML, illegal character '\\n'; the quote at the end"),
        (b'a = ["b" "c"]\n', "line 1, column 10: not TOML, unclosed array; a comma between two"),
        (b"a = {\nb = 1}\n", "line 1, column 6: not TOML, invalid initial character"),
        (b"a = 1\na = 2\n", "line 2, column 6: not TOML, cannot overwrite a value; the same field"),
        (b"[a.b]\n[a.b]\n", "line 2, column 5: not TOML, cannot declare a.b twice"),
        (b"a = [", "at the end: not TOML, invalid value"),
        (b"a = " + b"[" * 5_000, "lists or tables stand too deep in one another"),
        (b"a = " + b"9" * 5_000, "a number has too many digits"),
    ],
    ids=lambda value: value[:12] if isinstance(value, bytes) else "",
)
def test_what_is_no_toml_is_told_with_its_line_and_what_to_do(
    tmp_path: Path, content: bytes, said: str
) -> None:
    assert said_of(tmp_path, content).startswith(said)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DefinitionInvalid, match=r"none\.toml: No such file or directory$"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(DefinitionInvalid, match="Is a directory"):
        read_toml(tmp_path)
