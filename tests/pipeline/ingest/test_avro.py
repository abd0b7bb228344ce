"""Payloads and keys in Avro, with the schemas of a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from tests.pipeline.ingest.registry import registry_with
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.errors import EndpointUnavailable
from tidegate.pipeline.ingest.avro import AvroDecoder
from tidegate.pipeline.ingest.connector import SourceRecord
from tidegate.pipeline.ingest.payloads import (
    PayloadForm,
    PayloadMapping,
    PayloadReader,
    RecordInvalid,
)
from tidegate.pipeline.ingest.schema_registry import HEAD

pytestmark = pytest.mark.system


def record_schema(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields],
    }


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
PLACE = record_schema("plant.Place", ("hall", "string"))
ORDER = record_schema(
    "Order",
    *(("id", "long"), ("price", MONEY), ("at", TIME), ("raw", "bytes"), ("x", ["null", "double"])),
)
MACHINE = record_schema("Machine", ("id", "string"), ("place", "plant.Place"))
EVENT = record_schema(
    "Event", ("op", "string"), ("before", ["null", ORDER]), ("after", ["null", "Order"])
)
KEY = record_schema("Key", ("id", "long"))
REFERENCE = [{"name": "plant.Place", "subject": "places/a", "version": 2}]
ANSWERS: dict[str, dict[str, Any]] = {
    "/schemas/ids/1": {"schema": json.dumps(ORDER)},
    "/schemas/ids/2": {"schema": json.dumps(MACHINE), "references": REFERENCE},
    "/subjects/places%2Fa/versions/2": {"schema": json.dumps(PLACE), "version": 2},
    "/schemas/ids/3": {"schema": json.dumps(EVENT)},
    "/schemas/ids/4": {"schema": json.dumps(KEY)},
    "/schemas/ids/5": {"schema": '{"type": "record"}'},
}


@pytest.fixture
def registry() -> Iterator[tuple[str, list[str]]]:
    with registry_with(ANSWERS) as served:
        yield served


@pytest.fixture
def decode(registry: tuple[str, list[str]]) -> Iterator[AvroDecoder]:
    decoder = AvroDecoder(registry[0])
    yield decoder
    decoder.close()


def avro(schema_id: int, value: dict[str, Any], *schemas: dict[str, Any]) -> bytes:
    content, named = io.BytesIO(), dict[str, Any]()
    for schema in schemas:
        parsed = parse_schema(schema, named_schemas=named)
    schemaless_writer(content, parsed, value)
    return HEAD.pack(0, schema_id) + content.getvalue()


def order(**given: Any) -> dict[str, Any]:
    at = datetime(2026, 11, 29, 10, 0, 0, 5_000, UTC)
    return {"id": 7, "price": Decimal("1.10"), "at": at, "raw": b"\0", "x": None, **given}


ORDER_TEXT = '{"id":7,"price":1.10,"at":"2026-11-29T10:00:00.005000Z","raw":"AA==","x":null}'


def test_values_have_their_json_and_a_schema_is_fetched_once(
    decode: AvroDecoder, registry: tuple[str, list[str]]
) -> None:
    for _ in range(2):
        assert decode(avro(1, order(), ORDER)).decode() == ORDER_TEXT
    assert registry[1] == ["/schemas/ids/1"]


def test_a_schema_may_refer_to_others(decode: AvroDecoder) -> None:
    payload = avro(2, {"id": "a", "place": {"hall": "north"}}, PLACE, MACHINE)
    assert decode(payload) == b'{"id":"a","place":{"hall":"north"}}'


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "no Avro with the id of a schema"),
        (b'{"id":1}', "no Avro with the id of a schema"),
        (avro(1, order(), ORDER)[:-3], "no Avro of schema 1: "),
        (avro(1, order(), ORDER) + b"x", "no Avro of schema 1: bytes are left"),
        (avro(1, order(x=float("nan")), ORDER), "a number that JSON lacks"),
        (avro(9, order(), ORDER), "the registry has no /schemas/ids/9"),
        (avro(5, order(), ORDER), "a schema that cannot be used"),
    ],
)
def test_what_is_none_is_a_dead_letter(decode: AvroDecoder, payload: bytes, reason: str) -> None:
    with pytest.raises(RecordInvalid) as raised:
        decode(payload)
    assert str(raised.value).startswith(reason)


def test_a_registry_that_does_not_answer_is_no_fault_of_the_record() -> None:
    decoder = AvroDecoder("http://127.0.0.1:1")
    with pytest.raises(EndpointUnavailable, match="cannot ask the schema registry"):
        decoder(avro(1, order(), ORDER))
    decoder.close()


def test_a_registry_that_refuses_is_named_without_its_password() -> None:
    with registry_with(ANSWERS, status=401) as (address, _):
        decoder = AvroDecoder(address.replace("//", "//user:geheim@"))
        with pytest.raises(EndpointUnavailable) as raised:
            decoder(avro(1, order(), ORDER))
        decoder.close()
    assert str(raised.value) == "the schema registry answers 401 for /schemas/ids/1"


def test_events_of_debezium_and_their_keys(decode: AvroDecoder) -> None:
    mapping = PayloadMapping(PayloadForm.DEBEZIUM)
    reader = PayloadReader(mapping, KeySpec.of(["/id"]), decode=decode)
    event = {"op": "u", "before": None, "after": order()}
    found = reader.read(SourceRecord(avro(3, event, EVENT), 1, "1"))
    assert found is not None
    assert found.text.decode() == ORDER_TEXT
    tombstone = SourceRecord(None, 2, "2", broker_key=avro(4, {"id": 7}, KEY))
    assert reader.read(tombstone) == (b'{"key":[7],"reason":"deleted"}', True)
