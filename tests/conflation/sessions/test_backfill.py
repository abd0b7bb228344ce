"""What a subscription begins with, and how a replay goes over into live rows."""

from __future__ import annotations

from tests.support.rules import rule
from tests.support.world import World, told


def replay(options: str, text: str = "a1 b1 c1 d1", **definition: object) -> World:
    world = World()
    world.topic(**definition)  # type: ignore[arg-type]  # checked by topic
    world.say(text)
    world.subscribe(f"bookmark=epoch,{options}", command=None)
    return world


@rule("resume-9")
def test_a_replay_goes_at_its_speed_and_wakes_its_session() -> None:
    world = replay("rate=2")
    assert told(world.take()) == ["resumed by replay, gap 4", "a1"]
    world.events()
    world.wait("499ms")
    assert (world.announced(), world.hears()) == ([], [])
    world.wait("1ms")
    assert (world.announced(), world.hears()) == (["s"], ["b1"])
    world.wait("10s")
    world.flush()
    assert world.hears() == ["c1", "d1"]


@rule("resume-8")
def test_what_is_published_meanwhile_follows_then_the_live_rows() -> None:
    world = replay("rate=1", "a1 b1")
    world.take()
    world.say("c1")
    world.wait("1s")
    assert world.hears() == ["b1"]
    world.wait("1s")
    assert world.hears() == ["c1"]
    world.say("d1")
    world.flush()
    assert world.hears() == ["d1"]


@rule("resume-8")
def test_a_journal_that_is_trimmed_under_a_replay_is_told() -> None:
    """Never a silent gap."""
    world = replay("rate=1", "a1 b1", history=2)
    world.take()
    world.wait("1s")
    world.say("c1 d1 e1 f1")
    assert world.hears() == [
        "b1",
        "resumed by snapshot, gap 4",
        "group of 6",
        "snapshot: a1 b1 c1 d1 e1 f1",
        "group ends at e1-6",
    ]


@rule("change-3")
def test_a_replay_can_begin_paused() -> None:
    world = replay("pause")
    assert world.hears() == []
    world.change("sub1", "bookmark=epoch", command=None)
    assert world.hears() == ["resumed by replay, gap 4", "a1 b1 c1 d1"]


def test_snapshot_rows_stand_in_the_order_asked_for_and_so_many_at_a_time() -> None:
    world = World()
    world.topic()
    world.say("a1 b3 c2")
    world.subscribe("batch_size=2", order="/v DESC", command="sow_and_subscribe")
    assert world.hears() == ["group of 3", "snapshot: b3 c2", "snapshot: a1", "group ends at e1-3"]
