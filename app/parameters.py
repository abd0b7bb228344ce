"""Parameters: texts that a request gives by name, declared once and read strictly.

A declaration says how each is read and describes it in /openapi.json. One spelling is right, and
the rest is refused: `1_000` is no number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from tidegate.app.texts import boolean, integer, one_of

INVALID = "options-invalid"


@dataclass(frozen=True, slots=True)
class Read:
    """The reading of a parameter: from text to value, in place of FastAPI's own rules.

    `schema`: its description in /openapi.json. `code`: of the refusal if it cannot be read at all;
    `expected`: a sentence for a header that holds something else than a short printable text.
    """

    reader: Callable[[str], Any]
    schema: Mapping[str, Any]
    code: str = INVALID
    expected: str | None = None

    def __get_pydantic_core_schema__(
        self, source: object, inner: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let the reader alone decide."""
        # Pydantic wraps a ValueError only: a `Refused` reaches the client as it was raised.
        return core_schema.no_info_plain_validator_function(self.reader)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, inner: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the declared schema."""
        return dict(self.schema)


class Parameters(BaseModel):
    """The parameters of one operation."""

    model_config = ConfigDict(frozen=True)

    reads: ClassVar[Mapping[str, Read]] = {}
    codes: ClassVar[Mapping[str, str]] = {}
    """By the names that the client knows: how each is read, and the code where it cannot be."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Note how each field is read."""
        cls.reads = {
            info.alias or name: next(part for part in info.metadata if isinstance(part, Read))
            for name, info in cls.model_fields.items()
        }
        cls.codes = {name: each.code for name, each in cls.reads.items()}

    def given(self) -> dict[str, Any]:
        """Return the values that the request named, by the names that the client knows."""
        return self.model_dump(by_alias=True, exclude_unset=True)


def text(code: str = INVALID, expected: str | None = None, **schema: Any) -> Read:
    """Take any text; what uses the parameter checks it."""
    return Read(str, {"type": "string"} | schema, code, expected)


def line(
    code: str = INVALID,
    expected: str | None = None,
    reader: Callable[[str], Any] = str,
    **schema: Any,
) -> Read:
    """Take a header, without the space around its value (RFC 9110, 5.5)."""

    def read(value: str) -> Any:
        # The space is no part of the value, though FastAPI hands it over.
        return reader(value.strip(" \t"))

    return Read(read, {"type": "string"} | schema, code, expected)


def word(name: str, choices: Sequence[str], code: str = INVALID) -> Read:
    """Take one of a few words."""
    # Not an enumeration of pydantic's, whose errors repeat what the client sent.
    reader = partial(one_of, choices=tuple(choices), code=code, what=name)
    return Read(reader, {"type": "string", "enum": [str(choice) for choice in choices]}, code)


def whole(name: str, least: int, most: int, code: str = INVALID) -> Read:
    """Take a whole number in plain digits."""
    reader = partial(integer, least=least, most=most, code=code, what=name)
    return Read(reader, {"type": "integer", "minimum": least, "maximum": most}, code)


def flag(name: str, code: str = INVALID) -> Read:
    """Take `true` or `false`."""
    return Read(partial(boolean, code=code, what=name), {"type": "boolean"}, code)
