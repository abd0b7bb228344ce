"""The lane of `pace=key`: an interval for each key, leaving at the end of a tick."""

from __future__ import annotations

from tests.support.world import PLENTY, World, ids, told

BY_KEY = "conflation=1s,pace=key"


def test_each_key_opens_its_own_interval() -> None:
    """Rules 14 and 15."""
    world = World()
    world.topic()
    world.subscribe(BY_KEY)
    world.say("a1")
    world.wait("400ms")
    world.say("a2 b1")
    world.wait("600ms")
    assert world.hears() == ["a2"]
    world.wait("399ms")
    assert world.hears() == []
    world.wait("1ms")
    assert world.hears() == ["b1"]


def test_keys_due_within_a_tick_leave_together_at_its_end() -> None:
    """Rule 15: the tick of 1 s is 50 ms."""
    world = World()
    world.topic()
    world.subscribe(BY_KEY)
    world.wait("10ms")
    world.say("a1")
    world.wait("20ms")
    world.say("b1")
    world.wait("1019ms")
    assert world.hears() == []
    world.wait("1ms")
    assert world.hears() == ["a1 b1"]


def test_rows_that_leave_together_stand_in_publication_order() -> None:
    world = World()
    world.topic()
    world.subscribe(BY_KEY)
    world.say("a1 b1 a2")
    world.wait("1s")
    assert world.hears() == ["b1 a2"]


def test_a_key_that_others_held_at_the_join_does_not_come_twice() -> None:
    """Rule 24."""
    world = World()
    world.topic()
    world.subscribe(BY_KEY, session="first")
    world.say("a1 b1")
    world.subscribe(BY_KEY, command="sow_and_subscribe")
    world.say("b2")
    world.wait("1s")
    assert world.hears() == ["group of 2", "snapshot: a1 b1", "group ends at e1-2", "b2"]
    assert world.hears("first") == ["a1 b2"]


def test_an_id_never_steps_back_behind_the_join() -> None:
    """Rule 42: a key that others hold since before the join holds no id of ours back."""
    world = World()
    world.topic()
    world.subscribe(BY_KEY, session="first")
    world.say("a1")
    world.wait("500ms")
    world.say("b1")
    world.wait("200ms")
    world.subscribe(BY_KEY)
    world.say("a2")
    world.wait("300ms")
    assert ids(world.take("first")) == [1]
    outputs = world.take()
    assert (told(outputs), ids(outputs)) == (["a2"], [2])


def test_an_id_stands_below_the_first_message_that_is_held() -> None:
    """Rules 41 and 43."""
    world = World()
    world.topic()
    world.subscribe(BY_KEY)
    world.say("a1")
    world.wait("500ms")
    world.say("b1")
    world.say("b2 c1")
    world.wait("500ms")
    assert ids(world.take()) == [1]
    world.wait("500ms")
    assert ids(world.take()) == [4]


def test_a_member_behind_gets_the_newest_flushed_row_of_each_key_in_pieces() -> None:
    """Rules 21 and 22."""
    world = World()
    world.topic()
    world.subscribe(BY_KEY)
    world.say("a1 b1 c1")
    world.wait("1s")
    world.say("a2")
    world.wait("1s")
    assert told(world.take_once(1)) == ["b1"]
    world.say("c2")
    assert told(world.take_once(PLENTY)) == ["a2"]
    world.wait("1s")
    assert world.hears() == ["c2"]
