"""A few recorders at most, and nothing for whoever is not traced."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tests.support.world import World
from tidegate.conflation.errors import LimitReached
from tidegate.conflation.sessions.recorder import RECORDERS_MAX


@rule("trace-5")
def test_there_are_ten_at_most() -> None:
    world = World()
    world.topic()
    seat = world.engine.subscriber("s", (world.subscribe("conflation=100ms"), "px"))
    assert seat is not None
    recorders = world.engine.recorders
    running = [recorders.begin(seat, 0, lambda: None) for _ in range(RECORDERS_MAX)]
    with pytest.raises(LimitReached):
        recorders.begin(seat, 0, lambda: None)
    recorders.end(running[0])
    recorders.begin(seat, 0, lambda: None)


@rule("trace-5")
def test_who_stops_leaves_nothing_behind() -> None:
    world = World()
    world.topic()
    seat = world.engine.subscriber("s", (world.subscribe("conflation=100ms"), "px"))
    assert seat is not None
    first = world.engine.recorders.begin(seat, 0, lambda: None)
    second = world.engine.recorders.begin(seat, 0, lambda: None)
    world.engine.recorders.end(first)
    assert (world.engine.recorders.running, seat.watchers) == ([second], (second,))
    world.engine.recorders.end(second)
    assert (world.engine.recorders.running, seat.watchers) == ([], ())
