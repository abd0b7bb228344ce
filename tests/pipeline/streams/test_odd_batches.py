"""Batches as they are in life: none, huge, the same again, late, changed, without a key (F28)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.journals import Journals
from tests.pipeline.naive_newest import newest_by_key
from tests.support.rules import rule
from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.operations.status import Totals
from tidegate.pipeline.streams.checkpoint import Checkpoint
from tidegate.pipeline.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.nightly, pytest.mark.spark]

HUGE, HUGE_KEYS = 1_000_000, 1_000


def ran(spark: SparkSession, journals: Journals, folder: Path) -> Stream:
    """A stream of files, one of them a batch, until all is read."""
    file = folder / "s.toml"
    file.write_text(
        f'gateway = "{journals.address}"\n[pipeline.s]\nkey = ["/k"]\ninterval = "1s"\n'
        'sink = {topic = "newest"}\nfiles_per_batch = 1\n'
        'source = {kind = "files", path = "in/*.ndjson"}\n'
    )
    [definition] = read_definitions(file)
    stream = Stream(definition)
    with Checkpoint(definition) as checkpoint:
        stream.start(spark, checkpoint, available_now=True)
        assert stream.query is not None
        stream.query.awaitTermination()
    return stream


def landed(folder: Path, *files: list[bytes]) -> None:
    """Files in this order."""
    (folder / "in").mkdir(exist_ok=True)
    before = len(list((folder / "in").iterdir()))
    for at, lines in enumerate(files, before):
        (folder / "in" / f"{at:04d}.ndjson").write_bytes(b"\n".join(lines))


def letters(stream: Stream) -> list[tuple[str, int]]:
    """The dead letters: the code of the reason and the row, in order of the batches."""
    found = sorted(stream.definition.dead_letters.glob("*.ndjson"))
    lines = [json.loads(line) for path in found for line in path.read_bytes().splitlines()]
    return [(line["reason"].partition(":")[0], line["row"]) for line in lines]


@rule("pipeline-7")
def test_what_is_no_record_is_counted_to_the_line_and_stops_nothing(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    landed(
        tmp_path,
        [b'{"k":1,"n":1}', b'{"k":null,"n":2}', b'{"n":3}', b"nonsense", b'{"k":2,"n":4}'],
        [],  # an empty batch
        [b"", b"   "],
        [b'{"k":[1],"n":5}', b'{"k":{},"n":6}', b"\xff\xfe", b'{"k":1,"n":7'],  # none at all
        [b'{"k":1,"n":8}'],
    )
    stream = ran(spark, journals, tmp_path)
    assert letters(stream) == [
        ("key-invalid", 2),
        ("key-missing", 3),
        ("message-invalid", 4),
        ("key-invalid", 1),
        ("key-invalid", 2),
        ("message-invalid", 3),
        ("message-invalid", 4),
    ]
    assert stream.totals.refused == 7
    assert stream.totals.messages == 10
    assert [json.loads(value)["n"] for value in journals.topics["newest"].values] == [1, 4, 8]


@rule("pipeline-7")
def test_fields_that_change_their_type_or_are_new_are_messages_as_any(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    landed(
        tmp_path,
        [b'{"k":1,"p":1.5}', b'{"k":"1","p":2}'],
        [b'{"k":1,"p":"three"}', b'{"k":1.0,"p":[4],"new":{"deep":[null]}}'],
        [b'{"k":true,"p":null}', b'{"renamed":1,"p":5}'],
    )
    stream = ran(spark, journals, tmp_path)
    assert letters(stream) == [("key-missing", 2)]
    prices = [json.loads(value)["p"] for value in journals.topics["newest"].values]
    assert prices == [1.5, 2, [4], None]


def test_messages_that_come_again_or_late_are_messages_as_any(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    lines = [b'{"k":%d,"n":%d}' % (at % 3, at) for at in range(12)]
    landed(tmp_path, lines, lines, lines[::-1])
    stream = ran(spark, journals, tmp_path)
    sink = [json.loads(value)["n"] for value in journals.topics["newest"].values]
    assert sink == [9, 10, 11, 9, 10, 11, 2, 1, 0]
    assert stream.totals == Totals(3, 36, 9, 0, 0)
    landed(tmp_path, [])
    assert ran(spark, journals, tmp_path).totals.published == 0


def test_a_million_rows_are_a_batch(
    spark: SparkSession, journals: Journals, tmp_path: Path
) -> None:
    lines = [b'{"k":%d,"n":%d}' % (at * 7919 % HUGE_KEYS, at) for at in range(HUGE)]
    landed(tmp_path, lines)
    stream = ran(spark, journals, tmp_path)
    assert stream.totals == Totals(1, HUGE, HUGE_KEYS, 0, 0)
    sink = journals.topics["newest"].values
    assert newest_by_key(sink, "k") == newest_by_key(lines[-HUGE_KEYS:], "k")
