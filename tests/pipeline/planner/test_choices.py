"""A plan's figures are those of a plain loop, however the history is cut, from one reading."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.naive_plan import Counted, by_batch, by_key, messages
from tests.support.outside import require_ticks
from tests.support.profiles import examples
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.history import read_history
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.errors import HistoryInvalid
from tidegate.pipeline.intervals import MILLISECOND_NS, Interval, Pace
from tidegate.pipeline.planner.choices import (
    Choice,
    Plan,
    Question,
    add_tallies,
    cut_blocks,
    tally_blocks,
    tally_choices,
)
from tidegate.pipeline.planner.tally import Hot, Seen, Sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TIME = TimeField(FieldPath.parse("/t"))
SPECS = (KeySpec.of(["/a"]), KeySpec.of(["/a", "/b"]))
FIELDS = (("a",), ("a", "b"))
INTERVALS = (7 * MILLISECOND_NS, 40 * MILLISECOND_NS)
QUESTION = Question(SPECS, INTERVALS, tuple(Pace), TIME, shards=2)

steps = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1), st.sampled_from([0, 0, 1, 5, 30, -20])),
    max_size=50,
)


def history(lines: list[bytes], part: str = "a", times: list[int] | None = None) -> pa.RecordBatch:
    count = len(lines)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([part] * count, pa.string()),
            pa.array([0] * count, pa.int64()),
            pa.array(lines, pa.binary()),
            pa.nulls(count, pa.int64()) if times is None else pa.array(times, pa.int64()),
        ],
        ["file", "block", "body", "time_ms"],
    )


def plain(lines: list[bytes], fields: tuple[str, ...], pace: Pace, interval_ns: int) -> Counted:
    count = by_key if pace is Pace.KEY else by_batch
    return count(messages(lines, fields, "t"), interval_ns)


@examples(20)
@given(steps, st.lists(st.integers(0, 50), max_size=4), st.randoms(use_true_random=False))
def test_tasks_in_any_order_agree_with_a_loop_over_all_lines(
    document: list[tuple[int, int, int]], edges: list[int], chance: object
) -> None:
    time, lines = 1_000, []
    for a, b, step in document:
        time += step
        lines.append(b'{"a":%d,"b":"%d","t":%d}' % (a, b, time))
    cuts = [0, *sorted(edges), len(lines)]
    tasks = [history(lines[low:high], f"f{at:02}") for at, (low, high) in enumerate(pairwise(cuts))]
    chance.shuffle(tasks)  # type: ignore[attr-defined]  # hypothesis's random.Random
    rows = pa.Table.from_batches(
        [block for task in tasks for block in cut_blocks(iter([task]), QUESTION)] or [EMPTY]
    ).sort_by([("stream", "ascending"), ("part", "ascending"), ("row", "ascending")])
    sent = [Sent() for _ in QUESTION.choices()]
    for batch in tally_blocks(iter(rows.to_batches()), QUESTION):
        for row in batch.to_pylist():
            if row["kind"] == "sent":
                shard = msgspec.json.decode(row["tally"], type=Sent)
                sent[row["place"]] = sent[row["place"]].plus(shard)
    for number, (place, interval) in enumerate(QUESTION.choices()):
        counted = plain(lines, FIELDS[place], interval.pace, interval.interval_ns)
        found = sent[number]
        assert (found.messages, found.bytes) == (len(counted.sizes), sum(counted.sizes))


EMPTY = pa.RecordBatch.from_pylist(
    [], pa.schema([(name, pa.int64()) for name in ("stream", "part", "row", "clock_ns", "block")])
)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([b'{"t":1}', b"", b"{"], r"a, line 3: not JSON"),
        ([b'{"t":1}', b"{}"], r"a, line 2: no time in /t"),
        ([b"", b'{"t":1,"x":"\xff"}'], r"a, line 2: not valid UTF-8"),
    ],
)
def test_a_bad_line_is_named(lines: list[bytes], said: str) -> None:
    with pytest.raises(HistoryInvalid, match=said):
        list(cut_blocks(iter([history(lines)]), QUESTION))


def test_a_line_of_a_later_block_is_named_by_its_place() -> None:
    batch = history([b"{}"]).set_column(1, "block", pa.array([4096], pa.int64()))
    with pytest.raises(HistoryInvalid, match="line 1 after byte 4096: no time"):
        list(cut_blocks(iter([batch]), QUESTION))


def test_an_archive_brings_its_own_times_or_is_refused() -> None:
    question = Question(SPECS[:1], INTERVALS, (Pace.BATCH,), None, 1)
    [rows] = cut_blocks(iter([history([b'{"a":1}', b"", b'{"a":1}'], "a", [5, 6, 7])]), question)
    assert rows.column("clock_ns").to_pylist() == [7 * MILLISECOND_NS]
    with pytest.raises(HistoryInvalid, match="a, line 1: no column timestamp_ms"):
        list(cut_blocks(iter([history([b'{"a":1}'])]), question))


@pytest.mark.nightly
@pytest.mark.spark
def test_recorded_ticks_are_counted_as_by_a_loop_and_read_once(spark: SparkSession) -> None:
    path = require_ticks()
    specs = (KeySpec.of(["/tickerId"]), KeySpec.of(["/tickerId", "/exchange", "/type"]))
    fields = (("tickerId",), ("tickerId", "exchange", "type"))
    intervals = tuple(ms * MILLISECOND_NS for ms in (100, 1_000, 5_000))
    question = Question(specs, intervals, tuple(Pace), TimeField(FieldPath.parse("/ts")), 2)
    tallies = tally_choices(read_history(spark, path), question)
    answer = add_tallies(tallies, question)
    lines = gzip.decompress(path.read_bytes()).splitlines()
    recorded = [list(messages(lines, names, "ts")) for names in fields]
    assert len(question.choices()) == 12
    for (place, interval), sent in zip(question.choices(), answer.sent, strict=True):
        count = by_key if interval.pace is Pace.KEY else by_batch
        counted = count(recorded[place], interval.interval_ns)
        assert (sent.messages, sent.bytes) == (len(counted.sizes), sum(counted.sizes))
        assert (sent.age_ms(50), sent.age_ms(99)) == (counted.age_ms(50), counted.age_ms(99))
    for place, seen in enumerate(answer.seen):
        newest = {key: size for key, _, size in recorded[place]}
        assert (seen.messages, seen.bytes) == (len(lines), sum(map(len, lines)))
        assert (seen.keys, seen.memory_bytes) == (len(newest), sum(newest.values()))
        busiest = max(newest, key=[key for key, _, _ in recorded[place]].count)
        assert seen.hot[0].key == busiest.replace(", ", ",")
    assert scans(tallies) == 1


def scans(frame: object) -> int:
    """How often the plan has the list of blocks, each of which a task reads."""
    query = frame._jdf.queryExecution()  # type: ignore[attr-defined]  # Spark's plan has no public name
    plan = str(query.executedPlan().toString()).split("== Initial Plan ==")[-1]
    assert "FileScan" not in plan
    return plan.count("Scan ExistingRDD")


SEEN = Seen(1_000, 50_000, 4, 200, [Hot('["IBM"]', 600), Hot('["AIG"]', 400)])


def choice(interval_ms: int, messages: int, pace: Pace = Pace.KEY, key: str = "/a") -> Choice:
    interval = Interval(interval_ms * MILLISECOND_NS, pace)
    return Choice(
        key, f"{interval_ms}ms", interval, Sent(messages, messages * 50, {7: messages}), SEEN
    )


def plan_of(*choices: Choice) -> Plan:
    return Plan(list(choices))


def best(*messages: int) -> int:
    """The recommended interval, where each is ten times the one before."""
    found = plan_of(*(choice(10 * 10**at, sent) for at, sent in enumerate(messages)))
    return found.recommended()[0].interval.interval_ns // MILLISECOND_NS


def test_recommended_is_the_shortest_that_saves_nine_tenths_of_the_longest() -> None:
    assert best(280, 100, 0) == 100  # 72, 90 and 100 percent: nine tenths exactly is enough
    assert best(280, 101, 0) == 1_000
    assert best(190, 100, 100) == 10
    assert best(1_000, 1_000) == 10  # where nothing is saved, nothing is waited for


def test_the_longest_counts_also_where_it_is_named_first() -> None:
    found = plan_of(choice(1_000, 0), choice(10, 280), choice(100, 50))
    assert found.recommended()[0].interval_text == "100ms"


def test_each_key_and_pace_has_its_own_and_the_first_is_the_answer() -> None:
    found = plan_of(
        choice(10, 500), choice(100, 0), choice(10, 9, Pace.BATCH), choice(10, 1, key="/b")
    )
    document = found.document()
    assert [(one["key"], one["pace"], one["interval"]) for one in document["recommendations"]] == [
        ("/a", "key", "100ms"),
        ("/a", "batch", "10ms"),
        ("/b", "key", "10ms"),
    ]
    assert document["recommended"] == document["recommendations"][0]


def test_the_document_has_what_the_contract_says() -> None:
    document = json.loads(json.dumps(plan_of(choice(10, 280)).document()))
    assert document["choices"] == [
        {"key": "/a", "interval": "10ms", "pace": "key", "messages": 280, "bytes": 14_000,
         "saving": 0.72, "age_p50_ms": 7, "age_p99_ms": 7, "keys": 4}
    ]  # fmt: skip
    assert document["history"] == [
        {"key": "/a", "messages": 1_000, "bytes": 50_000, "keys": 4, "memory_bytes": 200,
         "hot": [{"key": '["IBM"]', "messages": 600}, {"key": '["AIG"]', "messages": 400}]}
    ]  # fmt: skip


def test_the_table_marks_what_is_recommended() -> None:
    lines = plan_of(choice(10, 280), choice(100, 50)).table().splitlines()
    assert lines[:3] == [
        "key  pace  interval  messages   bytes  saving  age p50  age p99  keys",
        "/a   key       10ms       280  14,000   72.0%     7 ms     7 ms     4",
        "/a   key      100ms        50   2,500   95.0%     7 ms     7 ms     4  recommended",
    ]
    assert lines[3].startswith("/a: 1,000 messages, 50,000 bytes in; 4 keys whose newest are 200 ")
    assert lines[3].endswith('most of ["IBM"] 60%, ["AIG"] 40%')
