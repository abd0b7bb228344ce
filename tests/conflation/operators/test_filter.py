"""What a filter lets onto a board, and what leaves it again: `oof`."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tests.support.world import World, batches
from tidegate.conflation.frame import RemovalReason

ABOVE = "/v > 4"


def reasons(world: World) -> list[tuple[str, str]]:
    """The removals that a session takes: key and reason."""
    rows = [row for batch in batches(world.take()) for row in batch.frames]
    return [(row.key, row.reason) for row in rows if row.removed]  # type: ignore[attr-defined]  # tombstones have one


def filtered(options: str, command: str = "sow_and_subscribe") -> World:
    world = World()
    world.topic()
    world.say("a5 b1 c9")
    world.subscribe(options, wanted=ABOVE, command=command)
    return world


def test_a_snapshot_shows_what_matches() -> None:
    world = filtered("conflation=1s,oof")
    assert world.hears() == ["group of 2", "snapshot: a5 c9", "group ends at e1-3"]


@rule("removal-1")
def test_what_no_longer_matches_leaves_with_its_last_matching_value() -> None:
    world = filtered("conflation=1s,oof")
    world.take()
    world.say("a6 a2 b7")
    world.wait("1s")
    assert world.hears() == ["-a6 b7"]


@rule("removal-1")
def test_without_an_interval_the_removal_brings_the_record_as_it_is_now() -> None:
    """AMPS's `match`."""
    world = filtered("oof")
    world.take()
    world.say("a6 a2 b7")
    world.flush()
    assert world.hears() == ["a6 -a2 b7"]


@rule("removal-2")
def test_out_and_back_is_a_value_and_in_and_out_is_nothing() -> None:
    world = filtered("conflation=1s,oof")
    world.take()
    world.say("a1 a7 b8 b2")
    world.wait("1s")
    assert world.hears() == ["a7"]


@rule("removal-4")
def test_without_oof_what_was_held_is_still_sent() -> None:
    world = filtered("conflation=1s")
    world.take()
    world.say("a6 a2")
    world.wait("1s")
    assert world.hears() == ["a6"]
    world.say("c1")
    world.wait("1s")
    assert world.hears() == []


@rule("removal-2")
@pytest.mark.parametrize("options", ["conflation=1s,oof", "oof", "conflation=1s,oof,pace=key"])
def test_a_key_that_was_never_sent_is_not_taken_back(options: str) -> None:
    world = filtered(options, command="subscribe")
    world.say("a1 c8")
    world.wait("2s")
    assert world.hears() == ["c8"]
    world.say("c1")
    world.wait("2s")
    assert reasons(world) == [('["c"]', "match")]


@rule("removal-1")
@pytest.mark.parametrize("options", ["conflation=1s,oof", "oof", "conflation=1s,oof,pace=key"])
def test_a_removal_says_why(options: str) -> None:
    world = filtered(options)
    world.take()
    world.remove("a0")
    world.remove("c0", reason=RemovalReason.EXPIRED)
    world.wait("2s")
    assert reasons(world) == [('["a"]', "deleted"), ('["c"]', "expired")]


@rule("removal-1")
def test_a_removal_stands_in_the_journal_with_what_it_took_away() -> None:
    world = World()
    world.topic()
    world.say("a5")
    world.remove("a0")
    value, removal = world.engine.topic("px").since(None, 10)
    assert (value.removed, removal.removed) == (False, True)
    assert removal.payload == value.payload
    assert world.engine.topic("px").sow.board.live() == []  # type: ignore[union-attr]  # a keyed topic has one


@rule("merge-1")
def test_an_exempt_message_is_sent_beside_the_newest() -> None:
    """On a plain interval."""
    world = World()
    world.topic()
    world.subscribe("conflation=1s")
    world.say("a1")
    world.say("a2", exempt=True)
    world.say("a3")
    world.wait("1s")
    assert world.hears() == ["a2 a3"]


@rule("removal-2", "merge-1")
def test_an_exempt_message_that_is_taken_back_is_taken_back_from_all() -> None:
    """It was sent, so its removal is told."""
    world = World()
    world.topic()
    world.subscribe("conflation=1s,oof", command="sow_and_subscribe")
    world.take()
    world.say("a1", exempt=True)
    world.remove("a0")
    world.wait("1s")
    assert world.hears() == ["a1 -a1"]
