"""Structural conflation: reducers, and mergers with their four answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.support.manual_driver import ManualDriver, counts, ids
from tests.support.rules import rule
from tidegate.conflation.frame import Frame, Receipt, Row, Tombstone, receipt_of
from tidegate.conflation.lanes import accumulate
from tidegate.conflation.lanes.accumulate import (
    Accumulator,
    CombinedRow,
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


def combined(begin: Callable[[bytes], Accumulator], one: bytes, later: bytes) -> bytes | None:
    """The message that two become; None if a merger declines."""
    joined = begin(one).join(begin(later))
    return None if joined is None else joined.payload()


@rule("merge-6")
def test_reducers_combine_field_by_field() -> None:
    begin = begun(Reduce.of({"/qty": "sum", "/px": "max"}))
    merged = combined(begin, b'{"qty":1,"px":5,"v":1}', b'{"qty":2,"px":3,"v":2}')
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
    assert combined(begun(merger(answer)), b'{"v": 1}', b'{"v": 2}') == expected


def total(current: Any, new: Any) -> Any:
    """The figure of structural conflation: two successive values are summed."""
    return {**new, "v": current["v"] + new["v"]}


@rule("merge-4", "merge-6")
def test_the_figure_of_structural_conflation_by_sum() -> None:
    """A1 B1 C1 A2 C2 become A3 B1 C3, each in the entry of the first."""
    driver = ManualDriver()
    driver.topic(merge=Merger("m:total", total), replaces=True)
    driver.subscribe("conflation=1s")
    driver.publish("a1 b1 c1 a2 c2")
    driver.wait("1s")
    assert driver.received() == ["a3 b1 c3"]
    driver.publish("a5")
    driver.wait("1s")
    assert driver.received() == ["a5"]


def test_merge_results_are_shared_by_all_subscribers_of_a_lane() -> None:
    calls = []

    def noted(current: Any, new: Any) -> Any:
        calls.append((current, new))
        return total(current, new)

    driver = ManualDriver()
    driver.topic(merge=Merger("m:noted", noted))
    for number in range(20):
        driver.subscribe("conflation=1s", session=f"s{number}")
    driver.publish("a1 a2 a3")
    driver.wait("1s")
    assert {tuple(driver.received(f"s{number}")) for number in range(20)} == {("a6",)}
    assert len(calls) == 2


@rule("merge-6")
def test_who_joins_while_a_key_is_held_gets_the_sum_after_its_cut() -> None:
    """No half sums."""
    driver = ManualDriver()
    driver.topic(merge=Merger("m:total", total))
    driver.subscribe("conflation=1s", session="early")
    driver.publish("a1 a2")
    driver.subscribe("conflation=1s", session="late")
    driver.publish("a10 a20")
    driver.wait("1s")
    assert counts(driver.take("early")) == [("a33", 4, 1)]
    assert counts(driver.take("late")) == [("a30", 2, 3)]


@rule("merge-6")
def test_without_conflation_both_go_in_order() -> None:
    driver = ManualDriver()
    driver.topic(merge=merger(Verdict.NO_CONFLATION))
    driver.subscribe("conflation=1s")
    driver.publish("a1 b1 a2")
    driver.wait("1s")
    assert driver.received() == ["a1 b1 a2"]


@rule("delta-6", "merge-6")
def test_a_merger_is_not_asked_about_unreported_messages() -> None:
    """It may decline, and the messages count with the next row all the same."""
    driver = ManualDriver()
    driver.topic(merge=merger(Verdict.NO_CONFLATION))
    driver.subscribe("conflation=1s,oof,receipt", wanted="/v < 5")
    driver.publish("a1 a9")
    driver.wait("1s")
    assert driver.received() == []
    driver.publish("a2")
    driver.wait("1s")
    assert counts(driver.take()) == [("a2", 2, 1)]


@rule("resume-7")
def test_no_id_behind_which_a_part_of_a_sum_would_come_again() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,pace=key,reduce=[/v:sum]")
    driver.publish("a1")
    driver.wait("100ms")
    driver.publish("b1 a10")
    driver.wait("900ms")
    assert ids(driver.take()) == [None], "b is held since before the last of a"
    driver.wait("1s")
    assert ids(driver.take()) == [3]


def first_of(current: Any, new: Any) -> Any:
    """Keeps the oldest message of each key."""
    return Verdict.KEEP_CURRENT


@rule("merge-6")
@pytest.mark.parametrize("options", ["conflation=1s", "conflation=1s,pace=key", ""])
def test_a_message_that_a_merger_keeps_stays_where_it_is(options: str) -> None:
    """Diffusion's `current` stays put, and the new message is not queued."""
    driver = ManualDriver()
    driver.topic(policy="always", merge=Merger("m:first", first_of))
    driver.subscribe(options)
    driver.publish("a1 b1 a2")
    driver.wait("2s")
    assert driver.received() == ["a1 b1"]


@rule("merge-6")
def test_a_kept_message_stays_where_it_is_for_a_member_that_is_behind() -> None:
    driver = ManualDriver()
    driver.topic(merge=Merger("m:first", first_of))
    driver.subscribe("conflation=1s,receipt")
    driver.publish("a1 b1")
    driver.wait("2s")
    driver.publish("a2")
    driver.wait("2s")
    assert counts(driver.take()) == [("a1", 2, 1), ("b1", 1, 2)]


@rule("merge-6")
def test_a_kept_message_stays_where_it_is_in_a_full_queue() -> None:
    driver = ManualDriver()
    driver.topic(merge=Merger("m:first", first_of))
    driver.session(messages_max=2)
    driver.subscribe("receipt")
    driver.publish("a1 b1 a2")
    driver.flush()
    assert counts(driver.take()) == [("a1", 2, 1), ("b1", 1, 2)]


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
) -> ManualDriver:
    """A topic with a counting merger, and sessions that do not read."""
    driver = ManualDriver()
    driver.topic(policy=policy, merge=Merger("m:sum", summing))
    for number in range(clients):
        driver.session(f"s{number}", messages_max=messages_max)
        driver.subscribe(session=f"s{number}")
    return driver


def lane_of(driver: ManualDriver) -> EveryMessageLane:
    (feed,) = driver.engine.topic("px").feeds.values()
    (lane,) = feed.lanes.values()
    assert isinstance(lane, EveryMessageLane)
    return lane


def kept(lane: EveryMessageLane) -> int:
    assert lane._merges is not None
    return len(lane._merges)


def calls_for(clients: int, policy: str) -> int:
    summing = Summing()
    driver = queues(clients, summing, policy=policy)
    for number in range(100):
        driver.publish(f"a{number} b1 c1")
        driver.flush()
    told = [driver.received(f"s{number}") for number in range(clients)]
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
    driver = queues(1, summing, messages_max=10)
    driver.session("longer", messages_max=25)
    driver.subscribe(session="longer")
    driver.publish(" ".join(f"a{number}" for number in range(26)))
    driver.flush()
    assert driver.received("s0") == driver.received("longer") == [f"a{sum(range(26))}"]
    assert summing.calls == 25


def test_merges_are_kept_while_another_queue_has_the_messages_and_no_longer() -> None:
    driver = queues(1, Summing(), messages_max=5)
    driver.session("longer", messages_max=50)
    driver.subscribe(session="longer")
    driver.publish("a1 a2 a3 a4 a5 a6")
    driver.flush()
    assert kept(lane_of(driver)) == 5
    driver.take("longer")
    driver.publish("b1")
    driver.flush()
    assert kept(lane_of(driver)) == 0


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


@rule("merge-6")
@pytest.mark.parametrize(
    ("older", "newer", "merge", "payload"),
    [
        (b'{"v":5}', b'{"v":2}', SUM, b'{"v":7}'),
        (b'{"v":5}', None, SUM, b'{"v":5}'),
        (None, b'{"v":2}', SUM, b'{"v":2}'),
        (None, None, None, None),
    ],
)
def test_what_no_row_reports_is_joined(
    older: bytes | None, newer: bytes | None, merge: Reduce | None, payload: bytes | None
) -> None:
    joined = _unreported(3, older).then(_unreported(5, newer))
    assert joined.count == Receipt(2, 3, 3)
    assert joined.merge == merge
    assert (joined.accumulator and joined.accumulator.payload()) == payload


def _unreported(offset: int, payload: bytes | None) -> Unreported:
    count = Receipt(1, offset, offset)
    return Unreported(count) if payload is None else Unreported(count, SUM, FOLD(payload))


def test_results_of_other_rules_are_not_joined() -> None:
    """The later ones stay: their rules are those of coming rows."""
    most = Reduce.of({"/v": "max"})
    older = Unreported(Receipt(1, 3, 3), most, begun(most)(b'{"v":5}'))
    joined = older.then(_unreported(5, b'{"v":2}'))
    assert (joined.count, joined.merge) == (Receipt(2, 3, 3), SUM)
    assert joined.accumulator is not None
    assert joined.accumulator.payload() == b'{"v":2}'


def test_a_sum_does_not_continue_in_a_maximum() -> None:
    most = LaneId(RULES.feed, merge=Reduce.of({"/v": "max"}))
    row, other = lifted(message(9), RULES), lifted(message(10), most)
    assert isinstance(row, CombinedRow)
    assert isinstance(other, CombinedRow)
    assert row.meets(row)
    assert not row.meets(other)


def test_rows_meet_if_their_match_is_equal() -> None:
    by_side = LaneId(RULES.feed, merge=SUM, match=KeySpec.of(["/side"]))
    buy, sell = (
        lifted(Frame(1, b'{"v":1,"side":"%s"}' % side, "k", 1), by_side) for side in (b"B", b"S")
    )
    assert isinstance(buy, CombinedRow)
    assert isinstance(sell, CombinedRow)
    assert buy.meets(buy)
    assert not buy.meets(sell)
