from __future__ import annotations

from typing import Any

import pyarrow as pa

from pipeline.columns.rows import SENT, arrow_schema
from pipeline.views.newest import newest


def row(record: str, place: tuple[str, int, int], first_ms: int | None) -> dict[str, Any]:
    file, block, position = place
    body = b"" if position == 9 else b"%d" % position
    return {
        "key": record, "file": file, "block": block, "position": position, "value": body,
        "messages": position, "first_ms": first_ms,
    }  # fmt: skip


def test_the_newest_by_file_block_and_position_stands_for_all() -> None:
    rows = [
        row("a", ("2", 0, 1), None), row("b", ("1", 5, 2), 30), row("a", ("1", 9, 9), 20),
        row("b", ("1", 10, 1), 20), row("c", ("0", 0, 3), None),
    ]  # fmt: skip
    found = newest(pa.Table.from_pylist(rows, schema=arrow_schema(SENT))).to_pylist()
    told = [(each["key"], each["value"], each["messages"], each["first_ms"]) for each in found]
    assert told == [("c", b"3", 3, None), ("b", b"1", 3, 20), ("a", b"1", 10, 20)]


def test_of_nothing_there_is_nothing() -> None:
    assert newest(arrow_schema(SENT).empty_table()).num_rows == 0
