"""What the bytes of a record become: a message, a removal, nothing, or a dead letter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.rules import rule
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.connection import Line
from tidegate.pipeline.definitions.source import KeyFormat
from tidegate.pipeline.ingest.connector import SourceRecord
from tidegate.pipeline.ingest.payloads import (
    AddedField,
    PayloadForm,
    PayloadMapping,
    PayloadReader,
    RecordInvalid,
    RecordPart,
)

ID = KeySpec.of(["/id"])
NO_KEY = KeySpec()


def read(
    payload: bytes | None,
    form: str = "json",
    spec: KeySpec = ID,
    value: str = "",
    fields: dict[str, AddedField] | None = None,
    key_format: KeyFormat | None = None,
    **record: Any,
) -> Line | None:
    path = FieldPath.parse(value) if value else None
    mapping = PayloadMapping(PayloadForm(form), path, fields or {}, key_format=key_format)
    return PayloadReader(mapping, spec).read(SourceRecord(payload, 7, "place 7", **record))


def message(text: str) -> Line:
    return Line(text.encode(), False)


def removal(*record: object) -> Line:
    named = json.dumps(record, separators=(",", ":"))
    return Line(f'{{"key":{named},"reason":"deleted"}}'.encode(), True)


@pytest.mark.parametrize(
    ("payload", "spec", "value", "wanted"),
    [
        (b'{"id":1,"x":1.10}', ID, "", '{"id":1,"x":1.10}'),
        (b' {"id":1,\n"x":2}\r\n', ID, "", '{"id":1, "x":2}'),
        (b'{"a":{"b":{"id":1}}}', ID, "/a/b", '{"id":1}'),
        (b"[1,[2]]", NO_KEY, "$[1]", "[2]"),
        (b"21.50", NO_KEY, "", "21.50"),
    ],
)
def test_json_is_published_as_it_is(payload: bytes, spec: KeySpec, value: str, wanted: str) -> None:
    assert read(payload, spec=spec, value=value) == message(wanted)


@pytest.mark.parametrize(
    ("payload", "form", "reason"),
    [
        (b"", "json", "not JSON"),
        (b"{", "json", "not JSON"),
        (b'{"id":"\xff"}', "json", "not valid UTF-8"),
        (b'{"id":1e400}', "json", "a number beyond a double"),
        (b"21.5", "json", "the message has no field /id: it is a number, not an object"),
        (b'{"id":null}', "json", "/id: a key field is a string, number or boolean, not null"),
        (b"\xff", "text", "not valid UTF-8, at byte 0"),
        (b"[]", "cloudevents", "not a JSON object"),
        (b'{"id":1}', "cloudevents", "no specversion: not a CloudEvent in structured mode"),
        (b'{"specversion":"1.0"}', "cloudevents", "the event has no data"),
        (b'{"specversion":"1.0","data_base64":"?"}', "cloudevents", "data_base64 is not base64"),
        (b'{"specversion":"1.0","data_base64":"ew=="}', "cloudevents", "not JSON"),
        (b'{"id":1}', "debezium", "no op of Debezium: c, r, u, d, m or t"),
        (b'{"op":"t"}', "debezium", "op t: a table was truncated, its records stay"),
        (b'{"op":"u","after":null}', "debezium", "the event has no after"),
        (b'{"op":"d"}', "debezium", "the event has no before"),
        (b'{"schema":{},"payload":3}', "debezium", "not a JSON object"),
    ],
)
def test_what_is_no_message_is_a_dead_letter_with_a_reason(
    payload: bytes, form: str, reason: str
) -> None:
    with pytest.raises(RecordInvalid) as raised:
        read(payload, form)
    assert str(raised.value).startswith(reason)


@pytest.mark.parametrize("payload", [None, b'{"id":1}'])
def test_a_fault_that_the_source_knows_is_the_reason(payload: bytes | None) -> None:
    with pytest.raises(RecordInvalid, match="it is too old"):
        read(payload, fault="it is too old")


def test_a_value_that_is_missing_is_named() -> None:
    with pytest.raises(RecordInvalid, match="no field /a/b"):
        read(b'{"a":1}', value="/a/b")


def test_texts_and_bytes_are_json_strings() -> None:
    assert read("a\nü".encode(), "text", NO_KEY) == message('"a\\nü"')
    assert read(b"\x00\xff", "bytes", NO_KEY) == message('"AP8="')


FIELDS = {
    "all": AddedField(RecordPart.CHANNEL),
    "id": AddedField(RecordPart.CHANNEL, 1),
    "k": AddedField(RecordPart.KEY),
    "at": AddedField(RecordPart.TIMESTAMP),
    "place": AddedField(RecordPart.POSITION),
}


def test_fields_are_added_to_an_object_and_wrap_anything_else() -> None:
    added = '"all":"plant/a","id":"a","k":"k\\\\xff","at":5,"place":"place 7"}'
    record: dict[str, Any] = {"channel": "plant/a", "broker_key": b"k\xff", "timestamp_ms": 5}
    assert read(b'{"t":1,"id":2}', fields=FIELDS, **record) == message(
        '{"t":1,"id":"a","all":"plant/a",' + added.split(",", 2)[2]
    )
    assert read(b"21.50", fields=FIELDS, **record) == message('{"value":21.50,' + added)
    assert read(b"on", "text", fields=FIELDS, **record) == message('{"value":"on",' + added)
    with pytest.raises(RecordInvalid, match="its channel has no level 1"):
        read(b"1", fields=FIELDS, channel="plant")


CHANGE = '{"before":%s,"after":%s,"op":"%s","ts_ms":1}'
ROW = '{"id":1,"x":2}'


@pytest.mark.parametrize("with_schema", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "op", "wanted"),
    [
        ("null", ROW, "c", message(ROW)),
        ("null", ROW, "r", message(ROW)),
        (ROW, '{"id":1,"x":3}', "u", message('{"id":1,"x":3}')),
        (ROW, "null", "d", removal(1)),
        ("null", "null", "m", None),
    ],
)
def test_events_of_debezium(
    before: str, after: str, op: str, wanted: Line | None, with_schema: bool
) -> None:
    event = CHANGE % (before, after, op)
    text = f'{{"schema":{{}},"payload":{event}}}' if with_schema else event
    assert read(text.encode(), "debezium") == wanted


@pytest.mark.parametrize(
    ("broker_key", "wanted"),
    [
        (b'{"schema":{},"payload":{"id":1}}', removal(1)),
        (b'{"id":1}', removal(1)),
        (None, None),
        (b'{"other":1}', None),
    ],
)
def test_the_tombstone_after_a_deletion_repeats_it_or_says_nothing(
    broker_key: bytes | None, wanted: Line | None
) -> None:
    assert read(None, "debezium", broker_key=broker_key) == wanted
    assert read(b'{"schema":null,"payload":null}', "debezium", broker_key=broker_key) == wanted


def test_the_data_of_a_cloudevent() -> None:
    assert read(b'{"specversion":"1.0","id":"9","data":{"id":1}}', "cloudevents") == message(
        '{"id":1}'
    )
    encoded = b'{"specversion":"1.0","data_base64":"eyJpZCI6MX0="}'
    assert read(encoded, "cloudevents") == message('{"id":1}')
    inner = b'{"specversion":"1.0","data":{"a":{"id":1}}}'
    assert read(inner, "cloudevents", value="/a") == message('{"id":1}')


@pytest.mark.parametrize("broker_key", [b'{"id":1.0,"x":2}', b"[1]", b"1"])
def test_a_tombstone_removes_the_record_that_its_key_names(broker_key: bytes) -> None:
    assert read(None, key_format=KeyFormat.JSON, broker_key=broker_key) == removal(1)


LIKE_JSON = (b"700", b"true", b"1E5", b'"QUO"', b"[1]", b"null", b'{"id":1}')


@rule("ingest-8")
@pytest.mark.parametrize("broker_key", [b"AAPL", *LIKE_JSON])
def test_a_tombstone_whose_key_is_a_text_removes_the_record_of_that_text(broker_key: bytes) -> None:
    found = read(None, key_format=KeyFormat.TEXT, broker_key=broker_key)
    assert found == removal(broker_key.decode())


@rule("ingest-8")
@pytest.mark.parametrize("broker_key", LIKE_JSON[:-1])
def test_a_tombstone_whose_key_may_be_a_text_or_json_is_a_dead_letter(broker_key: bytes) -> None:
    with pytest.raises(RecordInvalid, match='say which with key_format = "text" or "json"'):
        read(None, broker_key=broker_key)
    assert read(None, "debezium", broker_key=broker_key) is None  # its event has removed the record


def test_a_tombstone_may_be_named_by_added_fields_and_its_key_together() -> None:
    spec = KeySpec.of(["/id", "/line"])
    fields = {"line": AddedField(RecordPart.CHANNEL, 1)}
    found = read(None, spec=spec, fields=fields, channel="plant/a", broker_key=b'{"id":1}')
    assert found == removal(1, "a")


@pytest.mark.parametrize(
    ("broker_key", "spec"), [(None, ID), (b"", ID), (b"[1,2]", ID), (b"{", ID), (b"1", NO_KEY)]
)
def test_a_tombstone_that_names_no_record_is_a_dead_letter(
    broker_key: bytes | None, spec: KeySpec
) -> None:
    with pytest.raises(RecordInvalid):
        read(None, spec=spec, broker_key=broker_key)
