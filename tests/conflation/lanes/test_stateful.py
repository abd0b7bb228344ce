"""The lane of `pace=key`: an interval for each key, leaving at the end of a tick."""

from __future__ import annotations

from tests.support.rules import rule
from tests.support.world import PLENTY, World, counts, ids, make_frames, token, told
from tidegate.conflation.frame import Receipt
from tidegate.conflation.lanes.pending import Pending, PendingPart
from tidegate.conflation.lanes.stateful import Flushes
from tidegate.conflation.subscription import FeedId, LaneId
from tidegate.keys.spec import KeySpec

BY_KEY = "conflation=1s,pace=key"


@rule("interval-4", "interval-5")
def test_each_key_opens_its_own_interval() -> None:
    world = World()
    world.topic()
    world.subscribe(BY_KEY)
    world.say("a1")
    world.wait("400ms")
    world.say("a2 b1")
    world.wait("600ms")
    assert world.hears() == ["a2"]
    world.wait("399ms")
    assert world.hears() == []
    world.wait("1ms")
    assert world.hears() == ["b1"]


@rule("interval-5")
def test_keys_due_within_a_tick_leave_together_at_its_end() -> None:
    """The tick of 1 s is 50 ms."""
    world = World()
    world.topic()
    world.subscribe(BY_KEY)
    world.wait("10ms")
    world.say("a1")
    world.wait("20ms")
    world.say("b1")
    world.wait("1019ms")
    assert world.hears() == []
    world.wait("1ms")
    assert world.hears() == ["a1 b1"]


def test_rows_that_leave_together_stand_in_publication_order() -> None:
    world = World()
    world.topic()
    world.subscribe(BY_KEY)
    world.say("a1 b1 a2")
    world.wait("1s")
    assert world.hears() == ["b1 a2"]


@rule("interval-7")
def test_a_key_that_others_held_at_the_join_does_not_come_twice() -> None:
    world = World()
    world.topic()
    world.subscribe(BY_KEY, session="first")
    world.say("a1 b1")
    world.subscribe(BY_KEY, command="sow_and_subscribe")
    world.say("b2")
    world.wait("1s")
    assert world.hears() == ["group of 2", "snapshot: a1 b1", "group ends at e1-2", "b2"]
    assert world.hears("first") == ["a1 b2"]


@rule("resume-7")
def test_an_id_never_steps_back_behind_the_join() -> None:
    """A key that others hold since before the join holds no id of ours back."""
    world = World()
    world.topic()
    world.subscribe(BY_KEY, session="first")
    world.say("a1")
    world.wait("500ms")
    world.say("b1")
    world.wait("200ms")
    world.subscribe(BY_KEY)
    world.say("a2")
    world.wait("300ms")
    assert ids(world.take("first")) == [1]
    outputs = world.take()
    assert (told(outputs), ids(outputs)) == (["a2"], [2])


@rule("resume-6", "resume-7")
def test_an_id_stands_below_the_first_message_that_is_held() -> None:
    world = World()
    world.topic()
    world.subscribe(BY_KEY)
    world.say("a1")
    world.wait("500ms")
    world.say("b1")
    world.say("b2 c1")
    world.wait("500ms")
    assert ids(world.take()) == [1]
    world.wait("500ms")
    assert ids(world.take()) == [4]


@rule("interval-10", "delta-6")
def test_a_member_behind_gets_the_last_flushed_row_of_each_key_in_pieces() -> None:
    """Also where it was superseded since."""
    world = World()
    world.topic()
    world.subscribe(BY_KEY)
    world.say("a1 b1 c1")
    world.wait("1s")
    world.say("a2")
    world.wait("1s")
    assert told(world.take_once(1)) == ["b1"]
    world.say("c2")
    assert told(world.take_once(PLENTY)) == ["c1 a2"]
    world.wait("1s")
    assert world.hears() == ["c2"]


@rule("delta-6")
def test_a_slow_member_gets_what_it_missed_with_all_that_it_stands_for() -> None:
    world = World()
    world.topic()
    for session in ("fast", "slow"):
        world.subscribe("conflation=1s,receipt", session=session, counted=True)
    for text in ("a1 a2 b1", "a3", "b2 b3"):
        world.say(text)
        world.wait("1s")
        world.take("fast")
    assert counts(world.take("slow")) == [("a3", 3, 1), ("b3", 3, 3)]


@rule("merge-3")
def test_a_leading_edge_goes_at_once_and_then_every_interval() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s,edge=leading")
    world.say("a1")
    world.flush()
    assert world.hears() == ["a1"]
    world.wait("300ms")
    world.say("a2 b1")
    world.flush()
    assert world.hears() == ["b1"]
    world.say("a3")
    world.wait("699ms")
    assert world.hears() == []
    world.wait("1ms")
    assert world.hears() == ["a3"]


@rule("merge-1")
def test_what_is_never_to_be_conflated_goes_in_order_beside_the_rest() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s,never=[/v > 7]")
    world.say("a1 a8 a2 a9 a3 b1")
    world.wait("1s")
    assert world.hears() == ["a8 a9 a3 b1"]


@rule("interval-1", "interval-2")
def test_what_was_not_to_be_conflated_keeps_nothing_apart_for_who_had_it_in_the_snapshot() -> None:
    """The others are sent a2 before the removal, since a1 goes before both."""
    world = World()
    world.topic()
    options = "conflation=1s,pace=key,oof"
    for later in ("", "a3"):
        first, late = f"first{later}", f"late{later}"
        world.subscribe(options, command="sow_and_subscribe", session=first)
        world.say("a1", exempt=True)
        world.subscribe(options, command="sow_and_subscribe", session=late)
        world.say("a2")
        world.remove("a2")
        if later:
            world.say(later)
        world.wait("1s")
        told_last = later or "-a2"
        assert world.hears(first)[-1] == f"a1 a2 {told_last}"
        assert world.hears(late)[-1] == told_last


@rule("delta-6", "delta-1")
def test_what_came_and_went_before_a_join_is_not_held_any_more() -> None:
    """The next a1 stands for the old one too, and b2 is a delta all the same."""
    world = World()
    world.topic()
    options = "conflation=1s,oof"
    world.say("bX1")
    world.subscribe(options, command="sow_and_delta_subscribe", session="first", counted=True)
    world.say("a1")
    world.remove("a1")
    world.wait("1s")
    world.subscribe(options, command="sow_and_delta_subscribe", session="late", counted=True)
    world.say("bX2 a1")
    world.wait("1s")
    first, late = world.take("first"), world.take("late")
    assert counts(first)[-2:] == [("~bX2", 1, 4), ("a1", 2, 2)]
    assert counts(late)[-2:] == [("~bX2", 1, 4), ("a1", 1, 5)]


@rule("merge-2")
def test_a_message_may_let_go_what_is_held_before_it() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=10s,flush_on=[/v > 7]")
    world.say("a1 b1 a8 b2")
    world.flush()
    assert world.hears() == ["a1 b1"]
    world.wait("10s")
    assert world.hears() == ["a8 b2"]


@rule("removal-1")
def test_a_removal_shows_the_fields_that_were_selected() -> None:
    world = World()
    world.topic()
    world.say("aX1")
    world.subscribe("conflation=1s,pace=key,oof,select=[-/g]", command="sow_and_subscribe")
    world.take()
    world.remove("a0")
    world.wait("2s")
    assert world.hears() == ["-a1"]


@rule("resume-6", "merge-2")
def test_an_id_never_promises_what_was_released_and_is_not_flushed() -> None:
    world = World()
    world.topic()
    for session in ("fast", "slow"):
        world.subscribe("conflation=1s,flush_on=[/v = 3]", session=session)
    world.say("a1")
    world.wait("1s")
    world.say("a2")
    world.say("b3")
    world.flush()
    world.say("a3")
    assert ids(world.take("slow")) == [2]


@rule("merge-3")
def test_a_key_of_which_nothing_was_told_has_no_last_row() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s,edge=leading,oof", command="sow_and_subscribe")
    world.take()
    world.say("a1")
    world.remove("a0")
    world.flush()
    world.say("a2")
    world.flush()
    assert world.hears() == ["a2"]


# Flushes: flushes that somebody is still behind, and no more of them than that.

LANE = LaneId(FeedId(KeySpec.parse("[/k]")), 1_000_000_000, "key")


def flush(text: str, first: int) -> list[Pending]:
    return [
        Pending(
            frame.key,
            [PendingPart(0, frame, Receipt(1, frame.offset, 0), is_new=False)],
            0,
            frame.offset,
            frame.offset,
        )
        for frame in make_frames(text, first)
    ]


def behind(flushes: Flushes, position: int) -> str:
    entries = flushes.after(position, 0).all()
    return " ".join(token(entry.newest.frame) for entry in sorted(entries, key=lambda s: s.order))


@rule("delta-6")
def test_who_is_behind_gets_what_it_missed_put_together() -> None:
    flushes = Flushes(LANE)
    flushes.add(1, flush("a1 b1", 1))
    flushes.add(2, flush("a2", 3))
    flushes.add(3, flush("c1", 4))
    assert [behind(flushes, position) for position in range(4)] == ["b1 a2 c1", "a2 c1", "c1", ""]


def test_neighbours_become_one_where_nobody_stands_between() -> None:
    """Law 3: a slow member costs its changed keys, not the flushes that it missed."""
    flushes = Flushes(LANE)
    for position in range(1, 50):
        flushes.add(position, flush(f"a{position}", position))
        flushes.drop({0, position})
    assert len(flushes) == 1
    assert behind(flushes, 0) == "a49"


def test_what_everybody_has_is_forgotten() -> None:
    flushes = Flushes(LANE)
    flushes.add(1, flush("a1", 1))
    flushes.add(2, flush("a2", 2))
    flushes.drop({1, 2})
    assert len(flushes) == 1
    flushes.drop({2})
    assert len(flushes) == 0
    flushes.add(3, flush("a3", 3))
    flushes.drop(set())
    assert len(flushes) == 0
