"""Live windows: the first so many by an order."""

from __future__ import annotations

from tests.support.rules import rule
from tests.support.world import World, batches


def window(options: str, order: str = "/v DESC") -> World:
    world = World()
    world.topic()
    world.say("a1 b5 c3 d4")
    world.subscribe(options, order=order, command="sow_and_subscribe")
    return world


@rule("view-1")
def test_a_snapshot_is_the_window_in_its_order() -> None:
    assert window("top_n=2,oof").hears() == ["group of 2", "snapshot: b5 d4", "group ends at e1-4"]
    assert window("top_n=2,skip_n=1").hears()[1] == "snapshot: d4 c3"


@rule("view-1")
def test_who_comes_in_pushes_somebody_out() -> None:
    world = window("top_n=2,oof")
    world.take()
    world.say("a9")
    world.flush()
    assert world.hears() == ["-d4 a9"]
    world.say("b0")
    world.flush()
    assert world.hears() == ["-b0 d4"]
    world.remove("a0")
    world.flush()
    assert world.hears() == ["-a9 c3"]


def test_below_the_window_nothing_is_told() -> None:
    world = window("top_n=2,oof")
    world.take()
    world.say("a2 c1")
    world.flush()
    assert world.hears() == []
    assert world.engine.session_stats("s").subscriptions[0].matched == 0


@rule("removal-2", "view-1")
def test_an_interval_tells_how_the_window_is_at_its_end() -> None:
    """B was out and is back."""
    world = window("top_n=2,oof,conflation=1s")
    world.take()
    world.say("a9 c8 a0")
    world.wait("1s")
    assert world.hears() == ["-d4 c8 b5"]


@rule("view-1")
def test_without_an_order_records_stand_by_their_key() -> None:
    assert window("top_n=2", order="").hears()[1] == "snapshot: a1 b5"


@rule("resume-6")
def test_rows_moved_by_one_message_are_never_taken_apart() -> None:
    """A piece of an answer is a position, and so is a message."""
    world = window("top_n=2,oof")
    world.take(bytes_max=1)
    world.say("a9")
    world.flush()
    (batch,) = batches(world.take_once(1))
    assert len(batch.frames) == 2
