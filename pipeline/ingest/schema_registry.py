"""A schema registry that speaks as Confluent's, and payloads that name their schema there.

Such a payload is a zero byte, the id of its schema in four bytes, and the content (Confluent,
"Schema Registry wire format").
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx2

from tidegate.pipeline.errors import EndpointUnavailable
from tidegate.pipeline.ingest.payloads import RecordInvalid

HEAD = struct.Struct(">bI")
MAGIC = 0
ANSWER_SECONDS_MAX = 10.0
NOT_FOUND = 404
REFERENCES_MAX = 100

SchemaDocument = Mapping[str, Any]
"""What the registry answers: `schema`, and `references` with `name`, `subject` and `version`."""


def split_payload(payload: bytes, encoding: str) -> tuple[int, bytes]:
    """Return the id of a payload's schema, and its content.

    Raises:
        RecordInvalid: it does not begin as such payloads do; the text names the encoding.
    """
    if len(payload) < HEAD.size or payload[0] != MAGIC:
        raise RecordInvalid(f"no {encoding} with the id of a schema")
    _, schema_id = HEAD.unpack_from(payload)
    return schema_id, payload[HEAD.size :]


class SchemaRegistry:
    """Asks a registry for schemas.

    Args:
        address: with user and password if it asks for them.
        schema_format: how it is to write schemas; empty for its own way.

    Raises:
        RecordInvalid: from each method: it does not have what was asked for.
        EndpointUnavailable: from each method: it does not answer.
    """

    def __init__(self, address: str, schema_format: str = "") -> None:
        self._http = httpx2.Client(base_url=address, timeout=ANSWER_SECONDS_MAX)
        self._query = {"format": schema_format} if schema_format else {}

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def schema(self, schema_id: int) -> SchemaDocument:
        """Return the schema of an id."""
        return self._ask(f"/schemas/ids/{schema_id}")

    def references(self, document: SchemaDocument) -> Iterator[tuple[str, SchemaDocument]]:
        """Yield the schemas that one refers to with their names, each after those it refers to."""
        yield from self._references(document, set())

    def _references(
        self, document: SchemaDocument, seen: set[str]
    ) -> Iterator[tuple[str, SchemaDocument]]:
        for each in document.get("references") or ():
            name = each["name"]
            if name in seen or len(seen) >= REFERENCES_MAX:
                continue
            seen.add(name)
            subject = quote(each["subject"], safe="")
            referred = self._ask(f"/subjects/{subject}/versions/{each['version']}")
            yield from self._references(referred, seen)
            yield name, referred

    def _ask(self, path: str) -> SchemaDocument:
        try:
            answer = self._http.get(path, params=self._query)
            if answer.status_code == NOT_FOUND:
                raise RecordInvalid(f"the registry has no {path}")
            # Not by `raise_for_status`, whose text has the address with its password.
            if not answer.is_success:
                raise EndpointUnavailable(
                    f"the schema registry answers {answer.status_code} for {path}"
                )
            found: SchemaDocument = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise EndpointUnavailable(f"cannot ask the schema registry: {error}") from error
        return found
