"""The lane of `conflation=none`: every message, in order, until a queue overflows."""

from __future__ import annotations

from typing import Any

from tests.support.manual_driver import ManualDriver, batches, counts, described, ids, tokens
from tests.support.rules import rule
from tidegate.conflation.frame import Row
from tidegate.conflation.lanes.every_message import EveryMessageLane
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec


def list_lane(driver: ManualDriver) -> EveryMessageLane:
    """The one list lane of topic px."""
    (feed,) = driver.engine.topic("px").feeds.values()
    (lane,) = feed.lanes.values()
    assert isinstance(lane, EveryMessageLane)
    return lane


@rule("queue-1")
def test_every_message_comes_in_order_as_soon_as_the_caller_advances() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=none")
    driver.publish("a1 a2 b1")
    driver.publish("a3")
    assert driver.engine.next_deadline() == driver.now
    driver.flush()
    assert driver.received() == ["a1 a2 b1 a3"]


def test_a_member_behind_gets_what_is_left_of_the_list() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=none")
    for text in ("a1 a2", "a3"):
        driver.publish(text)
        driver.flush()
    assert driver.received(bytes_max=1) == ["a1", "a2", "a3"]


@rule("queue-2")
def test_a_full_queue_keeps_the_newest_row_of_each_key() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(messages_max=3)
    driver.subscribe("conflation=none")
    driver.publish("a1 b1 a2")
    driver.publish("c1")
    driver.flush()
    assert driver.received() == ["b1 a2 c1"]


@rule("queue-2")
def test_a_full_queue_of_a_plain_topic_keeps_the_newest_message() -> None:
    """The topic is the key."""
    driver = ManualDriver()
    driver.topic(key="")
    driver.session(messages_max=2)
    driver.subscribe("conflation=none")
    driver.publish("a1 b1")
    driver.publish("c1")
    driver.flush()
    assert driver.received() == ["c1"]


@rule("queue-4")
def test_a_row_that_was_kept_goes_when_its_key_comes_again() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(messages_max=3)
    driver.subscribe("conflation=none")
    driver.publish("a1 b1 a2 a3")
    driver.flush()
    driver.publish("b2")
    driver.flush()
    assert driver.received() == ["a3 b2"]


@rule("queue-2")
def test_more_keys_than_the_limit_close_the_session() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(messages_max=2)
    driver.subscribe("conflation=none")
    driver.publish("a1 b1 c1")
    assert driver.received() == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]
    assert driver.engine.topic_stats("px").dropped == 3


def test_a_slow_session_is_no_other_sessions_business() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session("slow", messages_max=1)
    driver.subscribe("conflation=none", session="slow")
    driver.subscribe("conflation=none", session="fast")
    driver.publish("a1 a2 a3")
    driver.flush()
    assert driver.received("slow") == ["a3"]
    assert driver.received("fast") == ["a1 a2 a3"]


@rule("queue-4")
def test_a_queue_that_was_given_up_costs_no_list() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(messages_max=4)
    driver.subscribe("conflation=none")
    for number in range(100):
        driver.publish(f"a{number} b{number}")
        driver.flush()
    assert len(list_lane(driver).log) <= 4
    assert driver.received() == ["a99 b99"]


@rule("queue-4")
def test_a_limit_counts_what_the_board_keeps_for_a_queue_that_was_given_up() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(messages_max=4)
    driver.subscribe("conflation=none")
    driver.publish("a1 b1 c1 c2 c3")
    driver.flush()
    driver.publish("d1")
    driver.flush()
    driver.publish("d2")
    assert driver.engine.session_stats("s").queued_messages == 4
    driver.flush()
    assert driver.received() == ["a1 b1 c3 d2"]


@rule("queue-2")
def test_a_limit_holds_whichever_of_a_sessions_queues_grew_last() -> None:
    """The limits are of the session; its lists share them unevenly."""
    driver = ManualDriver()
    driver.topic()
    driver.topic("other", policy="off")
    driver.session(messages_max=8)
    driver.subscribe("conflation=none")
    driver.subscribe("conflation=none", topic="other")
    driver.publish("a1 a2 a3 a4 a5 a6")
    driver.publish("b1 b2 b3", topic="other")
    assert driver.engine.session_stats("s").queued_messages == 4
    driver.flush()
    assert driver.received() == ["a6", "b1 b2 b3"]


def slow(messages_max: int, *, command: str = "subscribe", **more: Any) -> ManualDriver:
    """Somebody who takes nothing until told to."""
    driver = ManualDriver()
    driver.topic(**more)
    driver.session(messages_max=messages_max)
    driver.subscribe(command=command)
    driver.take()
    return driver


def say(driver: ManualDriver, *texts: str) -> None:
    for text in texts:
        driver.publish(text)
        driver.flush()


@rule("queue-9")
def test_a_full_queue_of_deltas_becomes_one_composite_for_each_key() -> None:
    driver = slow(3, command="sow_and_delta_subscribe")
    for v, w in ((0, 0), (1, 0), (1, 2)):
        driver.publish_documents({"k": "a", "v": v, "w": w, "note": "x" * 50})
        driver.flush()
        if not w and not v:
            driver.take()
    driver.publish_documents({"k": "b", "v": 1})
    driver.publish_documents({"k": "b", "v": 2})
    driver.flush()
    (rows,) = batches(driver.take())
    a, b = rows.frames
    assert isinstance(a, Row)
    assert a.patch == b'{"k":"a","v":1,"w":2}'
    assert isinstance(b, Row)
    assert (b.patch, b.payload) == (None, b'{"k":"b","v":2}')
    driver.publish_documents({"k": "a", "v": 1, "w": 3, "note": "x" * 50})
    driver.flush()
    ((next_row,),) = [batch.frames for batch in batches(driver.take())]
    assert isinstance(next_row, Row)
    assert next_row.patch == b'{"k":"a","w":3}'


def test_a_full_queue_is_merged_as_its_topic_says() -> None:
    driver = slow(2, merge=Reduce.of({"/v": "sum"}))
    say(driver, "a1", "a2", "a3", "a4")
    assert driver.received() == ["a6 a4"]


@rule("topic-1")
def test_what_does_not_match_is_not_conflated_in_a_queue_either() -> None:
    """Without records the key still tells what conflates."""
    driver = slow(3, key="", match=KeySpec.of(["/k"]))
    say(driver, "a1 b1", "a2 b2")
    assert driver.received() == ["a2 b2"]


@rule("merge-4")
def test_a_queue_keeps_its_places_where_the_topic_replaces() -> None:
    driver = slow(4, replaces=True)
    say(driver, "a1 b1 c1 a2 c2")
    assert driver.received() == ["a2 b1 c2"]


@rule("queue-9")
def test_what_was_put_together_stays_until_the_queue_is_full_again() -> None:
    driver = slow(3, replaces=True)
    say(driver, "a1 b1 a2 a3", "b2")
    assert driver.engine.session_stats("s").queued_messages == 3
    (first,) = driver.take_once(1)
    assert tokens(batches([first])[0].frames) == "a3"
    assert driver.received() == ["b1 b2"]


@rule("queue-9")
def test_no_id_is_given_before_the_last_of_it_is_out() -> None:
    driver = slow(3, replaces=True)
    say(driver, "a1 b1 a2 a3", "c2")
    assert ids(driver.take(bytes_max=1)) == [None, None, 5]
    assert not driver.engine.take("s", 1)
    say(driver, "c3")
    assert ids(driver.take()) == [6]


def test_a_queue_may_be_given_up_again_and_again_while_it_is_taken() -> None:
    driver = slow(3, replaces=True)
    heard: list[str] = []
    for number in range(20):
        say(driver, f"a{number} b{number}")
        heard += described(driver.take_once(1))
    heard += driver.received()
    assert heard[-1].split()[-1] == "b19"
    stats = driver.engine.topic_stats("px")
    assert stats.waiting == 0
    assert stats.delivered == len(" ".join(heard).split())


@rule("queue-4")
def test_removals_go_only_to_members_that_have_the_key() -> None:
    driver = ManualDriver()
    driver.topic(replaces=True)
    driver.publish("a1")
    driver.session(messages_max=2)
    driver.subscribe("oof", command="sow_and_subscribe")
    driver.take()
    driver.publish("a2 b1")
    driver.remove("b1")
    driver.publish("a3")
    driver.remove("a3")
    driver.flush()
    assert driver.received() == ["-a3"]
    stats = driver.engine.topic_stats("px")
    assert (stats.matched, stats.conflated) == (3, 3)


@rule("removal-2")
def test_with_removals_a_piece_of_a_board_is_no_position() -> None:
    """Between the pieces, a key that came and went is not taken for one that was told."""
    driver = ManualDriver()
    driver.topic()
    driver.session(messages_max=2)
    driver.subscribe("oof", command="sow_and_subscribe")
    driver.take()
    driver.publish("b1 a2")
    driver.remove("b0")
    driver.publish("c4")
    driver.flush()
    assert driver.received(bytes_max=1) == ["a2", "c4"]


def test_a_policy_that_changes_finds_what_was_given_up_before() -> None:
    driver = slow(3)
    say(driver, "a1 b1 a2 a3")
    driver.topic(replaces=True)
    say(driver, "b2 a4")
    assert driver.received() == ["b2 a4"]


def test_exempt_messages_stay_and_stand_for_themselves() -> None:
    driver = slow(3)
    driver.publish("a1 a2")
    driver.publish("a3", exempt=True)
    driver.publish("a4")
    driver.flush()
    assert counts(driver.take()) == [("a3", 1, 3), ("a4", 3, 1)]
