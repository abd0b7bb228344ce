"""Structural conflation: reducers, and mergers with their four answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.support.rules import rule
from tests.support.world import World, counts, ids
from tidegate.conflation.frame import Frame, Receipt, Row, Tombstone, receipt_of
from tidegate.conflation.lanes import accumulate
from tidegate.conflation.lanes.accumulate import (
    Accumulator,
    Merges,
    Unreported,
    accumulator_of,
    lifted,
    unreported_of,
)
from tidegate.conflation.lanes.every_message import EveryMessageLane
from tidegate.conflation.subscription import FeedId, LaneId
from tidegate.keys.merging import Merger, Verdict
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec


def begun(merge: Reduce | Merger) -> Callable[[bytes], Accumulator]:
    begin = accumulator_of(merge)
    assert begin is not None
    return begin


def combined(accumulator: Accumulator, *payloads: bytes) -> bytes | None:
    """The message that several become; None as soon as a merger will not have it."""
    for payload in payloads:
        more = accumulator.add(payload)
        if more is None:
            return None
        accumulator = more
    return accumulator.payload()


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
    """A1 B1 C1 A2 C2 become A3 B1 C3, each in the entry of the first."""
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


# Merges that several queues share.


class Summing:
    """A merger that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, current: Any, new: Any) -> Any:
        self.calls += 1
        return {**new, "v": current["v"] + new["v"]}


def queues(
    clients: int, summing: Summing, messages_max: int = 20, policy: str = "conflate"
) -> World:
    """A topic with a counting merger, and sessions that do not read."""
    world = World()
    world.topic(policy=policy, merge=Merger("m:sum", summing))
    for number in range(clients):
        world.session(f"s{number}", messages_max=messages_max)
        world.subscribe(session=f"s{number}")
    return world


def lane_of(world: World) -> EveryMessageLane:
    (feed,) = world.engine.topic("px").feeds.values()
    (lane,) = feed.lanes.values()
    assert isinstance(lane, EveryMessageLane)
    return lane


def kept(lane: EveryMessageLane) -> int:
    assert lane._merges is not None
    return len(lane._merges)


def calls_for(clients: int, policy: str) -> int:
    summing = Summing()
    world = queues(clients, summing, policy=policy)
    for number in range(100):
        world.say(f"a{number} b1 c1")
        world.flush()
    told = [world.hears(f"s{number}") for number in range(clients)]
    rows = " ".join(told[0]).split()
    assert sum(int(row[1:]) for row in rows if row[0] == "a") == sum(range(100))
    assert sum(int(row[1:]) for row in rows if row[0] != "a") == 200
    assert all(each == told[0] for each in told)
    return summing.calls


@rule("queue-9")
@pytest.mark.parametrize("policy", ["conflate", "always"])
def test_a_pair_of_messages_is_merged_once_for_all_equal_clients(policy: str) -> None:
    """Diffusion does not repeat merges of identical pairs for different clients."""
    alone = calls_for(1, policy)
    assert alone > 200
    assert [calls_for(clients, policy) for clients in (2, 4, 8)] == [alone, alone, alone]


def test_queues_of_other_lengths_share_what_they_have_in_common() -> None:
    summing = Summing()
    world = queues(1, summing, messages_max=10)
    world.session("longer", messages_max=25)
    world.subscribe(session="longer")
    world.say(" ".join(f"a{number}" for number in range(26)))
    world.flush()
    assert world.hears("s0") == world.hears("longer") == [f"a{sum(range(26))}"]
    assert summing.calls == 25


def test_merges_are_kept_while_another_queue_has_the_messages_and_no_longer() -> None:
    world = queues(1, Summing(), messages_max=5)
    world.session("longer", messages_max=50)
    world.subscribe(session="longer")
    world.say("a1 a2 a3 a4 a5 a6")
    world.flush()
    assert kept(lane_of(world)) == 5
    world.take("longer")
    world.say("b1")
    world.flush()
    assert kept(lane_of(world)) == 0


def test_merges_take_up_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accumulate, "MERGES_BYTES_MAX", 1_000)
    merges = Merges(Merger("m", lambda current, new: current + new))
    for number in range(100):
        assert merges.answer(b"1", b"%d" % number) == b"%d" % (1 + number)
    assert len(merges) == 4
    merges.forget()
    assert len(merges) == 0


def test_a_failure_is_reported_once_and_is_an_answer() -> None:
    failures: list[str] = []
    merger = Merger("m", lambda current, new: 1 / 0, lambda name, error: failures.append(name))
    merges = Merges(merger)
    assert {merges.answer(b"1", b"2") for _ in range(3)} == {Verdict.NO_CONFLATION}
    assert failures == ["m"]


# Messages that no row reports yet.

SUM = Reduce.of({"/v": "sum"})
RULES = LaneId(FeedId(KeySpec.of(["/k"])), merge=SUM)
_FOLD = accumulator_of(SUM)
assert _FOLD is not None
FOLD = _FOLD


def message(offset: int, value: int = 1) -> Frame:
    return Frame(offset, b'{"v":%d}' % value, "k", offset)


@rule("account-5")
def test_a_row_stands_for_them_and_for_itself() -> None:
    row = Unreported(Receipt(2, 3, 3)).on(message(9))
    assert receipt_of(row) == Receipt(3, 3, 3)
    assert row.payload == message(9).payload


def test_a_delta_stays_one() -> None:
    row = Row(9, b"{}", "k", patch=b"{}", first=9)
    told = Unreported(Receipt(2, 3, 3)).on(row)
    assert isinstance(told, Row)
    assert (told.patch, told.messages) == (b"{}", 3)


@rule("merge-6")
def test_reducers_combine_them_with_the_row() -> None:
    held = Unreported(Receipt(1, 3, 3), SUM, FOLD(b'{"v":5}'))
    row = held.on(lifted(message(9), RULES))
    assert json.loads(row.payload) == {"v": 6}
    assert receipt_of(row) == Receipt(2, 3, 3)


def test_rows_of_other_rules_only_count_them() -> None:
    held = Unreported(Receipt(1, 3, 3), Reduce.of({"/v": "max"}), FOLD(b'{"v":5}'))
    row = lifted(message(9), RULES)
    assert not held.fits(row)
    assert json.loads(held.on(row).payload) == {"v": 1}
    assert held.fits(message(9))


def test_the_older_ones_come_first() -> None:
    older, newer = Unreported(Receipt(1, 3, 3)), Unreported(Receipt(2, 5, 5))
    assert older.then(newer).count == Receipt(3, 3, 3)


@rule("delta-6")
def test_a_removal_that_counts_nothing_leaves_nothing() -> None:
    assert unreported_of(Tombstone(4, b"1", "k")) is None
    gone = Tombstone(4, b"1", "k", first=3, first_ms=3, messages=1)
    assert unreported_of(gone) == Unreported(Receipt(1, 3, 3))
