"""The accounting identity, followed through one story after the other."""

from __future__ import annotations

from conflation.stats import SubscriptionStats
from tests.support.world import World


def counted(world: World, session: str = "s") -> tuple[int, int, int, int]:
    """matched, delivered, conflated, waiting of a session's only subscription."""
    (row,) = world.engine.session_stats(session).subscriptions
    assert row.matched == row.delivered + row.conflated + row.waiting
    return row.matched, row.delivered, row.conflated, row.waiting


def test_a_message_waits_is_conflated_or_delivered() -> None:
    """Rule 61."""
    world = World()
    world.topic()
    world.say("z1")
    world.subscribe("conflation=1s")
    assert counted(world) == (0, 0, 0, 0)
    world.say("a1 b1 a2")
    assert counted(world) == (3, 0, 1, 2)
    world.wait("1s")
    assert counted(world) == (3, 0, 1, 2)
    world.take()
    assert counted(world) == (3, 2, 1, 0)


def test_each_member_of_a_lane_has_its_own_sums() -> None:
    """Rule 61."""
    world = World()
    world.topic()
    world.subscribe("conflation=1s,pace=key", session="early")
    world.say("a1 b1")
    world.subscribe("conflation=1s,pace=key", session="late")
    world.say("a2")
    world.wait("2s")
    assert counted(world, "early") == (3, 0, 1, 2)
    assert counted(world, "late") == (1, 0, 0, 1)


def test_a_queue_that_is_given_up_counts_what_it_conflated() -> None:
    world = World()
    world.topic()
    world.session(messages_max=2)
    world.subscribe("conflation=none")
    world.say("a1 a2 b1")
    assert counted(world) == (3, 0, 1, 2)
    world.say("a3")
    assert counted(world) == (4, 0, 2, 2)


def test_snapshot_rows_are_no_deliveries() -> None:
    """Rule 36."""
    world = World()
    world.topic()
    world.say("a1 b1")
    world.subscribe("conflation=1s", command="sow_and_subscribe")
    world.take()
    assert counted(world) == (0, 0, 0, 0)


def test_a_topics_sums_keep_past_subscriptions_and_what_they_dropped() -> None:
    """Rule 62."""
    world = World()
    world.topic()
    world.subscribe("conflation=1s", session="gone")
    world.subscribe("conflation=1s", session="here")
    world.say("a1 a2 b1")
    world.engine.close_session("gone")
    world.wait("1s")
    world.take("here")
    stats = world.engine.topic_stats("px")
    assert (stats.matched, stats.delivered, stats.conflated) == (6, 2, 2)
    assert (stats.waiting, stats.dropped) == (0, 2)
    assert (stats.messages_in, stats.keys, stats.boards, stats.lanes) == (3, 2, 1, 1)
    assert world.engine.stats().topics == (stats,)


def test_a_sow_has_no_lane_to_count_in() -> None:
    world = World()
    world.topic()
    world.say("a1")
    world.subscribe(command="sow")
    (row,) = world.engine.session_stats("s").subscriptions
    assert row == SubscriptionStats("sub1", "px", "sow", 0, 0, 0, 0)
    assert world.engine.topic_stats("px").subscriptions == 0
