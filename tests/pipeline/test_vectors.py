"""The pipeline on the cases that it shares with gateway and clients; it needs no Spark for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.pipeline.definitions.streams_file import GOOD, written
from tests.support.rules import rule
from tests.support.vectors import Vector, each_vector, vectors
from tidegate.keys.path import FieldPath
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec, record_key
from tidegate.pipeline.columns.reading import KeyCodes, LineInvalidError, MessageReader
from tidegate.pipeline.definitions.source import TopicSource
from tidegate.pipeline.definitions.stream import StreamDefinition, read_definitions
from tidegate.pipeline.definitions.toml import TomlTable, read_paths
from tidegate.pipeline.errors import DefinitionInvalid, StreamFailed
from tidegate.pipeline.format.envelope import envelope_batch
from tidegate.pipeline.format.writer import lines_of
from tidegate.pipeline.json_fields.field_columns import top_level
from tidegate.pipeline.json_fields.reducing import Folded
from tidegate.pipeline.sources.broker_key import removed_key
from tidegate.pipeline.views.joins import Join, Side

PLACES = ("/one", "/two")
JOIN = Join(((FieldPath.parse("/v"), FieldPath.parse("/v")),), FieldPath.parse("/right"))


def table(**fields: object) -> TomlTable:
    return TomlTable(fields, "streams.toml", "pipeline.s.")


@each_vector("paths", "paths")
def test_a_key_in_a_definition_has_the_gateways_paths(vector: Vector) -> None:
    spec = read_paths(table(key=["/k", vector["text"]]), "key")
    assert spec.paths[1].steps == tuple(vector["steps"])
    [step, *deeper] = vector["steps"]
    is_flat = isinstance(step, str) and not deeper
    assert top_level(spec.paths[1]) == (step if is_flat else None)


@each_vector("paths", "refused")
def test_a_definition_with_no_path_is_refused_with_its_place(vector: Vector) -> None:
    place = rf"streams.toml: pipeline.s.key\[1\], position {vector['position']}: "
    with pytest.raises(DefinitionInvalid, match=place):
        read_paths(table(key=["/k", vector["text"]]), "key")


def column(*texts: str) -> pa.Array:
    return pa.array([text.encode() for text in texts], pa.binary())


def keys_read(key: list[str], lines: list[str]) -> list[str]:
    reader = MessageReader([KeySpec.of(key)], None, strict=True)
    [codes] = reader.read(column(*lines)).codes
    return [reader.codes[0].texts[code] for code in codes.tolist()]


@rule("key-1", "key-2")
@each_vector("keys", "records")
def test_a_message_has_the_gateways_key(vector: Vector) -> None:
    key, record = vector["key"], vector["record"]
    # By itself; and among messages that are read at once, whose keys are plain.
    assert keys_read(key, [record]) == [vector["text"]]
    if key == ["/id"]:
        around = '{"id":"x","text":1}'
        assert keys_read(key, [around, record, around]) == ['["x"]', vector["text"], '["x"]']


@rule("key-2", "key-3")
@each_vector("keys", "refused")
def test_a_message_without_a_key_is_refused_as_by_the_gateway(vector: Vector) -> None:
    reader = MessageReader([KeySpec.of(vector["key"])], None, strict=True)
    record = vector["record"]
    with pytest.raises(LineInvalidError) as refused:
        reader.read(column(record))
    assert refused.value.index == 0
    [reason] = reader.judged([record.encode()], 1_000)
    assert reason is not None
    assert reason.startswith(f"{vector['code']}: ")


@rule("interval-9")
@each_vector("keys", "groups")
def test_messages_are_conflated_by_the_gateways_key(vector: Vector) -> None:
    fields = msgspec.json.decode(vector["text"], type=list[msgspec.Raw])
    record = b",".join(b'"f%d":%s' % (at, bytes(field)) for at, field in enumerate(fields))
    codes = KeyCodes(KeySpec.of([f"/f{at}" for at in range(len(fields))]))
    codes.of_line(b"{%s}" % record)
    assert codes.texts == [vector["key"]]


@rule("key-1")
@each_vector("keys", "written")
def test_a_record_is_removed_however_its_key_is_written(vector: Vector) -> None:
    rows = {"value": [None], "key": [vector["text"]]}
    [line] = lines_of(pa.record_batch(rows, pa.schema([(n, pa.string()) for n in rows])))
    assert line.text == f'{{"key":{vector["key"]},"reason":"deleted"}}'.encode()
    spec = KeySpec.of(["/symbol", "/n"])
    found = removed_key(vector["text"].strip().encode(), spec, record_key(spec))
    assert found == vector["key"]


@each_vector("keys", "written_refused")
def test_what_is_no_key_removes_nothing(vector: Vector) -> None:
    rows = {"value": [None], "key": [vector["text"]]}
    with pytest.raises(StreamFailed, match="key"):
        list(lines_of(pa.record_batch(rows, pa.schema([(n, pa.string()) for n in rows]))))
    spec = KeySpec.of(["/symbol", "/n"])
    assert removed_key(vector["text"].encode(), spec, record_key(spec)) is None


@each_vector("numbers", "numbers")
def test_a_number_keeps_its_text_from_journal_to_publisher(vector: Vector) -> None:
    text = vector["text"]
    [row] = envelope_batch(f'{{"bookmark":"e1-1","value":{text}}}'.encode(), "e1", 0).to_pylist()
    assert row["value"] == text
    [line] = lines_of(pa.record_batch({"value": [row["value"]]}))
    assert line.text.decode() == text


@rule("merge-6", "view-12")
@each_vector("numbers", "numbers")
def test_a_number_is_reduced_and_joined_as_by_the_gateway(vector: Vector) -> None:
    record = f'{{"v":{vector["text"]}}}'.encode()
    for reducer in ("sum", "min", "max", "first", "last", "avg"):
        folded = Folded(Reduce.parse(f"[/v:{reducer}]"))
        [found] = folded.shown(folded.begin(column(record.decode()))).to_pylist()
        expected = Reduce.parse(f"[/v:{reducer}]").begin(record).payload()
        assert found == expected, reducer
    link = JOIN.link_of(Side.LEFT)(record)
    assert link == f'["{vector["spelling"]}"]'


@rule("key-3")
@pytest.mark.parametrize(
    "vector", [*vectors("numbers", "refused"), *vectors("numbers", "not_json")]
)
def test_what_is_no_number_is_no_message(vector: Vector) -> None:
    with pytest.raises(StreamFailed, match="not JSON"):
        list(lines_of(pa.record_batch({"value": [vector["text"]]})))
    with pytest.raises(LineInvalidError):
        MessageReader([KeySpec()], None).read(column(vector["text"]))


def definition(folder: Path, **changes: str) -> StreamDefinition:
    """The first stream of the file, with other values of TOML."""
    text = GOOD
    for old, new in changes.items():
        text = text.replace(old, new, 1)
    return read_definitions(written(folder, text))[0]


def toml(text: str) -> str:
    """A text as TOML writes it."""
    return msgspec.json.encode(text).decode()


@each_vector("durations", "intervals")
def test_an_interval_is_whole_milliseconds(vector: Vector, tmp_path: Path) -> None:
    stream = definition(tmp_path, **{'"500MS"': toml(vector["text"])})
    assert stream.interval_ms == vector["ms"]


@each_vector("durations", "intervals_refused")
def test_a_duration_out_of_bounds_is_no_interval(vector: Vector, tmp_path: Path) -> None:
    with pytest.raises(DefinitionInvalid, match="interval: expected"):
        definition(tmp_path, **{'"500MS"': toml(vector["text"])})


@each_vector("durations", "refused")
def test_what_is_no_duration_is_no_interval(vector: Vector, tmp_path: Path) -> None:
    with pytest.raises(DefinitionInvalid, match="interval: expected"):
        definition(tmp_path, **{'"500MS"': toml(vector["text"])})


def source_from(folder: Path, start: str) -> Any:
    stream = definition(folder, **{'topic = "ticks"}': f'topic = "ticks", from = {toml(start)}}}'})
    assert isinstance(stream.source, TopicSource)
    return stream.source


@each_vector("resume", "bookmarks")
def test_a_source_begins_behind_a_bookmark(vector: Vector, tmp_path: Path) -> None:
    assert source_from(tmp_path, vector["text"]).start == vector["text"]
    body = f'{{"bookmark":"{vector["text"]}","value":1}}'.encode()
    if 0 < vector["offset"] < 2**63 - 1:
        [row] = envelope_batch(body, vector["epoch"], vector["offset"] - 1).to_pylist()
        assert (row["offset"], row["bookmark"]) == (vector["offset"], vector["text"])


@pytest.mark.parametrize(
    "vector", [each for each in vectors("resume", "bookmarks_refused") if each["text"] != "now"]
)
def test_a_source_begins_behind_nothing_else(vector: Vector, tmp_path: Path) -> None:
    with pytest.raises(DefinitionInvalid, match=r"from: expected epoch .* or a bookmark"):
        source_from(tmp_path, vector["text"])
