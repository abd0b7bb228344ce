"""Deltas: what changed since the value that was sent."""

from __future__ import annotations

import json

import pytest

from tests.support.rules import rule
from tests.support.world import World, batches, counts
from tidegate.conflation.definition import Definition, History
from tidegate.conflation.frame import Frame, Row
from tidegate.conflation.options.grant import Request, decide, grant
from tidegate.conflation.options.table import Options
from tidegate.keys.merging import Merger
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec

PAD = "x" * 40
BOTH = "sow_and_delta_subscribe"


def sent(world: World, session: str = "s") -> list[str]:
    """Each live row's text: a patch with a tilde in front, a value without its padding."""
    return [_text(row) for batch in batches(world.take(session)) for row in batch.frames]


def _text(row: Frame) -> str:
    patch = row.patch if isinstance(row, Row) else None
    text = row.payload if patch is None else patch
    return ("" if patch is None else "~") + text.decode().replace(f',"pad":"{PAD}"', "")


def begun(options: str, command: str = BOTH) -> World:
    world = World()
    world.topic()
    world.publish({"k": "a", "v": 1, "w": 1, "pad": PAD})
    world.subscribe(options, command=command)
    sent(world)
    return world


@rule("delta-1")
def test_the_diffusion_example_a_to_acd_as_a_merge_patch() -> None:
    """The queue d(a-ab) d(ab-ac) d(ac-acd) becomes one delta d(a-acd)."""
    world = World()
    world.topic()
    world.publish({"k": "t", "value": "a", "pad": PAD})
    world.subscribe("conflation=1s", command=BOTH)
    sent(world)
    for value in ("ab", "ac", "acd"):
        world.publish({"k": "t", "value": value, "pad": PAD})
    world.wait("1s")
    assert sent(world) == ['~{"k":"t","value":"acd"}']


@rule("delta-1")
def test_a_field_that_any_message_changed_is_told_with_its_final_value() -> None:
    """Also if that is the value before the interval (AMPS's merged deltas)."""
    world = begun("conflation=1s")
    world.publish({"k": "a", "v": 2, "w": 1, "pad": PAD}, {"k": "a", "v": 1, "w": 1, "pad": PAD})
    world.wait("1s")
    assert sent(world) == ['~{"k":"a","v":1}']


@rule("delta-6", "delta-4")
def test_with_no_empties_a_net_change_of_nothing_is_not_told_but_counted_later() -> None:
    world = begun("conflation=1s,no_empties")
    world.publish({"k": "a", "v": 2, "w": 1, "pad": PAD}, {"k": "a", "v": 1, "w": 1, "pad": PAD})
    world.wait("1s")
    assert sent(world) == []
    world.publish({"k": "a", "v": 1, "w": 5, "pad": PAD})
    world.wait("1s")
    (batch,) = batches(world.take())
    (row,) = batch.frames
    assert isinstance(row, Row)
    assert row.messages == 3


def test_without_an_interval_each_message_is_a_delta_to_the_one_before() -> None:
    world = begun("")
    world.publish({"k": "a", "v": 2, "w": 1, "pad": PAD}, {"k": "a", "v": 2, "w": 3, "pad": PAD})
    world.publish({"k": "a", "v": 2, "w": 3, "pad": PAD})
    world.flush()
    assert sent(world) == ['~{"k":"a","v":2}', '~{"k":"a","w":3}', '~{"k":"a"}']


@rule("delta-2")
def test_a_value_goes_where_it_is_no_longer_than_the_delta() -> None:
    """Ties go to the value, as in Diffusion."""
    world = World()
    world.topic()
    world.publish({"k": "a", "v": 1})
    world.subscribe("", command=BOTH)
    sent(world)
    world.publish({"k": "a", "v": 2})
    world.flush()
    assert sent(world) == ['{"k":"a","v":2}']


@rule("delta-1")
def test_null_asks_for_the_value() -> None:
    world = begun("conflation=1s")
    world.publish({"k": "a", "v": None, "w": 1, "pad": PAD})
    world.wait("1s")
    assert sent(world) == ['{"k":"a","v":null,"w":1}']


@rule("delta-1")
def test_without_a_snapshot_a_key_begins_with_its_value() -> None:
    world = begun("conflation=1s", command="delta_subscribe")
    for value in (2, 3):
        world.publish({"k": "a", "v": value, "w": 1, "pad": PAD})
        world.wait("1s")
    assert sent(world) == ['{"k":"a","v":3,"w":1}']
    world.publish({"k": "a", "v": 4, "w": 1, "pad": PAD})
    world.wait("1s")
    assert sent(world) == ['~{"k":"a","v":4}']


@rule("delta-1")
def test_who_joins_while_something_is_held_gets_values_until_it_is_flushed() -> None:
    world = begun("conflation=1s")
    world.publish({"k": "a", "v": 2, "w": 1, "pad": PAD})
    world.subscribe("conflation=1s", command=BOTH, session="late")
    sent(world, "late")
    world.publish({"k": "a", "v": 2, "w": 2, "pad": PAD})
    world.wait("1s")
    assert sent(world) == ['~{"k":"a","v":2,"w":2}']
    assert sent(world, "late") == ['{"k":"a","v":2,"w":2}']
    world.publish({"k": "a", "v": 3, "w": 2, "pad": PAD})
    world.wait("1s")
    assert sent(world) == sent(world, "late") == ['~{"k":"a","v":3}']


@rule("delta-1")
@pytest.mark.parametrize("options", ["select=[-/,+/w]", "conflation=1s,select=[-/,+/w]"])
def test_the_key_fields_are_in_it_selected_or_not(options: str) -> None:
    """A client could not tell which record changed."""
    world = World()
    world.topic()
    world.publish({"k": "a", "v": 1, "w": {"x": PAD, "y": 1}})
    world.subscribe(options, command=BOTH)
    sent(world)
    world.publish({"k": "a", "v": 1, "w": {"x": PAD, "y": 2}})
    world.wait("1s")
    assert sent(world) == ['~{"k":"a","w":{"y":2}}']


@rule("delta-1", "delta-4", "merge-1")
def test_what_is_not_told_is_no_base_and_does_not_count_with_what_stands_alone() -> None:
    """The empty entry beside it was never sent."""
    world = World()
    world.topic()
    world.subscribe("conflation=1s,no_empties", command=BOTH)
    sent(world)
    value = f'{{"k":"a","v":1,"pad":"{PAD}"}}'.encode()
    frames = [Frame(n, value, '["a"]', n, exempt=n == 2) for n in (1, 2, 3)]
    world.engine.publish("px", frames, world.now)
    world.wait("1s")
    assert sent(world) == ['{"k":"a","v":1}'], "the second, in full"
    world.engine.publish("px", [Frame(4, value, '["a"]', 4, exempt=True)], world.now)
    world.wait("1s")
    (batch,) = batches(world.take())
    assert [getattr(row, "messages", 1) for row in batch.frames] == [1]


REDUCERS = Reduce.of({"/v": "sum", "/w": "count@n"})
MERGER = Merger("tests:v", lambda current, new: {**new, "v": current["v"] + new["v"], "n": 1})


@rule("merge-8", "merge-6")
@pytest.mark.parametrize("merge", [REDUCERS, MERGER, None])
@pytest.mark.parametrize("options", ["receipt", "no_empties,receipt"])
@pytest.mark.parametrize("command", [BOTH, "delta_subscribe"])
def test_what_was_combined_is_told_in_full_values(
    merge: Reduce | Merger | None, options: str, command: str
) -> None:
    world = World()
    world.topic(merge=Reduce() if merge is None else merge)
    own = f",reduce={REDUCERS}" if merge is None else ""
    world.publish({"k": "a", "v": 1, "w": 1, "pad": PAD})
    world.subscribe(f"conflation=1s,{options}{own}", command=command)
    sent(world)
    for _ in range(2):
        world.publish(*({"k": "a", "v": 1, "w": 1, "pad": PAD} for _ in range(3)))
        world.wait("1s")
        (text,) = sent(world)
        told = json.loads(text)
        assert (told["v"], "n" in told) == (3, True)


@rule("merge-8")
def test_with_reducers_who_asked_for_deltas_is_told_that_there_are_none() -> None:
    """It shares the lane of those who asked for values."""
    definition = Definition(History(1_000), KeySpec.parse("[/k]"))
    options = Options.parse("conflation=1s,no_empties,reduce=[/v:sum]")
    deltas = grant(Request("px", definition, options, command=BOTH))
    values = decide("px", definition, Options.parse("conflation=1s,reduce=[/v:sum]"))
    assert deltas.subscription.lane_id == values.lane_id
    assert deltas.warnings == ("combined messages have no deltas, so every row is a full value",)


# What nobody needs to be told of, and what becomes of it.

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


@rule("removal-3", "delta-6")
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
