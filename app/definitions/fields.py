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
    WithJsonSchema,
    model_validator,
)

from tidegate.app.http import bodies
from tidegate.app.http.requests import TOPIC_NAME
from tidegate.conflation import journal
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.parse import Options
from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter import Filter
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import MILLISECOND, duration_text, parse_duration
from tidegate.keys.text.size import parse_size

HISTORY_MESSAGES_MAX = 1 << 53
"""Every number up to this is exact for scripts of the bus and for readers of JSON."""

Path = Annotated[str, Field(description="Path of a field: /a/b, or JSONPath $.a.b")]
DURATION = "An integer and a unit: ns us ms s m h d w"
Duration = Annotated[str, Field(description=DURATION)]
TopicName = Annotated[str, Field(pattern=f"^{TOPIC_NAME.pattern}$")]

Choice = TypeVar("Choice", bound=StrEnum)
Word = Annotated[Choice, Strict(strict=False)]
"""One of a few words. JSON has no enumerations, and strict pydantic would take a member only."""


class Placement(StrEnum):
    """Where in a queue the survivor stands: at the end, or in the slot of what it replaces."""

    APPEND = "append"
    REPLACE = "replace"


def text(value: object) -> str:
    """Return a value that is a text.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str):
        raise ValueError("is a text")
    return value


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


def _options(value: object) -> str:
    """Check options by reading them; the text is kept as it is written."""
    try:
        Options.parse(text(value))
    except OptionsInvalid as error:
        raise bodies.invalid(error.code, f"{error.detail}.", position=error.position) from None
    return text(value)


OptionsText = Annotated[str, PlainValidator(_options, json_schema_input_type=str)]


def _filter(value: object) -> Filter | None:
    if value is None:
        return None
    try:
        return Filter.parse(text(value))
    except FilterInvalid as error:
        raise bodies.invalid(error.code, f"{error.detail}.", position=error.position) from None


FilterText = Annotated[
    Filter | None,
    PlainValidator(_filter, json_schema_input_type=str | None),
    PlainSerializer(lambda found: None if found is None else str(found), return_type=str | None),
]


def _duration_ns(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError("is a text with a unit")
    return parse_duration(value)


DurationNs = Annotated[
    int,
    PlainValidator(_duration_ns, json_schema_input_type=Duration),
    PlainSerializer(duration_text, return_type=Duration),
]


def _at_least_1ms(duration_ns: int) -> int:
    if duration_ns < MILLISECOND:
        raise ValueError("is 1ms or longer")
    return duration_ns


Expiration = Annotated[DurationNs, AfterValidator(_at_least_1ms)]


def _age(value: object) -> str:
    _duration_ns(value)
    return text(value)


def _size(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is a text with a unit")
    parse_size(value)
    return value


def _messages(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("is a whole number")
    if value > HISTORY_MESSAGES_MAX:
        raise ValueError(f"is at most {HISTORY_MESSAGES_MAX}")
    return value


def _is_left_out(value: object) -> bool:
    return value is None


class History(bodies.Strict):
    """What the journal keeps; at least one of them."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})
    code = "topic-invalid"

    # None is left out; null is refused, as the readers see what is given and no default.
    messages: Annotated[
        int | None,
        PlainValidator(_messages),
        WithJsonSchema({"type": "integer", "minimum": 0}),
        Field(exclude_if=_is_left_out),
    ] = None
    age: Annotated[
        str | None,
        PlainValidator(_age),
        WithJsonSchema({"type": "string", "description": DURATION}),
        Field(exclude_if=_is_left_out),
    ] = None
    bytes: Annotated[
        str | None,
        PlainValidator(_size),
        WithJsonSchema({"type": "string"}),
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

    def kept(self, messages_max: int) -> journal.History:
        """Return the bounds of the journal; `messages_max` holds where it does not say its own."""
        return journal.History(
            messages_max=messages_max if self.messages is None else self.messages,
            bytes_max=None if self.bytes is None else parse_size(self.bytes),
            age_ms=None if self.age is None else parse_duration(self.age) // MILLISECOND,
        )
