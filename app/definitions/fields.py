"""Types of a definition's fields: how each is written in JSON, read, and written again.

A reader raises `ValueError`; `documents` makes a refusal of it, with the field's code and place.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    model_validator,
)
from pydantic import (
    Strict as StrictType,
)

from tidegate.app.definitions.mergers import NO_MERGERS, Mergers
from tidegate.app.documents import Strict, WrittenAs, invalid
from tidegate.app.names import TOPIC_NAME
from tidegate.conflation import definition as engine
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.table import Options
from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter import Filter
from tidegate.keys.merging import Matcher, Merger
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import DAY, MILLISECOND, duration_text, parse_duration
from tidegate.keys.text.size import parse_size

HISTORY_MESSAGES_MAX = 1 << 53
"""Every number up to this is exact for scripts of the bus and for readers of JSON."""

Path = Annotated[str, Field(description="Path of a field: /a/b, or JSONPath $.a.b")]
Duration = Annotated[str, Field(description="An integer and a unit: ns us ms s m h d w")]
TopicName = Annotated[str, Field(pattern=f"^{TOPIC_NAME.pattern}$")]

Choice = TypeVar("Choice", bound=StrEnum)
Word = Annotated[Choice, StrictType(strict=False)]
"""One of a few words. JSON has no enumerations, and strict pydantic would take a member only."""


class Placement(StrEnum):
    """The survivor's place in a queue: at the end, or in the slot of the message it replaces."""

    APPEND = "append"
    REPLACE = "replace"


def read_paths(value: object) -> KeySpec:
    """Read a list of field paths; `$.a.b` and `/a/b` are the same path.

    Raises:
        ValueError: no such list, or a path that is malformed or given twice.
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
        # Parsed here for its errors only: which options are granted depends on the subscription.
        options = Options.parse(text)
        if options.no_defaults:
            detail = "no_defaults: only in a request, where it leaves out the topic's own options"
            raise OptionsInvalid(detail, options.positions["no_defaults"])
    except OptionsInvalid as error:
        raise invalid(error.code, f"{error.detail}.", position=error.position) from None
    return text


OptionsText = Annotated[str, AfterValidator(_options)]


def _filter(text: str) -> Filter:
    try:
        return Filter.parse(text)
    except FilterInvalid as error:
        raise invalid(error.code, f"{error.detail}.", position=error.position) from None


FilterText = Annotated[Filter, WrittenAs(str, _filter, str)]

DurationNs = Annotated[int, WrittenAs(Duration, parse_duration, duration_text)]


def _at_least_1ms(duration_ns: int) -> int:
    if duration_ns < MILLISECOND:
        raise ValueError("is 1ms or longer")
    return duration_ns


Expiration = Annotated[DurationNs, AfterValidator(_at_least_1ms)]


def _age(text: str) -> str:
    # Checked and kept as text, like every field of a history.
    parse_duration(text)
    return text


def _size(text: str) -> str:
    parse_size(text)
    return text


# The default is a word, so that null can mean "restore the default" in a merge patch.
REPLACES = "replace"


def _merge(value: object, info: ValidationInfo) -> Reduce | Merger | None:
    if value == REPLACES:
        return None
    if isinstance(value, dict) and value:
        return _reduce(value)
    merger = _mergers(info).merger(value) if isinstance(value, str) else None
    if merger is None:
        known = "replace, an object from field path to reducer, or a merger"
        raise ValueError(f"is {known} that the setting mergers names")
    return merger


def _reduce(reducers: Mapping[str, Any]) -> Reduce:
    if not all(isinstance(reducer, str) for reducer in reducers.values()):
        raise ValueError("has a text for each path")
    reduce = Reduce.of(reducers)
    # JSON allows a name once, but /a and $.a are two names of one path.
    if len({one.path for one in reduce.columns}) < len(reduce.columns):
        raise ValueError("has a path twice")
    return reduce


def _written_merge(merge: Reduce | Merger | None) -> Any:
    if isinstance(merge, Reduce):
        return {str(one.path): str(one).removeprefix(f"{one.path}:") for one in merge.columns}
    return REPLACES if merge is None else str(merge)


def _match(value: object, info: ValidationInfo) -> KeySpec | Matcher | None:
    if value is None:
        return None
    if isinstance(value, list) and value:
        return read_paths(value)
    matcher = _mergers(info).matcher(value) if isinstance(value, str) else None
    if matcher is None:
        known = "null, a list of field paths, or a matcher"
        raise ValueError(f"is {known} that the setting mergers names")
    return matcher


def _written_match(match: KeySpec | Matcher | None) -> Any:
    return str(match) if isinstance(match, Matcher) else paths_of(match)


def _mergers(info: ValidationInfo) -> Mergers:
    """Return the functions that `TopicDefinition.parse` was given."""
    mergers: Mergers = (info.context or {}).get("mergers", NO_MERGERS)
    return mergers


Merge = Annotated[
    Reduce | Merger | None,
    PlainValidator(_merge, json_schema_input_type=dict[str, str] | str),
    PlainSerializer(_written_merge, return_type=dict[str, str] | str),
]
"""A reducer of fields, a registered merger, or None: the newest replaces the older ones."""

Match = Annotated[
    KeySpec | Matcher | None,
    PlainValidator(_match, json_schema_input_type=list[Path] | str | None),
    PlainSerializer(_written_match, return_type=list[Path] | str | None),
]
"""The fields of queued messages that may conflate, a registered matcher, or None: the key."""


def _is_left_out(value: object) -> bool:
    return value is None


class History(Strict):
    """Bounds of the journal; at least one of them."""

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
        """Refuse a history without bounds, or with other fields."""
        if not isinstance(document, dict) or not document or document.keys() - set(cls.names()):
            detail = "history has messages, age and bytes, at least one of them."
            raise invalid(cls.code, detail)
        return document

    def kept(self, messages_max: int, bytes_max: int) -> engine.History:
        """Return the bounds of the journal; the arguments hold where it has no own."""
        return engine.History(
            messages_max=messages_max if self.messages is None else self.messages,
            bytes_max=bytes_max if self.bytes is None else parse_size(self.bytes),
            age_ms=None if self.age is None else parse_duration(self.age) // MILLISECOND,
        )


class FilledBy(StrEnum):
    """The engine that fills a topic: this gateway, or the Spark pipeline."""

    GATEWAY = "gateway"
    SPARK = "spark"


# 100ms is the least of AMPS's conflated topics, too; the pipeline may work by the day.
_INTERVALS = {
    FilledBy.GATEWAY: (100 * MILLISECOND, DAY // 24, "from 100ms to 1h"),
    FilledBy.SPARK: (MILLISECOND, DAY, "from 1ms to 1d with engine spark"),
}


def _grouping(value: object) -> KeySpec | None:
    return None if value is None else KeySpec.parse(_bracketed(value))


def _projection(value: object, info: ValidationInfo) -> Projection | None:
    grouping = info.data.get("grouping")
    if value is None or grouping is None:  # what is wrong with the grouping is said first
        return None
    return Projection.parse(_bracketed(value), 0, str(grouping), 0)


def _bracketed(value: object) -> str:
    """Return a list of texts, or the text that an option has, in the option's spelling."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise ValueError("is a list of texts")
    # One parser for both spellings, so that a list and an option's text mean the same.
    return f"[{','.join(value)}]"


def _columns(projection: Projection | None) -> list[str] | None:
    return None if projection is None else [str(column) for column in projection.columns]


class TopicSource(Strict):
    """The topic that another one is filled from, conflated; with a projection it is a view."""

    code = "topic-invalid"
    codes: ClassVar[Mapping[str, str]] = {"filter": "filter-invalid"}

    topic: TopicName
    # AMPS takes 5 s where none is said; here no interval is guessed.
    interval_ns: Annotated[
        DurationNs,
        Field(alias="interval", description="100ms to 1h; with engine spark 1ms to 1d"),
    ]
    filter: Annotated[FilterText | None, Field(description="Only messages that match")] = None
    grouping: Annotated[
        KeySpec | None,
        PlainValidator(_grouping, json_schema_input_type=list[Path] | str | None),
        PlainSerializer(paths_of, return_type=list[Path] | str | None),
        Field(description="Fields of a group"),
    ] = None
    projection: Annotated[
        Projection | None,
        PlainValidator(_projection, json_schema_input_type=list[str] | str | None),
        PlainSerializer(_columns, return_type=list[str] | str | None),
        Field(description='Columns: ["SUM(/qty) AS /total"]'),
    ] = None
    engine: Annotated[Word[FilledBy], Field(description="The engine that fills it")] = (
        FilledBy.GATEWAY
    )

    @model_validator(mode="before")
    @classmethod
    def _check_view(cls, document: Any) -> Any:
        """Refuse one of grouping and projection without the other."""
        view = ("grouping", "projection")
        if isinstance(document, dict):
            # Before the fields are read: each alone is fine, and the other would be blamed for
            # nothing.
            missing = [name for name in view if document.get(name) is None]
            if len(missing) == 1:
                raise invalid(cls.code, "A view has grouping and projection.", f"/{missing[0]}")
        return document

    @model_validator(mode="after")
    def _check_interval(self) -> Self:
        """Refuse an interval that its engine does not keep."""
        least_ns, most_ns, bounds = _INTERVALS[self.engine]
        if not least_ns <= self.interval_ns <= most_ns:
            raise invalid(self.code, f"interval is {bounds}.", "/interval")
        return self
