"""Where a topic's messages come from, if not from its publishers: its definition's `source`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, PlainSerializer, PlainValidator, ValidationInfo, model_validator

from tidegate.app.definitions.fields import (
    DurationNs,
    FilterText,
    Path,
    TopicName,
    Word,
    paths_of,
)
from tidegate.app.http.bodies import Strict, invalid
from tidegate.keys.projection import Projection
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import DAY, MILLISECOND


class FilledBy(StrEnum):
    """Who brings the messages: this gateway, or the Spark pipeline."""

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
    engine: Annotated[Word[FilledBy], Field(description="Who fills it")] = FilledBy.GATEWAY

    @model_validator(mode="before")
    @classmethod
    def _check_view(cls, document: Any) -> Any:
        """Refuse one of grouping and projection without the other."""
        view = ("grouping", "projection")
        if isinstance(document, dict):
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
