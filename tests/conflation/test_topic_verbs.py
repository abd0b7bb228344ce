"""What becomes of topics, as those who subscribe hear of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.world import World
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.frame import RestoredTopic


def test_a_topic_that_is_defined_again_keeps_its_messages_and_takes_the_new_policy() -> None:
    world = World()
    world.topic()
    world.session(messages_max=2)
    world.subscribe("conflation=none")
    world.say("a1 a2")
    world.topic(policy="off", epoch="other")
    world.say("a3")
    assert world.hears() == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]
    assert str(world.engine.topic("px").bookmark(3)) == "e1-3"


def test_a_topic_that_goes_ends_its_subscriptions() -> None:
    world = World()
    world.topic()
    world.topic("other")
    world.subscribe("conflation=1s")
    world.subscribe("conflation=1s", topic="other")
    world.engine.drop_topic("px")
    assert world.hears() == ["unsubscribed from px: REMOVED"]
    world.topic(epoch="e2")
    world.subscribe("conflation=none", resume="e1-0")
    assert world.hears()[0] == "resumed by snapshot, gap None"


def test_a_topic_that_begins_again_is_told_as_a_snapshot() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=none")
    world.say("a1")
    world.hears()
    world.engine.restart_topic("px", "e2", RestoredTopic(), world.now, 0)
    assert world.hears()[0].startswith("resumed by snapshot")
    assert world.engine.topic("px").epoch == "e2"


def test_of_a_topic_that_is_not_there_nothing_becomes() -> None:
    engine = World().engine
    verbs: list[Callable[[], None]] = [
        lambda: engine.drop_topic("px"),
        lambda: engine.restore_topic("px", RestoredTopic(), 0, 0),
        lambda: engine.restart_topic("px", "e2", RestoredTopic(), 0, 0),
        lambda: engine.set_checkpoint("px", 1),
    ]
    for verb in verbs:
        with pytest.raises(TopicUnknown):
            verb()
