from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.support.rules import rule
from tidegate.keys.filter import Filter
from tidegate.keys.path import FieldPath
from tidegate.pipeline.columns.blocks import shard_of
from tidegate.pipeline.columns.rows import SENT, arrow_schema
from tidegate.pipeline.views.links import ALONE, Join, Routes, Side

JOIN = Join(
    ((FieldPath.parse("/s"), FieldPath.parse("/t")),), FieldPath.parse("/q"),
    (Filter.parse("/n > 0"), None),
)  # fmt: skip


def changed(body: bytes | None, removed: str | None = None) -> pa.Table:
    row = {"key": "a", "file": "", "block": 0, "position": 1, "value": body, "messages": 3}
    row |= {"first_ms": 5, "removed": removed}
    return pa.Table.from_pylist([row], schema=arrow_schema(SENT))


def told(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    names = ("link", "value", "messages", "removed", "moved")
    return [tuple(row[name] for name in names) for row in rows.to_pylist()]


@rule("view-11", "view-12")
def test_a_record_that_moves_leaves_its_old_link_and_counts_at_the_new_one() -> None:
    routes = Routes(JOIN, Side.LEFT, 4, None)
    first, second = b'{"s":1,"n":1}', b'{"s":2,"n":1}'
    [row] = routes.change(changed(first)).to_pylist()
    assert (row["home"], row["side"]) == (shard_of('["1"]', 4), 0)
    routes = Routes(JOIN, Side.LEFT, 4, routes.table)
    assert told(routes.change(changed(second))) == [
        ('["2"]', second, 3, None, 0),
        ('["1"]', None, 0, None, 1),
    ]
    nowhere = b'{"n":1}'
    assert told(routes.change(changed(nowhere)))[0] == (ALONE + "a", nowhere, 3, None, 0)
    # What does not match is gone, and nobody asks twice.
    unmatched = changed(b'{"s":2,"n":0}')
    assert told(routes.change(unmatched)) == [(ALONE + "a", None, 3, "match", 0)]
    assert told(routes.change(unmatched)) == []
    assert routes.table.num_rows == 0


@rule("view-12")
def test_a_right_record_without_link_is_nobodys() -> None:
    routes = Routes(JOIN, Side.RIGHT, 4, None)
    assert told(routes.change(changed(b'{"t":null}'))) == []
    routes.change(changed(b'{"t":7}'))
    assert told(routes.change(changed(None, "deleted"))) == [('["7"]', None, 3, "deleted", 0)]
