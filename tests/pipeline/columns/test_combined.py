"""Two associative steps agree with one pass over all lines, however the lines are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.newest import identity, newest_by_key
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.deliveries import combine, merge
from tidegate.pipeline.columns.intervals import Interval, Pace
from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema

LINE_BYTES_MAX = 1_000
SPEC = KeySpec.of(["/a", "/b"])
ASKED = Conflation(SPEC, Interval(1, Pace.BATCH), sets_aside=True, line_bytes_max=LINE_BYTES_MAX)
COUNTED = Conflation(
    SPEC, Interval(1, Pace.BATCH), sets_aside=True,
    reduce=Reduce.parse("[/n:append@all,/n:count@count]"),
)  # fmt: skip
Row = dict[str, Any]

spellings = """1 1.0 1e0 10e-1 "1" "\\u0031" true false 0 -0.0 2.5 "é" null {} [1] 1e30
    18446744073709551615 1844674407370955161.5e1"""
values = st.sampled_from(spellings.split())
few = st.sampled_from(["1", "1.0", '"1"'])
records = st.builds('{{"a":{},"b":{},"n":{}}}'.format, values, few, st.integers(0, 9))
oddities = st.sampled_from(["{", '{"a":1', '{"a":1}', "[]", "7", '{"a":1,"b":2} x', '{"a":NaN}'])
blanks = st.sampled_from(["", "  ", "\r"])
lines = st.lists(st.one_of(records, records, records, oddities, blanks), max_size=40)


def arrow(texts: list[str], part: str) -> pa.RecordBatch:
    rows = [{"file": part, "block": 0, "body": text.encode()} for text in texts]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(PUBLISHED))


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[Row]:
    return [row for batch in batches for row in batch.to_pylist()]


def conflate_tasks(tasks: list[list[pa.RecordBatch]], asked: Conflation = ASKED) -> list[Row]:
    combined = [batch for task in tasks for batch in combine(iter(task), asked)]
    if not combined:
        return []
    order = [(name, "ascending") for name in ("file", "block", "position")]
    in_order = pa.Table.from_batches(combined).sort_by(order)
    return rows_of(merge(iter(in_order.combine_chunks().to_batches(max_chunksize=7)), asked))


@settings(deadline=None)
@given(lines, st.lists(st.integers(0, 40), max_size=5), st.randoms(use_true_random=False))
def test_tasks_in_any_order_agree_with_one_pass_over_all_lines(
    texts: list[str], cuts: list[int], chance: Any
) -> None:
    edges = [0, *sorted(min(cut, len(texts)) for cut in cuts), len(texts)]
    parts = [texts[low:high] for low, high in pairwise(edges)]
    tasks = [
        [arrow(part[: len(part) // 2], name), arrow(part[len(part) // 2 :], name)]
        for name, part in ((f"file-{at}", part) for at, part in enumerate(parts))
    ]
    chance.shuffle(tasks)
    rows = conflate_tasks(tasks)
    kept = [row for row in rows if row["refused"] is None]
    written = [text.encode() for text in texts if text.strip()]
    assert newest_by_key([row["value"] for row in kept], "a", "b") == newest_by_key(
        written, "a", "b"
    )
    assert len(kept) == len(newest_by_key(written, "a", "b"))
    assert len({row["key"] for row in kept}) == len(kept)
    refused = sorted(row["value"] for row in rows if row["refused"] is not None)
    assert refused == sorted(line for line in written if identity(line, "a", "b") is None)
    assert sum(row["messages"] for row in rows) == len(written)
    listed = [row["value"] for row in conflate_tasks(tasks, COUNTED) if row["refused"] is None]
    seen = newest_by_key(listed, "a", "b")
    for line in written:
        record = identity(line, "a", "b")
        if record is not None:
            assert seen[record]["all"].pop(0) == json.loads(line)["n"]
    assert all(found["all"] == [] for found in seen.values())


def test_a_winner_tells_its_place_its_count_and_the_first_it_stands_for() -> None:
    texts = ['{"a":1,"b":"x","n":1}', "", '{"a":1.0,"b":"x","n":2}']
    [row] = conflate_tasks([[arrow(['{"a":1,"b":"x","n":0}'], "o")], [arrow(texts, "p")]])
    assert row == {
        "key": '[1,"x"]',
        "file": "p",
        "block": 0,
        "position": 3,
        "value": b'{"a":1.0,"b":"x","n":2}',
        "messages": 3,
        "first_ms": None,
        "removed": None,
        "refused": None,
        "due_ns": None,
        "first": 1,
    }


def test_a_task_may_read_its_files_in_any_order() -> None:
    later, earlier = '{"a":1,"b":2,"n":2}', '{"a":1,"b":2,"n":1}'
    task = [arrow([later], "q"), arrow([earlier], "p")]
    [row] = conflate_tasks([task])
    assert (row["value"], row["file"], row["first"]) == (later.encode(), "q", 1)
    [row] = conflate_tasks([task], COUNTED)
    assert json.loads(row["value"])["all"] == [1, 2]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a":1}', "key-missing: the message has no field /b"),
        ('{"a":1,"b":null}', "key-invalid: /b: "),
        ("nonsense", "message-invalid: not JSON"),
        ('{"a":1,"b":2,"c":' + "[" * 64 + "]" * 64 + "}", "message-invalid: deeper than 64"),
        ('"' + "x" * LINE_BYTES_MAX + '"', "message-invalid: longer than"),
    ],
)
def test_a_line_that_is_no_record_keeps_its_reason(text: str, reason: str) -> None:
    [row] = conflate_tasks([[arrow([text], "p")]])
    assert row["key"] is None
    assert row["refused"].startswith(reason)
    assert row["value"] == text.encode()


def test_lines_that_are_not_utf_8_are_set_aside() -> None:
    body = pa.array([b'{"a":1,"b":"\xff"}'], pa.binary())
    batch = arrow(["x"], "p").set_column(5, "body", body)
    [row] = conflate_tasks([[batch]])
    assert row["refused"] == "message-invalid: not valid UTF-8"
