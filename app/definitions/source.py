"""Where a topic's messages come from, if not from its publishers: its document's `source`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidegate.app.http.problems import Problem, unknown_field
from tidegate.app.http.requests import TOPIC_NAME
from tidegate.keys.errors import FilterInvalid, KeysError
from tidegate.keys.filter import Filter
from tidegate.keys.projection import Projection
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import DAY, MILLISECOND, duration_text, parse_duration

_FIELDS = ("topic", "interval", "filter", "grouping", "projection", "engine")


class FilledBy(StrEnum):
    """Who brings the messages: this gateway, or the Spark pipeline."""

    GATEWAY = "gateway"
    SPARK = "spark"


_INTERVALS = {
    FilledBy.GATEWAY: (100 * MILLISECOND, DAY // 24, "from 100ms to 1h"),
    FilledBy.SPARK: (MILLISECOND, DAY, "from 1ms to 1d with engine spark"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """Another topic, conflated: at most one message per key and interval.

    With a `projection` it is a view: one record for each of the projection's groups.
    """

    topic: str
    interval_ns: int
    engine: FilledBy = FilledBy.GATEWAY
    filter: Filter | None = None
    projection: Projection | None = None

    @classmethod
    def read(cls, value: object) -> Source | None:
        """From the decoded field `source` of a topic's document; None for null.

        Raises:
            Problem: topic-invalid or filter-invalid, with a pointer to the field.
        """
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _invalid(f"source is null, or has {', '.join(_FIELDS)}.", "/source")
        if set(value) - set(_FIELDS):
            raise unknown_field("topic-invalid", value, _FIELDS, "/source")
        engine = value.get("engine", FilledBy.GATEWAY)
        if engine not in list(FilledBy):
            raise _invalid("engine is gateway or spark.", "/source/engine")
        return cls(
            topic=_topic(value.get("topic")),
            interval_ns=_interval(value.get("interval"), FilledBy(engine)),
            engine=FilledBy(engine),
            filter=_filter(value.get("filter")),
            projection=_projection(value.get("grouping"), value.get("projection")),
        )

    def document(self) -> dict[str, object]:
        """The object that `read` reads back to the same value."""
        shape = self.projection
        return {
            "topic": self.topic,
            "interval": duration_text(self.interval_ns),
            "filter": None if self.filter is None else str(self.filter),
            "grouping": None if shape is None else [str(path) for path in shape.grouping.paths],
            "projection": None if shape is None else [str(column) for column in shape.columns],
            "engine": str(self.engine),
        }


def _topic(value: object) -> str:
    if not isinstance(value, str) or not TOPIC_NAME.fullmatch(value):
        raise _invalid("topic is the name of the source topic.", "/source/topic")
    return value


def _interval(value: object, engine: FilledBy) -> int:
    least_ns, most_ns, bounds = _INTERVALS[engine]
    if value is None:
        raise _invalid(f"A source says its interval, {bounds}.", "/source/interval")
    try:
        interval_ns = parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise _invalid(f"{error}.", "/source/interval") from None
    if not least_ns <= interval_ns <= most_ns:
        raise _invalid(f"interval is {bounds}.", "/source/interval")
    return interval_ns


def _filter(value: object) -> Filter | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise Problem("filter-invalid", "filter is a text.", pointer="/source/filter")
    try:
        return Filter.parse(value)
    except FilterInvalid as error:
        raise Problem(
            error.code, f"{error.detail}.", position=error.position, pointer="/source/filter"
        ) from None


def _projection(grouping: object, projection: object) -> Projection | None:
    if grouping is None and projection is None:
        return None
    grouping_text = _bracketed(grouping, "/source/grouping")
    projection_text = _bracketed(projection, "/source/projection")
    try:
        KeySpec.parse(grouping_text)
    except KeysError as error:
        raise _invalid(f"{error.detail}.", "/source/grouping") from None
    try:
        return Projection.parse(projection_text, 0, grouping_text, 0)
    except KeysError as error:
        raise _invalid(f"{error.detail}.", "/source/projection") from None


def _bracketed(value: object, pointer: str) -> str:
    """A list of texts, or the text that an option has, in the option's spelling."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        detail = "A view has grouping and projection, each a list of texts."
        raise _invalid(detail, pointer)
    return f"[{','.join(value)}]"


def _invalid(detail: str, pointer: str) -> Problem:
    return Problem("topic-invalid", detail, pointer=pointer)
