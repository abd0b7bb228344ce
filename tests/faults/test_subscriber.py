"""What a subscriber got is compared with the journal: no gap, no repeat, nothing made up."""

from __future__ import annotations

import pytest

from tests.faults.checks.ledger import Ident, Ledger, Level, Request
from tests.faults.checks.oracle import Entry
from tests.faults.checks.subscriber import Seen, Subscriber, Visit, judge_rate, judge_visits

pytestmark = pytest.mark.nightly


def entry(offset: int, index: int = 0) -> Entry:
    return Entry(offset, "k", Ident("w", offset, index))


def visit(last_id: str, mode: str, *offsets: int, index: int = 0, op: str = "publish") -> Visit:
    rows = [Seen(op, "e", entry(offset, index)) for offset in offsets]
    return Visit(last_id, [mode] if mode else [], rows)


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
    "a snapshot without a cause": (visit("e-5", "snapshot", 6, 7), "resumed by ['snapshot']"),
    "what was lost afterwards": (visit("e-5", "replay", 6, 7, index=1), "the journal has"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_second_visit(case: str) -> None:
    subscriber = Subscriber("t", "conflation=none")
    second, wrong = CASES[case]
    subscriber.visits = [FIRST, second]
    found = list(judge_visits(subscriber, "e", [entry(offset) for offset in range(1, 9)]))
    assert (not found) if not wrong else any(wrong in sentence for sentence in found), found


def test_an_epoch_begins_with_a_word() -> None:
    visit = Visit("d-5", epoch="d")
    visit.take_row(Seen("publish", "d", entry(6)))
    visit.take_row(Seen("publish", "e", entry(8)))
    visit.is_announced = True
    visit.take_row(Seen("snapshot", "f", entry(9)))
    assert visit.silent_epochs == ["e"]


@pytest.mark.parametrize(("lost", "wrong"), [(0, ""), (1, "the journal has")])
def test_an_epoch_may_continue_the_one_before(lost: int, wrong: str) -> None:
    visit = Visit("d-5", ["replay"], epoch="d")
    visit.take_row(Seen("publish", "d", entry(6, lost)))
    visit.take_row(Seen("publish", "e", entry(7)))
    assert not visit.silent_epochs
    subscriber = Subscriber("t", "conflation=none")
    subscriber.visits = [visit]
    found = list(judge_visits(subscriber, "e", [entry(offset) for offset in range(1, 9)]))
    assert (not found) if not wrong else any(wrong in sentence for sentence in found), found


@pytest.mark.parametrize(
    ("flushed_s", "right"),
    [
        ((0.0, 0.1, 1.1), True),  # the first is the end of a resume
        ((0.0, 0.1, 0.5), False),
        ((0.0, 0.5, 1.5, 2.5), True),
        ((0.0, 0.5, 1.5, 1.6), False),
    ],
)
@pytest.mark.parametrize("late", [-1, 0, 1, 2])
def test_a_key_that_comes_too_often_is_found(
    flushed_s: tuple[float, ...], right: bool, late: int
) -> None:
    """A row that comes late makes the next neither too early nor right."""
    ledger, subscriber = Ledger(), Subscriber("t", "conflation=1s")
    rows = []
    for number, at_s in enumerate(flushed_s):
        ledger.note(Request("w", number, Level.PERSISTED, ("k",), False, at_s - 0.01))
        came_at_s = at_s + (0.4 if number == late else 0.01)
        rows.append(Seen("publish", "e", entry(number), came_at_s))
    subscriber.visits = [Visit("", [], rows)]
    assert (not list(judge_rate(subscriber, 1.0, ledger))) is right
