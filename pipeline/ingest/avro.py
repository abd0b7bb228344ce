"""Payloads in Avro, with the schemas of a registry."""

from __future__ import annotations

import io
from typing import Any, ClassVar

import msgspec
from fastavro import parse_schema, schemaless_reader
from fastavro.types import Schema

from tidegate.pipeline.ingest.payloads import RecordInvalid, json_text
from tidegate.pipeline.ingest.schema_registry import SchemaDocument, SchemaRegistry, split_payload


class AvroDecoder:
    """Decodes payloads and keys to JSON (a `Decoder`); each schema is fetched once.

    Args:
        registry: its address, with user and password if it asks for them.
    """

    decodes_keys: ClassVar[bool] = True

    def __init__(self, registry: str) -> None:
        self._registry = SchemaRegistry(registry)
        self._schemas: dict[int, Schema] = {}

    def close(self) -> None:
        """Close the connection to the registry."""
        self._registry.close()

    def __call__(self, payload: bytes) -> bytes:
        """Return a payload as JSON text.

        Raises:
            RecordInvalid: it is no Avro, or its schema is not known.
            EndpointUnavailable: the registry does not answer.
        """
        schema_id, encoded = split_payload(payload, "Avro")
        content = io.BytesIO(encoded)
        schema = self._schema(schema_id)
        try:
            found = schemaless_reader(content, schema, None)
        except Exception as error:  # fastavro raises what the bytes lead it to
            said = f"{type(error).__name__}: {error}"
            raise RecordInvalid(f"no Avro of schema {schema_id}: {said}") from None
        if content.read(1):
            raise RecordInvalid(f"no Avro of schema {schema_id}: bytes are left")
        return json_text(found)

    def _schema(self, schema_id: int) -> Schema:
        if schema_id not in self._schemas:
            named: dict[str, Any] = {}
            document = self._registry.schema(schema_id)
            for _, referred in self._registry.references(document):
                _parsed(referred, named)
            self._schemas[schema_id] = _parsed(document, named)
        return self._schemas[schema_id]


def _parsed(document: SchemaDocument, named: dict[str, Any]) -> Schema:
    try:
        return parse_schema(msgspec.json.decode(document["schema"]), named_schemas=named)
    except Exception as error:  # as above
        raise RecordInvalid(f"a schema that cannot be used: {error}") from None
