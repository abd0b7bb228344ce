"""A shard's rows and tables: continuing from saved tables equals never having ended."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.pipeline import mixed_ticks
from tests.pipeline.columns.test_conflation import (
    INTERVAL_MS,
    REDUCERS,
    REMOVED,
    WANTED,
    conflation,
    merger_of,
)
from tests.pipeline.engine_deliveries import Delivered, Recorded, batch_deliveries, delivered
from tests.pipeline.event_time import Timed, event_deliveries
from tests.pipeline.merger import MERGER
from tests.pipeline.mixed_ticks import mixed
from tests.support.outside import require_ticks
from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.filter import Filter
from tidegate.keys.path import FieldPath
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns import shard
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.intake import Intake
from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema
from tidegate.pipeline.columns.saving import DUE, FAILURES, KEYS, restored, saved
from tidegate.pipeline.columns.shard import Shard, refused
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.intervals import MILLISECOND_NS, Interval, Pace

SECOND = 1_000_000_000


def plain(pace: Pace) -> Conflation:
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
            found += [row for steps in into.add(each, intake.texts) for row in steps.to_pylist()]
    return found + [row for steps in into.close() for row in steps.to_pylist()]


def test_a_row_shows_where_its_messages_stood() -> None:
    asked = plain(Pace.BATCH)
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
    asked = plain(Pace.KEY)
    rows = taken(Shard(asked, 0), asked, b'{"k":1}', b"{", b'{"n":1}', b'{"k":"\xff"}')
    assert [(row["position"], row["refused"], row["value"]) for row in rows] == [
        (2, "message-invalid: not JSON: Input data was truncated", b"{"),
        (3, "key-missing: the message has no field /k", b'{"n":1}'),
        (4, "message-invalid: not valid UTF-8", b'{"k":"\xff"}'),
    ]
    assert {(row["key"], row["file"], row["messages"]) for row in rows} == {(None, "1\0in/a", 1)}


def test_rows_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "ROWS_MAX", 4)
    asked = plain(Pace.KEY)
    into = Shard(asked, 0)
    assert taken(into, asked, *(b'{"k":%d}' % n for n in range(10))) == []
    into.now_ns = 2 * SECOND
    assert [steps.num_rows for steps in into.close()] == [4, 4, 2]
    assert np.array([*into.close()]).size == 0


TICKS = 12_000

Steps = list[tuple[str, int | None, int]]
steps = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9), st.integers(0, 9)),
        st.sampled_from([0, 0, 1, 7, 19, 40, 41, 200, -15, -60, -90]),
    ),
    max_size=30,
)  # fmt: skip
cuts = st.lists(st.integers(0, 30), max_size=5)


def timed(steps: Steps) -> list[Timed]:
    """Messages from key, value (None: a removal) and the step of time before each."""
    time_ms, found = 1_000, []
    for position, (name, value, step) in enumerate(steps, start=1):
        time_ms += step
        body = b'{"k":"%s","v":%d,"t":%d}' % (name.encode(), value or 0, time_ms)
        key = f'["{name}"]'
        if value is None:
            found.append(Timed(position, None, key, None, REMOVED[position % 3]))
        else:
            found.append(Timed(position, time_ms, key, body))
    return found


def batch(messages: list[Timed]) -> pa.RecordBatch:
    rows = [
        {"file": "", "block": 0, "position": one.position, "time_ms": one.position}
        | {"key": None if one.body else one.key, "body": one.body}
        | {"removed": None if one.body else one.removed}
        for one in messages
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(PUBLISHED))


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[Delivered]:
    return [delivered(row) for each in batches for row in each.to_pylist()]


def pieces(messages: list[Timed], edges: list[int]) -> list[list[Timed]]:
    bounds = [0, *sorted(min(edge, len(messages)) for edge in edges), len(messages)]
    return [messages[low:high] for low, high in pairwise(bounds)]


def saved_between(
    asked: Conflation, messages: list[list[Timed]], nows_ns: list[int] | None = None
) -> list[list[Delivered]]:
    """What goes out of each piece, the shard being saved after it; and at the end."""
    shard = Shard(asked, nows_ns[0] if nows_ns else None)
    sent = []
    for at, piece in enumerate(messages):
        shard = restored(saved(shard), asked, nows_ns[at] if nows_ns else None)
        intake, found = Intake(asked), list[Delivered]()
        for each in intake.messages(iter([batch(piece)])):
            found += rows_of(shard.add(each, intake.texts))
        sent.append(found + rows_of(shard.close()))
    shard = restored(saved(shard), asked, nows_ns[-1] if nows_ns else None)
    return [*sent, rows_of(shard.finish())]


@rule("pipeline-2", "pipeline-3", "pipeline-4")
@pytest.mark.parametrize("oof", [False, True])
@pytest.mark.parametrize("rules", ["", REDUCERS, MERGER])
@pytest.mark.parametrize("pace", Pace)
@examples(8)
@given(steps, cuts, st.sampled_from([0, 20, 75, 1_000]))
@example([("a", 5, 0), ("a", None, 0), ("a", 5, 0)], [], 0)  # declined after a removal
@example([("a", 9, 0), ("b", 5, 60), ("a", 7, -30), ("a", None, 0), ("a", 8, -60)], [2, 3], 75)
@example([("a", 6, 0), ("a", 7, 0), ("a", 9, 0)], [3, 3], 0)  # the merger would now take both
def test_event_time_is_the_engine_on_messages_put_in_order(
    pace: Pace, rules: str, oof: bool, steps: Steps, edges: list[int], lateness_ms: int
) -> None:
    asked, options = conflation(pace, WANTED, rules, oof=oof)
    asked = replace(
        asked,
        time=TimeField(FieldPath.parse("/t")),
        lateness_ns=lateness_ms * MILLISECOND_NS,
        sets_aside=True,
    )
    messages = timed(steps)
    sent = saved_between(asked, pieces(messages, edges))
    expected = event_deliveries(messages, lateness_ms, options, WANTED, merger=merger_of(rules))
    assert sorted((row for each in sent for row in each), key=str) == sorted(expected, key=str)


@rule("pipeline-2", "pipeline-3", "pipeline-4")
@pytest.mark.parametrize("oof", [False, True])
@pytest.mark.parametrize("rules", ["", REDUCERS, MERGER])
@pytest.mark.parametrize("pace", Pace)
@examples(8)
@given(steps, cuts, st.lists(st.sampled_from([0, 1, 15, 39, 40, 42, 90]), min_size=6, max_size=6))
@example([("a", 5, 0), ("a", None, 0), ("a", 5, 0)], [], [0] * 6)  # declined after a removal
@example([("a", 6, 0), ("a", 7, 0)], [1], [0, 42, 0, 0, 0, 0])  # declined, and due with the first
@example([("a", 6, 0), ("a", 7, 0), ("a", 9, 0)], [3, 3], [0, 15, 42, 0, 0, 0])
def test_processing_time_is_the_engine_that_is_given_batches(
    pace: Pace, rules: str, oof: bool, steps: Steps, edges: list[int], waits: list[int]
) -> None:
    asked, options = conflation(pace, WANTED, rules, oof=oof)
    parts = pieces(timed(steps), edges)
    nows_ms = [1_000 + sum(waits[: at + 1]) for at in range(len(parts))]
    sent = saved_between(asked, parts, [now * MILLISECOND_NS for now in nows_ms])
    recorded = [
        (now, [Recorded(one.position, now, *one[2:]) for one in part])
        for now, part in zip(nows_ms, parts, strict=True)
    ]
    by_batch = pace is Pace.BATCH
    expected = batch_deliveries(
        recorded, options, WANTED, batch_is_interval=by_batch, merger=merger_of(rules)
    )
    found = [[row._replace(due_ns=0) for row in each] for each in sent]
    assert [sorted(each, key=str) for each in found] == [sorted(each, key=str) for each in expected]


@pytest.mark.nightly
@rule("pipeline-2", "pipeline-3", "pipeline-4")
@pytest.mark.parametrize("pace", Pace)
def test_recorded_ticks_with_a_filter_reducers_removals_and_late_ones(pace: Pace) -> None:
    with gzip.open(require_ticks()) as ticks:
        messages = mixed(line.strip() for line in islice(ticks, TICKS))
    asked = Conflation(
        KeySpec.parse(mixed_ticks.KEY),
        Interval(1_000 * MILLISECOND_NS, pace),
        TimeField(FieldPath.parse("/ts")),
        filter=Filter.parse(mixed_ticks.WANTED),
        reduce=Reduce.parse(mixed_ticks.REDUCERS),
        sends_removals=True,
        lateness_ns=1_000 * MILLISECOND_NS,
        sets_aside=True,
    )
    options = f"conflation=1s,pace={pace},reduce={mixed_ticks.REDUCERS},oof"
    expected = event_deliveries(messages, 1_000, options, mixed_ticks.WANTED, mixed_ticks.KEY)
    assert {row.removed for row in expected} == {None, "deleted", "match"}
    sent = saved_between(asked, pieces(messages, [*range(0, TICKS, 2_500)]))
    assert sorted((row for each in sent for row in each), key=str) == sorted(expected, key=str)


@rule("pipeline-2", "pipeline-3", "pipeline-4")
def test_what_is_held_shows_when_it_is_due() -> None:
    asked, _ = conflation(Pace.KEY, "", "", oof=False)
    shard = Shard(asked, 1_000 * MILLISECOND_NS)
    assert int(saved(shard).schema.metadata[DUE]) == 2**63 - 1
    intake = Intake(asked)
    for each in intake.messages(iter([batch(timed([("a", 1, 0)]))])):
        assert list(shard.add(each, intake.texts)) == []
    notes = saved(shard).schema.metadata
    assert int(notes[DUE]) == (1_000 + INTERVAL_MS) * MILLISECOND_NS
    assert int(notes[KEYS]) == 1


@rule("pipeline-2", "pipeline-3", "pipeline-4")
@rule("merge-9")
def test_failures_of_a_merger_are_counted_on() -> None:
    asked, _ = conflation(Pace.KEY, "", "tests.pipeline.merger:failing", oof=False)
    shard, intake = Shard(asked, 1_000), Intake(asked)
    for failures in (1, 3, 5):
        steps = timed([("a", 1, 0), ("a", 2, 0)])
        for each in intake.messages(iter([batch(steps)])):
            assert list(shard.add(each, intake.texts)) == []
        shard = restored(saved(shard), asked, 1_000)
        assert int(saved(shard).schema.metadata[FAILURES]) == failures
        assert int(saved(shard).schema.metadata[KEYS]) == 1
