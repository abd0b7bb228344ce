"""The JavaScript client orders rows as the gateway does, whatever the rows and the order are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev import ROOT
from tests.js.node import Node, running_node
from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.order import Column, Order
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import group_key

MODULE = (ROOT / "clients" / "js" / "client" / "order.js").as_uri()
IN_ORDER = """
const { inOrder } = state.order;
return given.map(([order, rows]) => {
  const read = rows.map(([key, value], at) =>
    ({ topic: "px", key: parse(key), value: parse(value), at }));
  return inOrder(read, order).map(({ at }) => at);
});
"""


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running_node() as node:
        node.run(f"state.order = await import({json.dumps(MODULE)})")
        yield node


letters = st.sampled_from([*"aB10.,'\"/[]$ \\", "é", "\u2028", "\ue000", "\uffff", "\U0001f600"])
words = st.text(letters, max_size=3)
numbers = st.one_of(
    st.integers(-(10**25), 10**25),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, -0.0, 1.0, 2**53, 2**53 + 1, -(2**53) - 1, 1e21, 1e-7]),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, words)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2), max_leaves=3)
steps = st.one_of(words, words, st.integers(0, 2))
paths = st.lists(steps, min_size=1, max_size=3).map(lambda found: FieldPath(tuple(found)))
columns = st.builds(Column, paths, st.booleans(), st.booleans())
keys = st.lists(values, min_size=1, max_size=2)


@st.composite
def orders_and_rows(draw: st.DrawFn) -> tuple[Order, list[tuple[str, str]]]:
    """An order, and rows that have something at its paths."""
    chosen = draw(st.lists(columns, max_size=3, unique_by=lambda column: column.path))
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        record = draw(values)
        for column in chosen:
            record = placed(record, column.path.steps, draw(values))
        rows.append((written(draw(keys)), written(record)))
    return Order(tuple(chosen)), rows


def placed(record: Any, steps: tuple[str | int, ...], value: Any) -> Any:
    """The record with a value at a path; a value of another type on the path is replaced."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        items = record if isinstance(record, list) else []
        items = [*items, *[None] * (step + 1 - len(items))]
        items[step] = placed(items[step], rest, value)
        return items
    members = record if isinstance(record, dict) else {}
    return {**members, step: placed(members.get(step), rest, value)}


def written(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def expected(order: Order, rows: list[tuple[str, str]]) -> list[int]:
    def rank(at: int) -> tuple[Any, ...]:
        key, value = rows[at]
        return order.sort_token(value.encode()), group_key(key.encode())

    return sorted(range(len(rows)), key=rank)


@rule("view-1")
@pytest.mark.system
@pytest.mark.nightly
@examples(30)
@given(st.lists(orders_and_rows(), min_size=1, max_size=10))
def test_any_rows_are_in_the_gateways_order(
    node: Node, cases: list[tuple[Order, list[tuple[str, str]]]]
) -> None:
    asked = [(str(order), rows) for order, rows in cases]
    found = node.run(f"const given = {json.dumps(asked)};{IN_ORDER}")
    for (order, rows), places in zip(cases, found, strict=True):
        # Keys are compared in their canonical form: `1` and `1.0` are one key.
        wanted = expected(order, rows)
        keyed = [(group_key(rows[at][0].encode()), rows[at][1]) for at in wanted]
        assert [(group_key(rows[at][0].encode()), rows[at][1]) for at in places] == keyed, str(
            order
        )
