"""A record's bytes as a message of the topic, a removal, nothing, or a dead letter."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, Protocol

import msgspec

from tidegate.keys.errors import KeysError
from tidegate.keys.jsontext import NULL, check_json, one_line
from tidegate.keys.path import FieldPath, getter
from tidegate.keys.spec import KeySpec, record_key
from tidegate.pipeline.connection import Line, removal
from tidegate.pipeline.definitions.source import KeyFormat
from tidegate.pipeline.ingest.connector import SourceRecord
from tidegate.pipeline.sources.broker_key import KeyAmbiguous, removed_key

# --- what a definition says


class PayloadForm(StrEnum):
    """How the bytes of a payload are read."""

    JSON = "json"
    DEBEZIUM = "debezium"
    CLOUDEVENTS = "cloudevents"
    TEXT = "text"
    BYTES = "bytes"


class RecordPart(StrEnum):
    """The part of a record that an added field holds."""

    CHANNEL = "channel"
    KEY = "key"
    TIMESTAMP = "timestamp"
    POSITION = "position"


@dataclass(frozen=True, slots=True)
class AddedField:
    """A field that is added to each message; `level`, from 0, is one of its channel's."""

    part: RecordPart
    level: int | None = None


@dataclass(frozen=True, slots=True)
class PayloadMapping:
    """How records become messages.

    `value` is the place of the message within the payload; None is the payload as a whole.
    `new_decoder` is None where payloads and keys are JSON. `key_format` is how the keys of
    tombstones are written; None where the definition does not say.
    """

    form: PayloadForm = PayloadForm.JSON
    value: FieldPath | None = None
    fields: Mapping[str, AddedField] = field(default_factory=dict)
    new_decoder: NewDecoder | None = None
    key_format: KeyFormat | None = None


class Decoder(Protocol):
    """Decodes payloads to JSON, and keys where `decodes_keys` is true."""

    decodes_keys: ClassVar[bool]

    def __call__(self, payload: bytes) -> bytes:
        """Return a payload or a key as JSON text.

        Raises:
            RecordInvalid: it cannot be decoded.
        """

    def close(self) -> None:
        """Close the connection to a registry of schemas."""


NewDecoder = Callable[[], Decoder]
"""Returns what decodes the payloads of one run; it loads the library of their encoding."""


# --- reading


class RecordInvalid(Exception):
    """A record that is no message of the topic; the text is the reason."""


JsonFields = dict[str, msgspec.Raw]
_decode_fields = msgspec.json.Decoder(JsonFields).decode
_encode = msgspec.json.encode
_encode_numbers = msgspec.json.Encoder(decimal_format="number").encode
WRAPPED = "value"
"""The field that holds a payload which is not an object, so that other fields can be added."""


class PayloadReader:
    """Reads the payloads of one source.

    Args:
        mapping: what its definition says.
        spec: the topic's key; empty where it has none.
        separator: between the levels of channels.
        decode: of payloads and keys; None where these are JSON.
    """

    def __init__(
        self,
        mapping: PayloadMapping,
        spec: KeySpec,
        separator: str = "/",
        decode: Decoder | None = None,
    ) -> None:
        self._mapping = mapping
        self._decode = decode
        self._spec = spec
        self._separator = separator
        self._key_of = record_key(spec)
        self._value_of = getter(mapping.value.steps) if mapping.value else None
        forms: dict[PayloadForm, Callable[[SourceRecord, bytes], Line | None]] = {
            PayloadForm.JSON: self._json,
            PayloadForm.DEBEZIUM: self._debezium,
            PayloadForm.CLOUDEVENTS: self._cloudevents,
            PayloadForm.TEXT: self._text,
            PayloadForm.BYTES: self._bytes,
        }
        self._read = forms[mapping.form]

    def unchecked(self, records: Sequence[SourceRecord]) -> list[Line] | None:
        """Return the lines of records for the gateway to check; None if `read` has to.

        That is where each payload is a message as it is: an object of JSON, if it is JSON at all,
        and in one line. Between envelopes of removals it has to be checked.
        """
        mapping = self._mapping
        is_plain = mapping.form is PayloadForm.JSON and mapping.value is None and not mapping.fields
        if not is_plain or self._decode is not None:
            return None
        lines: list[Line] = []
        for record in records:
            text = record.payload
            if text is None or record.fault or text[:1] != b"{" or b"\n" in text or b"\r" in text:
                return None
            lines.append(Line(text))
        return lines

    def read(self, record: SourceRecord) -> Line | None:
        """Return the line that a record publishes; None if it says nothing about any record.

        Raises:
            RecordInvalid: it is a dead letter.
        """
        if record.fault:
            raise RecordInvalid(record.fault)
        key_format = self._mapping.key_format
        if self._decode is not None:
            if _has_encoded_key(record, self._decode):
                key_format = KeyFormat.JSON
            record = _decoded(record, self._decode)
        try:
            if record.payload is None:
                return self._tombstone(record, key_format)
            return self._read(record, record.payload)
        except KeysError as error:
            raise RecordInvalid(error.detail) from None

    # Forms

    def _json(self, record: SourceRecord, payload: bytes) -> Line:
        check_json(payload)
        return self._message(record, self._inner(payload))

    def _text(self, record: SourceRecord, payload: bytes) -> Line:
        try:
            text = payload.decode()
        except UnicodeDecodeError as error:
            raise RecordInvalid(f"not valid UTF-8, at byte {error.start}") from None
        return self._message(record, _encode(text))

    def _bytes(self, record: SourceRecord, payload: bytes) -> Line:
        return self._message(record, _encode(payload))  # msgspec writes bytes as base64

    def _cloudevents(self, record: SourceRecord, payload: bytes) -> Line:
        """Read an event in structured mode; in binary mode the payload is the data itself."""
        event = _object(payload)
        if "specversion" not in event:
            raise RecordInvalid("no specversion: not a CloudEvent in structured mode")
        if "data_base64" in event:
            try:
                text = msgspec.json.decode(event["data_base64"], type=str)
                content = base64.b64decode(text, validate=True)
            except (msgspec.DecodeError, binascii.Error):
                raise RecordInvalid("data_base64 is not base64") from None
            check_json(content)
        elif "data" in event:
            content = bytes(event["data"])
        else:
            raise RecordInvalid("the event has no data")
        return self._message(record, self._inner(content))

    def _debezium(self, record: SourceRecord, payload: bytes) -> Line | None:
        """Read a change event, with or without its schema."""
        event = _object(payload)
        if "payload" in event and "schema" in event:
            if bytes(event["payload"]) == NULL:
                return self._tombstone(record, self._mapping.key_format)
            event = _fields_of(bytes(event["payload"]))
        match bytes(event.get("op", b"")):
            case b'"c"' | b'"r"' | b'"u"':
                return self._message(record, self._inner(_row(event, "after")))
            case b'"d"':
                removed = self._with_fields(record, self._inner(_row(event, "before")))
                return self._removal(self._key_of(removed))
            case b'"m"':  # a message that a program wrote into the log of PostgreSQL
                return None
            case b'"t"':
                raise RecordInvalid("op t: a table was truncated, its records stay")
            case _:
                raise RecordInvalid("no op of Debezium: c, r, u, d, m or t")

    # What they share

    def _inner(self, text: bytes) -> bytes:
        if self._value_of is None:
            return text
        found = self._value_of(text)
        if found is None:
            raise RecordInvalid(f"no field {self._mapping.value}")
        return found

    def _message(self, record: SourceRecord, value: bytes) -> Line:
        message = self._with_fields(record, one_line(value))
        if self._spec:
            self._key_of(message)  # raises; the gateway would refuse the whole request
        return Line(message)

    def _with_fields(self, record: SourceRecord, value: bytes) -> bytes:
        if not self._mapping.fields:
            return value
        try:
            fields = _decode_fields(value)
        except msgspec.ValidationError:
            fields = {WRAPPED: msgspec.Raw(value)}
        return _encode(fields | self._added(record))

    def _added(self, record: SourceRecord) -> JsonFields:
        return {
            name: msgspec.Raw(_encode(self._part(record, each)))
            for name, each in self._mapping.fields.items()
        }

    def _part(self, record: SourceRecord, added: AddedField) -> str | int | None:
        match added.part:
            case RecordPart.TIMESTAMP:
                return record.timestamp_ms
            case RecordPart.POSITION:
                return record.position
            case RecordPart.KEY:
                found = record.broker_key
                return None if found is None else found.decode("utf-8", "backslashreplace")
            case RecordPart.CHANNEL:
                if added.level is None:
                    return record.channel
                levels = record.channel.split(self._separator)
                if added.level >= len(levels):
                    raise RecordInvalid(f"its channel has no level {added.level}")
                return levels[added.level]

    def _tombstone(self, record: SourceRecord, key_format: KeyFormat | None) -> Line | None:
        """Return the removal of the record that added fields and the broker's key name."""
        reason = "a tombstone whose key names no record"
        try:
            named = self._tombstone_key(record, key_format)
        except KeyAmbiguous as error:
            named, reason = None, str(error)
        if named is not None:
            return self._removal(named)
        if self._mapping.form is PayloadForm.DEBEZIUM:
            return None  # it follows the event of the deletion
        raise RecordInvalid(reason)

    def _tombstone_key(self, record: SourceRecord, key_format: KeyFormat | None) -> str | None:
        fields, text = self._added(record), record.broker_key
        if text is not None and text[:1] == b"{" and key_format is not KeyFormat.TEXT:
            fields = self._key_fields(text) | fields
        if not self._spec:
            return None
        try:
            return self._key_of(_encode(fields))
        except KeysError:
            return removed_key(text, self._spec, self._key_of, key_format) if text else None

    def _key_fields(self, text: bytes) -> JsonFields:
        fields = _object(text)
        if self._mapping.form is PayloadForm.DEBEZIUM and {"schema", "payload"} <= fields.keys():
            return _fields_of(bytes(fields["payload"]))
        return fields

    def _removal(self, named: str) -> Line:
        if not self._spec:
            raise RecordInvalid("a removal, and the topic has no key")
        return removal(named.encode())


def _has_encoded_key(record: SourceRecord, decode: Decoder) -> bool:
    # Keys are often texts although payloads are not.
    return decode.decodes_keys and record.broker_key is not None and record.broker_key[:1] == b"\0"


def _decoded(record: SourceRecord, decode: Decoder) -> SourceRecord:
    payload, broker_key = record.payload, record.broker_key
    if broker_key is not None and _has_encoded_key(record, decode):
        broker_key = decode(broker_key)
    return replace(
        record, payload=None if payload is None else decode(payload), broker_key=broker_key
    )


def json_text(found: object) -> bytes:
    """Return a decoded payload as JSON text: bytes as base64, times in ISO 8601.

    Raises:
        RecordInvalid: it has a number that JSON lacks.
    """
    if not _is_finite(found):
        raise RecordInvalid("a number that JSON lacks")
    return _encode_numbers(found)


def _is_finite(found: object) -> bool:
    if isinstance(found, float):
        return math.isfinite(found)
    if isinstance(found, dict):
        return all(map(_is_finite, found.values()))
    return not isinstance(found, list) or all(map(_is_finite, found))


def _object(text: bytes) -> JsonFields:
    check_json(text)
    return _fields_of(text)


def _fields_of(text: bytes) -> JsonFields:
    try:
        return _decode_fields(text)
    except msgspec.ValidationError:
        raise RecordInvalid("not a JSON object") from None


def _row(event: JsonFields, name: str) -> bytes:
    row = bytes(event.get(name, NULL))
    if row == NULL:
        raise RecordInvalid(f"the event has no {name}")
    return row
