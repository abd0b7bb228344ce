"""Entries by key: which of them a message may join, and their order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.manual_driver import make_frames, token
from tests.support.rules import rule
from tidegate.conflation.frame import Frame, Receipt, RemovalReason, Row, Tombstone, receipt_of
from tidegate.conflation.lanes.member import Backlog
from tidegate.conflation.lanes.part import PendingPart
from tidegate.conflation.lanes.pending import Pending, PendingKeys
from tidegate.conflation.subscription import FeedId, LaneId
from tidegate.keys import patch as patches
from tidegate.keys.merging import Matcher, Merger, Verdict
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec

KEY = KeySpec.parse("[/k]")


def held(text: str, **rules: Any) -> PendingKeys:
    """The entries of an interval in which these messages came; `!a1` is one that is sealed."""
    entries = PendingKeys(LaneId(FeedId(KEY), 1_000_000_000, "key", **rules))
    frames = make_frames(text.replace("!", ""))
    for word, frame in zip(text.split(), frames, strict=True):
        part = PendingPart(0, frame, Receipt(1, frame.offset, 0), is_new=True)
        sealed = word.startswith("!")
        if not entries.merge(frame.key, part, sealed=sealed):
            entries.open(frame.key, part, sealed=sealed)
    return entries


def flushed(entries: PendingKeys) -> str:
    """Rows in the order of a flush, each with the messages that it stands for."""
    rows = []
    for entry in sorted(entries.all(), key=lambda entry: entry.send_order):
        part = entry.whole()
        assert part is not None
        assert part.count is not None
        rows.append(f"{token(part.frame)}*{part.count.messages}")
    return " ".join(rows)


@rule("merge-4")
def test_append_puts_the_survivor_at_the_end() -> None:
    """Rule merge-4, and the figure of simple append conflation."""
    assert flushed(held("a1 b1 c1 a2 c2")) == "b1*1 a2*2 c2*2"


@rule("merge-4")
def test_replace_gives_the_survivor_the_slot_of_the_first() -> None:
    """Rule merge-4, and the figure of simple replace conflation."""
    assert flushed(held("a1 b1 c1 a2 c2", replaces=True)) == "a2*2 b1*1 c2*2"


@rule("merge-1")
def test_a_sealed_message_neither_replaces_nor_is_replaced() -> None:
    assert flushed(held("a1 !a2 a3 !a4")) == "a2*1 a3*2 a4*1"


@rule("merge-5")
def test_only_messages_that_match_replace_one_another() -> None:
    """Fields of the message."""
    by_group = held("aX1 aY2 aX3 aY4 aX5", match=KeySpec.parse("[/g]"))
    assert flushed(by_group) == "aY4*2 aX5*3"


@rule("merge-5")
def test_a_registered_matcher_looks_from_the_newest_slot_to_the_oldest() -> None:
    """As Diffusion's scan of a queue."""
    parity = Matcher("m:parity", lambda held, new: held["v"] % 2 == new["v"] % 2)
    assert flushed(held("a1 a2 a3 a4", match=parity)) == "a3*2 a4*2"


def test_a_slot_is_taken_once() -> None:
    entries = held("a1 b1")
    first = entries.first()
    assert first is not None
    assert entries.remove(first)
    assert not entries.remove(first)
    assert [entry.board_key for entry in entries.pop_all()] == ['["b"]']
    assert entries.first() is None


# Parts: messages of one key as one, put together in any grouping.

RULES = LaneId(FeedId(KeySpec.of(["/k"])))


def message(offset: int, *, is_new: bool = False, patch: bytes | None = None) -> PendingPart:
    frame = Frame(offset, b'{"v":%d}' % offset, "k", offset)
    return PendingPart(0, frame, Receipt(1, offset, offset), is_new=is_new, patch=patch)


def removal(offset: int) -> PendingPart:
    gone = Tombstone(offset, b'{"v":0}', "k")
    return PendingPart(0, gone, None, is_new=False, gone=gone)


def joined(parts: list[PendingPart]) -> PendingPart:
    whole = parts[0]
    for part in parts[1:]:
        together = whole.then(part)
        assert together is not None
        whole = together
    return whole


@rule("delta-6")
@given(st.lists(st.booleans(), min_size=2, max_size=8), st.data())
def test_it_makes_no_difference_where_parts_are_put_together_first(
    values: list[bool], draw: st.DataObject
) -> None:
    """Whoever missed several flushes gets what one would have been."""
    parts = [message(at) if is_value else removal(at) for at, is_value in enumerate(values, 1)]
    cut = draw.draw(st.integers(1, len(parts) - 1))
    assert joined([joined(parts[:cut]), joined(parts[cut:])]) == joined(parts)


@rule("delta-6")
def test_counts_add_up_and_the_first_stays_the_first() -> None:
    assert joined([message(3), message(5), message(9)]).count == Receipt(3, 3, 3)


@rule("removal-3")
def test_a_key_that_came_and_went_is_no_row() -> None:
    unseen = joined([message(1, is_new=True), removal(2)])
    assert unseen.row(b"", None, RULES) is None
    left = joined([message(1), removal(2)]).row(b"", None, RULES)
    assert left == Tombstone(2, b'{"v":0}', "k", first=1, first_ms=1, messages=1)


@rule("removal-3", "delta-3")
def test_out_and_back_is_a_full_value() -> None:
    back = joined([removal(1), message(2, is_new=True)])
    assert (back.gone, back.patch, back.is_new) == (None, None, False)


@rule("delta-1")
def test_patches_compose_and_one_that_is_missing_asks_for_the_value() -> None:
    first, second = message(1, patch=b'{"a":1,"b":1}'), message(2, patch=b'{"b":2}')
    whole = joined([first, second])
    assert whole.patch == patches.compose(b'{"a":1,"b":1}', b'{"b":2}')
    assert joined([first, message(3)]).patch is None


@rule("delta-6")
def test_a_later_member_gets_only_the_later_part_of_an_entry() -> None:
    """Nothing from before its cut."""
    early, late = message(1), message(2)
    newest = PendingPart(1, late.frame, late.count, is_new=False)
    entry = Pending("k", newest, 0, 2, 1, older=(early,))
    whole, own = entry.whole(), entry.whole(1)
    assert whole is not None
    assert own is not None
    assert (whole.count, own.count) == (Receipt(2, 1, 1), Receipt(1, 2, 2))
    assert entry.whole(2) is None


def put_together(*flushes: list[tuple[PendingPart, bool]]) -> list[tuple[int, int]]:
    """The newest offset and the first of each row of flushes; `True` is a sealed part."""
    together = PendingKeys(RULES)
    for parts in flushes:
        entries = PendingKeys(RULES)
        for part, sealed in parts:
            if entries.merge("k", part, sealed=sealed) is None:
                entries.open("k", part, sealed=sealed)
        together.absorb(entries.listed())
    rows = [entry.whole() for entry in sorted(together.all(), key=lambda entry: entry.send_order)]
    return [(row.frame.offset, row.count.first) for row in rows if row and row.count]


@rule("delta-6", "merge-1")
def test_a_key_that_left_behind_a_sealed_message_is_back_in_a_row_of_its_own() -> None:
    """Whether flushes are put together one by one, or the later ones first."""
    before = [(message(1), False), (message(2), True)]
    left, back = [(message(3), False), (removal(4), False)], [(message(5, is_new=True), False)]
    assert put_together(before, left, back) == [(1, 1), (2, 2), (5, 3)]
    assert put_together(before, left + back) == [(1, 1), (2, 2), (5, 3)]


# A backlog: a queue put together where a board cannot answer for it.

KEYED = FeedId(KeySpec.of(["/k"]))
PLAIN = FeedId(KeySpec())


def frame(offset: int, payload: str, key: str = "a", **more: Any) -> Frame:
    return Frame(offset, payload.encode(), key, **more)


def delta(offset: int, payload: str, patch: str | None, key: str = "a") -> Row:
    told = None if patch is None else patch.encode()
    return Row(offset, payload.encode(), key, first=offset, messages=1, patch=told)


def gone(offset: int, key: str = "a") -> Tombstone:
    return Tombstone(offset, b"{}", key, reason=RemovalReason.DELETED)


def always_there(key: str, offset: int) -> bool:
    return True


def conflated(rules: LaneId, *rows: Frame) -> list[str]:
    backlog = Backlog(rules)
    backlog.absorb(rows, always_there)
    return [said(row) for row in backlog.rows()]


def said(row: Frame) -> str:
    patch = row.patch if isinstance(row, Row) else None
    if row.removed:
        return f"-{row.key}"
    return row.payload.decode() if patch is None else f"~{patch.decode()}"


def test_the_newest_value_of_each_key_in_publication_order() -> None:
    rows = [frame(1, "A1", "a"), frame(2, "B1", "b"), frame(3, "C1", "c"), frame(4, "A2", "a")]
    assert conflated(LaneId(KEYED), *rows) == ["B1", "C1", "A2"]


@rule("merge-4")
def test_with_replace_the_survivor_takes_the_place_of_what_it_replaces() -> None:
    """Diffusion's own vector: A1 B1 C1 A2 C2."""
    rows = [
        frame(at, text, text[0]) for at, text in enumerate(("A1", "B1", "C1", "A2", "C2"), start=1)
    ]
    assert conflated(LaneId(KEYED, replaces=True), *rows) == ["A2", "B1", "C2"]
    assert conflated(LaneId(KEYED), *rows) == ["B1", "A2", "C2"]


@rule("queue-9")
@pytest.mark.parametrize(
    ("value", "patches", "told"),
    [
        # one composite delta, of which each field has its last word
        ('{"k":"a","v":"acd","w":"long enough"}', ['{"v":"ab"}', '{"v":"acd"}'], '~{"v":"acd"}'),
        ('{"v":1,"w":2,"x":"longer"}', ['{"v":1}', '{"w":2}'], '~{"v":1,"w":2}'),
        # ties go to the value
        ('{"v":1,"w":2}', ['{"v":1}', '{"w":2}'], '{"v":1,"w":2}'),
        # a value in the queue is what everything after it is against
        ('{"v":1,"w":2,"x":"longer"}', [None, '{"w":2}'], '{"v":1,"w":2,"x":"longer"}'),
        ('{"v":1,"w":2,"x":"longer"}', ['{"w":2}', None], '{"v":1,"w":2,"x":"longer"}'),
    ],
)
def test_one_value_or_one_composite_delta_the_fewer_bytes(
    value: str, patches: list[str | None], told: str
) -> None:
    rows = [delta(at, value, patch) for at, patch in enumerate(patches, start=1)]
    assert conflated(LaneId(KEYED, delta=True), *rows) == [told]


def test_beside_an_exempt_message_of_its_key_a_delta_has_no_base() -> None:
    exempt = Row(2, b'{"v":2,"w":"long"}', "a", 0, True, first=2, patch=b'{"v":2}')
    rows = [
        delta(1, '{"v":1,"w":"long"}', '{"v":1}'),
        exempt,
        delta(3, '{"v":3,"w":"long"}', '{"v":3}'),
    ]
    backlog = Backlog(LaneId(KEYED, delta=True, replaces=True))
    backlog.absorb(rows, always_there)
    assert [said(row) for row in backlog.rows()] == ['{"v":2,"w":"long"}', '{"v":3,"w":"long"}']
    backlog.drop_sent(1)
    backlog.absorb([delta(4, '{"v":4,"w":"long"}', '{"v":4}')], always_there)
    assert [said(row) for row in backlog.rows()] == ['{"v":4,"w":"long"}']


def test_reducers_combine_what_is_queued() -> None:
    rules = LaneId(KEYED, merge=Reduce.of({"/v": "sum"}))
    assert conflated(rules, frame(1, '{"v":1}'), frame(2, '{"v":2}')) == ['{"v":3}']


def verdict(current: Any, new: Any) -> Any:
    return {"keep": Verdict.KEEP_CURRENT, "new": Verdict.KEEP_NEW, "both": Verdict.NO_CONFLATION}[
        new
    ]


@pytest.mark.parametrize(
    ("new", "told"), [("keep", ['"old"']), ("new", ['"new"']), ("both", ['"old"', '"both"'])]
)
def test_a_merger_has_its_say(new: str, told: list[str]) -> None:
    rules = LaneId(KEYED, merge=Merger("m", verdict))
    assert conflated(rules, frame(1, '"old"'), frame(2, f'"{new}"')) == told


def test_what_does_not_match_stands_side_by_side() -> None:
    by_field = LaneId(PLAIN, match=KeySpec.of(["/k"]))
    rows = [frame(1, '{"k":1,"v":1}', ""), frame(2, '{"k":2}', ""), frame(3, '{"k":1,"v":2}', "")]
    assert conflated(by_field, *rows) == ['{"k":2}', '{"k":1,"v":2}']
    never = LaneId(PLAIN, match=Matcher("m", lambda current, new: False))
    assert len(conflated(never, *rows)) == 3


def test_a_key_that_came_and_went_has_no_row() -> None:
    backlog = Backlog(LaneId(KEYED, oof=True))
    backlog.absorb([frame(5, "A"), gone(6)], lambda key, offset: False)
    assert backlog.rows() == []
    backlog.absorb([frame(7, "A2")], lambda key, offset: False)
    assert [said(row) for row in backlog.rows()] == ["A2"]


def test_a_key_that_was_there_has_a_removal() -> None:
    assert conflated(LaneId(KEYED, oof=True), frame(5, "A"), gone(6)) == ["-a"]


def test_rows_stand_for_all_that_they_replaced() -> None:
    backlog = Backlog(LaneId(KEYED))
    backlog.absorb([frame(1, "A1"), frame(2, "A2"), frame(3, "A3")], always_there)
    (row,) = backlog.rows()
    assert (receipt_of(row).messages, receipt_of(row).first) == (3, 1)


def test_what_has_gone_is_not_put_together_with_what_comes() -> None:
    backlog = Backlog(LaneId(KEYED))
    backlog.absorb([frame(1, "A1", "a"), frame(2, "B1", "b")], always_there)
    backlog.drop_sent(1)
    backlog.absorb([frame(3, "A2", "a")], always_there)
    rows = backlog.rows()
    assert [said(row) for row in rows] == ["B1", "A2"]
    assert receipt_of(rows[1]).messages == 1
