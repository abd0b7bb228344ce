"""Payloads and keys in Protobuf, with the schemas of a registry or of a descriptor file."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, json_format, struct_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt import publish

from tests.pipeline.ingest.ingesting import definitions, eventually, ingesting, journal
from tests.pipeline.ingest.registry import registry_with
from tests.support.commands import serving_here
from tests.support.external.mosquitto import mosquitto
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.errors import DefinitionInvalid, EndpointRefused, EndpointUnavailable
from tidegate.pipeline.ingest.connector import SourceRecord
from tidegate.pipeline.ingest.payloads import (
    PayloadForm,
    PayloadMapping,
    PayloadReader,
    RecordInvalid,
    json_text,
)
from tidegate.pipeline.ingest.protobuf import (
    KNOWN_FILES,
    DescriptorDecoder,
    ProtobufDecoder,
    pool_of,
)
from tidegate.pipeline.ingest.protobuf_values import (
    FLOAT_DIGITS_MAX,
    MessageConverter,
    short_float,
)
from tidegate.pipeline.ingest.schema_registry import HEAD

pytestmark = pytest.mark.system

ONE, MANY = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED
SCALARS = {
    "i32": Field.TYPE_INT32,
    "i64": Field.TYPE_INT64,
    "u32": Field.TYPE_UINT32,
    "u64": Field.TYPE_UINT64,
    "s64": Field.TYPE_SINT64,
    "f64": Field.TYPE_FIXED64,
    "flag": Field.TYPE_BOOL,
    "text": Field.TYPE_STRING,
    "raw": Field.TYPE_BYTES,
    "double": Field.TYPE_DOUBLE,
    "float": Field.TYPE_FLOAT,
}
"""A field for each of these types; the others differ from them only on the wire."""


def add_field(message: Any, name: str, kind: int, type_name: str = "", label: int = ONE) -> Any:
    number = len(message.field) + 1
    field = message.field.add(name=name, number=number, type=kind, label=label)
    if type_name:
        field.type_name = type_name
    return field


def place_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="plant/place.proto", package="plant", syntax="proto3"
    )
    add_field(file.message_type.add(name="Place"), "hall", Field.TYPE_STRING)
    return file


def reading_file() -> Any:
    """A file with types that are nested, imported, repeated and optional."""
    file = descriptor_pb2.FileDescriptorProto(name="any.proto", package="plant", syntax="proto3")
    types = ["any", "duration", "field_mask", "struct", "timestamp", "wrappers"]
    file.dependency.extend(f"google/protobuf/{each}.proto" for each in types)
    file.dependency.extend(
        ["plant/place.proto", "confluent/meta.proto", "confluent/types/decimal.proto"]
    )
    state = file.enum_type.add(name="State")
    for number, name in enumerate(["UNKNOWN", "RUNNING"]):
        state.value.add(name=name, number=number)
    add_field(file.message_type.add(name="Key"), "i64", Field.TYPE_INT64)
    reading = file.message_type.add(name="Reading")
    entry = reading.nested_type.add(name="ByFlagEntry")
    entry.options.map_entry = True
    add_field(entry, "key", Field.TYPE_BOOL)
    add_field(entry, "value", Field.TYPE_ENUM, ".plant.State")
    inner = reading.nested_type.add(name="Inner")
    add_field(inner, "n", Field.TYPE_INT64)
    for name, kind in SCALARS.items():
        add_field(reading, name, kind)
    add_field(reading, "numbers", Field.TYPE_UINT64, label=MANY)
    add_field(reading, "state", Field.TYPE_ENUM, ".plant.State")
    add_field(reading, "by_flag", Field.TYPE_MESSAGE, ".plant.Reading.ByFlagEntry", MANY)
    add_field(reading, "inner", Field.TYPE_MESSAGE, ".plant.Reading.Inner")
    add_field(reading, "inners", Field.TYPE_MESSAGE, ".plant.Reading.Inner", MANY)
    add_field(reading, "place", Field.TYPE_MESSAGE, ".plant.Place")
    given = add_field(reading, "maybe", Field.TYPE_INT32)
    given.proto3_optional, given.oneof_index = True, 0
    reading.oneof_decl.add(name="_maybe")
    for name in ("Any", "Duration", "FieldMask", "Int64Value", "Struct", "Timestamp"):
        add_field(reading, f"a_{name.lower()}", Field.TYPE_MESSAGE, f".google.protobuf.{name}")
    add_field(reading, "price", Field.TYPE_MESSAGE, ".confluent.type.Decimal")
    return file


POOL = pool_of([place_file(), reading_file()])
Reading: Any = GetMessageClass(POOL.FindMessageTypeByName("plant.Reading"))
Inner: Any = GetMessageClass(POOL.FindMessageTypeByName("plant.Reading.Inner"))
Key: Any = GetMessageClass(POOL.FindMessageTypeByName("plant.Key"))
REFERENCE = [{"name": "plant/place.proto", "subject": "plant/place.proto", "version": 2}]


def answer(file: Any, **more: Any) -> dict[str, Any]:
    text = base64.b64encode(file.SerializeToString()).decode()
    return {"schema": text, "schemaType": "PROTOBUF", **more}


def unusable_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="bad.proto", syntax="proto3")
    add_field(file.message_type.add(name="Bad"), "x", Field.TYPE_MESSAGE, ".Missing")
    return file


def importing_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="bad.proto", syntax="proto3")
    file.dependency.append("google/type/date.proto")
    return file


SERIALIZED = "?format=serialized"
ANSWERS = {
    f"/schemas/ids/1{SERIALIZED}": answer(reading_file(), references=REFERENCE),
    f"/subjects/plant%2Fplace.proto/versions/2{SERIALIZED}": answer(place_file(), references=None),
    f"/schemas/ids/2{SERIALIZED}": {"schema": '"string"'},
    f"/schemas/ids/3{SERIALIZED}": answer(unusable_file()),
    f"/schemas/ids/4{SERIALIZED}": answer(importing_file()),
    f"/schemas/ids/5{SERIALIZED}": {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
}


@pytest.fixture
def registry() -> Iterator[tuple[str, list[str]]]:
    with registry_with(ANSWERS) as served:
        yield served


@pytest.fixture
def decode(registry: tuple[str, list[str]]) -> Iterator[ProtobufDecoder]:
    decoder = ProtobufDecoder(registry[0])
    yield decoder
    decoder.close()


def framed(message: Any, path: bytes = b"\x02\x02", schema_id: int = 1) -> bytes:
    """A payload; the path [1] is the type Reading."""
    content: bytes = message.SerializeToString()
    return HEAD.pack(0, schema_id) + path + content


def test_values_have_their_json_and_a_schema_is_fetched_once(
    decode: ProtobufDecoder, registry: tuple[str, list[str]]
) -> None:
    message = Reading(i64=-(2**63), u64=2**64 - 1, float=0.1, raw=b"\0", state=1, maybe=0)
    message.numbers.extend([2**53 + 1])
    message.by_flag[True] = 7  # a number that the enumeration does not know
    message.inners.add(n=2)
    message.place.hall = "north"
    message.a_timestamp.FromJsonString("2026-11-29T10:00:00.005Z")
    message.a_duration.FromMilliseconds(1500)
    message.a_int64value.value = 2**60
    message.a_struct.update({"a": [1, None]})
    message.a_fieldmask.paths.append("a_b")
    message.a_any.Pack(Inner(n=3))
    message.price.value, message.price.scale = (-110).to_bytes(2, "big", signed=True), 2
    wanted = (
        '{"i32":0,"i64":-9223372036854775808,"u32":0,"u64":18446744073709551615,"s64":0,"f64":0,'
        '"flag":false,"text":"","raw":"AA==","double":0.0,"float":0.1,"numbers":[9007199254740993],'
        '"state":"RUNNING","by_flag":{"true":7},"inners":[{"n":2}],"place":{"hall":"north"},'
        '"maybe":0,"a_any":{"@type":"type.googleapis.com/plant.Reading.Inner","n":3},'
        '"a_duration":"1.500s","a_fieldmask":"aB","a_int64value":1152921504606846976,'
        '"a_struct":{"a":[1.0,null]},"a_timestamp":"2026-11-29T10:00:00.005Z","price":-1.10}'
    )
    for _ in range(2):
        assert decode(framed(message)).decode() == wanted
    assert registry[1] == list(ANSWERS)[:2]


@pytest.mark.parametrize(
    ("message", "path", "wanted"),
    [
        (Key(i64=1), b"\0", '{"i64":1}'),
        (Key(i64=1), b"\x02\0", '{"i64":1}'),
        (Inner(n=1), b"\x04\x02\x02", '{"n":1}'),
    ],
)
def test_a_payload_names_its_type_by_a_path(
    decode: ProtobufDecoder, message: Any, path: bytes, wanted: str
) -> None:
    assert decode(framed(message, path)).decode() == wanted


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "no Protobuf with the id of a schema"),
        (b'{"id":1}', "no Protobuf with the id of a schema"),
        (HEAD.pack(0, 1), "no Protobuf: it ends before its message"),
        (HEAD.pack(0, 1) + b"\x04\x80", "no Protobuf: it ends before its message"),
        (HEAD.pack(0, 1) + b"\x01", "no Protobuf: a path of -1 message types"),
        (HEAD.pack(0, 1) + b"\x7e", "no Protobuf: a path of 63 message types"),
        (HEAD.pack(0, 1) + b"\xff" * 9, "no Protobuf: the index of a message type is too long"),
        (framed(Reading(), b"\x02\x04"), "schema 1 has no message type at [2]"),
        (framed(Reading(), b"\x02\x01"), "schema 1 has no message type at [-1]"),
        (framed(Reading(text="abc"))[:-1], "no Protobuf of schema 1: "),
        (framed(Reading(double=float("nan"))), "a number that JSON lacks"),
        (framed(Reading(a_timestamp={"seconds": 2**60})), "a value that JSON lacks: "),
        (framed(Reading(price={"value": b"\x7f" * 9_000})), "a value that JSON lacks: "),
        (framed(Reading(a_any={"type_url": "x/Y"})), "an Any of the type x/Y"),
        (
            framed(Reading(a_any={"type_url": "x/plant.Key", "value": b"\xff"})),
            "an Any that is not x/plant.Key",
        ),
        (framed(Reading(), schema_id=9), "the registry has no /schemas/ids/9"),
        (framed(Reading(), schema_id=2), "its schema is for avro, not for protobuf"),
        (framed(Reading(), schema_id=3), "a schema that cannot be used: "),
        (framed(Reading(), schema_id=4), "a schema imports google/type/date.proto, which"),
    ],
)
def test_what_is_none_is_a_dead_letter(
    decode: ProtobufDecoder, payload: bytes, reason: str
) -> None:
    with pytest.raises(RecordInvalid) as raised:
        decode(payload)
    assert str(raised.value).startswith(reason)


def test_a_registry_that_cannot_compile_is_no_fault_of_the_record(decode: ProtobufDecoder) -> None:
    with pytest.raises(EndpointRefused, match="has no compiled schemas"):
        decode(framed(Reading(), schema_id=5))
    decoder = ProtobufDecoder("http://127.0.0.1:1")
    with pytest.raises(EndpointUnavailable, match="cannot ask the schema registry"):
        decoder(framed(Reading()))
    decoder.close()


def test_keys_and_tombstones(decode: ProtobufDecoder) -> None:
    reader = PayloadReader(PayloadMapping(PayloadForm.JSON), KeySpec.of(["/i64"]), decode=decode)
    tombstone = SourceRecord(None, 2, "2", broker_key=framed(Key(i64=7), b"\0"))
    assert reader.read(tombstone) == (b'{"key":[7],"reason":"deleted"}', True)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


FLOAT_READ_MAX = 3.4028232635611926e38
"""The greatest but one: protobuf writes the greatest as 3.4028235e38, and refuses to read that."""
STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "i32": integers(32),
    "i64": integers(64),
    "u32": st.integers(0, 2**32 - 1),
    "u64": st.integers(0, 2**64 - 1),
    "s64": integers(64),
    "f64": st.integers(0, 2**64 - 1),
    "flag": st.booleans(),
    "text": st.text(),
    "raw": st.binary(),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "float": st.floats(-FLOAT_READ_MAX, FLOAT_READ_MAX, width=32),
}
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        **STRATEGIES,
        "numbers": st.lists(STRATEGIES["u64"], max_size=3),
        "state": st.sampled_from([0, 1]),
        "by_flag": st.dictionaries(st.booleans(), st.sampled_from([0, 1])),
        "inner": st.builds(Inner, n=STRATEGIES["i64"]),
        "inners": st.lists(st.builds(Inner, n=STRATEGIES["i64"]), max_size=2),
        "maybe": STRATEGIES["i32"],
    },
)


@settings(deadline=None)
@given(FIELDS)
def test_any_message_can_be_read_back_from_its_json(fields: dict[str, Any]) -> None:
    message = Reading(**fields)
    text = json_text(MessageConverter(POOL).value(message))
    assert json_format.Parse(text, Reading()) == message
    found = json.loads(text)
    assert all(isinstance(found[name], int) for name in ("i64", "u64", "s64", "f64"))


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_float_keeps_its_value_with_few_digits(number: float) -> None:
    short = short_float(number)
    assert struct_float(short) == number
    assert digits(short) <= min(digits(number), FLOAT_DIGITS_MAX)


def digits(number: float) -> int:
    """How many significant digits a number is written with."""
    return len(Decimal(repr(number)).normalize().as_tuple().digits)


def struct_float(number: float) -> float:
    return float(Reading(float=number).float)


# --- a descriptor file


@pytest.fixture
def descriptor(tmp_path: Path) -> Path:
    names = ("google/protobuf/struct.proto",)
    files = [descriptor_pb2.FileDescriptorProto.FromString(KNOWN_FILES[name]) for name in names]
    found = descriptor_pb2.FileDescriptorSet(file=[*files, place_file()])
    path = tmp_path / "plant.desc"
    path.write_bytes(found.SerializeToString())
    return path


def test_a_descriptor_file_describes_payloads_without_a_frame(descriptor: Path) -> None:
    decode = DescriptorDecoder(descriptor, "plant.Place")
    assert decode(b"\x0a\x01n") == b'{"hall":"n"}'
    assert decode(b"") == b'{"hall":""}'
    with pytest.raises(RecordInvalid, match=r"no plant\.Place: "):
        decode(b"\x0a\x05n")
    reader = PayloadReader(PayloadMapping(), KeySpec.of(["/hall"]), decode=decode)
    found = reader.read(SourceRecord(b"\x0a\x01n", 1, "1", broker_key=b"\0\0"))
    assert found is not None
    assert (
        DescriptorDecoder(descriptor, "google.protobuf.Value")(
            struct_pb2.Value(number_value=1.5).SerializeToString()
        )
        == b"1.5"
    )


PLANT = """
[ingest.a]
key = ["/hall"]
encoding = "protobuf"
descriptor = "plant.desc"
message = "plant.Place"
source = {kind = "redis", address = "redis://h", stream = "s", field = "f"}
sink = {topic = "t"}
"""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("plant.desc", "other.desc", "descriptor: {folder}/other.desc: No such file"),
        (
            "plant.desc",
            "sources.toml",
            "descriptor: sources.toml is not a descriptor set of protoc",
        ),
        ("plant.Place", "Place", "descriptor: plant.desc has no message type Place"),
        ("plant.Place", "plant Place", "message: expected the full name of a message type"),
        ('message = "plant.Place"\n', "", "message: is missing"),
        ('encoding = "protobuf"', "", "descriptor: only with encoding"),
        ('descriptor = "plant.desc"', "", "registry: is missing"),
        ('descriptor = "plant.desc"', 'registry = "http://h"', "message: only with encoding"),
    ],
)
def test_a_definition_with_a_descriptor_file_is_read_strictly(
    descriptor: Path, old: str, new: str, complaint: str
) -> None:
    definitions(descriptor.parent, PLANT, "http://h")
    assert old in PLANT
    with pytest.raises(DefinitionInvalid) as raised:
        definitions(descriptor.parent, PLANT.replace(old, new), "http://h")
    assert complaint.format(folder=descriptor.parent) in str(raised.value)


# --- a whole source


@pytest.mark.parametrize("has_registry", [True, False])
def test_payloads_of_a_source_become_messages(
    registry: tuple[str, list[str]], descriptor: Path, tmp_path: Path, has_registry: bool
) -> None:
    described = 'descriptor = "plant.desc"\nmessage = "plant.Place"'
    payload = b"\x0a\x01n"
    if has_registry:
        described = f'registry = "{registry[0]}"\nvalue = "/place"'
        payload = framed(Reading(place={"hall": "n"}))
    with serving_here() as address, mosquitto(tmp_path) as broker:
        definition = f"""
            [ingest.a]
            encoding = "protobuf"
            {described}
            source = {{kind = "mqtt", address = "{broker.address}", subscribe = ["a"]}}
            sink = {{topic = "t"}}
        """
        send = partial(publish.single, "a", hostname="127.0.0.1", port=broker.port, retain=True)
        send(payload)
        with ingesting(tmp_path, definition, address):
            eventually(lambda: journal(address, "t"), [{"hall": "n"}])
            send(b"\xff")
            eventually(lambda: len(journal(address, "t.dead")), 1)
