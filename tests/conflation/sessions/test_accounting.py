"""The accounting identity, followed through one story after the other."""

from __future__ import annotations

from tests.support.manual_driver import ManualDriver, batches
from tests.support.rules import rule
from tidegate.conflation.sessions.accounting import SubscriptionStats


def counted(driver: ManualDriver, session: str = "s") -> tuple[int, int, int, int]:
    """matched, delivered, conflated, waiting of a session's only subscription."""
    (row,) = driver.engine.session_stats(session).subscriptions
    assert row.matched == row.delivered + row.conflated + row.waiting
    return row.matched, row.delivered, row.conflated, row.waiting


@rule("account-1")
def test_a_message_waits_is_conflated_or_delivered() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("z1")
    driver.subscribe("conflation=1s")
    assert counted(driver) == (0, 0, 0, 0)
    driver.publish("a1 b1 a2")
    assert counted(driver) == (3, 0, 1, 2)
    driver.wait("1s")
    assert counted(driver) == (3, 0, 1, 2)
    driver.take()
    assert counted(driver) == (3, 2, 1, 0)


@rule("account-1")
def test_each_member_of_a_lane_has_its_own_sums() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,pace=key", session="early")
    driver.publish("a1 b1")
    driver.subscribe("conflation=1s,pace=key", session="late")
    driver.publish("a2")
    driver.wait("2s")
    assert counted(driver, "early") == (3, 0, 1, 2)
    assert counted(driver, "late") == (1, 0, 0, 1)


def test_a_queue_that_is_given_up_counts_what_it_conflated() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(messages_max=2)
    driver.subscribe("conflation=none")
    driver.publish("a1 a2 b1")
    assert counted(driver) == (3, 0, 1, 2)
    driver.publish("a3")
    assert counted(driver) == (4, 0, 2, 2)


@rule("account-1")
def test_snapshot_rows_are_no_deliveries() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b1")
    driver.subscribe("conflation=1s", command="sow_and_subscribe")
    driver.take()
    assert counted(driver) == (0, 0, 0, 0)


@rule("account-2")
def test_a_topics_sums_keep_past_subscriptions_and_what_they_dropped() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s", session="gone")
    driver.subscribe("conflation=1s", session="here")
    driver.publish("a1 a2 b1")
    driver.engine.close_session("gone")
    driver.wait("1s")
    driver.take("here")
    stats = driver.engine.topic_stats("px")
    assert (stats.matched, stats.delivered, stats.conflated) == (6, 2, 2)
    assert (stats.waiting, stats.dropped) == (0, 2)
    assert (stats.messages_in, stats.keys, stats.boards, stats.lanes) == (3, 2, 1, 1)
    assert driver.engine.stats().topics == (stats,)


def test_a_sow_has_no_lane_to_count_in() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1")
    driver.subscribe(command="sow")
    (row,) = driver.engine.session_stats("s").subscriptions
    assert row == SubscriptionStats("sub1", "px", "sow", 0, 0, 0, 0)
    assert driver.engine.topic_stats("px").subscriptions == 0


@rule("account-3")
def test_a_message_is_matched_or_filtered() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1")
    driver.subscribe("conflation=1s", wanted="/v > 5")
    driver.subscribe("conflation=1s")
    driver.publish("a1 a7 b2 a9")
    driver.remove("a0")
    few, every = driver.engine.session_stats("s").subscriptions
    assert (few.matched, few.filtered) == (2, 2)
    assert (every.matched, every.filtered) == (4, 0)
    stats = driver.engine.topic_stats("px")
    assert (stats.offered, stats.matched, stats.filtered) == (8, 6, 2)
    assert (stats.messages_in, stats.removals_in) == (6, 1)
    driver.engine.close_session("s")
    later = driver.engine.topic_stats("px")
    assert (later.offered, later.filtered, later.dropped) == (8, 2, stats.waiting)


@rule("account-3")
def test_another_filter_begins_to_count_where_the_old_one_ended() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s", wanted="/v > 5")
    driver.publish("a1 a7")
    driver.change("sub1", "conflation=1s", wanted="/v > 1")
    driver.publish("b1 b2")
    driver.wait("1s")
    (row,) = driver.engine.session_stats("s").subscriptions
    assert (row.matched, row.filtered) == (2, 2)


TOTALS = "conflation=1s,projection=[/g,SUM(/v) AS /v],grouping=[/g]"


@rule("account-4")
def test_looking_at_groups_changes_nothing_that_is_sent() -> None:
    told = []
    for looks in (False, True):
        driver = ManualDriver()
        driver.topic()
        driver.subscribe(TOTALS, command="sow_and_subscribe")
        driver.take()
        driver.publish("aX1")
        if looks:
            assert counted(driver) == (1, 0, 0, 1)
            assert driver.engine.topic_stats("px").waiting == 1
            assert driver.engine.session("s").caught_up() == []
        driver.publish("aY2")
        if looks:
            assert counted(driver) == (1, 0, 0, 1)
        driver.wait("1s")
        told.append([frame.payload for batch in batches(driver.take()) for frame in batch.frames])
    assert told[0] == told[1] == [b'{"g":"Y","v":2}']


@rule("account-4")
def test_a_group_that_changes_again_is_foreseen_as_conflated() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(f"{TOTALS},oof", command="sow_and_subscribe")
    driver.subscribe(TOTALS.replace("1s", "100ms"), session="quick", command="sow_and_subscribe")
    driver.take()
    driver.take("quick")
    driver.publish("aX1")
    driver.wait("100ms")
    assert counted(driver) == (1, 0, 0, 1)
    driver.publish("aX2 bX3")
    assert counted(driver) == (2, 0, 1, 1)
    driver.remove("a0")
    driver.remove("b0")
    assert counted(driver) == (1, 0, 1, 0), "nothing is to be told of what came and went"


def test_who_waits_for_the_same_is_counted_together() -> None:
    for options in ("conflation=1s", "conflation=1s,pace=key", "conflation=none"):
        driver = ManualDriver()
        driver.topic()
        driver.publish("a1")
        names = {each: driver.subscribe(options, session=each) for each in ("early", "twin")}
        driver.publish("a2 b1 a3")
        driver.subscribe(options, session="late")
        driver.publish("b2 c1")
        rows = [
            driver.engine.session_stats(each).subscriptions[0] for each in ("early", "twin", "late")
        ]
        stats = driver.engine.topic_stats("px")
        for name in ("matched", "delivered", "conflated", "waiting"):
            assert getattr(stats, name) == sum(getattr(row, name) for row in rows), (options, name)
        subscriber = driver.engine.session("early").subscribers.get((names["early"], "px"))
        assert subscriber is not None
        assert subscriber.lane is not None
        assert sorted(len(members) for members in subscriber.lane.by_backlog()) == [1, 2], options


def test_ends_and_resumes_are_counted_by_what_they_were() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b1")
    driver.subscribe("conflation=1s", resume="e1-1")
    driver.subscribe("conflation=none", resume="e1-0")
    driver.subscribe("conflation=1s", resume="e0-1", session="other")
    name = driver.subscribe(session="other")
    driver.engine.unsubscribe("other", name)
    driver.engine.drop_topic("px")
    stats = driver.engine.stats()
    assert stats.resumed == {"changes": 1, "replay": 1, "snapshot": 1}
    assert stats.unsubscribed == {"REQUESTED": 1, "REMOVED": 3}


def test_figures_of_some_topics_can_be_had_alone() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.topic("qx")
    assert [topic.topic for topic in driver.engine.stats(["qx"]).topics] == ["qx"]
    assert driver.engine.stats(()).topics == ()


def test_who_joined_in_the_midst_is_counted_as_if_alone() -> None:
    """Members alike have the same sums, whenever they came."""
    driver = ManualDriver()
    driver.topic()
    names: dict[str, str] = {}
    for turn, text in enumerate(("a1 b1", "a2 c1", "", "b2", "d1 a3")):
        if text:
            driver.publish(text)
        for twin in ("x", "y"):
            names[f"{twin}{turn}"] = driver.subscribe(
                "conflation=1s,pace=key,receipt", session=f"{twin}{turn}"
            )
        driver.wait("300ms")
        if turn == 3:
            driver.take("x0")
    subscriber = driver.engine.session("x0").subscribers.get((names["x0"], "px"))
    assert subscriber is not None
    lane = subscriber.lane
    assert lane is not None
    groups = list(lane.by_backlog())
    for members in groups:
        assert len({lane.waiting(member) for member in members}) == 1
    assert 1 < len(groups) < len(names)
    stats = driver.engine.topic_stats("px")
    rows = [driver.engine.session_stats(each).subscriptions[0] for each in names]
    assert stats.waiting == sum(row.waiting for row in rows) > 0
    assert stats.conflated == sum(row.conflated for row in rows)


@rule("account-1")
def test_removals_that_are_left_of_a_flush_are_no_values_that_wait() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b1")
    driver.subscribe("conflation=1s,oof")
    driver.take()
    driver.remove("a0 b0")
    driver.wait("1s")
    driver.take_once(bytes_max=1)
    assert counted(driver) == (0, 0, 0, 0)
