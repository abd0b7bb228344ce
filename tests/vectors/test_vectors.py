"""Every case has its reason, and every side runs the lists that README.md gives it."""

from __future__ import annotations

import re

from dev import ROOT
from tests.support.vectors import FILES, FOLDER, lists

SIDES = {
    "keys": ["keys/test_vectors.py"],
    "gateway": ["conflation/test_vectors.py", "app/test_vectors.py"],
    "Python": ["clients/test_vectors.py"],
    "JavaScript": ["js/vectors.test.mjs"],
    "pipeline": ["pipeline/test_vectors.py"],
}


def rows() -> dict[str, list[str]]:
    """The sides of each list, by the table of README.md."""
    cells = re.findall(
        r"^\| `([a-z_.]+)`.*?\|(.*)\|$", (FOLDER / "README.md").read_text(), re.MULTILINE
    )
    return {
        name: [side for side, cell in zip(SIDES, row.split("|"), strict=True) if cell.strip()]
        for name, row in cells
    }


def test_the_table_has_every_list_and_every_case_its_reason() -> None:
    known = [(file, name) for file in FILES for name in lists(file)]
    assert list(rows()) == [f"{file}.{name}" for file, name in known]
    for file, name in known:
        reasons = [case["why"] for case in lists(file)[name]]
        assert all(reasons)
        assert len({*reasons}) == len(reasons)


def test_each_side_runs_its_lists_and_no_others() -> None:
    for side, files in SIDES.items():
        code = "".join((ROOT / "tests" / file).read_text() for file in files)
        used = {".".join(pair) for pair in re.findall(r'"(\w+)", "(\w+)"', code)}
        used |= {".".join(pair) for pair in re.findall(r"\b(\w+)\.(\w+)\b", code)}
        assert {name for name in rows() if name in used} == {
            name for name, sides in rows().items() if side in sides
        }, side
