"""The lane of `pace=batch`, and what its members get."""

from __future__ import annotations

from tests.support.rules import rule
from tests.support.world import PLENTY, World, batches, counts, ids, told
from tidegate.conflation.lanes.interval import IntervalLane

SECONDS = "conflation=1s"


@rule("interval-2", "interval-4")
def test_four_messages_inside_an_interval_come_as_the_last_one() -> None:
    """The IBM example of AMPS."""
    world = World()
    world.topic()
    world.subscribe("conflation=2s,conflation_key=[/k]")
    for price in ("i190", "i191", "i192", "i193"):
        world.say(price)
        world.wait("400ms")
    assert world.hears() == []
    world.wait("400ms")
    assert world.hears() == ["i193"]


@rule("interval-4")
def test_the_first_message_opens_the_interval_and_the_next_opens_the_next() -> None:
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    world.wait("10s")
    world.say("a1")
    assert world.engine.next_deadline() == world.now + 1_000_000_000
    world.wait("1s")
    assert world.hears() == ["a1"]
    assert world.engine.next_deadline() is None
    world.wait("300ms")
    world.say("a2")
    assert world.engine.next_deadline() == world.now + 1_000_000_000


@rule("interval-4", "interval-2")
def test_a_flush_stands_in_publication_order() -> None:
    """And holds nothing that did not change."""
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    world.say("a1 b1 c1")
    world.wait("1s")
    assert world.hears() == ["a1 b1 c1"]
    world.say("b2 a2 b3")
    world.wait("10s")
    assert world.hears() == ["a2 b3"]


@rule("interval-1", "interval-2")
def test_a_message_at_the_very_deadline_goes_with_the_flush() -> None:
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    world.say("a1")
    world.sleep("1s")
    world.say("a2")
    world.flush()
    assert world.hears() == ["a2"]
    world.say("a3")
    world.wait("999ms")
    assert world.hears() == []
    world.wait("1ms")
    assert world.hears() == ["a3"]


@rule("interval-6")
def test_a_late_flush_is_made_up_for_by_no_burst() -> None:
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    world.say("a1")
    world.sleep("5s")
    world.flush()
    assert world.hears() == ["a1"]
    world.say("a2")
    world.wait("999ms")
    assert world.hears() == []


@rule("interval-3")
def test_the_last_message_of_every_key_is_sent_when_publishing_stops() -> None:
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    for number in range(10):
        world.say(f"a{number} b{number}")
        world.wait("150ms")
    world.wait("1s")
    assert world.hears()[-1] == "a9 b9"


@rule("interval-10")
def test_members_in_step_share_one_batch() -> None:
    world = World()
    world.topic()
    world.subscribe(SECONDS, session="one")
    world.subscribe(SECONDS, session="two")
    world.say("a1 b1")
    world.wait("1s")
    (first,), (second,) = batches(world.take("one")), batches(world.take("two"))
    assert first is second


@rule("interval-10")
def test_a_member_behind_gets_the_newest_of_what_it_missed() -> None:
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    for text in ("a1 b1 c1", "a2 c2", "a3"):
        world.say(text)
        world.wait("1s")
    assert world.hears() == ["b1 c2 a3"]


@rule("interval-10")
def test_who_comes_late_gets_everything_up_to_now() -> None:
    """What was flushed may be superseded; the value that is held goes in its place."""
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    world.say("a1 b1")
    world.wait("1s")
    world.say("c1")
    world.wait("1s")
    world.say("a2")
    assert world.hears() == ["b1 c1 a2"]
    world.wait("1s")
    assert world.hears() == [], "and does not get it again"
    world.say("a3")
    world.wait("1s")
    assert world.hears() == ["a3"]


@rule("interval-10")
def test_a_key_that_never_rests_has_its_turn() -> None:
    """Each changed key once a round, whatever changes meanwhile, and as it is by then."""
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    world.say("h0 a0 b0 c0")
    world.wait("1s")
    heard: list[str] = []
    for number in range(1, 9):
        heard += told(world.take_once(1))
        world.say(f"h{number} a{number} b{number} c{number}")
        world.say(f"h{number}")
        world.wait("1s")
    assert heard == ["h0", "a1", "b2", "c3", "a4", "b5", "c6", "h7"]


@rule("interval-10", "resume-6")
def test_an_answer_comes_in_pieces_of_which_only_the_last_has_an_id() -> None:
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    world.say("a1 b1 c1")
    world.wait("1s")
    pieces = world.take(bytes_max=1)
    assert told(pieces) == ["a1", "b1", "c1"]
    assert ids(pieces) == [None, None, 3]


@rule("interval-10")
def test_a_piece_may_be_followed_by_a_flush() -> None:
    """What comes meanwhile is told in its turn, what is due as it is now."""
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    world.say("a1 b1 c1")
    world.wait("1s")
    assert told(world.take_once(1)) == ["a1"]
    world.say("b2 a2")
    world.wait("1s")
    pieces = [*world.take_once(PLENTY), *world.take_once(PLENTY)]
    assert told(pieces) == ["b2 c1", "a2"]
    assert ids(pieces) == [3, 5]
    assert world.hears() == []


@rule("interval-10", "merge-1")
def test_what_is_not_to_be_conflated_is_told_before_what_came_after_it() -> None:
    """Then nothing is sent ahead of its turn."""
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    world.say("a1 b1")
    world.wait("1s")
    assert told(world.take_once(1)) == ["a1"]
    world.say("b2", exempt=True)
    world.say("b3")
    world.wait("1s")
    assert world.hears(bytes_max=1) == ["b1", "b2", "b3"]


@rule("interval-10", "removal-2")
def test_a_key_that_leaves_and_returns_within_a_round() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s,oof", command="sow_and_subscribe")
    world.take()
    world.say("a1 b1 c1")
    world.wait("1s")
    assert told(world.take_once(1)) == ["a1"]
    for key_token in ("a0", "b0", "c0"):
        world.remove(key_token)
    world.say("c2")
    world.wait("1s")
    assert told(world.take_once(PLENTY)) == ["b1 c2"]
    assert world.hears() == ["-a1 -b1"]
    world.wait("1s")
    assert world.hears() == []


@rule("account-1")
def test_what_is_still_to_come_of_a_round_is_waiting() -> None:
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    world.say("a1 b1 c1")
    world.wait("1s")
    world.take_once(1)
    world.say("a2 b2 b3")
    (row,) = world.engine.session_stats("s").subscriptions
    assert (row.matched, row.delivered, row.conflated, row.waiting) == (6, 1, 2, 3)
    world.take_once(1)
    (row,) = world.engine.session_stats("s").subscriptions
    assert (row.matched, row.delivered, row.conflated, row.waiting) == (6, 2, 2, 2)


@rule("account-1")
def test_a_key_that_left_in_the_midst_of_a_round_waits_once() -> None:
    """What is told of it is the last value that it had."""
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    world.say("a1 b1")
    world.wait("1s")
    world.take_once(1)
    world.say("b2")
    world.remove("b2")
    (row,) = world.engine.session_stats("s").subscriptions
    assert (row.matched, row.delivered, row.conflated, row.waiting) == (3, 1, 1, 1)
    world.wait("1s")
    assert world.hears() == ["b2"]


@rule("interval-7")
def test_a_member_that_joins_an_open_interval_gets_only_what_follows_its_cut() -> None:
    world = World()
    world.topic()
    world.subscribe(SECONDS, session="early")
    world.say("a1 b1")
    world.wait("500ms")
    world.subscribe(SECONDS)
    world.say("c1")
    world.wait("500ms")
    assert world.hears() == ["c1"]
    assert world.hears("early") == ["a1 b1 c1"]


@rule("interval-8")
def test_rows_name_the_first_message_they_stand_for_where_that_is_asked() -> None:
    world = World()
    world.topic()
    world.subscribe(SECONDS, counted=True)
    world.say("a1 b1 a2 a3")
    world.wait("1s")
    assert counts(world.take()) == [("b1", 1, 2), ("a3", 3, 1)]
    world.say("a4 b2")
    world.wait("1s")
    assert counts(world.take()) == [("a4", 1, 5), ("b2", 1, 6)]


def test_a_batch_lane_listens_for_one_message_alone() -> None:
    """A publish costs its boards, not the intervals that are open."""
    world = World()
    world.topic()
    world.subscribe(SECONDS)
    (feed,) = world.engine.topic("px").feeds.values()
    (lane,) = feed.lanes.values()
    assert isinstance(lane, IntervalLane)
    assert not lane.sees_every_message


@rule("interval-10", "removal-2")
def test_where_removals_are_told_a_member_behind_gets_everything_up_to_now() -> None:
    """A position past changes that were left out would tell wrong removals."""
    world = World()
    world.topic()
    world.subscribe("conflation=1s,oof", command="sow_and_subscribe")
    world.take()
    for text in ("z1", "a1 b1"):
        world.say(text)
        world.wait("1s")
    world.say("a2 c1")
    world.remove("b0")
    assert world.hears() == ["z1 a2 c1"]
    world.wait("1s")
    assert world.hears() == []
    world.remove("a0")
    world.wait("1s")
    assert world.hears() == ["-a2"]
