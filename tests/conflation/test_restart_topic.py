"""A topic begins again in another epoch: nobody is sent away, everybody gets what there is.

Rule cluster-2 is told here.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.rules import rule
from tests.support.world import World, make_frames
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.frame import RestoredTopic
from tidegate.conflation.outputs import RecordsExpired

pytestmark = rule("cluster-2")


def renew(world: World, records: str = "", *, epoch: str = "e2", first: int = 1) -> None:
    """The topic goes on with these records, the newest of each key."""
    frames = make_frames(records, first)
    head = frames[-1].offset if frames else 0
    kept = RestoredTopic(head, frames, journal=frames, dropped_through=first - 1)
    world.engine.restart_topic("px", epoch, kept, world.now, 0)


@pytest.mark.parametrize("options", ["conflation=none", "conflation=1s", "conflation=1s,oof"])
@pytest.mark.parametrize("command", ["subscribe", "sow_and_subscribe"])
def test_whoever_is_there_gets_what_is_left_as_a_snapshot(options: str, command: str) -> None:
    world = World()
    world.topic()
    world.say("a1 b1")
    world.subscribe(options, command=command)
    world.wait("1s")
    world.hears()
    renew(world, "a1")
    assert world.hears() == [
        "resumed by snapshot, gap None",
        "group of 1",
        "snapshot: a1",
        "group ends at e2-1",
    ]
    world.say("c1")
    world.wait("1s")
    assert world.hears() == ["c1"]


def test_a_bus_that_lost_everything_is_told_as_an_empty_group() -> None:
    world = World()
    world.topic()
    world.say("a1")
    world.subscribe()
    world.hears()
    renew(world)
    expected = ["resumed by snapshot, gap None", "group of 0", "group ends at e2-0"]
    assert world.hears() == expected
    world.say("a2")
    world.flush()
    assert world.hears() == ["a2"]


def test_what_was_held_or_queued_of_the_old_epoch_is_not_told_any_more() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s")
    world.subscribe()
    world.say("a1 a2")
    renew(world, "a1")
    world.wait("5s")
    assert [line for line in world.hears() if "a2" in line] == []
    stats = world.engine.topic_stats("px")
    assert stats.matched == stats.delivered + stats.conflated + stats.dropped + stats.waiting
    assert dict(stats.dropped_by)["RENEWED"] > 0


def test_a_change_that_was_on_its_way_holds() -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=1s")
    world.say("a1")
    world.change(name, "conflation=100ms")
    renew(world, "a1")
    world.hears()
    world.say("a2")
    world.wait("100ms")
    assert world.hears() == ["a2"]


def test_who_paused_is_told_once_he_goes_on() -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=1s")
    wish = world.wish("conflation=1s")
    world.engine.change("s", name, replace(wish, paused=True), world.now)
    renew(world, "a1")
    assert world.hears() == []
    world.engine.change("s", name, wish, world.now)
    assert "snapshot: a1" in world.hears()


def test_a_snapshot_in_the_middle_begins_again() -> None:
    world = World()
    world.topic()
    world.say("a1 b1")
    world.subscribe("batch_size=1", command="sow_and_subscribe")
    assert world.hears(bytes_max=1)[:2] == ["group of 2", "snapshot: a1"]
    renew(world, "b1")
    assert world.hears() == [
        "resumed by snapshot, gap None",
        "group of 1",
        "snapshot: b1",
        "group ends at e2-1",
    ]


def test_bookmarks_of_the_old_epoch_get_a_snapshot() -> None:
    world = World()
    world.topic()
    world.say("a1 b1")
    renew(world, "a1 b1")
    world.subscribe("conflation=1s", resume="e1-2")
    assert world.hears()[0] == "resumed by snapshot, gap None"
    world.subscribe("conflation=1s", resume="e2-1")
    assert world.hears() == ["resumed by changes, gap 1", "b1"]


def test_a_hole_in_what_arrived_is_filled_in_the_same_epoch() -> None:
    world = World()
    world.topic()
    world.say("a1")
    world.subscribe()
    world.flush()
    world.hears()
    renew(world, "a9", epoch="e1", first=7)
    assert world.hears()[-1] == "group ends at e1-7"


def test_records_expire_by_their_new_offsets_and_once() -> None:
    world = World()
    world.topic(expiration="10s")
    world.say("a1 b1")
    renew(world, "a1")
    world.wait("10s")
    assert [event for event in world.events() if isinstance(event, RecordsExpired)] == [
        RecordsExpired("px", "e2", 1)
    ]


def test_what_came_in_before_still_counts() -> None:
    world = World()
    world.topic()
    world.say("a1 a2")
    renew(world, "a1")
    world.say("a3")
    assert world.engine.topic_stats("px").messages_in == 3


def test_a_topic_that_is_not_there_does_not_begin_again() -> None:
    with pytest.raises(TopicUnknown):
        renew(World())
