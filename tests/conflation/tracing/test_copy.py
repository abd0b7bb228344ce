"""A twin stands where its original stood, and goes its own way."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tests.support.world import World, tokens
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.tracing.recorder import copy_of

OPTIONS = (
    "",
    "conflation=100ms,oof",
    "conflation=100ms,pace=key",
    "conflation=100ms,reduce=[/v:sum]",
)


def subscriber_of(world: World, name: str) -> Subscriber:
    subscriber = world.engine.subscriber("s", (name, "px"))
    assert subscriber is not None
    return subscriber


def pending(subscriber: Subscriber) -> str:
    assert subscriber.lane is not None
    return tokens(row for _, row in subscriber.lane.pending(subscriber.member))


@rule("trace-2")
@pytest.mark.parametrize("options", OPTIONS)
def test_it_has_what_its_original_has(options: str) -> None:
    """Board, lane, deadline, position."""
    world = World()
    world.topic()
    name = world.subscribe(options, command="sow_and_subscribe")
    world.say("a1 b1")
    world.flush()
    world.say("a2 c1")
    subscriber = subscriber_of(world, name)
    twin = copy_of(subscriber)
    assert pending(twin) == pending(subscriber) != ""
    assert twin.lane is not None
    assert twin.lane is not subscriber.lane
    assert (twin.lane.id, twin.lane.deadline) == (subscriber.lane.id, subscriber.lane.deadline)  # type: ignore[union-attr]  # it has one
    assert list(twin.lane.members.values()) == [twin.member]
    assert (twin.topic.head, len(twin.topic.journal)) == (4, 4)


@rule("trace-2")
@pytest.mark.parametrize("options", OPTIONS)
def test_neither_sees_what_becomes_of_the_other(options: str) -> None:
    world = World()
    world.topic()
    name = world.subscribe(options, command="sow_and_subscribe")
    world.take()
    world.say("a1")
    subscriber = subscriber_of(world, name)
    twin = copy_of(subscriber)
    before = pending(twin)
    world.say("b1 a2")
    assert pending(twin) == before
    world.wait("1s")
    world.take()
    assert pending(twin) == before
    assert pending(subscriber) == ""
    assert twin.member.position < subscriber.member.position


@rule("trace-2")
def test_its_neighbours_are_not_copied() -> None:
    world = World()
    world.topic()
    name = world.subscribe("conflation=100ms,pace=key")
    for number in range(50):
        world.subscribe("conflation=100ms,pace=key", session=f"other{number}")
    twin = copy_of(subscriber_of(world, name))
    assert twin.lane is not None
    assert len(twin.lane.members) == 1
    assert twin.watchers == ()


def test_frames_are_shared() -> None:
    """What never changes is not copied."""
    world = World()
    world.topic()
    name = world.subscribe("conflation=100ms,pace=key")
    world.say("a1")
    subscriber = subscriber_of(world, name)
    twin = copy_of(subscriber)
    assert twin.topic.journal.last is subscriber.topic.journal.last
    assert twin.topic.sow is not None
    assert subscriber.topic.sow is not None
    assert twin.topic.sow.board.live()[0] is subscriber.topic.sow.board.live()[0]


@rule("trace-2")
def test_an_opening_goes_on_where_it_stood() -> None:
    world = World()
    world.topic()
    world.say("a1 b1 c1")
    name = world.subscribe(command="sow_and_subscribe")
    world.take_once(1)
    twin = copy_of(subscriber_of(world, name))
    world.take()
    assert twin.backfill is not None
    assert (twin.backfill.sent, twin.backfill.is_done) == (1, False)
