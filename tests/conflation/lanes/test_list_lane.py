"""The lane of `conflation=none`: every message, in order, until a queue overflows."""

from __future__ import annotations

from conflation.lanes.list_lane import ListLane
from tests.support.world import World


def list_lane(world: World) -> ListLane:
    """The one list lane of topic px."""
    (feed,) = world.engine.topic("px").feeds.values()
    (lane,) = feed.lanes.values()
    assert isinstance(lane, ListLane)
    return lane


def test_every_message_comes_in_order_as_soon_as_the_caller_advances() -> None:
    """Rule 51."""
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


def test_a_full_queue_keeps_the_newest_row_of_each_key() -> None:
    """Rule 52."""
    world = World()
    world.topic()
    world.session(messages_max=3)
    world.subscribe("conflation=none")
    world.say("a1 b1 a2")
    world.say("c1")
    world.flush()
    assert world.hears() == ["b1 a2 c1"]


def test_a_full_queue_of_a_plain_topic_keeps_the_newest_message() -> None:
    """Rule 52: the topic is the key."""
    world = World()
    world.topic(key="")
    world.session(messages_max=2)
    world.subscribe("conflation=none")
    world.say("a1 b1")
    world.say("c1")
    world.flush()
    assert world.hears() == ["c1"]


def test_a_row_that_was_kept_goes_when_its_key_comes_again() -> None:
    """Rule 54."""
    world = World()
    world.topic()
    world.session(messages_max=3)
    world.subscribe("conflation=none")
    world.say("a1 b1 a2 a3")
    world.flush()
    world.say("b2")
    world.flush()
    assert world.hears() == ["a3 b2"]


def test_more_keys_than_the_limit_close_the_session() -> None:
    """Rule 53."""
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


def test_a_queue_that_was_given_up_costs_no_list() -> None:
    """Rule 56."""
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
    """Rule 56."""
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
