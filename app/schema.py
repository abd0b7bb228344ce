"""JSON Schema 2020-12 of a topic: compiled once, asked for each message."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

import jsonschema_rs
import msgspec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class SchemaInvalid(ValueError):
    """Not a schema that can be used; `pointer` is where, inside the schema."""

    def __init__(self, detail: str, pointer: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer


class SchemaViolation(ValueError):
    """A message that does not fit; `pointer` is the place in it, `keyword` what it breaks."""

    def __init__(self, keyword: str, pointer: str) -> None:
        super().__init__(keyword)
        self.keyword = keyword
        self.pointer = pointer


@dataclass(frozen=True, slots=True)
class Schema:
    """A compiled schema; equal documents are equal schemas."""

    document: Any
    _validator: jsonschema_rs.Draft202012Validator = field(compare=False, repr=False)

    @classmethod
    def compile(cls, document: object) -> Schema:
        """Compile a decoded schema. Nothing is ever fetched for it, and its patterns are linear.

        Raises:
            SchemaInvalid: not a schema of 2020-12, a reference that leads outside it, or a
                regular expression that could take for ever.
        """
        dialect = document.get("$schema", DIALECT) if isinstance(document, dict) else DIALECT
        if dialect not in (DIALECT, DIALECT + "#"):
            raise SchemaInvalid("the schema is not of 2020-12", "/$schema")
        if not isinstance(document, dict | bool):
            raise SchemaInvalid("a schema is an object, true or false")
        try:
            validator = jsonschema_rs.Draft202012Validator(
                document, offline=True, pattern_options=jsonschema_rs.RegexOptions()
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            where = error.instance_path if isinstance(error, jsonschema_rs.ValidationError) else []
            raise SchemaInvalid(
                "not a schema of 2020-12 that stands alone", _pointer(where)
            ) from None
        return cls(document, validator)

    def check(self, payload: bytes) -> None:
        """Check a message, strict JSON text; its numbers count exactly as they are written.

        Raises:
            SchemaViolation: the first thing that does not fit.
        """
        try:
            value = _decode(payload)
        except msgspec.ValidationError:  # more digits than any number here has
            raise SchemaViolation("type", "") from None
        if self._validator.is_valid(value):
            return
        error = next(self._validator.iter_errors(value))
        keyword = error.schema_path[-1] if error.schema_path else "false"
        raise SchemaViolation(str(keyword), _pointer(error.instance_path))


def _number(text: str) -> Decimal | float:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of more than 18 digits
        return float(text)


_decode = msgspec.json.Decoder(float_hook=_number).decode


def _pointer(path: list[str | int]) -> str:
    """A path as a JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
