"""Queries of the state of the world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from tests.support.rules import rule
from tidegate.app.refusals import Refused
from tidegate.app.topics.query import (
    EXAMINED_AT_ONCE,
    EXAMINED_FIRST,
    STEP_S,
    SowQuery,
    matching,
)
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Frame, Tombstone
from tidegate.keys.filter import Filter
from tidegate.keys.order import Order

RECORDS = [
    Frame(n, b'{"k":%d,"v":%d}' % (n, value), f"[{n}]")
    for n, value in enumerate([3, 1, 2, 1], start=1)
]


async def keys(**values: str) -> list[str]:
    query = SowQuery.read(values, Kind.JSON, 4_096)
    return [row.key for row in await query.rows(RECORDS, "px")]


async def test_everything_by_last_change() -> None:
    assert await keys() == ["[1]", "[2]", "[3]", "[4]"]
    assert await keys(filter=" ", order_by="", select="") == await keys()


@rule("topic-10")
async def test_those_that_match_in_an_order_with_ties_by_key() -> None:
    assert await keys(filter="/v < 3") == ["[2]", "[3]", "[4]"]
    assert await keys(order_by="/v") == ["[2]", "[4]", "[3]", "[1]"]
    assert await keys(order_by="/v DESC", filter="/v > 1") == ["[1]", "[3]"]


async def test_a_window_is_cut_from_the_order() -> None:
    assert await keys(order_by="/v DESC", top_n="2") == ["[1]", "[3]"]
    assert await keys(order_by="/v DESC", top_n="2", skip_n="1") == ["[3]", "[2]"]
    assert await keys(top_n="2") == ["[1]", "[2]"]
    assert await keys(top_n="2", skip_n="9") == []


def test_a_row_has_the_fields_that_are_asked_for() -> None:
    query = SowQuery.read({"select": "[-/,+/v]"}, Kind.JSON, 4_096)
    shown = query.shown(RECORDS[0])
    assert (shown.payload, shown.key, shown.offset) == (b'{"v":3}', "[1]", 1)


REFUSED = [
    ({"filter": "/v >"}, "filter-invalid", 4),
    ({"order_by": "/v UP"}, "options-invalid", 3),
    ({"select": "-/"}, "options-invalid", 0),
    ({"top_n": "0"}, "options-invalid", None),
    ({"top_n": "1_0"}, "options-invalid", None),
    ({"skip_n": "1"}, "options-invalid", None),
    ({"filter": "x" * 5_000}, "filter-invalid", 4_096),
]


@pytest.mark.parametrize(("values", "code", "position"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_cannot_be_read_is_refused(
    values: dict[str, str], code: str, position: int | None
) -> None:
    with pytest.raises(Refused) as refused:
        SowQuery.read(values, Kind.JSON, 4_096)
    assert (refused.value.code, refused.value.position) == (code, position)


@pytest.mark.parametrize("kind", [Kind.TEXT, Kind.BINARY])
@pytest.mark.parametrize("name", ["filter", "order_by", "select"])
def test_a_text_has_no_fields_to_ask_for(kind: Kind, name: str) -> None:
    with pytest.raises(Refused):
        SowQuery.read({name: "TRUE"}, kind, 4_096)


async def test_other_work_runs_while_many_records_are_examined() -> None:
    records = RECORDS * EXAMINED_AT_ONCE
    task = asyncio.create_task(matching(records, Filter.parse("/v = 1"), "px"))
    iterations = 0
    while not task.done():
        iterations += 1
        await asyncio.sleep(0)
    assert iterations >= 4
    assert len(await task) == 2 * EXAMINED_AT_ONCE


@pytest.mark.parametrize(
    ("each_s", "at_once"),
    [
        pytest.param(STEP_S / 20, 20, id="slow"),
        pytest.param(2 * STEP_S, 1, id="slower-than-a-step"),
        pytest.param(0.0, EXAMINED_AT_ONCE, id="cheap"),
    ],
)
async def test_a_step_looks_at_as_many_as_its_time_allows(
    monkeypatch: pytest.MonkeyPatch, each_s: float, at_once: int
) -> None:
    now_s, looked = 0.0, 0

    class Counted:
        @staticmethod
        def matcher(_topic: str) -> Callable[[bytes, str], bool]:
            def matches(_payload: bytes, _key: str) -> bool:
                nonlocal now_s, looked
                now_s, looked = now_s + each_s, looked + 1
                return True

            return matches

    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    records = RECORDS * EXAMINED_AT_ONCE
    task = asyncio.create_task(matching(records, cast("Filter", Counted()), "px"))
    iterations: list[int] = []
    while not task.done():
        before = looked
        await asyncio.sleep(0)
        iterations.append(looked - before)
    assert iterations[0] <= EXAMINED_FIRST
    assert max(iterations[7:]) == at_once  # until then pieces grow
    assert await task == records


@pytest.mark.parametrize("top_n", [None, 1, 2 * EXAMINED_AT_ONCE + 1])
async def test_many_are_put_in_order_in_pieces(top_n: int | None) -> None:
    records = [
        Frame(n, b'{"v":%d}' % (n * 7_919 % 3_001), f"[{n}]")
        for n in range(1, 3 * EXAMINED_AT_ONCE + 3)
    ]
    query = SowQuery(order=Order.parse("/v DESC"), top_n=top_n, skip_n=0)
    found = await query.rows(records, "px")
    ranked = sorted(records, key=lambda record: -(record.offset * 7_919 % 3_001))
    assert found == ranked[:top_n]


@pytest.mark.parametrize("wanted", [None, "/v = 1"])
async def test_tombstones_are_no_rows(wanted: str | None) -> None:
    kept, gone = Frame(1, b'{"v":1}', "[1]"), Tombstone(2, b'{"v":1}', "[2]")
    parsed = None if wanted is None else Filter.parse(wanted)
    found = await matching([kept, gone], parsed, "px")
    assert found == [kept]


async def test_all_records_are_listed_in_turn_with_others() -> None:
    task = asyncio.create_task(matching(RECORDS * (30 * EXAMINED_AT_ONCE), None, "px"))
    iterations = 0
    while not task.done():
        iterations += 1
        await asyncio.sleep(0)
    assert iterations >= 4
    assert len(await task) == len(RECORDS) * 30 * EXAMINED_AT_ONCE
