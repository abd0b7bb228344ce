"""A session: its subscriptions take turns, who comes and goes is told before rows."""

from __future__ import annotations

from tests.support.rules import rule
from tests.support.world import World, told
from tidegate.conflation.definition import Priority
from tidegate.conflation.sessions.session import QueueLimits


def two_subscriptions() -> World:
    world = World()
    world.topic()
    world.topic("other")
    world.subscribe("conflation=1s")
    world.subscribe("conflation=1s", topic="other")
    return world


def test_subscriptions_take_turns_so_that_none_starves() -> None:
    world = two_subscriptions()
    world.say("a1 b1")
    world.say("x1 y1", topic="other")
    world.wait("1s")
    pieces = [told(world.take_once(1)) for _ in range(4)]
    assert pieces == [["a1"], ["x1"], ["b1"], ["y1"]]


def test_room_is_shared_by_all_subscriptions() -> None:
    world = two_subscriptions()
    world.say("a1")
    world.say("x1", topic="other")
    world.wait("1s")
    assert told(world.take_once(1_000)) == ["a1", "x1"]


@rule("account-2")
def test_the_end_of_a_subscription_is_told_and_drops_what_it_held() -> None:
    world = two_subscriptions()
    world.say("a1")
    world.engine.unsubscribe("s", "sub1")
    world.wait("1s")
    assert world.hears() == ["unsubscribed from px: REQUESTED"]
    assert world.engine.topic_stats("px").dropped == 1


def test_a_subscriber_is_announced_before_its_rows_and_after_the_end_of_the_one_before() -> None:
    world = World()
    world.topic()
    world.say("a1")
    world.engine.open_session("s", QueueLimits(10, 1_000), lasts=True)
    wish = world.wish("conflation=1s", command="sow_and_subscribe")
    world.engine.subscribe("s", "sub", wish, world.now, announced=True)
    story = ["subscribed to px", "group of 1", "snapshot: a1", "group ends at e1-1"]
    assert world.hears() == story
    world.engine.drop_topic("px")
    world.topic(epoch="e2")
    world.engine.subscribe("s", "sub", wish, world.now, announced=True)
    assert world.hears() == [
        "unsubscribed from px: REMOVED", "subscribed to px", "group of 0", "group ends at e2-0"
    ]  # fmt: skip


def test_who_has_everything_is_told_up_to_where() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s", wanted="/v > 5")
    world.subscribe("conflation=1s", command="sow_and_subscribe")

    def places() -> dict[str, str]:
        return {name: str(place) for (name, _), place in world.engine.caught_up("s")}

    assert places() == {"sub1": "e1-0"}  # the other's snapshot has not been taken
    world.hears()
    world.say("a1 b2")
    assert places() == {"sub1": "e1-2"}, "hidden by the filter, or held until the flush"
    world.say("a9")
    world.wait("1s")
    assert places() == {}
    world.hears()
    assert places() == {"sub1": "e1-3", "sub2": "e1-3"}


def test_what_a_move_still_owes_is_on_the_way() -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=5s")
    world.say("a1")
    world.change(name, "conflation=10s")
    assert world.engine.caught_up("s") == []
    world.wait("5s")
    assert world.hears() == ["a1"]
    assert len(world.engine.caught_up("s")) == 1


def test_two_subscriptions_of_one_topic_are_two_deliveries() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s")
    world.subscribe("conflation=1s")
    world.say("a1")
    world.wait("1s")
    assert world.hears() == ["a1", "a1"]


@rule("queue-2", "queue-1")
def test_what_is_queued_counts_messages_and_bytes_of_every_list() -> None:
    """Intervals queue nothing."""
    world = World()
    world.topic()
    world.subscribe("conflation=none")
    world.subscribe("conflation=1s")
    world.say("a1 a2")
    stats = world.engine.session_stats("s")
    assert (stats.queued_messages, stats.queued_bytes) == (2, 2 * len(b'{"k":"a","v":1}'))


@rule("queue-3")
def test_topics_of_a_higher_priority_go_first_and_those_of_one_take_turns() -> None:
    world = World()
    for name, priority in (("low", "low"), ("px", "default"), ("q", "default"), ("top", "high")):
        world.topic(name, priority=Priority(priority))
        world.subscribe(topic=name)
    for number in (1, 2):
        for name in ("low", "px", "q", "top"):
            world.say(f"{name[0]}{number}", topic=name)
        world.flush()
    assert world.hears(bytes_max=1) == ["t1", "t2", "p1", "q1", "p2", "q2", "l1", "l2"]


def test_control_events_need_no_room() -> None:
    world = World()
    world.topic(policy="off")
    world.session(messages_max=1, lasts=True)
    world.subscribe()
    world.say("a1")
    world.flush()
    for number in range(5):
        name = f"more{number}"
        world.engine.subscribe("s", name, world.wish("conflation=1s"), world.now, announced=True)
        world.engine.unsubscribe("s", name)
    assert world.engine.session_stats("s").queued_messages == 1
    assert len(world.hears()) == 11
