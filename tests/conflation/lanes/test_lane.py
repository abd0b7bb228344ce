"""What all lanes have in common: who is in step shares, who is not gets its own answer."""

from __future__ import annotations

import pytest

from tests.support.world import World, batches

KINDS = ("conflation=1s", "conflation=1s,oof", "conflation=1s,pace=key", "conflation=none")


@pytest.mark.parametrize("options", KINDS)
def test_members_in_step_take_the_very_same_batch(options: str) -> None:
    """Law 2: encoded once, whatever the kind of lane."""
    world = World()
    world.topic()
    for session in ("s1", "s2", "s3"):
        world.subscribe(options, session=session, command="sow_and_subscribe")
        world.take(session)
    world.say("a1 b1")
    world.wait("2s")
    taken = [batches(world.take(session)) for session in ("s1", "s2", "s3")]
    assert taken[0][0] is taken[1][0] is taken[2][0]


@pytest.mark.parametrize("options", KINDS)
def test_a_member_behind_ends_where_the_others_are(options: str) -> None:
    world = World()
    world.topic()
    for session in ("fast", "slow"):
        world.subscribe(options, session=session, command="sow_and_subscribe")
        world.take(session)
    for text in ("a1 b1", "a2", "c1 b2"):
        world.say(text)
        world.wait("2s")
        world.take("fast")
    rows = [frame for batch in batches(world.take("slow")) for frame in batch.frames]
    newest = {frame.key: frame.payload for frame in rows}
    board = {frame.key: frame.payload for frame in world.engine.topic("px").sow.board.live()}  # type: ignore[union-attr]  # a keyed topic has one
    assert newest == board


@pytest.mark.parametrize("options", KINDS)
def test_fields_that_were_not_selected_are_not_shown(options: str) -> None:
    world = World()
    world.topic()
    world.say("aX1")
    world.subscribe(f"{options},select=[-/g]", command="sow_and_subscribe")
    world.say("aX2")
    world.wait("2s")
    rows = [frame.payload for batch in batches(world.take()) for frame in batch.frames]
    assert rows == [b'{"k":"a","v":1}', b'{"k":"a","v":2}']
