"""Structural conflation: reducers, and mergers with their four answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.support.rules import rule
from tests.support.world import World, counts, ids
from tidegate.conflation.lanes.accumulate import Accumulator, fold_of
from tidegate.keys.merging import Merger, Verdict
from tidegate.keys.reducers import Reduce


def begun(merge: Reduce | Merger) -> Callable[[bytes], Accumulator]:
    begin = fold_of(merge)
    assert begin is not None
    return begin


def combined(fold: Accumulator, *payloads: bytes) -> bytes | None:
    """The message that several become; None as soon as a merger will not have it."""
    for payload in payloads:
        more = fold.add(payload)
        if more is None:
            return None
        fold = more
    return fold.payload()


@rule("merge-6")
def test_reducers_combine_field_by_field() -> None:
    begin = begun(Reduce.of({"/qty": "sum", "/px": "max"}))
    merged = combined(begin(b'{"qty":1,"px":5,"v":1}'), b'{"qty":2,"px":3,"v":2}')
    assert merged is not None
    assert msgspec.json.decode(merged) == {"qty": 3, "px": 5, "v": 2}


def merger(answer: Any) -> Merger:
    return Merger("m:f", lambda current, new: answer)


@rule("merge-6")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"both": 1}, b'{"both":1}'),
        (Verdict.KEEP_CURRENT, b'{"v": 1}'),
        (Verdict.KEEP_NEW, b'{"v": 2}'),
        (Verdict.NO_CONFLATION, None),
    ],
)
def test_a_merger_has_four_answers(answer: Any, expected: bytes | None) -> None:
    """Diffusion's merge results; kept values go as they were published."""
    begin = begun(merger(answer))
    assert combined(begin(b'{"v": 1}'), b'{"v": 2}') == expected
    joined = begin(b'{"v": 1}').join(begin(b'{"v": 2}'))
    assert (None if joined is None else joined.payload()) == expected


def total(current: Any, new: Any) -> Any:
    """The figure of structural conflation: two successive values are summed."""
    return {**new, "v": current["v"] + new["v"]}


@rule("merge-4", "merge-6")
def test_the_figure_of_structural_conflation_by_sum() -> None:
    """A1 B1 C1 A2 C2 become A3 B1 C3, each in the slot of the first."""
    world = World()
    world.topic(merge=Merger("m:total", total), replaces=True)
    world.subscribe("conflation=1s")
    world.say("a1 b1 c1 a2 c2")
    world.wait("1s")
    assert world.hears() == ["a3 b1 c3"]
    world.say("a5")
    world.wait("1s")
    assert world.hears() == ["a5"]


def test_merge_results_are_shared_by_all_subscribers_of_a_lane() -> None:
    calls = []

    def noted(current: Any, new: Any) -> Any:
        calls.append((current, new))
        return total(current, new)

    world = World()
    world.topic(merge=Merger("m:noted", noted))
    for number in range(20):
        world.subscribe("conflation=1s", session=f"s{number}")
    world.say("a1 a2 a3")
    world.wait("1s")
    assert {tuple(world.hears(f"s{number}")) for number in range(20)} == {("a6",)}
    assert len(calls) == 2


@rule("merge-6")
def test_who_joins_while_a_key_is_held_gets_the_sum_after_its_cut() -> None:
    """No half sums."""
    world = World()
    world.topic(merge=Merger("m:total", total))
    world.subscribe("conflation=1s", session="early")
    world.say("a1 a2")
    world.subscribe("conflation=1s", session="late")
    world.say("a10 a20")
    world.wait("1s")
    assert counts(world.take("early")) == [("a33", 4, 1)]
    assert counts(world.take("late")) == [("a30", 2, 3)]


@rule("merge-6")
def test_without_conflation_both_go_in_order() -> None:
    world = World()
    world.topic(merge=merger(Verdict.NO_CONFLATION))
    world.subscribe("conflation=1s")
    world.say("a1 b1 a2")
    world.wait("1s")
    assert world.hears() == ["a1 b1 a2"]


@rule("delta-6", "merge-6")
def test_a_merger_is_not_asked_about_what_nobody_was_told_of() -> None:
    """It may decline, and the messages count with the next row all the same."""
    world = World()
    world.topic(merge=merger(Verdict.NO_CONFLATION))
    world.subscribe("conflation=1s,oof,receipt", wanted="/v < 5")
    world.say("a1 a9")
    world.wait("1s")
    assert world.hears() == []
    world.say("a2")
    world.wait("1s")
    assert counts(world.take()) == [("a2", 2, 1)]


@rule("resume-7")
def test_no_id_behind_which_a_part_of_a_sum_would_come_again() -> None:
    world = World()
    world.topic()
    world.subscribe("conflation=1s,pace=key,reduce=[/v:sum]")
    world.say("a1")
    world.wait("100ms")
    world.say("b1 a10")
    world.wait("900ms")
    assert ids(world.take()) == [None], "b is held since before the last of a"
    world.wait("1s")
    assert ids(world.take()) == [3]


def first_of(current: Any, new: Any) -> Any:
    """Keeps the oldest message of each key."""
    return Verdict.KEEP_CURRENT


@rule("merge-6")
@pytest.mark.parametrize("options", ["conflation=1s", "conflation=1s,pace=key", ""])
def test_a_message_that_a_merger_keeps_stays_where_it_is(options: str) -> None:
    """Diffusion's `current` stays put, and the new message is not queued."""
    world = World()
    world.topic(policy="always", merge=Merger("m:first", first_of))
    world.subscribe(options)
    world.say("a1 b1 a2")
    world.wait("2s")
    assert world.hears() == ["a1 b1"]


@rule("merge-6")
def test_a_kept_message_stays_where_it_is_for_a_member_that_is_behind() -> None:
    world = World()
    world.topic(merge=Merger("m:first", first_of))
    world.subscribe("conflation=1s,receipt")
    world.say("a1 b1")
    world.wait("2s")
    world.say("a2")
    world.wait("2s")
    assert counts(world.take()) == [("a1", 2, 1), ("b1", 1, 2)]


@rule("merge-6")
def test_a_kept_message_stays_where_it_is_in_a_full_queue() -> None:
    world = World()
    world.topic(merge=Merger("m:first", first_of))
    world.session(messages_max=2)
    world.subscribe("receipt")
    world.say("a1 b1 a2")
    world.flush()
    assert counts(world.take()) == [("a1", 2, 1), ("b1", 1, 2)]
