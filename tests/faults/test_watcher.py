"""What a watcher was sent is held against the journal: no gap, no repeat, nothing that is not."""

from __future__ import annotations

import pytest

from bench.faults.ledger import Ident
from bench.faults.oracle import Entry
from bench.faults.watcher import Visit, Watcher, judge_visits


def entry(offset: int, index: int = 0) -> Entry:
    return Entry(offset, "k", Ident("w", offset, index))


def visit(last_id: str, mode: str, *offsets: int, index: int = 0, op: str = "publish") -> Visit:
    return Visit(last_id, mode, [(op, entry(offset, index)) for offset in offsets])


FIRST = visit("", "", 3, 4, 5)

CASES: dict[str, tuple[Visit, str]] = {
    "it goes on": (visit("e-5", "replay", 6, 7), ""),
    "what came after the id is repeated": (visit("e-4", "replay", 5, 6, 7), ""),
    "nothing was missed": (visit("e-5", "replay"), ""),
    "another epoch begins with a snapshot": (visit("d-5", "snapshot", 6, 7), ""),
    "a gap": (visit("e-5", "replay", 7), "begins at 7"),
    "a gap in the midst": (visit("e-5", "replay", 6, 8), "8 follows 6"),
    "a repeat of what the id covers": (visit("e-5", "replay", 5, 6), "repeats 5"),
    "a silent beginning": (visit("e-5", "", 6, 7), "resumed by nothing"),
    "a snapshot without a cause": (visit("e-5", "snapshot", 6, 7), "resumed by snapshot"),
    "what was lost afterwards": (visit("e-5", "replay", 6, 7, index=1), "the journal has"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_second_visit(case: str) -> None:
    watcher = Watcher("t", "conflation=none")
    second, wrong = CASES[case]
    watcher.visits = [FIRST, second]
    found = list(judge_visits(watcher, "e", [entry(offset) for offset in range(1, 9)]))
    assert (not found) if not wrong else any(wrong in sentence for sentence in found), found
