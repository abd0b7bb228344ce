from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns import shard
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.intake import Intake
from tidegate.pipeline.columns.intervals import Interval, Pace
from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema
from tidegate.pipeline.columns.shard import Shard, refused

SECOND = 1_000_000_000


def conflation(pace: Pace) -> Conflation:
    return Conflation(KeySpec.of(["/k"]), Interval(SECOND, pace), sets_aside=True)


def taken(into: Shard, asked: Conflation, *bodies: bytes) -> list[dict[str, object]]:
    rows = [
        {"file": "1\0in/a", "block": 5, "body": body, "time_ms": 60 + at}
        for at, body in enumerate(bodies)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(PUBLISHED))
    intake, found = Intake(asked), []
    for each in intake.messages(iter([batch])):
        if each.reasons:
            found += refused(each).to_pylist()
        else:
            found += [row for told in into.add(each, intake.texts) for row in told.to_pylist()]
    return found + [row for told in into.close() for row in told.to_pylist()]


def test_a_row_tells_where_its_messages_stood() -> None:
    asked = conflation(Pace.BATCH)
    [row] = taken(Shard(asked, 0), asked, b'{"k":1,"n":1}', b" ", b'{"k":1,"n":2}')
    assert row == {
        "key": "[1]",
        "file": "1\0in/a",
        "block": 5,
        "position": 3,
        "value": b'{"k":1,"n":2}',
        "messages": 2,
        "first_ms": 60,
        "removed": None,
        "refused": None,
        "due_ns": None,  # a batch is an interval, and goes out at once
        "first": 1,
    }


def test_a_line_that_is_no_record_is_a_row_of_its_own() -> None:
    asked = conflation(Pace.KEY)
    rows = taken(Shard(asked, 0), asked, b'{"k":1}', b"{", b'{"n":1}', b'{"k":"\xff"}')
    assert [(row["position"], row["refused"], row["value"]) for row in rows] == [
        (2, "message-invalid: not JSON: Input data was truncated", b"{"),
        (3, "key-missing: the message has no field /k", b'{"n":1}'),
        (4, "message-invalid: not valid UTF-8", b'{"k":"\xff"}'),
    ]
    assert {(row["key"], row["file"], row["messages"]) for row in rows} == {(None, "1\0in/a", 1)}


def test_rows_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "ROWS_MAX", 4)
    asked = conflation(Pace.KEY)
    into = Shard(asked, 0)
    assert taken(into, asked, *(b'{"k":%d}' % n for n in range(10))) == []
    into.now_ns = 2 * SECOND
    assert [told.num_rows for told in into.close()] == [4, 4, 2]
    assert np.array([*into.close()]).size == 0
