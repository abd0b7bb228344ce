"""The engine's verbs, as conversations."""

from __future__ import annotations

import pytest

from conflation.errors import SessionUnknown
from conflation.outputs import CloseReason, SessionClosed
from tests.support.world import World


def test_a_session_over_its_limit_on_an_off_topic_is_closed() -> None:
    world = World()
    world.topic(policy="off")
    world.session(messages_max=2)
    world.subscribe("conflation=none")
    world.say("a1 b1")
    world.say("c1")
    assert world.hears() == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]
    world.say("d1")


def test_sessions_are_closed_in_the_order_in_which_they_joined() -> None:
    world = World()
    world.topic(policy="off")
    names = [f"session-{number}" for number in range(20)]
    for name in names:
        world.session(name, messages_max=1)
        world.subscribe("conflation=none", session=name)
    world.say("a1 a2")
    closed = [event.session for event in world.events() if isinstance(event, SessionClosed)]
    assert closed == names


def test_a_session_that_has_ended_takes_no_subscription() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=none")
    world.engine.close_session("s", CloseReason.SHUTDOWN)
    with pytest.raises(SessionUnknown):
        world.subscribe("conflation=none")
    assert world.hears() == ["goodbye SHUTDOWN"]
    world.say("a1")
    world.flush()
