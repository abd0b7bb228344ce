"""What of recorded messages is read from columns and what from bodies, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.columns.test_conflation import (
    REDUCERS,
    WANTED,
    conflation,
    conflator_rows,
    cuts,
    pieces,
    recorded,
    steps,
)
from tests.pipeline.columns.test_conflation import (
    batch as recorded_batch,
)
from tests.pipeline.naive_newest import identity, newest_by_key
from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.filter import Filter
from tidegate.keys.path import FieldPath
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.conflation import DELETED, EXPIRED, PUT, UNMATCHED, Conflation
from tidegate.pipeline.columns.intake import Intake, combine, cut_messages, merge
from tidegate.pipeline.columns.recorded import conflate_in_place, conflate_in_shards
from tidegate.pipeline.columns.rows import PUBLISHED, Messages, arrow_schema
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.errors import HistoryInvalid
from tidegate.pipeline.intervals import MILLISECOND_NS, Interval, Pace

SECOND = Interval(1_000 * MILLISECOND_NS, Pace.KEY)
TIME = TimeField(FieldPath.parse("/t"))

NAMES = ("position", "time_ms", "key", "body", "removed", "refused")

Row = tuple[int | str | bytes | None, ...]
"""As many of `NAMES` as a test says."""


def batch(*rows: Row) -> pa.RecordBatch:
    said = [
        {"file": "dir/a", "block": 0, **dict(zip(NAMES, row, strict=False))}  # the rest is null
        for row in rows
    ]
    return pa.RecordBatch.from_pylist(said, schema=arrow_schema(PUBLISHED))


def taken(conflation: Conflation, *rows: Row) -> tuple[Messages, list[str]]:
    intake = Intake(conflation)
    [found] = intake.messages(iter([batch(*rows)]))
    return found, [intake.texts[code] for code in found.codes.tolist()]


def test_complete_columns_make_bodies_unread() -> None:
    found, keys = taken(
        Conflation(KeySpec.of(["/k"]), SECOND), (7, 5, '["x"]', b"not JSON"), (9, 6, '["y"]', None)
    )
    assert keys == ['["x"]', '["y"]']
    assert found.positions.tolist() == [7, 9]
    assert found.times_ns.tolist() == [5 * MILLISECOND_NS, 6 * MILLISECOND_NS]
    assert found.gone.tolist() == [PUT, DELETED]


def test_incomplete_columns_are_read_from_bodies() -> None:
    conflation = Conflation(KeySpec.of(["/k"]), SECOND, TIME)
    found, keys = taken(
        conflation, (None, None, None, b'{"k":1.0,"t":3}'), (None, None, None, b" "),
        (None, None, None, b'{"k":"z","t":2}'),
    )  # fmt: skip
    assert keys == ["[1]", '["z"]']
    assert found.times_ns.tolist() == [3 * MILLISECOND_NS, 2 * MILLISECOND_NS]
    assert found.greatest_ns.tolist() == [3 * MILLISECOND_NS, 3 * MILLISECOND_NS]
    assert found.positions.tolist() == [1, 3]


def test_an_archive_has_times_and_bodies_have_keys() -> None:
    found, keys = taken(Conflation(KeySpec.of(["/k"]), SECOND), (1, 9, None, b'{"k":1}'))
    assert keys == ["[1]"]
    assert found.times_ns.tolist() == [9 * MILLISECOND_NS]


def test_what_does_not_match_is_gone_with_its_body() -> None:
    conflation = Conflation(KeySpec.of(["/k"]), SECOND, filter=Filter.parse("/v > 1"))
    found, _ = taken(conflation, (1, 1, "[1]", b'{"v":1}'), (2, 1, "[1]", b'{"v":2}'))
    assert found.gone.tolist() == [UNMATCHED, PUT]
    assert found.bodies.to_pylist() == [None, b'{"v":2}']


@rule("pipeline-5")
def test_a_removal_says_why_or_counts_as_deleted() -> None:
    steps = ("deleted", "expired", "match", None, "entitlement")
    rows = [(at, at, "[1]", None, why) for at, why in enumerate(steps, 1)]
    found, _ = taken(Conflation(KeySpec.of(["/k"]), SECOND), *rows, (9, 9, "[1]", b"{}"))
    assert found.gone.tolist() == [DELETED, EXPIRED, UNMATCHED, DELETED, DELETED, PUT]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((1, 5, None, None), "line 1: a removal needs a key"),
        ((1, 5, None, b"{"), "line 1: not JSON"),
        ((1, None, "[1]", b"{}"), "line 1: no time in /t"),
    ],
)
def test_an_unreadable_line_is_named(row: Row, said: str) -> None:
    with pytest.raises(HistoryInvalid, match=f"^a, {said}"):
        taken(Conflation(KeySpec.of(["/k"]), SECOND, TIME), row)


def test_a_removal_without_key_is_an_error() -> None:
    asked = Conflation(KeySpec.of(["/k"]), SECOND, sets_aside=True)
    with pytest.raises(HistoryInvalid, match=r"^a, line 1: a removal needs a key$"):
        taken(asked, (1, 5, None, None))


@rule("pipeline-7")
def test_what_its_source_has_refused_is_no_message_whatever_it_says() -> None:
    rows: list[Row] = [
        (1, 5, None, b'{"k":1}', None, "message-invalid: no row"),
        (2, 5, None, b'{"k":2}'),
        (3, 5, None, b"{"),
    ]
    asked = Conflation(KeySpec.of(["/k"]), SECOND, sets_aside=True)
    aside, found = Intake(asked).messages(iter([batch(*rows)]))
    assert aside.reasons[0] == "message-invalid: no row"
    assert aside.reasons[1].startswith("message-invalid: not JSON")
    assert aside.bodies.to_pylist() == [b'{"k":1}', b"{"]
    assert found.bodies.to_pylist() == [b'{"k":2}']
    with pytest.raises(HistoryInvalid, match=r"^a, line 1: message-invalid: no row$"):
        taken(Conflation(KeySpec.of(["/k"]), SECOND), *rows)


def test_a_history_without_times_is_an_error() -> None:
    with pytest.raises(HistoryInvalid, match=r"^a, line 1: no time$"):
        taken(Conflation(KeySpec.of(["/k"]), SECOND), (1, None, "[1]", b"{}"))


def test_nothing_in_is_nothing_out() -> None:
    assert list(conflate_in_place(iter([]), Conflation(KeySpec(), SECOND))) == []


LINE_BYTES_MAX = 1_000
SPEC = KeySpec.of(["/a", "/b"])
ASKED = Conflation(SPEC, Interval(1, Pace.BATCH), sets_aside=True, line_bytes_max=LINE_BYTES_MAX)
COUNTED = Conflation(
    SPEC, Interval(1, Pace.BATCH), sets_aside=True,
    reduce=Reduce.parse("[/n:append@all,/n:count@count]"),
)  # fmt: skip
Combined = dict[str, Any]

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


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[Combined]:
    return [row for batch in batches for row in batch.to_pylist()]


def conflate_tasks(tasks: list[list[pa.RecordBatch]], asked: Conflation = ASKED) -> list[Combined]:
    combined = [batch for task in tasks for batch in combine(iter(task), asked)]
    if not combined:
        return []
    order = [(name, "ascending") for name in ("file", "block", "position")]
    in_order = pa.Table.from_batches(combined).sort_by(order)
    return rows_of(merge(iter(in_order.combine_chunks().to_batches(max_chunksize=7)), asked))


@examples(15)
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


def test_a_row_has_its_place_its_count_and_its_first_message() -> None:
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


@pytest.mark.parametrize("oof", [False, True])
@pytest.mark.parametrize("reduce", ["", REDUCERS])
@pytest.mark.parametrize("pace", Pace)
@examples(8)
@given(steps, cuts)
def test_shards_deliver_what_one_task_does(
    pace: Pace, reduce: str, oof: bool, steps: list[tuple[str, int | None, int]], edges: list[int]
) -> None:
    messages = recorded(steps)
    asked, _ = conflation(pace, WANTED, reduce, oof=oof)
    shards = 3 if pace is Pace.KEY else 1
    blocks = [
        block
        for piece in reversed(pieces(messages, edges))
        for block in cut_messages(iter([piece.set_column(0, "file", named(piece))]), asked, shards)
    ]
    if not blocks:
        return
    table = pa.Table.from_batches(blocks)
    in_order = table.sort_by([(name, "ascending") for name in ("stream", "part", "row")])
    found = conflator_rows(conflate_in_shards(iter(in_order.to_batches()), asked))
    assert sorted(found, key=str) == sorted(
        conflator_rows(conflate_in_place(iter([recorded_batch(messages)]), asked)), key=str
    )


def named(piece: pa.RecordBatch) -> pa.Array:
    """A file's name for a piece, which sorts as its messages do."""
    first = piece.column("position")[0].as_py() if len(piece) else 0
    return pa.array([f"{first:04}"] * len(piece), pa.string())
