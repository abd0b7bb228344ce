"""docs/glossary.md gives each word one line and one meaning."""

from __future__ import annotations

import re

from dev import ROOT

LINE_CHARACTERS_MAX = 120
PAGE = (ROOT / "docs" / "glossary.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if re.match(r"\| (?!word \|)", line)
]


def test_every_line_has_a_word_a_meaning_and_its_names_elsewhere() -> None:
    assert ROWS
    assert [row for row in ROWS if len(row) != 3 or not all(row)] == []


def test_a_word_stands_once() -> None:
    words = [word for row in ROWS for word in row[0].split(", ")]
    assert sorted(words) == sorted(set(words))


def test_lines_are_short() -> None:
    lines = enumerate(PAGE.splitlines(), 1)
    assert [number for number, line in lines if len(line) > LINE_CHARACTERS_MAX] == []
