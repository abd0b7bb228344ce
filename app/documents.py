"""Documents: strict JSON as a checked model, or a refusal with its place.

One declaration parses, checks, gives defaults, prints, and describes itself in /openapi.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from tidegate.app.refusals import CODES, Refused, reference_token, unknown_field
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json, decoded

DEFAULT_CODE = "options-invalid"

# Type of pydantic's error -> the rest of the sentence that begins with the field's name.
_REASONS: Mapping[str, str] = {
    "string_type": "is a text",
    "bool_type": "is true or false",
    "list_type": "is a list",
    "int_type": "is a whole number",
    "enum": "is {expected}",
    "string_pattern_mismatch": "does not have the form {pattern}",
    "string_too_long": "has at most {max_length} characters",
    "too_short": "has at least {min_length} items",
    "too_long": "has at most {max_length} items",
    "greater_than_equal": "is at least {ge}",
    "less_than_equal": "is at most {le}",
    "missing": "is missing",
}


class Strict(BaseModel):
    """A JSON object with these fields and no others, each of its own type.

    `code`: of the refusal about it and its fields; `codes`: of fields with one of their own.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    code: ClassVar[str] = DEFAULT_CODE
    codes: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the fields as clients write them, in the order of the contract."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())

    @classmethod
    def of(cls, document: object, **context: Any) -> Self:
        """Check decoded JSON; validators find `context` in their info.

        Raises:
            Refused: with the pointer to what does not fit.
        """
        try:
            return cls.model_validate(document, context=context)
        except ValidationError as error:
            # Pydantic reports all that is wrong; a refusal has room for one place.
            found = error.errors(include_url=False, include_input=False)[0]
            raise _refusal(found, cls) from None

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, document: Any) -> Any:
        """Refuse what is no object, and the first unknown field."""
        if not isinstance(document, dict):
            raise invalid(cls.code, "A JSON object is wanted.")
        # Pydantic would report an unknown field after all others, and call it by a long name.
        if document.keys() - cls.names():
            found = unknown_field(cls.code, document, cls.names())
            raise invalid(cls.code, found.detail, found.pointer or "")
        return document


Document = TypeVar("Document", bound=Strict)


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class WrittenAs:
    """The form of a field in JSON: a `shape`, which `read` takes when it is checked.

    `show` gives the shape back. Without either the value is the shape itself; so a field whose
    default is None may be left out, and null is refused where the shape has none.
    """

    shape: Any
    read: Callable[[Any], Any] = _same
    show: Callable[[Any], Any] | None = None

    def __get_pydantic_core_schema__(
        self, source: object, inner: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return pydantic's description of the shape and the two functions."""
        shape, shown = inner.generate_schema(self.shape), None
        if self.show is not None:
            shown = core_schema.plain_serializer_function_ser_schema(self.show, return_schema=shape)
        return core_schema.no_info_after_validator_function(self.read, shape, serialization=shown)


def invalid(
    code: str, detail: str, pointer: str = "", position: int | None = None
) -> PydanticCustomError:
    """Return what a validator raises: a refusal at its field, or at `pointer` below it.

    A `ValueError` will do where the code is the field's own: its `detail`, or else the field's name
    and the error's text, is the sentence, and its `pointer`, if any, leads on from the field.
    """
    place = {"detail": detail, "pointer": pointer, "position": position}
    return PydanticCustomError(code, "{detail}", place)


def read(model: type[Document], body: bytes, **context: Any) -> Document:
    """Return a document from a request's body; validators find `context` in their info.

    Raises:
        Refused: with the position of what is no JSON, or the pointer to what does not fit.
    """
    try:
        # Pydantic's own parser of JSON would take lone surrogates, and any depth.
        check_json(body)
        document = decoded(body)
    except JsonInvalid as error:
        raise Refused(model.code, f"{error.detail}.", position=error.position) from None
    return model.of(document, **context)


def nullable(schema: dict[str, Any]) -> None:
    """Make the schema of a document that of a merge patch on it: each field may be null.

    No field has a default then, as what is left out stays as it is.
    """
    for name, field in schema["properties"].items():
        described = {key: field.pop(key) for key in ("title", "description") if key in field}
        field.pop("default", None)
        options = field.pop("anyOf", [field])
        null = [] if {"type": "null"} in options else [{"type": "null"}]
        schema["properties"][name] = {"anyOf": [*options, *null], **described}


def _refusal(error: ErrorDetails, model: type[Strict]) -> Refused:
    """Return the refusal of one of pydantic's errors; it never repeats what the client sent."""
    path, context = error["loc"], error.get("ctx", {})
    pointer = "".join(f"/{reference_token(part)}" for part in path)
    if error["type"] in CODES:
        at, position = pointer + context["pointer"], context["position"]
        return Refused(error["type"], context["detail"], pointer=at or None, position=position)
    name = path[-1] if isinstance(path[-1], str) else f"item {path[-1]}"
    if error["type"] == "value_error":
        cause = context["error"]
        pointer += getattr(cause, "pointer", "")
        sentence = getattr(cause, "detail", f"{name} {cause}")
    else:
        kind = error["type"]
        reason = _REASONS.get(kind, f"does not fit: {kind.replace('_', ' ')}")
        # The words of an enumeration come in quotes.
        sentence = f"{name} {reason.format(**context)}".replace("'", "")
    return Refused(model.codes.get(name, model.code), f"{sentence}.", pointer=pointer)
