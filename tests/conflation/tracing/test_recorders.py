"""A few recorders at most, and nothing for whoever is not traced."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tests.support.world import World
from tidegate.conflation.errors import LimitReached
from tidegate.conflation.tracing.recorder import RECORDERS_MAX, begin_recording, end_recording


@rule("trace-5")
def test_there_are_ten_at_most() -> None:
    world = World()
    world.topic()
    subscriber = world.engine.subscriber("s", (world.subscribe("conflation=100ms"), "px"))
    assert subscriber is not None
    watchers = world.engine.watchers
    running = [begin_recording(watchers, subscriber, 0, lambda: None) for _ in range(RECORDERS_MAX)]
    with pytest.raises(LimitReached):
        begin_recording(watchers, subscriber, 0, lambda: None)
    end_recording(watchers, running[0])
    begin_recording(watchers, subscriber, 0, lambda: None)


@rule("trace-5")
def test_who_stops_leaves_nothing_behind() -> None:
    world = World()
    world.topic()
    subscriber = world.engine.subscriber("s", (world.subscribe("conflation=100ms"), "px"))
    assert subscriber is not None
    first = begin_recording(world.engine.watchers, subscriber, 0, lambda: None)
    second = begin_recording(world.engine.watchers, subscriber, 0, lambda: None)
    end_recording(world.engine.watchers, first)
    assert (world.engine.watchers, subscriber.watchers) == ([second], (second,))
    end_recording(world.engine.watchers, second)
    assert (world.engine.watchers, subscriber.watchers) == ([], ())
