"""What the driver does with what tasks have staged."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from tests.pipeline.archive.served import gateway
from tests.pipeline.journals import Journals
from tests.support.rules import rule
from tidegate.pipeline import connection
from tidegate.pipeline.connection import Line, body_of
from tidegate.pipeline.errors import DefinitionInvalid, GatewayRefused, RunFenced, StreamFailed
from tidegate.pipeline.format import writer
from tidegate.pipeline.format.options import WriteOptions
from tidegate.pipeline.format.writer import (
    Staged,
    TopicStreamWriter,
    commit_stages,
    lines_of,
    make_ready,
    stage_rows,
)

VALUE = StructType().add("value", StringType())


def rows(*values: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": list(values)})


def staged(journals: Journals, *values: str) -> Staged:
    return stage_rows(WriteOptions(journals.address, "t"), "p", [rows(*values)])


def of_run(journals: Journals, run: int) -> TopicStreamWriter:
    return TopicStreamWriter(WriteOptions(journals.address, "t"), run)


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
        make_ready(options, VALUE, overwrite=False)
    assert journals.topics["t"].definition["key"] == ["/a", "/b"]
    other = WriteOptions(journals.address, "t", ("/a",))
    with pytest.raises(GatewayRefused, match="exists with key"):
        make_ready(other, VALUE, overwrite=False)
    with pytest.raises(GatewayRefused, match=r"has no topic u .*option\(\"key\""):
        make_ready(WriteOptions(journals.address, "u"), VALUE, overwrite=False)


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
        make_ready(WriteOptions(journals.address, "t"), schema, overwrite=False)


def test_nothing_is_overwritten(journals: Journals) -> None:
    journals.topic("t")
    with pytest.raises(DefinitionInvalid, match="added to"):
        make_ready(WriteOptions(journals.address, "t"), VALUE, overwrite=True)


@rule("publish-10")
def test_a_batch_above_a_commit_is_refused_whole() -> None:
    """Nothing of it is published, and its number stays free."""
    with gateway(topic_keys_max=2, request_messages_max=2) as served:
        served.define("t", key=["/k"])
        options = WriteOptions(served.address, "t")
        pages = [rows('{"k":1}', '{"k":2}'), rows('{"k":1}')]
        parts = [stage_rows(options, "p", [page]) for page in pages]
        with pytest.raises(GatewayRefused, match="A commit has at most 2 messages"):
            commit_stages(options, parts, 1, 0)
        assert served.records("t") == {}
        assert commit_stages(options, parts[:1], 1, 0)
        assert not commit_stages(options, parts[:1], 1, 0)
        assert served.records("t") == {"[1]": {"k": 1}, "[2]": {"k": 2}}


@rule("publish-9")
def test_a_key_that_is_not_the_values_is_refused() -> None:
    with gateway() as served:
        served.define("t", key=["/k"])
        options = WriteOptions(served.address, "t")
        columns = {"value": ['{"k":5}'], "key": ["[6]"]}
        page = pa.RecordBatch.from_pydict(columns)
        with pytest.raises(GatewayRefused, match="key-invalid"):
            stage_rows(options, "p", [page])
        page = pa.RecordBatch.from_pydict({**columns, "key": ["[5]"]})
        part = stage_rows(options, "p", [page])
        assert commit_stages(options, [part], 1, 0)
        assert served.records("t") == {"[5]": {"k": 5}}


def test_rows_go_to_stages_in_their_order(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STAGE_MESSAGES_MAX", 2)
    topic = journals.topic("t")
    options = WriteOptions(journals.address, "t")
    staged = stage_rows(options, "p", [rows("1", "2"), rows("3"), rows("4", "5")])
    assert (staged.messages, len(staged.stages)) == (5, 3)
    assert [topic.stages[name] for name in staged.stages] == [[b"1", b"2"], [b"3", b"4"], [b"5"]]
    assert topic.values == []


def test_a_large_stage_is_cut_by_its_bytes(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BODY_BYTES_MAX", 10)
    topic = journals.topic("t")
    staged = stage_rows(WriteOptions(journals.address, "t"), "p", [rows("1234", "1234", "1" * 30)])
    assert [len(topic.stages[name]) for name in staged.stages] == [2, 1]


def test_two_attempts_have_no_stage_in_common(journals: Journals) -> None:
    topic = journals.topic("t")
    options = WriteOptions(journals.address, "t")
    once, again = (stage_rows(options, "p", [rows("1")]) for _ in range(2))
    assert len(topic.stages) == len({*once.stages, *again.stages}) == 2
    assert stage_rows(options, "p", []).stages == []


def lines(**columns: list[Any]) -> list[Line]:
    return list(lines_of(pa.RecordBatch.from_pydict(columns)))


def test_values_are_lines_as_they_are() -> None:
    found = lines(value=['{"k": 1.0}', " [1,\n2]\n", "null"])
    assert found == [Line(text, False) for text in (b'{"k": 1.0}', b"[1, 2]", b"null")]
    assert body_of(found) == (b'{"k": 1.0}\n[1, 2]\nnull\n', False)
    assert lines(value=pa.array([b"7"], pa.large_binary())) == [Line(b"7", False)]


def test_a_row_without_value_or_with_a_reason_is_a_removal() -> None:
    found = lines(
        value=[None, '{"k":2}', '{"k":3}'], key=["[1.0]", "[2]", None],
        removed=[None, "match", None],
    )  # fmt: skip
    body, enveloped = body_of(found)
    assert enveloped
    assert [json.loads(line) for line in body.splitlines()] == [
        {"key": [1], "reason": "deleted"},
        {"key": [2], "reason": "match"},
        {"value": {"k": 3}},
    ]


@rule("publish-9")
def test_a_key_beside_a_value_goes_along() -> None:
    """It must be the one that the value says, and the gateway looks."""
    found = lines(value=['{"k": 5}', '{"k":6}'], key=["[5.0]", None])
    body, enveloped = body_of(found)
    assert (body, enveloped) == (b'{"key":[5],"value":{"k": 5}}\n{"value":{"k":6}}\n', True)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": ["{"]}, "not JSON"),
        ({"value": [""]}, "not JSON"),
        ({"value": ["1\n2"]}, "not JSON"),
        ({"value": ['1,"reason":"deleted"']}, "not JSON"),
        ({"value": ["\ud800".encode("utf-8", "surrogatepass")]}, "not JSON"),
        ({"value": [None]}, "needs the record's key"),
        ({"value": [None], "key": ["IBM"]}, "key of a row is none"),
        ({"value": [None], "key": ['"IBM"']}, "key of a row is none"),
        ({"value": ["1"], "key": ['[1],"value":2']}, "key of a row is none"),
        ({"value": [None], "key": ["[1]"], "removed": ["gone"]}, "one of deleted"),
    ],
)
def test_what_is_no_message_is_refused(columns: dict[str, list[Any]], said: str) -> None:
    with pytest.raises(StreamFailed, match=said):
        lines(**columns)
