from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.pipeline.views.tasks import view
from tests.support.rules import rule
from tidegate.pipeline.columns.blocks import shard_of
from tidegate.pipeline.columns.rows import SENT, arrow_schema
from tidegate.pipeline.views.records import Records

ASKED = view("[SUM(/v) AS /v]")


def changes(*told: tuple[str, bytes | None]) -> pa.Table:
    rows = [
        {"key": record, "file": "", "block": 0, "position": at, "value": body, "messages": 1}
        | {"removed": None if body else "deleted"}
        for at, (record, body) in enumerate(told)
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(SENT))


@rule("view-9", "view-11")
def test_parts_are_told_of_groups_that_were_stirred_and_of_no_others() -> None:
    records = Records(ASKED, 1, 4, None)
    records.change(changes(("a", b'{"g":"X","v":1}'), ("b", b'{"g":"Y","v":2}')), 0)
    again = Records(ASKED, 1, 4, records.table)
    found = again.change(changes(("a", b'{"g":"Z","v":1}')), 1).to_pylist()
    told = [(part["key"], part["records"], part["messages"], part["home"]) for part in found]
    assert told == [('["X"]', 0, 0, shard_of('["X"]', 4)), ('["Z"]', 1, 1, shard_of('["Z"]', 4))]
    assert {part["shard"] for part in found} == {1}
    assert again.change(changes(), 2).num_rows == 0


@rule("view-11")
def test_what_is_kept_of_a_record_are_the_cells_that_its_view_asks_for() -> None:
    records = Records(ASKED, 0, 1, None)
    records.change(changes(("a", b'{"g":"X","v":1.50,"long":"text"}')), 7)
    [kept] = records.table.to_pylist()
    place: dict[str, Any] = {"batch": 7, "file": "", "block": 0, "position": 0}
    assert kept == {"key": "a", "group": '["X"]', **place, "cell_0": b'"X"', "cell_1": b"1.50"}
