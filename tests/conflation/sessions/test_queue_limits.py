"""A full queue, in its three steps: send, conflate, close."""

from itertools import pairwise
from typing import Any

import pytest

from tests.support.manual_driver import ManualDriver
from tests.support.rules import rule
from tidegate.conflation.definition import Definition, History, QueuePolicy
from tidegate.conflation.engine import Engine
from tidegate.conflation.frame import Frame
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import CloseReason, Goodbye, QueueCrossed, Rows, SessionClosed
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.keys.spec import KeySpec

SPEC = KeySpec.of(["/t"])


class Gate:
    """Sessions that want every message of topic `p`, at most four of them waiting."""

    def __init__(self, policy: QueuePolicy, *sessions: str, bytes_max: int = 1 << 20) -> None:
        self.engine = Engine(sessions_max=9, subscriptions_max=9)
        self.engine.define_topic("p", Definition(History(99), SPEC, policy), "e")
        self.offset = 0
        for session in sessions:
            self.engine.open_session(session, QueueLimits(4, bytes_max))
            wanted = decide(
                "p", Definition(History(100), SPEC), Options.parse(""), command="subscribe"
            )
            self.engine.subscribe(session, "s", wanted, 0)

    def publish(self, names: str, size: int = 1) -> None:
        frames = [
            Frame(self.offset + at, name.encode() * size, name)
            for at, name in enumerate(names, start=1)
        ]
        self.offset += len(frames)
        self.engine.publish("p", frames, 0)
        self.engine.advance(0)

    def take(self, session: str) -> str:
        taken = iter(lambda: self.engine.take(session, 1 << 20), [])
        rows = [out for outputs in taken for out in outputs if isinstance(out, Rows)]
        return "".join(frame.payload[:1].decode() for out in rows for frame in out.batch.frames)

    def closed(self) -> dict[str, CloseReason | None]:
        events = self.engine.announcements()
        return {e.session: e.reason for e in events if isinstance(e, SessionClosed)}


def test_what_was_sent_is_not_in_the_queue() -> None:
    gate = Gate(QueuePolicy.OFF, "a")
    for _ in range(5):
        gate.publish("ABAB")
        assert gate.take("a") == "ABAB"
    assert gate.closed() == {}


def test_a_full_queue_is_conflated_whole() -> None:
    gate = Gate(QueuePolicy.CONFLATE, "a")
    gate.publish("ABAC")
    gate.publish("B")
    assert gate.take("a") == "ACB"
    gate.publish("ABAB")
    assert gate.take("a") == "ABAB"


def test_what_policy_off_keeps_closes_the_session() -> None:
    gate = Gate(QueuePolicy.OFF, "a", "b")
    gate.publish("ABAB")
    assert gate.take("b") == "ABAB"
    gate.publish("A")
    assert gate.closed() == {"a": CloseReason.QUEUE_LIMIT}
    assert gate.engine.take("a", 1) == [Goodbye(CloseReason.QUEUE_LIMIT)]
    assert gate.take("b") == "A"


def test_more_keys_than_may_wait_close_the_session() -> None:
    gate = Gate(QueuePolicy.CONFLATE, "a")
    gate.publish("ABCDE")
    assert gate.closed() == {"a": CloseReason.QUEUE_LIMIT}


@pytest.mark.parametrize(("size", "is_closed"), [(25, False), (26, True)])
def test_bytes_count_as_messages_do(size: int, is_closed: bool) -> None:
    gate = Gate(QueuePolicy.OFF, "a", bytes_max=100)
    gate.publish("ABAB", size=size)
    assert bool(gate.closed()) is is_closed


def test_who_is_half_full_is_crowded() -> None:
    gate = Gate(QueuePolicy.CONFLATE, "a", "b")
    gate.publish("AB")
    assert gate.engine.over_half_full("p") == set()
    gate.publish("A")
    gate.take("b")
    assert gate.engine.over_half_full("p") == {"a"}


def driver_of(*topics: tuple[str, str], messages_max: int = 4, **more: Any) -> ManualDriver:
    """Topics with their policies, and a session that lasts."""
    driver = ManualDriver()
    for name, policy in topics:
        driver.topic(name, policy=policy)
    driver.session(messages_max=messages_max, lasts=True, **more)
    return driver


def closed(driver: ManualDriver) -> bool:
    return any(isinstance(event, SessionClosed) for event in driver.announcements())


def crossings(driver: ManualDriver) -> list[tuple[str, int]]:
    return [
        ("upper" if event.upper else "lower", event.messages)
        for event in driver.announcements()
        if isinstance(event, QueueCrossed)
    ]


def queued(driver: ManualDriver) -> int:
    return driver.engine.session_stats("s").queued_messages


@rule("queue-7")
def test_unsubscribe_ends_all_subscriptions_to_the_topic_and_they_may_be_made_again() -> None:
    driver = driver_of(("px", "unsubscribe"), ("other", "conflate"))
    names = [driver.subscribe(), driver.subscribe("conflation=1s"), driver.subscribe(topic="other")]
    driver.publish("a1 a2", topic="other")
    driver.publish("a1 a2 a3")
    driver.flush()
    assert driver.received() == ["unsubscribed from px: BACK_PRESSURE"] * 2 + ["a2"]
    assert not closed(driver)
    stats = driver.engine.topic_stats("px")
    assert (stats.matched, stats.dropped, stats.conflated) == (6, 4, 2)
    assert stats.dropped_by == (("BACK_PRESSURE", 4),)
    assert driver.engine.stats().remedies.unsubscribed == 2
    driver.engine.subscribe("s", names[0], driver.request(), driver.now)
    driver.publish("b1")
    driver.flush()
    assert driver.received() == ["b1"]


@rule("queue-7")
def test_an_unsubscribe_topic_that_adds_nothing_to_the_queue_is_left_alone() -> None:
    driver = driver_of(("px", "unsubscribe"), ("other", "conflate"))
    driver.subscribe()
    driver.subscribe("conflation=1s")
    driver.subscribe(topic="other")
    driver.publish("a1")
    driver.flush()
    assert driver.received() == ["a1"]
    driver.publish("a1 a2 a3 a4 a5", topic="other")
    driver.flush()
    assert driver.received() == ["a5"]


def test_back_pressure_on_the_only_subscription_ends_a_session_that_does_not_last() -> None:
    gate = Gate(QueuePolicy.UNSUBSCRIBE, "a")
    gate.publish("ABABA")
    assert gate.closed() == {"a": CloseReason.UNSUBSCRIBED}


@rule("queue-8")
@pytest.mark.parametrize("policy", ["conflate", "always", "unsubscribe"])
def test_no_policy_saves_a_session_that_is_not_conflated(policy: str) -> None:
    driver = driver_of(("px", policy), conflated=False)
    driver.subscribe()
    driver.publish("a1 a2 a3 a4")
    assert not closed(driver)
    driver.publish("a5")
    assert closed(driver)


def test_step_two_is_for_all_topics_and_leaves_those_alone_that_are_off() -> None:
    driver = driver_of(("px", "conflate"), ("log", "off"))
    driver.subscribe()
    driver.subscribe(topic="log")
    driver.publish("a1 a2 a3")
    driver.publish("a1", topic="log")
    driver.publish("a2", topic="log")
    driver.flush()
    assert driver.received() == ["a3", "a1 a2"]


@rule("queue-6")
def test_what_the_socket_holds_counts_while_something_is_queued() -> None:
    driver = ManualDriver()
    driver.topic(policy="off")
    driver.session(bytes_max=100)
    driver.subscribe()
    driver.engine.note_unsent("s", 1_000)
    assert not closed(driver)
    driver.engine.note_unsent("s", 90)
    driver.publish("a1")
    assert closed(driver)


def test_what_has_drained_counts_no_more() -> None:
    driver = ManualDriver()
    driver.topic(policy="off")
    driver.session(bytes_max=100)
    driver.subscribe()
    driver.engine.note_unsent("s", 90)
    driver.engine.note_unsent("s", 0)
    driver.publish("a1 a2 a3")
    assert not closed(driver)


@rule("queue-6")
def test_bytes_of_a_delta_are_those_of_its_patch() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session()
    driver.subscribe(command="sow_and_delta_subscribe")
    driver.publish_documents({"k": "a", "note": "x" * 500, "v": 1})
    driver.flush()
    driver.take()
    driver.publish_documents({"k": "a", "note": "x" * 500, "v": 2})
    driver.flush()
    assert driver.engine.session_stats("s").queued_bytes == len(b'{"k":"a","v":2}')


@rule("queue-8")
def test_new_limits_hold_at_once() -> None:
    driver = driver_of(("px", "conflate"), messages_max=100)
    driver.subscribe()
    driver.publish("a1 a2 b1 a3")
    driver.flush()
    driver.engine.set_session_limits("s", QueueLimits(3, 1 << 20), conflated=True)
    assert queued(driver) == 2
    driver.engine.set_session_limits("s", QueueLimits(1, 1 << 20), conflated=True)
    assert driver.received() == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]


@rule("queue-11")
def test_thresholds_are_announced_in_turn() -> None:
    driver = driver_of(("px", "off"), messages_max=10)
    driver.subscribe()
    told = []
    for number in range(9):
        driver.publish(f"a{number}")
        driver.flush()
        told += crossings(driver)
    assert told == [("upper", 9)]
    driver.take_once(4 * 15)
    assert crossings(driver) == [("lower", 5)]
    driver.take()
    assert crossings(driver) == []
    driver.publish("a1 a2 a3 a4 a5 a6 a7 a8 a9")
    assert crossings(driver) == [("upper", 9)]


@rule("queue-11")
def test_a_queue_that_is_conflated_crosses_both() -> None:
    driver = driver_of(("px", "conflate"), messages_max=10)
    driver.subscribe()
    driver.publish(" ".join(f"a{number}" for number in range(11)))
    assert crossings(driver) == [("upper", 11), ("lower", 1)]


@rule("queue-11")
def test_in_idle_time_the_fullest_queue_is_conflated_a_part_at_a_time() -> None:
    driver = ManualDriver()
    driver.topic()
    for name, limit in (("half", 6_000), ("full", 3_000), ("short", 100_000)):
        driver.session(name, messages_max=limit)
        driver.subscribe(session=name)
    assert not driver.engine.conflate_idle(driver.now)
    driver.publish(" ".join(f"{'abc'[n % 3]}{n}" for n in range(3_000)))
    driver.flush()

    def waiting(name: str) -> int:
        return driver.engine.session_stats(name).queued_messages

    assert driver.engine.conflate_idle(driver.now)
    assert (waiting("full"), waiting("half"), waiting("short")) == (2_000, 3_000, 3_000)
    assert driver.engine.conflate_idle(driver.now)
    assert not driver.engine.conflate_idle(driver.now), "below the lower threshold there is no need"
    assert driver.engine.stats().remedies.background == 2


@rule("queue-11")
def test_of_several_long_queues_the_fullest_comes_first() -> None:
    """By the share of what each may have, not by its length."""
    driver = ManualDriver()
    driver.topic(policy=QueuePolicy.CONFLATE)
    for session, messages_max in (("roomy", 45), ("narrow", 35)):
        driver.session(session, messages_max=messages_max)
        driver.subscribe(session=session)
    for number in range(30):
        driver.publish(f"a{number}")
    for conflated, untouched in (("narrow", "roomy"), ("roomy", "narrow")):
        before = driver.engine.session_stats(untouched).queued_messages
        assert driver.engine.conflate_idle(driver.now)
        assert driver.engine.session_stats(conflated).queued_messages == 1
        assert driver.engine.session_stats(untouched).queued_messages == before


@rule("queue-11")
def test_what_is_conflated_already_is_not_conflated_again() -> None:
    driver = driver_of(("px", "conflate"), messages_max=30)
    driver.subscribe()
    letters = "abcdefghijklmnopqrst"
    driver.publish(" ".join(f"{letter}{n}" for n, letter in enumerate(letters)))
    driver.flush()
    assert driver.engine.conflate_idle(driver.now)
    assert queued(driver) == 20
    assert not driver.engine.conflate_idle(driver.now)
    driver.publish("a1 a2")
    assert not driver.engine.conflate_idle(driver.now), "less than an eighth is new"
    driver.publish("a3 a4")
    assert driver.engine.conflate_idle(driver.now)
    assert queued(driver) == 20


@pytest.mark.parametrize("policy", ["off", "unsubscribe"])
def test_what_may_not_be_conflated_is_not_in_idle_time_either(policy: str) -> None:
    driver = driver_of(("px", policy), messages_max=4)
    driver.subscribe()
    driver.publish("a1 a2 a3")
    assert not driver.engine.conflate_idle(driver.now)
    assert queued(driver) == 3


def replayed(*, idle: bool) -> tuple[int, list[str]]:
    """A recorded morning of twelve keys before a slow reader; how often it had to be conflated."""
    driver = driver_of(("px", "conflate"), messages_max=40)
    driver.subscribe()
    heard: list[str] = []
    for turn in range(120):
        burst = [f"{'abcdefghijkl'[(turn * 7 + n * n) % 12]}{turn * 20 + n}" for n in range(13)]
        driver.publish(" ".join(burst))
        driver.flush()
        if turn % 10 == 9:
            heard += driver.received()
        while idle and driver.engine.conflate_idle(driver.now):
            pass
    return driver.engine.stats().remedies.forced, heard


@rule("queue-11")
def test_idle_time_saves_forced_conflations() -> None:
    """Recorded traffic, with the same newest values in the end."""
    forced, heard = replayed(idle=False)
    saved, also_heard = replayed(idle=True)
    assert saved < forced
    for one, other in ((heard, also_heard), (also_heard, heard)):
        assert {row for told in one for row in told.split()[-1:]} == {
            row for told in other for row in told.split()[-1:]
        }


@pytest.mark.parametrize("idle", [False, True])
def test_rows_still_rise_and_stand_for_all_messages(idle: bool) -> None:
    driver = driver_of(("px", "conflate"), messages_max=6)
    driver.subscribe("receipt")
    for number in range(30):
        driver.publish(f"{'abc'[number % 3]}{number}")
        driver.flush()
        if idle:
            driver.engine.conflate_idle(driver.now)
    rows = [frame for out in driver.take() if isinstance(out, Rows) for frame in out.batch.frames]
    assert all(one.offset < other.offset for one, other in pairwise(rows))
    assert sum(getattr(row, "messages", 1) for row in rows) == 30
