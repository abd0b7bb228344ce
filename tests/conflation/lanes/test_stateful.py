"""The lane of `pace=key`: an interval for each key, leaving at the end of a tick."""

from __future__ import annotations

import pytest

from tests.support.manual_driver import (
    PLENTY,
    ManualDriver,
    counts,
    described,
    ids,
    make_frames,
    token,
)
from tests.support.rules import rule
from tidegate.conflation.frame import Receipt
from tidegate.conflation.lanes import flushes as flushes_module
from tidegate.conflation.lanes.flushes import Flushes
from tidegate.conflation.lanes.part import PendingPart
from tidegate.conflation.lanes.pending import Pending
from tidegate.conflation.subscription import FeedId, LaneId
from tidegate.keys.spec import KeySpec

BY_KEY = "conflation=1s,pace=key"


@rule("interval-4", "interval-5")
def test_each_key_opens_its_own_interval() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(BY_KEY)
    driver.publish("a1")
    driver.wait("400ms")
    driver.publish("a2 b1")
    driver.wait("600ms")
    assert driver.received() == ["a2"]
    driver.wait("399ms")
    assert driver.received() == []
    driver.wait("1ms")
    assert driver.received() == ["b1"]


@rule("interval-5")
def test_keys_due_within_a_tick_leave_together_at_its_end() -> None:
    """The tick of 1 s is 50 ms."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(BY_KEY)
    driver.wait("10ms")
    driver.publish("a1")
    driver.wait("20ms")
    driver.publish("b1")
    driver.wait("1019ms")
    assert driver.received() == []
    driver.wait("1ms")
    assert driver.received() == ["a1 b1"]


def test_rows_that_leave_together_stand_in_publication_order() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(BY_KEY)
    driver.publish("a1 b1 a2")
    driver.wait("1s")
    assert driver.received() == ["b1 a2"]


@rule("interval-7")
def test_a_key_that_others_held_at_the_join_does_not_come_twice() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(BY_KEY, session="first")
    driver.publish("a1 b1")
    driver.subscribe(BY_KEY, command="sow_and_subscribe")
    driver.publish("b2")
    driver.wait("1s")
    assert driver.received() == ["group of 2", "snapshot: a1 b1", "group ends at e1-2", "b2"]
    assert driver.received("first") == ["a1 b2"]


@rule("resume-7")
def test_an_id_never_steps_back_behind_the_join() -> None:
    """A key that others hold since before the join holds no id of ours back."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(BY_KEY, session="first")
    driver.publish("a1")
    driver.wait("500ms")
    driver.publish("b1")
    driver.wait("200ms")
    driver.subscribe(BY_KEY)
    driver.publish("a2")
    driver.wait("300ms")
    assert ids(driver.take("first")) == [1]
    outputs = driver.take()
    assert (described(outputs), ids(outputs)) == (["a2"], [2])


@rule("resume-6", "resume-7")
def test_an_id_stands_below_the_first_message_that_is_held() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(BY_KEY)
    driver.publish("a1")
    driver.wait("500ms")
    driver.publish("b1")
    driver.publish("b2 c1")
    driver.wait("500ms")
    assert ids(driver.take()) == [1]
    driver.wait("500ms")
    assert ids(driver.take()) == [4]


@rule("interval-10", "delta-6")
def test_a_member_behind_gets_the_last_flushed_row_of_each_key_in_pieces() -> None:
    """Also where it was superseded since."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(BY_KEY)
    driver.publish("a1 b1 c1")
    driver.wait("1s")
    driver.publish("a2")
    driver.wait("1s")
    assert described(driver.take_once(1)) == ["b1"]
    driver.publish("c2")
    assert described(driver.take_once(PLENTY)) == ["c1 a2"]
    driver.wait("1s")
    assert driver.received() == ["c2"]


@rule("delta-6")
def test_a_slow_member_gets_what_it_missed_with_all_that_it_stands_for() -> None:
    driver = ManualDriver()
    driver.topic()
    for session in ("fast", "slow"):
        driver.subscribe("conflation=1s,receipt", session=session, counted=True)
    for text in ("a1 a2 b1", "a3", "b2 b3"):
        driver.publish(text)
        driver.wait("1s")
        driver.take("fast")
    assert counts(driver.take("slow")) == [("a3", 3, 1), ("b3", 3, 3)]


@rule("merge-3")
def test_a_leading_edge_goes_at_once_and_then_every_interval() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,edge=leading")
    driver.publish("a1")
    driver.flush()
    assert driver.received() == ["a1"]
    driver.wait("300ms")
    driver.publish("a2 b1")
    driver.flush()
    assert driver.received() == ["b1"]
    driver.publish("a3")
    driver.wait("699ms")
    assert driver.received() == []
    driver.wait("1ms")
    assert driver.received() == ["a3"]


@rule("merge-1")
def test_what_is_never_to_be_conflated_goes_in_order_beside_the_rest() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,never=[/v > 7]")
    driver.publish("a1 a8 a2 a9 a3 b1")
    driver.wait("1s")
    assert driver.received() == ["a8 a9 a3 b1"]


@rule("interval-1", "interval-2")
def test_what_was_not_to_be_conflated_keeps_nothing_apart_for_who_had_it_in_the_snapshot() -> None:
    """The others are sent a2 before the removal, since a1 goes before both."""
    driver = ManualDriver()
    driver.topic()
    options = "conflation=1s,pace=key,oof"
    for later in ("", "a3"):
        first, late = f"first{later}", f"late{later}"
        driver.subscribe(options, command="sow_and_subscribe", session=first)
        driver.publish("a1", exempt=True)
        driver.subscribe(options, command="sow_and_subscribe", session=late)
        driver.publish("a2")
        driver.remove("a2")
        if later:
            driver.publish(later)
        driver.wait("1s")
        told_last = later or "-a2"
        assert driver.received(first)[-1] == f"a1 a2 {told_last}"
        assert driver.received(late)[-1] == told_last


@rule("delta-6", "delta-1")
def test_what_came_and_went_before_a_join_is_not_held_any_more() -> None:
    """The next a1 stands for the old one too, and b2 is a delta all the same."""
    driver = ManualDriver()
    driver.topic()
    options = "conflation=1s,oof"
    driver.publish("bX1")
    driver.subscribe(options, command="sow_and_delta_subscribe", session="first", counted=True)
    driver.publish("a1")
    driver.remove("a1")
    driver.wait("1s")
    driver.subscribe(options, command="sow_and_delta_subscribe", session="late", counted=True)
    driver.publish("bX2 a1")
    driver.wait("1s")
    first, late = driver.take("first"), driver.take("late")
    assert counts(first)[-2:] == [("~bX2", 1, 4), ("a1", 2, 2)]
    assert counts(late)[-2:] == [("~bX2", 1, 4), ("a1", 1, 5)]


@rule("merge-2")
def test_a_message_may_let_go_what_is_held_before_it() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=10s,flush_on=[/v > 7]")
    driver.publish("a1 b1 a8 b2")
    driver.flush()
    assert driver.received() == ["a1 b1"]
    driver.wait("10s")
    assert driver.received() == ["a8 b2"]


@rule("removal-1")
def test_a_removal_shows_the_fields_that_were_selected() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("aX1")
    driver.subscribe("conflation=1s,pace=key,oof,select=[-/g]", command="sow_and_subscribe")
    driver.take()
    driver.remove("a0")
    driver.wait("2s")
    assert driver.received() == ["-a1"]


@rule("resume-6", "merge-2")
def test_an_id_never_promises_what_was_released_and_is_not_flushed() -> None:
    driver = ManualDriver()
    driver.topic()
    for session in ("fast", "slow"):
        driver.subscribe("conflation=1s,flush_on=[/v = 3]", session=session)
    driver.publish("a1")
    driver.wait("1s")
    driver.publish("a2")
    driver.publish("b3")
    driver.flush()
    driver.publish("a3")
    assert ids(driver.take("slow")) == [2]


@rule("merge-3")
def test_a_key_without_a_sent_row_has_no_last_row() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,edge=leading,oof", command="sow_and_subscribe")
    driver.take()
    driver.publish("a1")
    driver.remove("a0")
    driver.flush()
    driver.publish("a2")
    driver.flush()
    assert driver.received() == ["a2"]


# Flushes: flushes that somebody is still behind, and no more of them than that.

LANE = LaneId(FeedId(KeySpec.parse("[/k]")), 1_000_000_000, "key")


def flush(text: str, first: int) -> list[Pending]:
    return [
        Pending(
            frame.key,
            PendingPart(0, frame, Receipt(1, frame.offset, 0), is_new=False),
            0,
            frame.offset,
            frame.offset,
        )
        for frame in make_frames(text, first)
    ]


def behind(flushes: Flushes, position: int) -> str:
    entries = flushes.after(position, 0).all()
    return " ".join(
        token(entry.newest.frame) for entry in sorted(entries, key=lambda s: s.send_order)
    )


@rule("delta-6")
def test_who_is_behind_gets_what_it_missed_put_together() -> None:
    flushes = Flushes(LANE)
    flushes.add(1, flush("a1 b1", 1), group=1)
    flushes.add(2, flush("a2", 3), group=2)
    flushes.add(3, flush("c1", 4), group=3)
    assert [behind(flushes, position) for position in range(4)] == ["b1 a2 c1", "a2 c1", "c1", ""]


def test_neighbours_become_one_where_nobody_stands_between() -> None:
    """Law 3: a slow member costs its changed keys, not the flushes that it missed."""
    flushes = Flushes(LANE)
    for position in range(1, 50):
        flushes.add(position, flush(f"a{position}", position), group=position)
        flushes.drop({0, position})
    assert len(flushes) == 1
    assert behind(flushes, 0) == "a49"


@pytest.fixture
def two_large_flushes(monkeypatch: pytest.MonkeyPatch) -> Flushes:
    """Two flushes of six keys that may be joined now, two entries with each flush."""
    monkeypatch.setattr(flushes_module, "MADE_AT_ONCE", 2)
    flushes = Flushes(LANE)
    flushes.add(1, flush("a1 b1 c1 d1 e1 f1", 1), group=1)
    flushes.add(2, flush("a2 b2 c2 d2 e2 f2", 7), group=2)
    flushes.drop({0, 1, 2})
    return flushes


def test_each_flush_joins_as_many_entries_as_it_can_bring(two_large_flushes: Flushes) -> None:
    kept = []
    for _ in range(7):
        two_large_flushes.drop({0, 2})
        kept.append(len(list(two_large_flushes.all())))
        assert behind(two_large_flushes, 0) == "a2 b2 c2 d2 e2 f2"
    assert kept == [12, 12, 12, 10, 8, 6, 6]


def test_a_cut_of_flushes_stays_as_it_is_while_they_are_joined(two_large_flushes: Flushes) -> None:
    for _ in range(3):
        two_large_flushes.drop({0, 2})
    cut = two_large_flushes.copied_pieces(0)
    for _ in range(3):
        two_large_flushes.drop({0, 2})
    shown = " ".join(token(entry.newest.frame) for piece in cut for entry in piece)
    assert shown == "a1 b1 c1 d1 e1 f1 a2 b2 c2 d2 e2 f2"


def test_there_are_as_many_as_members_stand_at_different_positions() -> None:
    flushes = Flushes(LANE)
    for position in range(1, 8):
        flushes.add(position, flush(f"a{position} {'bcdefgh'[position - 1]}1", position), position)
    flushes.drop({0, 1, 4})
    assert len(flushes) == 3
    seen = [behind(flushes, position) for position in (0, 1, 4)]
    assert seen == ["b1 c1 d1 e1 f1 a7 g1 h1", "c1 d1 e1 f1 a7 g1 h1", "f1 a7 g1 h1"]


def test_what_everybody_has_is_forgotten() -> None:
    flushes = Flushes(LANE)
    flushes.add(1, flush("a1", 1), group=1)
    flushes.add(2, flush("a2", 2), group=2)
    flushes.drop({1, 2})
    assert len(flushes) == 1
    flushes.drop({2})
    assert len(flushes) == 0
    flushes.add(3, flush("a3", 3), group=3)
    flushes.drop(set())
    assert len(flushes) == 0
