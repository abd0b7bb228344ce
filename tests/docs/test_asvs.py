"""The table of ASVS 5.0: every requirement of levels 1 and 2 has one row, and a state."""

from __future__ import annotations

import re
from collections import Counter

from dev import ROOT

REQUIREMENTS = {
    1: 27, 2: 11, 3: 19, 4: 10, 5: 9, 6: 35, 7: 18, 8: 7, 9: 7, 10: 29, 11: 14, 12: 9, 13: 13,
    14: 9, 15: 13, 16: 16, 17: 7,
}  # fmt: skip
"""Of levels 1 and 2, by chapter."""
STATES = {"met", "operator", "provider", "not applicable", "open"}
ROW = re.compile(r"^\| (\d[\d., ]*) \| ([a-z ]+) \| (\S.*) \|$", re.MULTILINE)


def test_every_requirement_has_one_row_and_a_state() -> None:
    rows = ROW.findall((ROOT / "docs" / "asvs.md").read_text("utf-8"))
    numbers = [number for listed, _, _ in rows for number in listed.split(", ")]
    assert {number: count for number, count in Counter(numbers).items() if count > 1} == {}
    chapters = Counter(int(number.split(".")[0]) for number in numbers)
    assert chapters == REQUIREMENTS
    assert sum(REQUIREMENTS.values()) == 253
    assert {state for _, state, _ in rows} == STATES
