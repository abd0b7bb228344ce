"""The sessions of the engine: opened, closed, and announced once."""

from __future__ import annotations

import pytest

from tests.support.manual_driver import ManualDriver
from tidegate.conflation.errors import LimitReached, SessionUnknown, SubscriptionUnknown
from tidegate.conflation.outputs import (
    CloseReason,
    Goodbye,
    SessionClosed,
    SessionReady,
    Unsubscribed,
)
from tidegate.conflation.sessions.registry import SessionRegistry
from tidegate.conflation.sessions.session import QueueLimits, Session


def roster(sessions_max: int = 2) -> SessionRegistry:
    return SessionRegistry({}, sessions_max)


def session(name: str) -> Session:
    return Session(name, QueueLimits(10, 1_000))


def test_a_session_is_found_until_it_is_forgotten() -> None:
    there = roster()
    there.open(session("a"))
    assert there.get("a").id == "a"
    there.forget(there.get("a"))
    with pytest.raises(SessionUnknown):
        there.get("a")


def test_no_more_sessions_than_may_be() -> None:
    there = roster(1)
    there.open(session("a"))
    with pytest.raises(LimitReached):
        there.open(session("b"))


def test_a_session_without_such_a_subscription_says_so() -> None:
    with pytest.raises(SubscriptionUnknown):
        roster().subscribers(session("a"), "s1")


def test_a_close_with_a_reason_owes_a_goodbye_and_one_without_forgets() -> None:
    there = roster()
    for name in "ab":
        there.open(session(name))
    a, b = there.get("a"), there.get("b")
    there.close(a, CloseReason.SHUTDOWN)
    there.close(a, CloseReason.SHUTDOWN)
    there.close(b, None)
    assert list(a.outbox) == [Goodbye(CloseReason.SHUTDOWN)]
    assert there.announcements() == [
        SessionClosed("a", CloseReason.SHUTDOWN),
        SessionReady("a"),
        SessionClosed("b", None),
    ]
    assert there.announcements() == []


def test_who_leaves_last_ends_the_session_unless_it_lasts() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.engine.open_session("s", QueueLimits(10, 1_000), lasts=True)
    name = driver.subscribe("")
    driver.engine.unsubscribe("s", name)
    assert driver.take() == [Unsubscribed(name, "px", "REQUESTED")]
    assert driver.engine.session_stats("s").subscriptions == ()
