"""A member far behind a stateful lane has its rows made in steps: the same rows, none too many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import Any

import pytest

from tests.support.manual_driver import ManualDriver, batches, described
from tidegate.conflation import frame
from tidegate.conflation.boards import board
from tidegate.conflation.frame import Batch, Frame
from tidegate.conflation.lanes import catch_up, flushes, interval, stateful
from tidegate.conflation.lanes.catch_up import CatchUp
from tidegate.conflation.lanes.pending import Pending, PendingKeys
from tidegate.conflation.lanes.stateful import StatefulLane
from tidegate.conflation.outputs import CohortReady, Output, SessionReady
from tidegate.conflation.sessions import rows as session_rows

AT_ONCE = 4
STEP = 2
LETTERS = "abcdefghijklmnop"
LANES = [
    "conflation=1s,receipt",
    "conflation=1s,receipt,oof",
    "conflation=1s,receipt,pace=key",
    "conflation=1s,reduce=[/v:sum],receipt",
    "conflation=1s,reduce=[/v:append],receipt",
]


class Touched:
    """Entries put together and rows made in the longest call, and in all."""

    def __init__(self) -> None:
        self.now = self.most = self.rows = 0

    def during(self, call: Callable[[], object]) -> None:
        self.now = 0
        call()
        self.most = max(self.most, self.now)


@pytest.fixture(autouse=True)
def touched(monkeypatch: pytest.MonkeyPatch) -> Touched:
    for module in (frame, board, catch_up, interval, stateful, flushes, session_rows):
        for name in ("ROWS_AT_ONCE", "MADE_AT_ONCE"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, AT_ONCE)
    found = Touched()
    absorb, row = PendingKeys.absorb, StatefulLane._row

    def absorbing(
        keys: PendingKeys,
        flushed: Iterable[Pending],
        since_join: int = 0,
        apart: set[Pending] | None = None,
    ) -> None:
        entries = list(flushed)
        found.now += len(entries)
        absorb(keys, entries, since_join, apart)

    def made(lane: StatefulLane, entry: Pending, *, as_delta: bool) -> object:
        found.now += 1
        found.rows += 1
        return row(lane, entry, as_delta=as_delta)

    monkeypatch.setattr(PendingKeys, "absorb", absorbing)
    monkeypatch.setattr(StatefulLane, "_row", made)
    return found


def driver(step: int | None = STEP) -> ManualDriver:
    made = ManualDriver(items_at_once=step)
    made.topic()
    return made


def publish(made: ManualDriver, value: int, letters: str = LETTERS) -> None:
    made.publish(" ".join(f"{letter}X{value}" for letter in letters))


def flush(made: ManualDriver, call: Callable[[Callable[[], object]], object]) -> None:
    made.sleep("1s")
    while (due := made.engine.next_deadline()) is not None and due <= made.now:
        call(lambda: made.engine.advance(made.now))


def at_once(call: Callable[[], object]) -> object:
    return call()


def work(made: ManualDriver, call: Callable[[Callable[[], object]], object] = at_once) -> None:
    while made.engine.has_openings:
        call(lambda: made.engine.open_step(made.now))


def told(found: Iterable[Batch]) -> list[tuple[object, ...]]:
    """Rows in their order, and the last id; not where the pieces are cut."""
    found = list(found)
    rows = chain(*(batch.frames for batch in found))
    shown = [
        (row.offset, row.key, row.removed, row.payload, getattr(row, "messages", None))
        for row in rows
    ]
    return [*shown, (found[-1].low_water,)]


def story(made: ManualDriver, options: str) -> list[tuple[object, ...]]:
    """Be behind by three flushes, each with other keys, with some held rows besides."""
    made.subscribe(options)
    for value, letters in enumerate((LETTERS, LETTERS[::-1], LETTERS[3:])):
        publish(made, value + 1, letters)
        if value == 1:
            made.remove("aX0")
        flush(made, at_once)
        work(made)
    publish(made, 9, "abc")
    found = batches(made.take())
    work(made)
    found += batches(made.take())
    flush(made, at_once)
    return told(found + batches(made.take()))


@pytest.mark.parametrize("options", LANES)
def test_the_rows_are_those_that_are_made_at_once(options: str) -> None:
    assert story(driver(), options) == story(driver(None), options)


@pytest.mark.parametrize("options", LANES)
def test_no_call_touches_more_rows_than_go_at_once(options: str, touched: Touched) -> None:
    made = driver()
    made.subscribe(options)
    for value in range(1, 5):
        publish(made, value)
        flush(made, touched.during)
        work(made, touched.during)
    made.subscribe(options, session="other")
    publish(made, 5)
    flush(made, touched.during)
    work(made, touched.during)
    for session in ("s", "other"):
        touched.during(partial(made.engine.take, session, 1 << 20))
    work(made, touched.during)
    # In a flush: rows of its own, and those that it puts to the ones before.
    assert touched.most <= 2 * AT_ONCE
    assert {row.key for batch in batches(made.take()) for row in batch.frames} == {
        f'["{letter}"]' for letter in LETTERS
    }


@pytest.mark.parametrize("options", LANES)
@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_what_waits_is_counted_while_rows_are_made(options: str, steps: int) -> None:
    made = driver()
    made.subscribe(options)
    publish(made, 1)
    flush(made, at_once)
    publish(made, 2, LETTERS[4:])
    flush(made, at_once)
    assert not made.take()
    for _ in range(steps):
        made.engine.open_step(made.now)
    publish(made, 3, "ab")
    before = made.engine.topic_stats("px")
    assert before.matched == before.delivered + before.conflated + before.waiting
    work(made)
    found = batches(made.take())
    flush(made, at_once)
    found += batches(made.take())
    assert before.waiting == sum(batch.messages() for batch in found)
    after = made.engine.topic_stats("px")
    assert (after.waiting, after.delivered) == (0, before.waiting)


def test_a_key_that_came_and_went_counts_with_its_next_row() -> None:
    for step in (STEP, None):
        made = driver(step)
        publish(made, 0)
        made.subscribe("conflation=1s,receipt,oof", command="sow_and_subscribe")
        made.take()
        publish(made, 1, LETTERS + "z")
        flush(made, at_once)
        made.remove("zX0")
        flush(made, at_once)
        made.take()
        work(made)
        made.take()
        publish(made, 2, "z")
        flush(made, at_once)
        [row] = [row for batch in batches(made.take()) for row in batch.frames]
        assert getattr(row, "messages", None) == 2


def test_a_cohort_far_behind_has_its_rows_made_once(touched: Touched) -> None:
    made = driver()
    sessions = ["s", "t", "u"]
    for session in sessions:
        made.subscribe("conflation=1s,receipt", session=session)
    made.announcements()
    cohorts = {made.engine.enter_cohort(session, "kind") for session in sessions}
    [cohort] = cohorts
    assert cohort is not None
    publish(made, 1)
    flush(made, at_once)
    touched.rows = 0
    touched.during(lambda: made.engine.take_together(cohort, 1 << 20))
    assert touched.most == 0
    assert not cohort.members
    assert not any(made.take(session) for session in sessions)
    work(made)
    taken = [told(batches(made.take(session))) for session in sessions]
    assert taken[0] == taken[1] == taken[2]
    assert len(taken[0]) == len(LETTERS) + 1
    assert touched.rows == len(LETTERS)


def test_a_subscription_may_end_or_change_while_rows_are_made() -> None:
    made = driver()
    name = made.subscribe("conflation=1s,receipt")
    other = made.subscribe("conflation=1s,receipt", session="t")
    publish(made, 1)
    flush(made, at_once)
    made.take()
    made.take("t")
    made.engine.open_step(made.now)
    made.engine.unsubscribe("t", other)
    made.change(name, "conflation=2s")
    work(made)
    found = batches(made.take())
    assert {row.key for batch in found for row in batch.frames} == {
        f'["{letter}"]' for letter in LETTERS
    }
    stats = made.engine.topic_stats("px")
    assert stats.matched == stats.delivered + stats.conflated + stats.waiting + stats.dropped
    assert stats.dropped == len(LETTERS)


@pytest.mark.parametrize("sessions", ["s", "stu"])
def test_rows_that_were_sent_ahead_are_passed_over_piece_by_piece(
    sessions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = driver()
    for session in sessions:
        made.subscribe("conflation=1s", session=session)
    cohorts = {made.engine.enter_cohort(session, "kind") for session in sessions[1:]}
    examined: list[int] = []
    next_rows = CatchUp.next_rows

    def counted(going: CatchUp, *more: Any) -> list[Frame]:
        before = going.sent
        piece = next_rows(going, *more)
        examined.append(going.sent - before)
        return piece

    monkeypatch.setattr(CatchUp, "next_rows", counted)

    def taken() -> list[str]:
        """One take for each announcement, until there is none."""
        found: list[str] = []
        while events := made.engine.announcements():
            examined.clear()
            for event in events:
                if isinstance(event, CohortReady):
                    rows = made.engine.take_together(event.cohort, 1 << 20)
                    outputs: list[Output] = [] if rows is None else [rows]
                else:
                    assert isinstance(event, SessionReady)
                    outputs = made.engine.take(event.session, 1 << 20)
                found += described(outputs)
                if outputs:  # as a stream: until a take finds nothing
                    events.append(event)
            turns.append(max(examined, default=0))
        return found

    turns: list[int] = []
    publish(made, 1)
    flush(made, at_once)
    for session in sessions[:1]:
        made.engine.take(session, 1)
    for cohort in cohorts:
        assert cohort is not None
        made.engine.take_together(cohort, 1)
    publish(made, 2)
    ahead = taken()
    assert len(" ".join(ahead).split()) == (len(LETTERS) - 1) * (1 + len(cohorts))
    turns.clear()
    flush(made, at_once)
    # The first key was sent before it changed again; the newest value of all others was sent.
    assert taken() == ["aX2"] * (1 + len(cohorts))
    assert max(turns) <= AT_ONCE
    assert len(turns) > 2
    stats = made.engine.topic_stats("px")
    assert (stats.waiting, stats.matched) == (0, stats.delivered + stats.conflated)
