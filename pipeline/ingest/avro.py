"""Payloads in Avro, with schemas of a registry that speaks as Confluent's.

A payload is a zero byte, the id of its schema in four bytes, and the record in binary Avro
(Confluent, "Schema Registry wire format").
"""

from __future__ import annotations

import io
import math
import struct
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
from fastavro import parse_schema, schemaless_reader
from fastavro.types import Schema

from tidegate.pipeline.errors import SourceUnreachable
from tidegate.pipeline.ingest.payloads import RecordInvalid

HEAD = struct.Struct(">bI")
MAGIC = 0
ANSWER_SECONDS_MAX = 10.0
NOT_FOUND = 404
REFERENCES_MAX = 100
_encode = msgspec.json.Encoder(decimal_format="number").encode


class AvroDecoder:
    """Decodes payloads to JSON; each schema is fetched once.

    Args:
        registry: its address, with user and password if it asks for them.
    """

    def __init__(self, registry: str) -> None:
        self._http = httpx2.Client(base_url=registry, timeout=ANSWER_SECONDS_MAX)
        self._schemas: dict[int, Schema] = {}

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __call__(self, payload: bytes) -> bytes:
        """Return a payload as JSON text.

        Raises:
            RecordInvalid: it is no Avro, or its schema is not known.
            SourceUnreachable: the registry does not answer.
        """
        if len(payload) < HEAD.size or payload[0] != MAGIC:
            raise RecordInvalid("no Avro with the id of a schema")
        _, schema_id = HEAD.unpack_from(payload)
        content = io.BytesIO(payload[HEAD.size :])
        schema = self._schema(schema_id)
        try:
            found = schemaless_reader(content, schema, None)
        except Exception as error:  # fastavro raises what the bytes lead it to
            said = f"{type(error).__name__}: {error}"
            raise RecordInvalid(f"no Avro of schema {schema_id}: {said}") from None
        if content.read(1):
            raise RecordInvalid(f"no Avro of schema {schema_id}: bytes are left")
        if not _is_finite(found):
            raise RecordInvalid("a number that JSON lacks")
        return _encode(found)

    def _schema(self, schema_id: int) -> Schema:
        if schema_id not in self._schemas:
            named: dict[str, Any] = {}
            document = self._ask(f"/schemas/ids/{schema_id}")
            self._add_references(document, named)
            self._schemas[schema_id] = _parsed(document, named)
        return self._schemas[schema_id]

    def _add_references(self, document: dict[str, Any], named: dict[str, Any]) -> None:
        """Fetch the schemas that one refers to, those first that they refer to themselves."""
        for each in document.get("references", ()):
            if each["name"] in named or len(named) >= REFERENCES_MAX:
                continue
            subject = quote(each["subject"], safe="")
            referred = self._ask(f"/subjects/{subject}/versions/{each['version']}")
            self._add_references(referred, named)
            _parsed(referred, named)

    def _ask(self, path: str) -> dict[str, Any]:
        try:
            answer = self._http.get(path)
            if answer.status_code == NOT_FOUND:
                raise RecordInvalid(f"the registry has no {path}")
            answer.raise_for_status()
            found: dict[str, Any] = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise SourceUnreachable(f"cannot ask the schema registry: {error}") from error
        return found


def _parsed(document: dict[str, Any], named: dict[str, Any]) -> Schema:
    try:
        return parse_schema(msgspec.json.decode(document["schema"]), named_schemas=named)
    except Exception as error:  # as above
        raise RecordInvalid(f"a schema that cannot be used: {error}") from None


def _is_finite(found: object) -> bool:
    if isinstance(found, float):
        return math.isfinite(found)
    if isinstance(found, dict):
        return all(map(_is_finite, found.values()))
    return not isinstance(found, list) or all(map(_is_finite, found))
