"""Types of a definition's fields: how each is written in JSON, read, and written again.

A reader raises `ValueError`; `http.bodies` makes a problem of it, with the field's code and place.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    Strict,
    model_validator,
)

from tidegate.app.http import bodies
from tidegate.app.http.bodies import WrittenAs
from tidegate.app.http.requests import TOPIC_NAME
from tidegate.conflation import definition as engine
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.table import Options
from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter import Filter
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import MILLISECOND, duration_text, parse_duration
from tidegate.keys.text.size import parse_size

HISTORY_MESSAGES_MAX = 1 << 53
"""Every number up to this is exact for scripts of the bus and for readers of JSON."""

Path = Annotated[str, Field(description="Path of a field: /a/b, or JSONPath $.a.b")]
Duration = Annotated[str, Field(description="An integer and a unit: ns us ms s m h d w")]
TopicName = Annotated[str, Field(pattern=f"^{TOPIC_NAME.pattern}$")]

Choice = TypeVar("Choice", bound=StrEnum)
Word = Annotated[Choice, Strict(strict=False)]
"""One of a few words. JSON has no enumerations, and strict pydantic would take a member only."""


class Placement(StrEnum):
    """Where in a queue the survivor stands: at the end, or in the slot of what it replaces."""

    APPEND = "append"
    REPLACE = "replace"


def read_paths(value: object) -> KeySpec:
    """Read a list of field paths; `$.a.b` and `/a/b` are the same path.

    Raises:
        ValueError: no such list, or a path that is malformed or stands twice.
    """
    if not isinstance(value, list) or not all(isinstance(path, str) for path in value):
        raise ValueError("is a list of field paths")
    return KeySpec.of(value)


def paths_of(spec: KeySpec | None) -> list[str] | None:
    """Return what `read_paths` reads back to the same."""
    return None if spec is None else [str(path) for path in spec.paths]


Paths = Annotated[
    KeySpec,
    PlainValidator(read_paths, json_schema_input_type=list[Path]),
    PlainSerializer(paths_of, return_type=list[Path]),
]


def _options(text: str) -> str:
    """Check options by reading them; the text is kept as it is written."""
    try:
        Options.parse(text)
    except OptionsInvalid as error:
        raise bodies.invalid(error.code, f"{error.detail}.", position=error.position) from None
    return text


OptionsText = Annotated[str, AfterValidator(_options)]


def _filter(text: str) -> Filter:
    try:
        return Filter.parse(text)
    except FilterInvalid as error:
        raise bodies.invalid(error.code, f"{error.detail}.", position=error.position) from None


FilterText = Annotated[Filter, WrittenAs(str, _filter, str)]

DurationNs = Annotated[int, WrittenAs(Duration, parse_duration, duration_text)]


def _at_least_1ms(duration_ns: int) -> int:
    if duration_ns < MILLISECOND:
        raise ValueError("is 1ms or longer")
    return duration_ns


Expiration = Annotated[DurationNs, AfterValidator(_at_least_1ms)]


def _age(text: str) -> str:
    parse_duration(text)
    return text


def _size(text: str) -> str:
    parse_size(text)
    return text


def _is_left_out(value: object) -> bool:
    return value is None


class History(bodies.Strict):
    """What the journal keeps; at least one of them."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})
    code = "topic-invalid"

    # Texts stay as they are written, so that a definition is shown as its administrator wrote it.
    messages: Annotated[
        int | None,
        WrittenAs(Annotated[int, Field(ge=0, le=HISTORY_MESSAGES_MAX)]),
        Field(exclude_if=_is_left_out),
    ] = None
    age: Annotated[
        str | None,
        WrittenAs(Annotated[Duration, AfterValidator(_age)]),
        Field(exclude_if=_is_left_out),
    ] = None
    bytes: Annotated[
        str | None,
        WrittenAs(Annotated[str, AfterValidator(_size)]),
        Field(exclude_if=_is_left_out, description="A size: 64MiB"),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _check_any(cls, document: Any) -> Any:
        """Refuse a history that says nothing, or something else."""
        if not isinstance(document, dict) or not document or document.keys() - set(cls.names()):
            detail = "history has messages, age and bytes, at least one of them."
            raise bodies.invalid(cls.code, detail)
        return document

    def kept(self, messages_max: int) -> engine.History:
        """Return the bounds of the journal; `messages_max` holds where it does not say its own."""
        return engine.History(
            messages_max=messages_max if self.messages is None else self.messages,
            bytes_max=None if self.bytes is None else parse_size(self.bytes),
            age_ms=None if self.age is None else parse_duration(self.age) // MILLISECOND,
        )
