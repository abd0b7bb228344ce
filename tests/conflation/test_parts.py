"""The engine's parts agree on what time it is and which topics there are."""

from __future__ import annotations

import pytest

from tests.support.world import World
from tidegate.conflation.errors import TopicUnknown


def test_the_clock_never_runs_back() -> None:
    world = World()
    world.engine.advance(5)
    with pytest.raises(AssertionError, match="clock"):
        world.engine.advance(4)


def test_a_topic_is_found_by_its_name() -> None:
    world = World()
    world.topic()
    assert world.engine.topic("px").name == "px"
    with pytest.raises(TopicUnknown):
        world.engine.topic("other")
