"""The fields of a definition that say how payloads are encoded."""

from __future__ import annotations

import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import httpx2

from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import DefinitionInvalid, ExtraMissing
from tidegate.pipeline.ingest.payloads import Decoder, NewDecoder, PayloadForm

JSON, AVRO, PROTOBUF = "json", "avro", "protobuf"
LIBRARIES = {AVRO: "fastavro", PROTOBUF: "google.protobuf"}
"""The module that decodes each encoding; its extra has the encoding's name."""
REGISTRY = re.compile(r"https?://[^\s/]+(/\S*)?")
MESSAGE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
NOT_WITHOUT_ENCODING = {
    "registry": 'only with encoding = "avro" or "protobuf"',
    "descriptor": 'only with encoding = "protobuf"',
    "message": 'only with encoding = "protobuf" and a descriptor',
}


def _avro(registry: str) -> Decoder:
    from tidegate.pipeline.ingest.avro import AvroDecoder

    return AvroDecoder(registry)


def _protobuf(registry: str) -> Decoder:
    from tidegate.pipeline.ingest.protobuf import ProtobufDecoder

    return ProtobufDecoder(registry)


def _described(descriptor: Path, message: str) -> Decoder:
    """Return a decoder of one message type, which a file describes.

    Raises:
        ValueError: the file does not describe the type.
        OSError: it cannot be read.
    """
    from tidegate.pipeline.ingest.protobuf import DescriptorDecoder

    return DescriptorDecoder(descriptor, message)


def read_encoding(table: TomlTable, form: PayloadForm, folder: Path) -> NewDecoder | None:
    """Take what decodes payloads from a definition; None where they are JSON.

    Raises:
        ExtraMissing: the library of the encoding is not installed.
    """
    encoding = table.text("encoding", default=JSON)
    if encoding not in {JSON, *LIBRARIES}:
        raise table.wrong("encoding", "json, avro or protobuf", encoding)
    if encoding == JSON:
        return None
    if form in (PayloadForm.TEXT, PayloadForm.BYTES):
        raise DefinitionInvalid(f"{table.where('encoding')}: only with json, debezium, cloudevents")
    if not _is_installed(LIBRARIES[encoding]):
        raise ExtraMissing(
            f"{table.where('encoding')}: {encoding} needs the extra {encoding}, which is not "
            f"installed: pip install 'tidegate[{encoding}]'"
        )
    if encoding == PROTOBUF and table.has("descriptor"):
        return _descriptor(table, folder)
    expected = "an address such as http://127.0.0.1:8081"
    if encoding == AVRO:
        return partial(_avro, _registry(table, expected))
    expected += ', or descriptor = "FILE" and message'
    return partial(_protobuf, _registry(table, expected))


def _registry(table: TomlTable, expected: str) -> str:
    return table.secret("registry", REGISTRY, expected, httpx2.URL, httpx2.InvalidURL)


def _descriptor(table: TomlTable, folder: Path) -> NewDecoder:
    place = table.where("descriptor")
    path = folder / table.text("descriptor")
    expected = "the full name of a message type, such as plant.Reading"
    message = table.checked("message", MESSAGE.fullmatch, expected)
    found = partial(_described, path.resolve(), message)
    try:
        found()
    except OSError as error:
        raise DefinitionInvalid(f"{place}: {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise DefinitionInvalid(f"{place}: {error}") from None
    return found


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
