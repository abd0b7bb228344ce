"""Columns in blocks of any size deliver what the engine delivers message by message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.pipeline.engine_deliveries import Delivered, Recorded, delivered, engine_deliveries
from tests.pipeline.merged import MERGER
from tidegate.keys.filter import Filter
from tidegate.keys.merging import Merger
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.deliveries import conflate_in_place
from tidegate.pipeline.columns.intervals import MILLISECOND_NS, Interval, Pace
from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema
from tidegate.pipeline.merging import registered

REDUCERS = "[/v:sum,/v:max@hi,/v:first@open,/v:count@n]"
WANTED = "/v > 4"
INTERVAL_MS = 40
REMOVED = ("deleted", "expired", "match")

steps = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9), st.integers(0, 9)),
        st.sampled_from([0, 0, 1, 7, 19, 40, 41, 200, -15]),
    ),
    max_size=30,
)  # fmt: skip
cuts = st.lists(st.integers(0, 30), max_size=5)


def recorded(told: list[tuple[str, int | None, int]]) -> list[Recorded]:
    """Messages from key, value (None: a removal) and the step of time before each."""
    time_ms, found = 1_000, []
    for position, (name, value, step) in enumerate(told, start=1):
        time_ms += step
        body = None if value is None else b'{"k":"%s","v":%d}' % (name.encode(), value)
        found.append(Recorded(position, time_ms, f'["{name}"]', body, REMOVED[position % 3]))
    return found


def batch(messages: list[Recorded], *, from_bodies: bool = False) -> pa.RecordBatch:
    told = [
        {"file": "", "block": 0, "position": one.position, "time_ms": one.time_ms, "body": one.body}
        | {"key": None if from_bodies else one.key, "removed": None if one.body else one.removed}
        for one in messages
    ]
    return pa.RecordBatch.from_pylist(told, schema=arrow_schema(PUBLISHED))


def pieces(messages: list[Recorded], edges: list[int]) -> list[pa.RecordBatch]:
    bounds = [0, *sorted(min(edge, len(messages)) for edge in edges), len(messages)]
    return [batch(messages[low:high]) for low, high in pairwise(bounds)]


def rows(found: Iterator[pa.RecordBatch]) -> list[Delivered]:
    return [delivered(row) for each in found for row in each.to_pylist()]


def merger_of(rules: str) -> Merger | None:
    """The merger that rules name, if they are no reducers."""
    return None if not rules or rules.startswith("[") else Merger(rules, registered(rules))


def conflation(pace: Pace, wanted: str, rules: str, *, oof: bool) -> tuple[Conflation, str]:
    reduce = "" if merger_of(rules) else rules
    asked = Conflation(
        KeySpec.of(["/k"]),
        Interval(INTERVAL_MS * MILLISECOND_NS, pace),
        filter=Filter.parse(wanted) if wanted else None,
        reduce=Reduce.parse(reduce) if reduce else None,
        merger=rules.removeprefix(reduce),
        tells_removals=oof,
        topic="px",
    )
    options = [f"conflation={INTERVAL_MS}ms", f"pace={pace}"]
    options += [f"reduce={reduce}"] * bool(reduce) + ["oof"] * oof
    return asked, ",".join(options)


@pytest.mark.parametrize("oof", [False, True])
@pytest.mark.parametrize("rules", ["", REDUCERS, MERGER])
@pytest.mark.parametrize("wanted", ["", WANTED])
@pytest.mark.parametrize("pace", Pace)
@settings(deadline=None)
@given(steps, cuts)
@example([("a", 5, 0), ("a", None, 0), ("a", 5, 0)], [])  # declined after a removal
@example([("a", 9, 0), ("a", None, 1), ("a", 8, 60), ("a", None, 60), ("a", None, 60)], [])
@example([("a", 9, 0), ("a", None, 1), ("a", 8, 60), ("a", 7, 60)], [2])
@example([("a", 9, 0), ("a", 1, 60), ("a", 9, 0), ("a", None, 60), ("b", 5, 0)], [1, 3])
def test_the_engine_delivers_the_same(
    pace: Pace,
    wanted: str,
    rules: str,
    oof: bool,
    told: list[tuple[str, int | None, int]],
    edges: list[int],
) -> None:
    messages = recorded(told)
    asked, options = conflation(pace, wanted, rules, oof=oof)
    merger = merger_of(rules)
    expected = sorted(engine_deliveries(messages, options, wanted, merger=merger), key=str)
    in_place = rows(conflate_in_place(iter(pieces(messages, edges)), asked))
    assert sorted(in_place, key=str) == expected
