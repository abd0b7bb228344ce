"""Payloads in Protobuf, with the schemas of a registry or of a descriptor file.

With a registry, the content after the schema's id begins with the path to a message type in it:
a count and so many indexes, all as zigzag varints, where a count of 0 is the path [0] (Confluent,
"Schema Registry wire format"). The registry is asked for compiled schemas, `format=serialized`:
the base64 of a FileDescriptorProto. Texts of `.proto` files would need a compiler.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from tidegate.pipeline.errors import EndpointRefused
from tidegate.pipeline.ingest.payloads import RecordInvalid, json_text
from tidegate.pipeline.ingest.protobuf_values import DECIMAL, MessageConverter
from tidegate.pipeline.ingest.schema_registry import SchemaDocument, SchemaRegistry, split_payload

VARINT_BITS_MAX = 35  # five bytes of seven bits: indexes are 32-bit integers
KNOWN_FILES = {
    each.DESCRIPTOR.name: each.DESCRIPTOR.serialized_pb
    for each in (
        any_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )
}
"""Files that schemas import although no registry has them."""

_FIELD = descriptor_pb2.FieldDescriptorProto


def _add_known_files_of_confluent() -> None:
    decimal = descriptor_pb2.FileDescriptorProto(
        name="confluent/type/decimal.proto", package="confluent.type", syntax="proto3"
    )
    fields = {"value": _FIELD.TYPE_BYTES, "precision": _FIELD.TYPE_UINT32}
    fields["scale"] = _FIELD.TYPE_INT32
    message = decimal.message_type.add(name=DECIMAL.rpartition(".")[2])
    for number, (name, kind) in enumerate(fields.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL)
    older_place = descriptor_pb2.FileDescriptorProto(
        name="confluent/types/decimal.proto",
        dependency=[decimal.name],
        public_dependency=[0],
        syntax="proto3",
    )
    # It declares options only, which decoding does without.
    meta = descriptor_pb2.FileDescriptorProto(
        name="confluent/meta.proto", package="confluent", syntax="proto3"
    )
    for each in (decimal, older_place, meta):
        KNOWN_FILES[each.name] = each.SerializeToString()


_add_known_files_of_confluent()


class ProtobufDecoder:
    """Decodes payloads and keys to JSON (a `Decoder`); each schema is fetched once.

    Args:
        registry: its address, with user and password if it asks for them.
    """

    decodes_keys: ClassVar[bool] = True

    def __init__(self, registry: str) -> None:
        self._registry = SchemaRegistry(registry, "serialized")
        self._schemas: dict[int, _Schema] = {}

    def close(self) -> None:
        """Close the connection to the registry."""
        self._registry.close()

    def __call__(self, payload: bytes) -> bytes:
        """Return a payload as JSON text.

        Raises:
            RecordInvalid: it is no Protobuf, or its schema is not known.
            EndpointRefused: the registry has schemas as texts only.
            EndpointUnavailable: the registry does not answer.
        """
        schema_id, framed = split_payload(payload, "Protobuf")
        path, content = _split_path(framed)
        if schema_id not in self._schemas:
            self._schemas[schema_id] = self._fetched(schema_id)
        return self._schemas[schema_id].decode(path, content, schema_id)

    def _fetched(self, schema_id: int) -> _Schema:
        document = self._registry.schema(schema_id)
        files = [_file(each, name) for name, each in self._registry.references(document)]
        main = _file(document, f"schema-{schema_id}.proto")
        return _Schema(main, pool_of([*files, main]))


class DescriptorDecoder:
    """Decodes payloads of one message type to JSON (a `Decoder`); they name no schema.

    Args:
        path: of a FileDescriptorSet, as `protoc --include_imports --descriptor_set_out` writes it.
        message: the full name of the message type.

    Raises:
        ValueError: the file is none, or lacks the type; the text says which.
        OSError: it cannot be read.
    """

    decodes_keys: ClassVar[bool] = False

    def __init__(self, path: Path, message: str) -> None:
        found = descriptor_pb2.FileDescriptorSet()
        try:
            found.ParseFromString(path.read_bytes())
            pool = pool_of(list(found.file))
            self._class = GetMessageClass(pool.FindMessageTypeByName(message))
        except (DecodeError, RecordInvalid) as error:
            raise ValueError(
                f"{path.name} is not a descriptor set of protoc --include_imports "
                f"--descriptor_set_out={path.stem}.desc: {error}"
            ) from None
        except KeyError:
            raise ValueError(f"{path.name} has no message type {message}") from None
        self._converter = MessageConverter(pool)

    def close(self) -> None:
        """Do nothing: it is connected to nothing."""

    def __call__(self, payload: bytes) -> bytes:
        """Return a payload as JSON text.

        Raises:
            RecordInvalid: it is no message of the type.
        """
        name = self._class.DESCRIPTOR.full_name
        return _decoded(self._class, self._converter, payload, f"no {name}")


class _Schema:
    """A schema of the registry: its message types, by their paths."""

    def __init__(self, file: Any, pool: DescriptorPool) -> None:
        self._file = file
        self._pool = pool
        self._converter = MessageConverter(pool)
        self._classes: dict[tuple[int, ...], Any] = {}

    def decode(self, path: tuple[int, ...], content: bytes, schema_id: int) -> bytes:
        if path not in self._classes:
            name = self._name_at(path)
            if name is None:
                raise RecordInvalid(f"schema {schema_id} has no message type at {list(path)}")
            self._classes[path] = GetMessageClass(self._pool.FindMessageTypeByName(name))
        reason = f"no Protobuf of schema {schema_id}"
        return _decoded(self._classes[path], self._converter, content, reason)

    def _name_at(self, path: tuple[int, ...]) -> str | None:
        names = [self._file.package] if self._file.package else []
        types = self._file.message_type
        for index in path:
            if not 0 <= index < len(types):
                return None
            names.append(types[index].name)
            types = types[index].nested_type
        return ".".join(names)


def _decoded(kind: Any, converter: MessageConverter, content: bytes, reason: str) -> bytes:
    try:
        message = kind.FromString(content)
    except DecodeError as error:
        raise RecordInvalid(f"{reason}: {error}") from None
    return json_text(converter.value(message))


def _split_path(framed: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the path to the message type, and the message."""
    rest = iter(framed)
    try:
        count = _varint(rest)
        if not 0 <= count <= len(framed):
            raise RecordInvalid(f"no Protobuf: a path of {count} message types")
        path = tuple([_varint(rest) for _ in range(count)]) or (0,)
    except StopIteration:
        raise RecordInvalid("no Protobuf: it ends before its message") from None
    return path, bytes(rest)


def _varint(rest: Iterator[int]) -> int:
    number = 0
    for shift in range(0, VARINT_BITS_MAX, 7):
        byte = next(rest)
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1)
    raise RecordInvalid("no Protobuf: the index of a message type is too long")


def _file(document: SchemaDocument, name: str) -> Any:
    """Return the file of a schema under the name by which others import it."""
    kind = document.get("schemaType", "AVRO")
    if kind != "PROTOBUF":
        raise RecordInvalid(f"its schema is for {str(kind).lower()}, not for protobuf")
    file = descriptor_pb2.FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(document["schema"], validate=True))
    except (binascii.Error, DecodeError):
        raise EndpointRefused(
            "the schema registry has no compiled schemas: it answers format=serialized with a text"
        ) from None
    file.name = name
    return file


def pool_of(files: list[Any]) -> DescriptorPool:
    """Return a pool with files and all that they import.

    Raises:
        RecordInvalid: an import is missing, or a file contradicts another.
    """
    pool = DescriptorPool()
    contents = KNOWN_FILES | {each.name: each.SerializeToString() for each in files}
    added: set[str] = set()
    for each in files:
        _add(each.name, contents, pool, added)
    return pool


def _add(name: str, contents: dict[str, bytes], pool: DescriptorPool, added: set[str]) -> None:
    """Add a file to a pool after those that it imports."""
    if name in added:
        return
    added.add(name)
    if name not in contents:
        raise RecordInvalid(f"a schema imports {name}, which its references lack")
    for each in descriptor_pb2.FileDescriptorProto.FromString(contents[name]).dependency:
        _add(each, contents, pool, added)
    try:
        pool.AddSerializedFile(contents[name])
    except TypeError as error:  # of the library, for a file that cannot be used
        raise RecordInvalid(f"a schema that cannot be used: {error}") from None
