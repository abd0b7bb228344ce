"""Counters are values that cannot change after they were read."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.world import World


def test_a_reading_stays_what_it_was() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s")
    before = world.engine.stats()
    world.say("a1")
    assert before.topics[0].matched == 0
    assert world.engine.stats().topics[0].matched == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.topics[0].matched = 9  # type: ignore[misc]  # frozen, as is shown


def test_flushes_and_sessions_are_counted() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s")
    for _ in range(3):
        world.say("a1")
        world.wait("1s")
    stats = world.engine.stats()
    assert (stats.sessions, stats.flushes) == (1, 3)
