"""Taking a subscriber and leaving it."""

from __future__ import annotations

from tests.support.world import World


def test_who_leaves_drops_what_was_held_for_it() -> None:
    """CONTRACT 5.1, also what a change has put off."""
    world = World()
    world.topic()
    world.session("other")
    name = world.subscribe("conflation=10s")
    world.subscribe("conflation=10s", session="other")
    world.say("a1 b1")
    world.change(name, "conflation=2s")
    world.engine.unsubscribe("s", name)
    world.wait("10s")
    assert world.hears(session="other") == ["a1 b1"]
    stats = world.engine.topic_stats("px")
    assert (stats.matched, stats.delivered, stats.dropped) == (4, 2, 2)
