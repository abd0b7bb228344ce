"""What nobody needs to be told of, and what becomes of it."""

from __future__ import annotations

from tests.support.rules import rule
from tests.support.world import World, counts

QUIET = "conflation=1s,no_empties,receipt"
DELTAS = "sow_and_delta_subscribe"


def said(world: World, *values: int) -> list[tuple[str, int, int]]:
    """Publishes a value of key a each second; the rows with their counts."""
    for value in values:
        world.say(f"a{value}")
        world.wait("1s")
    return counts(world.take())


@rule("delta-4")
def test_the_same_again_and_again_is_told_once() -> None:
    world = World()
    world.topic()
    world.subscribe(QUIET, command=DELTAS, counted=True)
    world.take()
    told = [row for value in (1, 1, 1, 1, 2) for row in said(world, value)]
    assert told == [("a1", 1, 1), ("a2", 4, 2)]


@rule("delta-4")
def test_what_the_snapshot_said_is_not_said_again() -> None:
    world = World()
    world.topic()
    world.say("a1")
    world.subscribe(QUIET, command=DELTAS, counted=True)
    world.take()
    assert said(world, 1) == []


@rule("delta-4", "merge-1")
def test_an_exempt_message_is_told_whatever_it_says() -> None:
    world = World()
    world.topic()
    world.subscribe(QUIET, command=DELTAS, counted=True)
    world.take()
    world.say("a1 a1", exempt=True)
    world.wait("1s")
    assert counts(world.take()) == [("a1", 1, 1), ("a1", 1, 2)]


@rule("removal-2", "delta-6")
def test_messages_of_a_key_that_came_and_went_are_counted_when_it_comes_again() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s,oof,receipt", command="sow_and_subscribe", counted=True)
    world.take()
    world.say("a1 a2")
    world.remove("a0")
    world.wait("1s")
    assert world.hears() == []
    assert said(world, 3) == [("a3", 3, 1)]


@rule("delta-6")
def test_who_was_behind_meanwhile_is_told_the_same_sum() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s,oof,receipt", command="sow_and_subscribe", counted=True)
    world.take()
    world.say("a1")
    world.wait("1s")
    world.remove("a0")
    world.wait("1s")
    assert world.hears() == []
    assert said(world, 2) == [("a2", 2, 1)]


@rule("removal-2", "merge-1")
def test_an_exempt_message_in_between_is_taken_back() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s,oof,receipt", command="sow_and_subscribe", counted=True)
    world.take()
    world.say("a1")
    world.remove("a0")
    world.say("a2", exempt=True)
    world.wait("1s")
    assert world.hears() == ["a2"]
    world.remove("a0")
    world.wait("1s")
    assert counts(world.take()) == [("-a2", 1, 1)]


@rule("delta-6")
def test_who_joins_later_counts_none_from_before() -> None:
    """Without an interval too."""
    world = World()
    world.topic()
    for session in ("early", "late"):
        world.subscribe("no_empties", command=DELTAS, session=session)
        world.say("a1 a1")
        world.flush()
        world.take(session)
    world.say("a2")
    world.flush()
    assert counts(world.take("early")) == [("a2", 4, 2)]
    assert counts(world.take("late")) == [("a2", 3, 3)]


@rule("delta-6")
def test_who_joined_in_between_is_told_once() -> None:
    """What a late joiner is told with a removal is not told again with the next row."""
    world = World()
    world.topic()
    receipts = "conflation=1s,oof,receipt"
    world.subscribe(receipts, command="sow_and_subscribe", counted=True, session="early")
    world.take("early")
    world.say("a1")
    world.subscribe(receipts, command="sow_and_subscribe", counted=True)
    world.take()
    world.say("a2")
    world.remove("a0")
    world.wait("1s")
    world.say("a3")
    world.wait("1s")
    assert sum(messages for _, messages, _ in counts(world.take())) == 2
    assert counts(world.take("early")) == [("a3", 3, 1)]
