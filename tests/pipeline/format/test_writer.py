"""What the driver does with what tasks have staged."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from tests.pipeline.journals import Journals
from tests.support.gateways import running_gateway
from tests.support.rules import rule
from tidegate.pipeline.errors import DefinitionInvalid, GatewayRefused, RunFenced, StreamFailed
from tidegate.pipeline.format import writer
from tidegate.pipeline.format.options import WriteOptions
from tidegate.pipeline.format.writer import (
    Staged,
    TopicStreamWriter,
    batch_writer,
    commit_stages,
    stage_rows,
    stream_writer,
)

VALUE = StructType().add("value", StringType())


def rows(*values: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": list(values)})


def staged(journals: Journals, *values: str) -> Staged:
    return stage_rows(WriteOptions(journals.address, "t"), "p", [rows(*values)])


def of_run(journals: Journals, run: int) -> TopicStreamWriter:
    return stream_writer(WriteOptions(journals.address, "t"), VALUE, run, overwrite=False)


def test_a_batch_is_published_in_the_order_of_partitions_once(journals: Journals) -> None:
    """Whatever was staged twice: of each partition the attempt counts that Spark has taken."""
    topic = journals.topic("t")
    first, _, second = (staged(journals, *values) for values in ("12", "12", "3"))
    of_run(journals, 5).commit([first, None, second], 0)
    assert topic.values == [b"1", b"2", b"3"]
    again = [staged(journals, "3"), staged(journals, "1", "2")]
    of_run(journals, 6).commit(again, 0)
    assert (topic.values, topic.repeats) == ([b"1", b"2", b"3"], 1)
    of_run(journals, 6).commit([staged(journals, "4")], 1)
    assert [(it.run, it.sequence) for it in topic.publications] == [(5, 0), (6, 1)]


def test_an_older_driver_is_refused(journals: Journals) -> None:
    topic = journals.topic("t")
    of_run(journals, 6).commit([staged(journals, "1")], 0)
    with pytest.raises(RunFenced):
        of_run(journals, 5).commit([staged(journals, "2")], 1)
    assert topic.values == [b"1"]


def test_a_batch_without_rows_is_no_commit(journals: Journals) -> None:
    topic = journals.topic("t")
    of_run(journals, 5).commit([None, staged(journals)], 0)
    assert (topic.publications, topic.runs) == ([], {})


def test_one_batch_is_one_commit_or_none(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "STAGES_MAX", 1)
    topic = journals.topic("t")
    with pytest.raises(StreamFailed, match="coalesce it into fewer partitions"):
        of_run(journals, 5).commit([staged(journals, "1"), staged(journals, "2")], 0)
    assert topic.values == []


def test_the_topic_is_made_with_its_key_where_one_is_given(journals: Journals) -> None:
    options = WriteOptions(journals.address, "t", ("/a", "/b"))
    for _ in range(2):
        batch_writer(options, VALUE, overwrite=False)
    assert journals.topics["t"].definition["key"] == ["/a", "/b"]
    other = WriteOptions(journals.address, "t", ("/a",))
    with pytest.raises(GatewayRefused, match="exists with key"):
        batch_writer(other, VALUE, overwrite=False)
    with pytest.raises(GatewayRefused, match=r"has no topic u .*option\(\"key\""):
        batch_writer(WriteOptions(journals.address, "u"), VALUE, overwrite=False)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (StructType(), "a column value"),
        (StructType().add("key", StringType()), "a column value"),
        (StructType().add("value", LongType()), r"not column value \(bigint\)"),
        (StructType().add("value", StringType()).add("px", LongType()), "not column px"),
    ],
)
def test_columns_make_messages(journals: Journals, schema: StructType, said: str) -> None:
    journals.topic("t")
    with pytest.raises(DefinitionInvalid, match=said):
        batch_writer(WriteOptions(journals.address, "t"), schema, overwrite=False)


def test_nothing_is_overwritten(journals: Journals) -> None:
    journals.topic("t")
    with pytest.raises(DefinitionInvalid, match="added to"):
        batch_writer(WriteOptions(journals.address, "t"), VALUE, overwrite=True)


@rule("publish-10")
async def test_a_batch_above_a_commit_is_refused_whole() -> None:
    """Nothing of it is published, and its number stays free."""
    async with running_gateway(topic_keys_max=2, request_messages_max=2) as running:
        await running.topic("t")
        options = WriteOptions(running.address, "t")
        pages = [rows('{"k":1}', '{"k":2}'), rows('{"k":1}')]
        parts = [await asyncio.to_thread(stage_rows, options, "p", [page]) for page in pages]
        with pytest.raises(GatewayRefused, match="A commit has at most 2 messages"):
            await asyncio.to_thread(commit_stages, options, parts, 1, 0)
        assert await running.sow("t") == []
        assert await asyncio.to_thread(commit_stages, options, parts[:1], 1, 0)
        assert not await asyncio.to_thread(commit_stages, options, parts[:1], 1, 0)
        assert await running.sow("t") == [{"k": 1}, {"k": 2}]


@rule("publish-9")
async def test_a_key_that_is_not_the_values_is_refused() -> None:
    async with running_gateway() as running:
        await running.topic("t")
        options = WriteOptions(running.address, "t")
        columns = {"value": ['{"k":5}'], "key": ["[6]"]}
        page = pa.RecordBatch.from_pydict(columns)
        with pytest.raises(GatewayRefused, match="key-invalid"):
            await asyncio.to_thread(stage_rows, options, "p", [page])
        page = pa.RecordBatch.from_pydict({**columns, "key": ["[5]"]})
        part = await asyncio.to_thread(stage_rows, options, "p", [page])
        assert await asyncio.to_thread(commit_stages, options, [part], 1, 0)
        assert await running.sow("t") == [{"k": 5}]
