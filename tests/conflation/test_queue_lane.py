"""What a queue policy makes of a subscription that asks for every message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.manual_driver import ManualDriver, counts, tokens
from tests.support.rules import rule
from tidegate.conflation.definition import effective_lane, match_of, merge_of, queue_rules
from tidegate.conflation.lanes.every_message import EveryMessageLane
from tidegate.conflation.lanes.interval import IntervalLane
from tidegate.conflation.lanes.stateful import StatefulLane
from tidegate.conflation.outputs import CloseReason, SessionClosed
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.keys.merging import Matcher
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec

SUM = Reduce.of({"/v": "sum"})


def always(**more: Any) -> ManualDriver:
    driver = ManualDriver()
    driver.topic(policy="always", **more)
    return driver


def lane_of(driver: ManualDriver) -> object:
    """The one lane of topic px."""
    lanes = [
        lane for feed in driver.engine.topic("px").feeds.values() for lane in feed.lanes.values()
    ]
    (lane,) = lanes
    return lane


def queued(driver: ManualDriver, session: str = "s") -> int:
    return driver.engine.session_stats(session).queued_messages


@rule("queue-5")
def test_always_goes_at_once_and_keeps_the_newest_of_each_key() -> None:
    driver = always()
    driver.subscribe()
    assert isinstance(lane_of(driver), IntervalLane)
    driver.publish("a1 b1 a2")
    assert driver.engine.next_deadline() == driver.now
    driver.flush()
    assert driver.received() == ["b1 a2"]
    driver.publish("a3")
    driver.flush()
    assert driver.received() == ["a3"]


@rule("queue-5")
def test_at_most_the_newest_of_each_key_is_queued_whatever_the_limits() -> None:
    driver = always()
    driver.session(messages_max=2)
    driver.subscribe()
    for number in range(100):
        driver.publish(f"a{number} b{number}")
        driver.flush()
        assert queued(driver) == 2
    assert driver.received() == ["a99 b99"]
    stats = driver.engine.topic_stats("px")
    assert (stats.matched, stats.delivered, stats.conflated) == (200, 2, 198)
    assert driver.engine.stats().remedies.forced == 0


def test_more_keys_than_may_wait_close_the_session_on_an_always_topic_too() -> None:
    driver = always()
    driver.session(messages_max=2)
    driver.subscribe()
    driver.publish("a1 b1 a2")
    driver.flush()
    driver.publish("c1")
    closed = [event for event in driver.announcements() if isinstance(event, SessionClosed)]
    assert closed == [SessionClosed("s", CloseReason.QUEUE_LIMIT)]


def test_what_is_taken_in_pieces_moves_on_with_what_comes() -> None:
    driver = always()
    driver.subscribe()
    driver.publish("a1 b1 c1")
    driver.flush()
    (first,) = driver.take_once(1)
    driver.publish("b2")
    driver.flush()
    assert tokens(first.batch.frames) == "a1"  # type: ignore[union-attr]  # rows, as asserted
    assert driver.received() == ["c1", "b2"]


@rule("queue-5", "queue-9")
@pytest.mark.parametrize(
    ("more", "command", "kind", "story"),
    [
        ({"merge": SUM}, "subscribe", StatefulLane, [["b1 a3"]]),
        ({"replaces": True}, "subscribe", StatefulLane, [["a2 b1"]]),
        ({"match": KeySpec.of(["/v"])}, "subscribe", StatefulLane, [["a1 b1 a2"]]),
        ({"merge": SUM}, "delta_subscribe", StatefulLane, [["b1 a2"]]),
        ({"match": KeySpec.of(["/k"])}, "subscribe", IntervalLane, [["b1 a2"]]),
    ],
)
def test_slots_answer_where_a_board_cannot(
    more: dict[str, Any], command: str, kind: type, story: list[list[str]]
) -> None:
    driver = always(**more)
    driver.subscribe(command=command)
    assert isinstance(lane_of(driver), kind)
    driver.publish("a1 b1 a2")
    driver.flush()
    assert [driver.received()] == story


def test_receipts_count_what_was_replaced() -> None:
    driver = always()
    driver.subscribe("receipt")
    driver.publish("a1 b1 a2")
    driver.flush()
    assert counts(driver.take()) == [("b1", 1, 2), ("a2", 2, 1)]


@rule("queue-8")
def test_a_session_that_is_not_conflated_gets_every_message() -> None:
    driver = always()
    driver.session(conflated=False)
    driver.subscribe()
    assert isinstance(lane_of(driver), EveryMessageLane)
    driver.publish("a1 b1 a2")
    driver.flush()
    assert driver.received() == ["a1 b1 a2"]


@rule("queue-8")
def test_a_session_may_be_switched_and_keeps_what_is_queued() -> None:
    driver = always()
    driver.session()
    driver.subscribe()
    limits = QueueLimits(1_000, 1 << 30)
    driver.publish("a1 a2")
    driver.flush()
    driver.engine.set_session_limits("s", limits, conflated=False)
    driver.publish("a3 a4")
    driver.flush()
    assert driver.received() == ["a2", "a3 a4"]
    driver.publish("a5 a6 b1")
    driver.engine.set_session_limits("s", limits, conflated=True)
    driver.flush()
    assert driver.received() == ["a6 b1"]


@rule("queue-8")
def test_a_topic_may_get_another_policy_and_keeps_what_is_queued() -> None:
    driver = ManualDriver()
    driver.topic(policy="off")
    driver.subscribe()
    driver.publish("a1 a2 b1")
    driver.topic(policy="always")
    driver.publish("a3")
    driver.flush()
    assert driver.received() == ["b1 a3"]
    driver.topic(policy="off")
    driver.publish("a4 a5")
    driver.flush()
    assert driver.received() == ["a4 a5"]


def test_an_interval_is_the_subscribers_wish_whatever_the_policy() -> None:
    driver = always()
    for conflated in (True, False):
        wanted = driver.request("conflation=1s")
        definition = driver.engine.topic("px").definition
        assert effective_lane(wanted, definition, conflated=conflated) == wanted.lane_id


def test_plain_rules_are_no_rules() -> None:
    driver = always(merge=Reduce.of({"/v": "last"}), match=KeySpec.of(["/k"]))
    definition = driver.engine.topic("px").definition
    lane_id = driver.request().lane_id
    assert merge_of(definition) is None
    assert match_of(definition, lane_id.feed.key_spec) is None
    assert queue_rules(lane_id, definition) == lane_id


def test_rows_of_windows_and_groups_are_no_messages_to_merge() -> None:
    driver = always(merge=SUM, match=Matcher("m", lambda current, new: False), replaces=True)
    definition = driver.engine.topic("px").definition
    window = driver.request("top_n=2", command="sow_and_subscribe").lane_id
    assert queue_rules(window, definition) == window
