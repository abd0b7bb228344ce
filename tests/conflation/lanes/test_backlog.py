"""A backlog: a queue put together where a board cannot answer for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rules import rule
from tidegate.conflation.frame import Frame, RemovalReason, Row, Tombstone, receipt_of
from tidegate.conflation.lane_id import FeedId, LaneId
from tidegate.conflation.lanes.backlog import Backlog
from tidegate.keys.merging import Matcher, Merger, Verdict
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec

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
    backlog.took(1)
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


def test_a_key_that_came_and_went_is_told_of_by_nobody() -> None:
    backlog = Backlog(LaneId(KEYED, oof=True))
    backlog.absorb([frame(5, "A"), gone(6)], lambda key, offset: False)
    assert backlog.rows() == []
    backlog.absorb([frame(7, "A2")], lambda key, offset: False)
    assert [said(row) for row in backlog.rows()] == ["A2"]


def test_a_key_that_was_there_is_told_to_be_gone() -> None:
    assert conflated(LaneId(KEYED, oof=True), frame(5, "A"), gone(6)) == ["-a"]


def test_rows_stand_for_all_that_they_replaced() -> None:
    backlog = Backlog(LaneId(KEYED))
    backlog.absorb([frame(1, "A1"), frame(2, "A2"), frame(3, "A3")], always_there)
    (row,) = backlog.rows()
    assert (receipt_of(row).messages, receipt_of(row).first) == (3, 1)


def test_what_has_gone_is_not_put_together_with_what_comes() -> None:
    backlog = Backlog(LaneId(KEYED))
    backlog.absorb([frame(1, "A1", "a"), frame(2, "B1", "b")], always_there)
    backlog.took(1)
    backlog.absorb([frame(3, "A2", "a")], always_there)
    rows = backlog.rows()
    assert [said(row) for row in rows] == ["B1", "A2"]
    assert receipt_of(rows[1]).messages == 1
