"""Conflation in columns delivers the same rows as the engine."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.pipeline.engine_deliveries import Delivered, Recorded, delivered, engine_deliveries
from tests.pipeline.merger import MERGER
from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.filter import Filter
from tidegate.keys.merging import Merger
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.bodies import Merging, Newest, registered
from tidegate.pipeline.columns.conflation import EARLIEST_NS, PUT, Conflation, Rows, Timeline
from tidegate.pipeline.columns.recorded import conflate_in_place
from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema
from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.intervals import MILLISECOND_NS, Interval, Pace
from tidegate.pipeline.json_fields.reducing import Folded


@pytest.mark.parametrize(
    ("reduce", "kind"), [(None, Newest), ("[/v:last]", Newest), ("[/v:max]", Folded)]
)
def test_bodies_are_combined_only_where_reducers_ask_for_it(
    reduce: str | None, kind: type[Newest | Folded]
) -> None:
    parsed = None if reduce is None else Reduce.parse(reduce)
    asked = Conflation(KeySpec.of(["/k"]), Interval(1, Pace.KEY), reduce=parsed)
    assert isinstance(asked.conflator().bodies, kind)
    assert len(asked.timeline().waiting.codes) == 0


def test_a_merger_travels_by_its_name_and_is_found_where_it_works() -> None:
    asked = Conflation(KeySpec.of(["/k"]), Interval(1, Pace.KEY), merger=MERGER)
    assert isinstance(pickle.loads(pickle.dumps(asked)).conflator().bodies, Merging)
    missing = replace(asked, merger="no.such:function")
    with pytest.raises(DefinitionInvalid, match=r"^merger no.such:function cannot be imported"):
        missing.conflator()


def rows(*steps: tuple[str, int | None]) -> Rows:
    """Messages of key and time, in order of publication; None is a removal's."""
    count = len(steps)
    numbers = np.arange(count)
    times = [EARLIEST_NS if time is None else time for _, time in steps]
    return Rows(
        np.array([ord(name) - ord("a") for name, _ in steps]), np.array(times), numbers, numbers,
        numbers, numbers, numbers, numbers * 0 + PUT, numbers < 0,
        pa.array([b"%d" % at for at in range(count)], pa.binary()),
    )  # fmt: skip


def taken(lateness: int, *steps: tuple[str, int | None]) -> list[tuple[int, int]]:
    """Place and effective time of each message, in the order of taking; the rest at the end."""
    line = Timeline(lateness, Newest())
    found = rows(*steps)
    greatest = np.maximum.accumulate(found.times_ns)
    line.stamp(found, greatest, int(greatest[-1]))
    first = line.take(found)
    last = line.finish()
    values = [*first.values.to_pylist(), *last.values.to_pylist()]
    return list(zip(map(int, values), [*first.times_ns.tolist(), *last.times_ns.tolist()],
                    strict=True))  # fmt: skip


@rule("pipeline-1", "pipeline-2")
@rule("pipeline-1", "pipeline-2")
@pytest.mark.parametrize(
    ("lateness", "steps", "expected"),
    [
        # Rule pipeline-1: on time within the watermark is in its own place.
        (10, [("a", 100), ("b", 95), ("c", 111)], [(1, 95), (0, 100), (2, 111)]),
        # Rule pipeline-2: what is later counts at the watermark, and is never dropped.
        (10, [("a", 100), ("b", 50), ("c", 95)], [(1, 90), (2, 95), (0, 100)]),
        # Rule pipeline-2: a key does not go back to an older message.
        (10, [("a", 100), ("a", 95), ("b", 97)], [(2, 97), (0, 100), (1, 100)]),
        # Rule pipeline-2: a removal has no time of its own, and counts at the greatest before it.
        (10, [("b", 92), ("a", 100), ("b", None), ("b", 9)],
         [(0, 92), (1, 100), (2, 100), (3, 100)]),
        # Rule pipeline-2: without a watermark this is the recorded clock.
        (0, [("a", 100), ("b", 50), ("c", 120)], [(0, 100), (1, 100), (2, 120)]),
    ],
)  # fmt: skip
def test_messages_are_taken_in_the_order_of_their_effective_times(
    lateness: int, steps: list[tuple[str, int | None]], expected: list[tuple[int, int]]
) -> None:
    assert taken(lateness, *steps) == expected


@rule("pipeline-1", "pipeline-2")
def test_after_the_end_nothing_is_earlier() -> None:
    line = Timeline(10, Newest())
    first, second = rows(("a", 100)), rows(("b", 95))
    line.stamp(first, np.array([100]), 100)
    assert len(line.take(first).codes) == 0
    assert line.finish().times_ns.tolist() == [100]
    line.stamp(second, np.array([95]), 95)
    assert line.take(second).times_ns.tolist() == [100]


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


def recorded(steps: list[tuple[str, int | None, int]]) -> list[Recorded]:
    """Messages from key, value (None: a removal) and the step of time before each."""
    time_ms, found = 1_000, []
    for position, (name, value, step) in enumerate(steps, start=1):
        time_ms += step
        body = None if value is None else b'{"k":"%s","v":%d}' % (name.encode(), value)
        found.append(Recorded(position, time_ms, f'["{name}"]', body, REMOVED[position % 3]))
    return found


def batch(messages: list[Recorded], *, from_bodies: bool = False) -> pa.RecordBatch:
    steps = [
        {"file": "", "block": 0, "position": one.position, "time_ms": one.time_ms, "body": one.body}
        | {"key": None if from_bodies else one.key, "removed": None if one.body else one.removed}
        for one in messages
    ]
    return pa.RecordBatch.from_pylist(steps, schema=arrow_schema(PUBLISHED))


def pieces(messages: list[Recorded], edges: list[int]) -> list[pa.RecordBatch]:
    bounds = [0, *sorted(min(edge, len(messages)) for edge in edges), len(messages)]
    return [batch(messages[low:high]) for low, high in pairwise(bounds)]


def conflator_rows(found: Iterator[pa.RecordBatch]) -> list[Delivered]:
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
        sends_removals=oof,
        topic="px",
    )
    options = [f"conflation={INTERVAL_MS}ms", f"pace={pace}"]
    options += [f"reduce={reduce}"] * bool(reduce) + ["oof"] * oof
    return asked, ",".join(options)


@pytest.mark.parametrize("oof", [False, True])
@pytest.mark.parametrize("rules", ["", REDUCERS, MERGER])
@pytest.mark.parametrize("wanted", ["", WANTED])
@pytest.mark.parametrize("pace", Pace)
@examples(8)
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
    steps: list[tuple[str, int | None, int]],
    edges: list[int],
) -> None:
    messages = recorded(steps)
    asked, options = conflation(pace, wanted, rules, oof=oof)
    merger = merger_of(rules)
    expected = sorted(engine_deliveries(messages, options, wanted, merger=merger), key=str)
    in_place = conflator_rows(conflate_in_place(iter(pieces(messages, edges)), asked))
    assert sorted(in_place, key=str) == expected
