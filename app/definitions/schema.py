"""The JSON Schema 2020-12 of a topic: weighed and compiled once, checked for each message."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import jsonschema_rs
import msgspec
from pydantic import PlainSerializer, PlainValidator

from tidegate.app.definitions.message_cost import SchemaCost
from tidegate.app.definitions.schema_cost import cost_of
from tidegate.app.definitions.schema_document import DIALECT, SchemaInvalid, check_size

WORK_MAX = 1_000_000  # units of one message: about a tenth of a second
PLACE_WORK_MAX = 10_000_000  # units times bytes


class SchemaViolation(ValueError):
    """A message that breaks the schema: `pointer` into the message, `keyword` of the schema."""

    def __init__(self, keyword: str, pointer: str) -> None:
        super().__init__(keyword)
        self.keyword = keyword
        self.pointer = pointer


class SchemaWork(ValueError):
    """A message whose check could take too long: `work` in units."""

    def __init__(self, work: int) -> None:
        super().__init__(work)
        self.work = work


@dataclass(frozen=True, slots=True)
class Schema:
    """A compiled schema; equal documents are equal schemas."""

    document: Any
    _cost: SchemaCost = field(compare=False, repr=False)
    _validator: jsonschema_rs.Draft202012Validator = field(compare=False, repr=False)

    @classmethod
    def compile(cls, document: object) -> Schema:
        """Compile a decoded schema; nothing is fetched for it, and its patterns are linear.

        Raises:
            SchemaInvalid: not a schema of 2020-12, a reference that leads outside it, a regular
                expression that is not regular, or a check could take too long.
        """
        dialect = document.get("$schema", DIALECT) if isinstance(document, dict) else DIALECT
        if dialect not in (DIALECT, DIALECT + "#"):
            raise SchemaInvalid("the schema is not of 2020-12", "/$schema")
        if not isinstance(document, dict | bool):
            raise SchemaInvalid("a schema is an object, true or false")
        check_size(document)
        try:
            jsonschema_rs.meta.validate(document)
            cost = cost_of(document)
            validator = jsonschema_rs.Draft202012Validator(
                document, offline=True, pattern_options=jsonschema_rs.RegexOptions()
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            where = error.instance_path if isinstance(error, jsonschema_rs.ValidationError) else []
            raise SchemaInvalid(
                "not a schema of 2020-12 that stands alone", _pointer(where)
            ) from None
        return cls(document, cost, validator)

    def check(self, payload: bytes) -> int:
        """Check a message, strict JSON text; return the units of work that it could take.

        Numbers count exactly as written. The library cannot be stopped once it has begun, so a
        message that could take too long is refused before.

        Raises:
            SchemaViolation: the first thing that does not fit.
            SchemaWork: it could take more than WORK_MAX units.
        """
        work = self._cost.work(payload)
        if work > WORK_MAX:
            raise SchemaWork(work)
        try:
            value = _decode(payload)
        except msgspec.ValidationError:  # more digits than any number here has
            raise SchemaViolation("type", "") from None
        if self._validator.is_valid(value):
            return work
        # The library copies the value for each branch that fails: there a large one has no place.
        if self._cost.has_branches and work * len(payload) > PLACE_WORK_MAX:
            raise SchemaViolation("a keyword", "")
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            keyword = error.schema_path[-1] if error.schema_path else "false"
            raise SchemaViolation(str(keyword), _pointer(error.instance_path)) from None
        raise AssertionError("what is not valid has an error")


def _number(text: str) -> Decimal | float:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of more than 18 digits
        return float(text)


_decode = msgspec.json.Decoder(float_hook=_number).decode


def _pointer(path: list[str | int]) -> str:
    """Return a path as a JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _schema(value: object) -> Schema | None:
    return None if value is None else Schema.compile(value)


SchemaField = Annotated[
    Schema | None,
    PlainValidator(_schema, json_schema_input_type=dict[str, Any] | bool | None),
    PlainSerializer(
        lambda schema: None if schema is None else schema.document,
        return_type=dict[str, Any] | bool | None,
    ),
]
"""The field `schema` of a definition: compiled as it is read."""
