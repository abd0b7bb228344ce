from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.support.rules import rule
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.intervals import Interval, Pace
from tidegate.pipeline.columns.rows import PUBLISHED, SENT, arrow_schema
from tidegate.pipeline.views.records import newest, news


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


def published(*told: tuple[str | None, bytes | None]) -> pa.RecordBatch:
    rows = [
        {"file": "f", "block": 0, "key": key, "body": body, "time_ms": 10 - at}
        for at, (key, body) in enumerate(told)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(PUBLISHED))


def told(spec: KeySpec, *batches: pa.RecordBatch) -> list[tuple[Any, ...]]:
    asked = Conflation(spec, Interval(1, Pace.BATCH), sets_aside=True, line_bytes_max=99)
    names = ("key", "position", "value", "messages", "first_ms", "removed", "refused")
    found = [row for rows in news(iter(batches), asked) for row in rows.to_pylist()]
    return [tuple(row[name] for name in names) for row in found]


@rule("view-10")
def test_a_task_tells_the_newest_of_each_record_and_removals_and_what_is_none() -> None:
    rows = published(
        (None, b'{"k":1}'), (None, b'{"k":2}'), ("[1]", None), (None, b" "), (None, b'{"k":1.0}'),
        ("[2]", None),
    )  # fmt: skip
    found = told(KeySpec.of(["/k"]), rows, published((None, b'{"k":null}')))
    assert found == [
        ("[1]", 5, b'{"k":1.0}', 3, 6, None, None),
        ("[2]", 6, None, 2, 5, "deleted", None),
        (None, 7, b'{"k":null}', 1, 10, None, found[-1][-1]),
    ]
    assert found[-1][-1].startswith("key-invalid: ")


@rule("view-10")
def test_without_fields_of_a_key_a_message_tells_its_own() -> None:
    found = told(KeySpec(), published(('["a"]', b"{}"), ('["a"]', b"[]")), published((None, b"{}")))
    assert found == [
        ('["a"]', 2, b"[]", 2, 9, None, None),
        (None, 3, b"{}", 1, 10, None, "key-missing: the message does not tell its key"),
    ]
