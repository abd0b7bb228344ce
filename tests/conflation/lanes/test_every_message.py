"""The lane of `conflation=none`: every message, in order, until a queue overflows."""

from __future__ import annotations

from typing import Any

from tests.support.rules import rule
from tests.support.world import World, batches, counts, ids, tokens, told
from tidegate.conflation.frame import Row
from tidegate.conflation.lanes.every_message import EveryMessageLane
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec


def list_lane(world: World) -> EveryMessageLane:
    """The one list lane of topic px."""
    (feed,) = world.engine.topic("px").feeds.values()
    (lane,) = feed.lanes.values()
    assert isinstance(lane, EveryMessageLane)
    return lane


@rule("queue-1")
def test_every_message_comes_in_order_as_soon_as_the_caller_advances() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=none")
    world.say("a1 a2 b1")
    world.say("a3")
    assert world.engine.next_deadline() == world.now
    world.flush()
    assert world.hears() == ["a1 a2 b1 a3"]


def test_a_member_behind_gets_what_is_left_of_the_list() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=none")
    for text in ("a1 a2", "a3"):
        world.say(text)
        world.flush()
    assert world.hears(bytes_max=1) == ["a1", "a2", "a3"]


@rule("queue-2")
def test_a_full_queue_keeps_the_newest_row_of_each_key() -> None:
    world = World()
    world.topic()
    world.session(messages_max=3)
    world.subscribe("conflation=none")
    world.say("a1 b1 a2")
    world.say("c1")
    world.flush()
    assert world.hears() == ["b1 a2 c1"]


@rule("queue-2")
def test_a_full_queue_of_a_plain_topic_keeps_the_newest_message() -> None:
    """The topic is the key."""
    world = World()
    world.topic(key="")
    world.session(messages_max=2)
    world.subscribe("conflation=none")
    world.say("a1 b1")
    world.say("c1")
    world.flush()
    assert world.hears() == ["c1"]


@rule("queue-4")
def test_a_row_that_was_kept_goes_when_its_key_comes_again() -> None:
    world = World()
    world.topic()
    world.session(messages_max=3)
    world.subscribe("conflation=none")
    world.say("a1 b1 a2 a3")
    world.flush()
    world.say("b2")
    world.flush()
    assert world.hears() == ["a3 b2"]


@rule("queue-2")
def test_more_keys_than_the_limit_close_the_session() -> None:
    world = World()
    world.topic()
    world.session(messages_max=2)
    world.subscribe("conflation=none")
    world.say("a1 b1 c1")
    assert world.hears() == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]
    assert world.engine.topic_stats("px").dropped == 3


def test_a_slow_session_is_no_other_sessions_business() -> None:
    world = World()
    world.topic()
    world.session("slow", messages_max=1)
    world.subscribe("conflation=none", session="slow")
    world.subscribe("conflation=none", session="fast")
    world.say("a1 a2 a3")
    world.flush()
    assert world.hears("slow") == ["a3"]
    assert world.hears("fast") == ["a1 a2 a3"]


@rule("queue-4")
def test_a_queue_that_was_given_up_costs_no_list() -> None:
    world = World()
    world.topic()
    world.session(messages_max=4)
    world.subscribe("conflation=none")
    for number in range(100):
        world.say(f"a{number} b{number}")
        world.flush()
    assert len(list_lane(world).log) <= 4
    assert world.hears() == ["a99 b99"]


@rule("queue-4")
def test_a_limit_counts_what_the_board_keeps_for_a_queue_that_was_given_up() -> None:
    world = World()
    world.topic()
    world.session(messages_max=4)
    world.subscribe("conflation=none")
    world.say("a1 b1 c1 c2 c3")
    world.flush()
    world.say("d1")
    world.flush()
    world.say("d2")
    assert world.engine.session_stats("s").queued_messages == 4
    world.flush()
    assert world.hears() == ["a1 b1 c3 d2"]


@rule("queue-2")
def test_a_limit_holds_whichever_of_a_sessions_queues_grew_last() -> None:
    """The limits are of the session; its lists share them unevenly."""
    world = World()
    world.topic()
    world.topic("other", policy="off")
    world.session(messages_max=8)
    world.subscribe("conflation=none")
    world.subscribe("conflation=none", topic="other")
    world.say("a1 a2 a3 a4 a5 a6")
    world.say("b1 b2 b3", topic="other")
    assert world.engine.session_stats("s").queued_messages == 4
    world.flush()
    assert world.hears() == ["a6", "b1 b2 b3"]


def slow(messages_max: int, *, command: str = "subscribe", **more: Any) -> World:
    """Somebody who takes nothing until told to."""
    world = World()
    world.topic(**more)
    world.session(messages_max=messages_max)
    world.subscribe(command=command)
    world.take()
    return world


def say(world: World, *texts: str) -> None:
    for text in texts:
        world.say(text)
        world.flush()


@rule("queue-9")
def test_a_full_queue_of_deltas_becomes_one_composite_for_each_key() -> None:
    world = slow(3, command="sow_and_delta_subscribe")
    for v, w in ((0, 0), (1, 0), (1, 2)):
        world.publish({"k": "a", "v": v, "w": w, "note": "x" * 50})
        world.flush()
        if not w and not v:
            world.take()
    world.publish({"k": "b", "v": 1})
    world.publish({"k": "b", "v": 2})
    world.flush()
    (rows,) = batches(world.take())
    a, b = rows.frames
    assert isinstance(a, Row)
    assert a.patch == b'{"k":"a","v":1,"w":2}'
    assert isinstance(b, Row)
    assert (b.patch, b.payload) == (None, b'{"k":"b","v":2}')
    world.publish({"k": "a", "v": 1, "w": 3, "note": "x" * 50})
    world.flush()
    ((next_row,),) = [batch.frames for batch in batches(world.take())]
    assert isinstance(next_row, Row)
    assert next_row.patch == b'{"k":"a","w":3}'


def test_a_full_queue_is_merged_as_its_topic_says() -> None:
    world = slow(2, merge=Reduce.of({"/v": "sum"}))
    say(world, "a1", "a2", "a3", "a4")
    assert world.hears() == ["a6 a4"]


@rule("topic-1")
def test_what_does_not_match_is_not_conflated_in_a_queue_either() -> None:
    """Without records the key still tells what conflates."""
    world = slow(3, key="", match=KeySpec.of(["/k"]))
    say(world, "a1 b1", "a2 b2")
    assert world.hears() == ["a2 b2"]


@rule("merge-4")
def test_a_queue_keeps_its_places_where_the_topic_replaces() -> None:
    world = slow(4, replaces=True)
    say(world, "a1 b1 c1 a2 c2")
    assert world.hears() == ["a2 b1 c2"]


@rule("queue-9")
def test_what_was_put_together_stays_until_the_queue_is_full_again() -> None:
    world = slow(3, replaces=True)
    say(world, "a1 b1 a2 a3", "b2")
    assert world.engine.session_stats("s").queued_messages == 3
    (first,) = world.take_once(1)
    assert tokens(batches([first])[0].frames) == "a3"
    assert world.hears() == ["b1 b2"]


@rule("queue-9")
def test_no_id_is_given_before_the_last_of_it_is_out() -> None:
    world = slow(3, replaces=True)
    say(world, "a1 b1 a2 a3", "c2")
    assert ids(world.take(bytes_max=1)) == [None, None, 5]
    assert not world.engine.take("s", 1)
    say(world, "c3")
    assert ids(world.take()) == [6]


def test_a_queue_may_be_given_up_again_and_again_while_it_is_taken() -> None:
    world = slow(3, replaces=True)
    heard: list[str] = []
    for number in range(20):
        say(world, f"a{number} b{number}")
        heard += told(world.take_once(1))
    heard += world.hears()
    assert heard[-1].split()[-1] == "b19"
    stats = world.engine.topic_stats("px")
    assert stats.waiting == 0
    assert stats.delivered == len(" ".join(heard).split())


@rule("queue-4")
def test_removals_are_told_to_who_has_the_key_and_to_nobody_else() -> None:
    world = World()
    world.topic(replaces=True)
    world.say("a1")
    world.session(messages_max=2)
    world.subscribe("oof", command="sow_and_subscribe")
    world.take()
    world.say("a2 b1")
    world.remove("b1")
    world.say("a3")
    world.remove("a3")
    world.flush()
    assert world.hears() == ["-a3"]
    stats = world.engine.topic_stats("px")
    assert (stats.matched, stats.conflated) == (3, 3)


@rule("removal-2")
def test_a_piece_of_what_a_board_kept_is_no_position_where_removals_are_told() -> None:
    """Between the pieces, a key that came and went is not taken for one that was told."""
    world = World()
    world.topic()
    world.session(messages_max=2)
    world.subscribe("oof", command="sow_and_subscribe")
    world.take()
    world.say("b1 a2")
    world.remove("b0")
    world.say("c4")
    world.flush()
    assert world.hears(bytes_max=1) == ["a2", "c4"]


def test_a_policy_that_changes_finds_what_was_given_up_before() -> None:
    world = slow(3)
    say(world, "a1 b1 a2 a3")
    world.topic(replaces=True)
    say(world, "b2 a4")
    assert world.hears() == ["b2 a4"]


def test_exempt_messages_stay_and_stand_for_themselves() -> None:
    world = slow(3)
    world.say("a1 a2")
    world.say("a3", exempt=True)
    world.say("a4")
    world.flush()
    assert counts(world.take()) == [("a3", 1, 3), ("a4", 3, 1)]
