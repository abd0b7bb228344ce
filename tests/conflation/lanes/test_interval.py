"""The lane of `pace=batch`, and what its members get."""

from __future__ import annotations

from tests.support.manual_driver import PLENTY, ManualDriver, batches, counts, described, ids
from tests.support.rules import rule
from tidegate.conflation.lanes.interval import IntervalLane

SECONDS = "conflation=1s"


@rule("interval-1", "interval-2")
def test_a_message_at_the_very_deadline_goes_with_the_flush() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(SECONDS)
    driver.publish("a1")
    driver.sleep("1s")
    driver.publish("a2")
    driver.flush()
    assert driver.received() == ["a2"]
    driver.publish("a3")
    driver.wait("999ms")
    assert driver.received() == []
    driver.wait("1ms")
    assert driver.received() == ["a3"]


@rule("interval-10")
def test_members_in_step_share_one_batch() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(SECONDS, session="one")
    driver.subscribe(SECONDS, session="two")
    driver.publish("a1 b1")
    driver.wait("1s")
    (first,), (second,) = batches(driver.take("one")), batches(driver.take("two"))
    assert first is second


@rule("interval-10")
def test_who_comes_late_gets_everything_up_to_now() -> None:
    """What was flushed may be superseded; the value that is held goes in its place."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(SECONDS)
    driver.publish("a1 b1")
    driver.wait("1s")
    driver.publish("c1")
    driver.wait("1s")
    driver.publish("a2")
    assert driver.received() == ["b1 c1 a2"]
    driver.wait("1s")
    assert driver.received() == [], "and does not get it again"
    driver.publish("a3")
    driver.wait("1s")
    assert driver.received() == ["a3"]


@rule("interval-10")
def test_a_key_that_never_rests_has_its_turn() -> None:
    """Each changed key once a round, whatever changes meanwhile, and as it is by then."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(SECONDS)
    driver.publish("h0 a0 b0 c0")
    driver.wait("1s")
    heard: list[str] = []
    for number in range(1, 9):
        heard += described(driver.take_once(1))
        driver.publish(f"h{number} a{number} b{number} c{number}")
        driver.publish(f"h{number}")
        driver.wait("1s")
    assert heard == ["h0", "a1", "b2", "c3", "a4", "b5", "c6", "h7"]


@rule("interval-10", "resume-6")
def test_an_answer_comes_in_pieces_of_which_only_the_last_has_an_id() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(SECONDS)
    driver.publish("a1 b1 c1")
    driver.wait("1s")
    pieces = driver.take(bytes_max=1)
    assert described(pieces) == ["a1", "b1", "c1"]
    assert ids(pieces) == [None, None, 3]


@rule("interval-10")
def test_a_piece_may_be_followed_by_a_flush() -> None:
    """What comes meanwhile is told in its turn, what is due as it is now."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(SECONDS)
    driver.publish("a1 b1 c1")
    driver.wait("1s")
    assert described(driver.take_once(1)) == ["a1"]
    driver.publish("b2 a2")
    driver.wait("1s")
    pieces = [*driver.take_once(PLENTY), *driver.take_once(PLENTY)]
    assert described(pieces) == ["b2 c1", "a2"]
    assert ids(pieces) == [3, 5]
    assert driver.received() == []


@rule("interval-10", "merge-1")
def test_an_exempt_message_goes_before_later_ones() -> None:
    """Then nothing is sent ahead of its turn."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(SECONDS)
    driver.publish("a1 b1")
    driver.wait("1s")
    assert described(driver.take_once(1)) == ["a1"]
    driver.publish("b2", exempt=True)
    driver.publish("b3")
    driver.wait("1s")
    assert driver.received(bytes_max=1) == ["b1", "b2", "b3"]


@rule("interval-10", "removal-2")
def test_a_key_that_leaves_and_returns_within_a_round() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,oof", command="sow_and_subscribe")
    driver.take()
    driver.publish("a1 b1 c1")
    driver.wait("1s")
    assert described(driver.take_once(1)) == ["a1"]
    for key_token in ("a0", "b0", "c0"):
        driver.remove(key_token)
    driver.publish("c2")
    driver.wait("1s")
    assert described(driver.take_once(PLENTY)) == ["b1 c2"]
    assert driver.received() == ["-a1 -b1"]
    driver.wait("1s")
    assert driver.received() == []


@rule("account-1")
def test_what_is_still_to_come_of_a_round_is_waiting() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(SECONDS)
    driver.publish("a1 b1 c1")
    driver.wait("1s")
    driver.take_once(1)
    driver.publish("a2 b2 b3")
    (row,) = driver.engine.session_stats("s").subscriptions
    assert (row.matched, row.delivered, row.conflated, row.waiting) == (6, 1, 2, 3)
    driver.take_once(1)
    (row,) = driver.engine.session_stats("s").subscriptions
    assert (row.matched, row.delivered, row.conflated, row.waiting) == (6, 2, 2, 2)


@rule("account-1")
def test_a_key_that_left_in_the_midst_of_a_round_waits_once() -> None:
    """What is told of it is the last value that it had."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(SECONDS)
    driver.publish("a1 b1")
    driver.wait("1s")
    driver.take_once(1)
    driver.publish("b2")
    driver.remove("b2")
    (row,) = driver.engine.session_stats("s").subscriptions
    assert (row.matched, row.delivered, row.conflated, row.waiting) == (3, 1, 1, 1)
    driver.wait("1s")
    assert driver.received() == ["b2"]


@rule("interval-8")
def test_rows_name_the_first_message_they_stand_for_where_that_is_asked() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(SECONDS, counted=True)
    driver.publish("a1 b1 a2 a3")
    driver.wait("1s")
    assert counts(driver.take()) == [("b1", 1, 2), ("a3", 3, 1)]
    driver.publish("a4 b2")
    driver.wait("1s")
    assert counts(driver.take()) == [("a4", 1, 5), ("b2", 1, 6)]


def test_a_batch_lane_listens_for_one_message_alone() -> None:
    """A publish costs its boards, not the intervals that are open."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(SECONDS)
    (feed,) = driver.engine.topic("px").feeds.values()
    (lane,) = feed.lanes.values()
    assert isinstance(lane, IntervalLane)
    assert not lane.sees_every_message


@rule("interval-10", "removal-2")
def test_with_removals_a_member_behind_gets_everything_up_to_now() -> None:
    """A position past changes that were left out would tell wrong removals."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,oof", command="sow_and_subscribe")
    driver.take()
    for text in ("z1", "a1 b1"):
        driver.publish(text)
        driver.wait("1s")
    driver.publish("a2 c1")
    driver.remove("b0")
    assert driver.received() == ["z1 a2 c1"]
    driver.wait("1s")
    assert driver.received() == []
    driver.remove("a0")
    driver.wait("1s")
    assert driver.received() == ["-a2"]
