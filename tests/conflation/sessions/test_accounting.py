"""The accounting identity, followed through one story after the other."""

from __future__ import annotations

from tests.support.rules import rule
from tests.support.world import World, batches
from tidegate.conflation.sessions.accounting import SubscriptionStats


def counted(world: World, session: str = "s") -> tuple[int, int, int, int]:
    """matched, delivered, conflated, waiting of a session's only subscription."""
    (row,) = world.engine.session_stats(session).subscriptions
    assert row.matched == row.delivered + row.conflated + row.waiting
    return row.matched, row.delivered, row.conflated, row.waiting


@rule("account-1")
def test_a_message_waits_is_conflated_or_delivered() -> None:
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


@rule("account-1")
def test_each_member_of_a_lane_has_its_own_sums() -> None:
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


@rule("account-1")
def test_snapshot_rows_are_no_deliveries() -> None:
    world = World()
    world.topic()
    world.say("a1 b1")
    world.subscribe("conflation=1s", command="sow_and_subscribe")
    world.take()
    assert counted(world) == (0, 0, 0, 0)


@rule("account-2")
def test_a_topics_sums_keep_past_subscriptions_and_what_they_dropped() -> None:
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


@rule("account-3")
def test_a_message_is_matched_or_filtered() -> None:
    world = World()
    world.topic()
    world.say("a1")
    world.subscribe("conflation=1s", wanted="/v > 5")
    world.subscribe("conflation=1s")
    world.say("a1 a7 b2 a9")
    world.remove("a0")
    few, every = world.engine.session_stats("s").subscriptions
    assert (few.matched, few.filtered) == (2, 2)
    assert (every.matched, every.filtered) == (4, 0)
    stats = world.engine.topic_stats("px")
    assert (stats.offered, stats.matched, stats.filtered) == (8, 6, 2)
    assert (stats.messages_in, stats.removals_in) == (6, 1)
    world.engine.close_session("s")
    later = world.engine.topic_stats("px")
    assert (later.offered, later.filtered, later.dropped) == (8, 2, stats.waiting)


@rule("account-3")
def test_another_filter_begins_to_count_where_the_old_one_ended() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s", wanted="/v > 5")
    world.say("a1 a7")
    world.change("sub1", "conflation=1s", wanted="/v > 1")
    world.say("b1 b2")
    world.wait("1s")
    (row,) = world.engine.session_stats("s").subscriptions
    assert (row.matched, row.filtered) == (2, 2)


TOTALS = "conflation=1s,projection=[/g,SUM(/v) AS /v],grouping=[/g]"


@rule("account-4")
def test_looking_at_groups_changes_nothing_that_is_sent() -> None:
    told = []
    for looks in (False, True):
        world = World()
        world.topic()
        world.subscribe(TOTALS, command="sow_and_subscribe")
        world.take()
        world.say("aX1")
        if looks:
            assert counted(world) == (1, 0, 0, 1)
            assert world.engine.topic_stats("px").waiting == 1
            assert world.engine.caught_up("s") == []
        world.say("aY2")
        if looks:
            assert counted(world) == (1, 0, 0, 1)
        world.wait("1s")
        told.append([frame.payload for batch in batches(world.take()) for frame in batch.frames])
    assert told[0] == told[1] == [b'{"g":"Y","v":2}']


@rule("account-4")
def test_a_group_that_changes_again_is_foreseen_as_conflated() -> None:
    world = World()
    world.topic()
    world.subscribe(f"{TOTALS},oof", command="sow_and_subscribe")
    world.subscribe(TOTALS.replace("1s", "100ms"), session="quick", command="sow_and_subscribe")
    world.take()
    world.take("quick")
    world.say("aX1")
    world.wait("100ms")
    assert counted(world) == (1, 0, 0, 1)
    world.say("aX2 bX3")
    assert counted(world) == (2, 0, 1, 1)
    world.remove("a0")
    world.remove("b0")
    assert counted(world) == (1, 0, 1, 0), "nothing is to be told of what came and went"


def test_who_waits_for_the_same_is_counted_together() -> None:
    for options in ("conflation=1s", "conflation=1s,pace=key", "conflation=none"):
        world = World()
        world.topic()
        world.say("a1")
        names = {each: world.subscribe(options, session=each) for each in ("early", "twin")}
        world.say("a2 b1 a3")
        world.subscribe(options, session="late")
        world.say("b2 c1")
        rows = [
            world.engine.session_stats(each).subscriptions[0] for each in ("early", "twin", "late")
        ]
        stats = world.engine.topic_stats("px")
        for name in ("matched", "delivered", "conflated", "waiting"):
            assert getattr(stats, name) == sum(getattr(row, name) for row in rows), (options, name)
        subscriber = world.engine.subscriber("early", (names["early"], "px"))
        assert subscriber is not None
        assert subscriber.lane is not None
        assert sorted(len(members) for members in subscriber.lane.alike()) == [1, 2], options


def test_ends_and_resumes_are_counted_by_what_they_were() -> None:
    world = World()
    world.topic()
    world.say("a1 b1")
    world.subscribe("conflation=1s", resume="e1-1")
    world.subscribe("conflation=none", resume="e1-0")
    world.subscribe("conflation=1s", resume="e0-1", session="other")
    name = world.subscribe(session="other")
    world.engine.unsubscribe("other", name)
    world.engine.drop_topic("px")
    stats = world.engine.stats()
    assert stats.resumed == {"changes": 1, "replay": 1, "snapshot": 1}
    assert stats.unsubscribed == {"REQUESTED": 1, "REMOVED": 3}


def test_figures_of_some_topics_can_be_had_alone() -> None:
    world = World()
    world.topic()
    world.topic("qx")
    assert [topic.topic for topic in world.engine.stats(["qx"]).topics] == ["qx"]
    assert world.engine.stats(()).topics == ()


def test_who_joined_in_the_midst_is_counted_as_if_alone() -> None:
    """Members alike have the same sums, whenever they came."""
    world = World()
    world.topic()
    names: dict[str, str] = {}
    for turn, text in enumerate(("a1 b1", "a2 c1", "", "b2", "d1 a3")):
        if text:
            world.say(text)
        for twin in ("x", "y"):
            names[f"{twin}{turn}"] = world.subscribe(
                "conflation=1s,pace=key,receipt", session=f"{twin}{turn}"
            )
        world.wait("300ms")
        if turn == 3:
            world.take("x0")
    subscriber = world.engine.subscriber("x0", (names["x0"], "px"))
    assert subscriber is not None
    lane = subscriber.lane
    assert lane is not None
    groups = list(lane.alike())
    for members in groups:
        assert len({lane.waiting(member) for member in members}) == 1
    assert 1 < len(groups) < len(names)
    stats = world.engine.topic_stats("px")
    rows = [world.engine.session_stats(each).subscriptions[0] for each in names]
    assert stats.waiting == sum(row.waiting for row in rows) > 0
    assert stats.conflated == sum(row.conflated for row in rows)
