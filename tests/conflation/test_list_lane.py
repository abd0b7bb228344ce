"""The lane of `conflation=none`: every message, in order, until a queue overflows."""

from __future__ import annotations

from conflation.list_lane import ListLane
from tests.support.world import World


def list_lane(world: World) -> ListLane:
    """The one list lane of topic px."""
    (feed,) = world.engine.topic("px").feeds.values()
    (lane,) = feed.lanes.values()
    assert isinstance(lane, ListLane)
    return lane


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


def test_a_limit_holds_whichever_of_a_sessions_queues_grew_last() -> None:
    """Rule 52: the limits are of the session; its lists share them unevenly."""
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
