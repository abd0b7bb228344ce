"""Joins are compared with a recomputation over all records of both sides."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.pipeline.views.tasks import Message, SentRow, Tasks, view
from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.filter import Filter
from tidegate.keys.path import FieldPath
from tidegate.pipeline.columns.rows import SENT, arrow_schema, shard_of
from tidegate.pipeline.views.groups import View
from tidegate.pipeline.views.joins import ALONE, Join, Routes, Side

ON = ((FieldPath.parse("/symbol"), FieldPath.parse("/ticker")),)
JOIN = Join(ON, FieldPath.parse("/quote"))
COLUMNS = "[SUM(/qty * /quote/bid) AS /worth,COUNT(/quote/bid) AS /n,/quote/bid AS /bid]"
LINKS = ("A", "B", "1", 1, 1.0, None, "", [2])

lefts = st.builds(
    lambda name, symbol, qty, side: message(side, name, symbol, qty),
    st.sampled_from("abcd"), st.sampled_from(LINKS), st.integers(0, 9), st.sampled_from(Side),
)  # fmt: skip
removals = st.builds(
    lambda name, side: Message(f'["{name}"]', None, side),
    st.sampled_from("abcd"),
    st.sampled_from(Side),
)
histories = st.lists(st.lists(st.one_of(lefts, lefts, removals), max_size=8), max_size=5)


def message(side: Side, name: str, link: object, number: int) -> Message:
    """An order `name` of a symbol, or a quote `name` of a ticker."""
    fields = ("symbol", "qty") if side is Side.LEFT else ("ticker", "bid")
    body = {"k": name, fields[0]: link, fields[1]: number}
    return Message(f'["{name}"]', json.dumps(body, separators=(",", ":")).encode(), side)


def order(name: str, symbol: object, qty: int) -> Message:
    return message(Side.LEFT, name, symbol, qty)


def quote(name: str, ticker: object, bid: int) -> Message:
    return message(Side.RIGHT, name, ticker, bid)


class JoinModel:
    """All records of both sides, in the order of their last change."""

    def __init__(self) -> None:
        self.sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})

    def take(self, messages: list[Message]) -> None:
        for record, body, side in messages:
            self.sides[side].pop(record, None)
            if body is not None:
                self.sides[side][record] = json.loads(body)

    def partners(self, left: dict[str, Any]) -> list[Any]:
        """The right records of equal text; NULL is equal to nothing."""
        link = text(left["symbol"])
        return [
            right
            for right in self.sides[Side.RIGHT].values()
            if link is not None and text(right["ticker"]) == link
        ]

    def joined(self) -> dict[str, Any]:
        """Each left record with the newest of its partners."""
        return {
            record: left | ({"quote": found[-1]} if (found := self.partners(left)) else {})
            for record, left in self.sides[Side.LEFT].items()
        }

    def worth(self) -> dict[str, tuple[int | None, int]]:
        """Of each symbol the sum over all pairs, and how many there are."""
        pairs: dict[str, list[int]] = {}
        for left in self.sides[Side.LEFT].values():
            group = json.dumps([left["symbol"]], separators=(",", ":")).replace("1.0", "1")
            bids = [left["qty"] * right["bid"] for right in self.partners(left)]
            if group[1] not in "[n":
                pairs.setdefault(group, []).extend(bids)
        return {
            group: (sum(found) if found else None, len(found)) for group, found in pairs.items()
        }


def text(link: object) -> str | None:
    if link in (None, "") or isinstance(link, list):
        return None
    return link if isinstance(link, str) else str(int(link))  # type: ignore[call-overload]  # a number


@rule("view-12", "view-13")
@pytest.mark.parametrize("shards", [1, 3])
@examples(8)
@given(histories)
def test_a_joined_record_is_the_left_one_with_the_newest_of_the_right(
    shards: int, history: list[list[Message]]
) -> None:
    tasks, model, shown = Tasks(None, shards, JOIN), JoinModel(), dict[str, Any]()
    for messages in history:
        model.take(messages)
        for record, row in tasks.batch(messages).items():
            if row.value is None:
                del shown[record]
            else:
                shown[record] = json.loads(row.value)
        assert shown == model.joined()


@rule("view-13")
@pytest.mark.parametrize("shards", [1, 3])
@examples(8)
@given(histories)
@example([[order("a", "A", 1), quote("q", "A", 5)], [Message('["q"]', None, Side.RIGHT)]])
def test_groups_of_a_join_are_over_all_pairs(shards: int, history: list[list[Message]]) -> None:
    grouped: View = view(COLUMNS, "[/symbol]")
    tasks, model = Tasks(grouped, shards, JOIN), JoinModel()
    shown: dict[str, tuple[int | None, int]] = {}
    for messages in history:
        model.take(messages)
        for group, row in tasks.batch(messages).items():
            if row.value is None:
                del shown[group]
            else:
                found = json.loads(row.value)
                shown[group] = found["worth"], found["n"]
        assert shown == model.worth()


@rule("view-11", "view-13")
def test_either_side_makes_a_row_and_a_message_counts_once() -> None:
    tasks = Tasks(None, 3, JOIN)
    assert tasks.batch([order("a", "A", 1), order("b", "A", 2), quote("q", "B", 5)]) == {
        '["a"]': SentRow(b'{"k":"a","symbol":"A","qty":1}', None, 1),
        '["b"]': SentRow(b'{"k":"b","symbol":"A","qty":2}', None, 1),
    }
    bid = b'"quote":{"k":"p","ticker":"A","bid":%d}}'
    assert tasks.batch([quote("p", "A", 6), quote("p", "A", 7)]) == {
        '["a"]': SentRow(b'{"k":"a","symbol":"A","qty":1,' + bid % 7, None, 2),
        '["b"]': SentRow(b'{"k":"b","symbol":"A","qty":2,' + bid % 7, None, 0),
    }
    assert tasks.batch([]) == {}
    assert tasks.batch([Message('["p"]', None, Side.RIGHT), Message('["b"]', None)]) == {
        '["a"]': SentRow(b'{"k":"a","symbol":"A","qty":1}', None, 1),
        '["b"]': SentRow(None, "deleted", 1),
    }


@rule("view-12")
def test_the_place_of_the_right_record_is_never_the_left_ones_own() -> None:
    tasks = Tasks(None, 1, JOIN)
    found = tasks.batch([Message("a", b'{"quote":1,"symbol":"A"}')])
    assert found == {"a": SentRow(b'{"symbol":"A"}', None, 1)}


LINKS_ON = [("/a", "/x/y"), ("/b", "/z")]
LINKS_JOIN = Join(
    tuple((FieldPath.parse(left), FieldPath.parse(right)) for left, right in LINKS_ON),
    FieldPath.parse("/in/quote"),
)


@rule("view-12")
@pytest.mark.parametrize(
    ("field", "link"),
    [
        ('"1"', '["1","B"]'), ("1", '["1","B"]'), ("1.0", '["1","B"]'), ("true", '["true","B"]'),
        ('"\\u0041"', '["A","B"]'), ('""', None), ("null", None), ("[1]", None), ("{}", None),
    ],
)  # fmt: skip
def test_records_are_joined_by_what_their_fields_say_as_text(field: str, link: str | None) -> None:
    left, right = f'{{"a":{field},"b":"B"}}', f'{{"z":"B","x":{{"y":{field}}}}}'
    assert LINKS_JOIN.link_of(Side.LEFT)(left.encode()) == link
    assert LINKS_JOIN.link_of(Side.RIGHT)(right.encode()) == link
    assert LINKS_JOIN.link_of(Side.LEFT)(b'{"b":"B"}') is None


@rule("view-12")
def test_the_right_record_is_in_its_place_byte_for_byte() -> None:
    left = b'{"a": 1.0, "in": {"quote": 7, "n": 1}}'
    assert LINKS_JOIN.joined(left, b'{"bid": 2.50}') == (
        b'{"a":1.0,"in":{"quote":{"bid": 2.50},"n":1}}'
    )
    assert LINKS_JOIN.joined(left, None) == b'{"a":1.0,"in":{"n":1}}'
    assert LINKS_JOIN.joined(b"[1]", b"{}") == b'{"in":{"quote":{}}}'


ROUTES_JOIN = Join(
    ((FieldPath.parse("/s"), FieldPath.parse("/t")),), FieldPath.parse("/q"),
    (Filter.parse("/n > 0"), None),
)  # fmt: skip


def changed(body: bytes | None, removed: str | None = None) -> pa.Table:
    row = {"key": "a", "file": "", "block": 0, "position": 1, "value": body, "messages": 3}
    row |= {"first_ms": 5, "removed": removed}
    return pa.Table.from_pylist([row], schema=arrow_schema(SENT))


def routed(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    names = ("link", "value", "messages", "removed", "moved")
    return [tuple(row[name] for name in names) for row in rows.to_pylist()]


@rule("view-11", "view-12")
def test_a_record_that_moves_leaves_its_old_link_and_counts_at_the_new_one() -> None:
    routes = Routes(ROUTES_JOIN, Side.LEFT, 4, None)
    first, second = b'{"s":1,"n":1}', b'{"s":2,"n":1}'
    [row] = routes.change(changed(first)).to_pylist()
    assert (row["home"], row["side"]) == (shard_of('["1"]', 4), 0)
    routes = Routes(ROUTES_JOIN, Side.LEFT, 4, routes.table)
    assert routed(routes.change(changed(second))) == [
        ('["2"]', second, 3, None, 0),
        ('["1"]', None, 0, None, 1),
    ]
    nowhere = b'{"n":1}'
    assert routed(routes.change(changed(nowhere)))[0] == (ALONE + "a", nowhere, 3, None, 0)
    # What does not match is gone, and nobody asks twice.
    unmatched = changed(b'{"s":2,"n":0}')
    assert routed(routes.change(unmatched)) == [(ALONE + "a", None, 3, "match", 0)]
    assert routed(routes.change(unmatched)) == []
    assert routes.table.num_rows == 0


@rule("view-12")
def test_a_right_record_without_link_is_dropped() -> None:
    routes = Routes(ROUTES_JOIN, Side.RIGHT, 4, None)
    assert routed(routes.change(changed(b'{"t":null}'))) == []
    routes.change(changed(b'{"t":7}'))
    assert routed(routes.change(changed(None, "deleted"))) == [('["7"]', None, 3, "deleted", 0)]
