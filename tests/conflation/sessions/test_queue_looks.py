"""Full queues are noticed without a check of those that are not."""

from typing import Any

import pytest

from tests.support.manual_driver import ManualDriver
from tidegate.conflation.outputs import SessionClosed
from tidegate.conflation.sessions.session import Session
from tidegate.conflation.topics.watermarks import Watermarks


def test_a_healthy_session_is_looked_at_only_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 1: a publish does not look at every session's queue."""
    driver = ManualDriver()
    driver.topic()
    for number in range(50):
        driver.session(f"s{number}", messages_max=1_000)
        driver.subscribe(session=f"s{number}")
    looked: list[str] = []
    fills = Session.fills

    def spy(session: Session) -> tuple[int, int]:
        looked.append(session.id)
        return fills(session)

    monkeypatch.setattr(Session, "fills", spy)
    for number in range(400):
        driver.publish(f"a{number}")
    assert looked == []


def test_subscribing_to_many_topics_looks_at_each_queue_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pattern joins lane after lane: at the square of their number it would hold the loop."""
    topics = [f"t{number}" for number in range(200)]
    driver = ManualDriver(subscriptions_max=len(topics))
    for name in topics:
        driver.topic(name, policy="off")
    driver.session(messages_max=100)
    armed, arm = [0], Watermarks.set

    def counting(watermarks: Watermarks, *of: Any) -> None:
        armed[0] += 1
        arm(watermarks, *of)

    monkeypatch.setattr(Watermarks, "set", counting)
    for name in topics:
        driver.subscribe(topic=name)
    driver.publish("a1", topic="t0")
    assert armed[0] < 3 * len(topics)
    # The room is shared all the same: no queue grows beyond the limit unseen.
    for _ in range(101):
        driver.publish("a1", topic=topics[-1])
    assert any(isinstance(out, SessionClosed) for out in driver.engine.announcements())
