"""The part of a stream's table that says which messages become one, and when it goes out."""

from __future__ import annotations

from dataclasses import dataclass

from keys.errors import PathInvalid
from keys.filter import Filter
from keys.path import FieldPath
from keys.reducers import Reduce
from keys.spec import KeySpec
from pipeline.columns.intervals import Pace
from pipeline.columns.times import TimeField, Unit
from pipeline.definitions.duration import DURATION, duration_ms
from pipeline.definitions.tomltable import TomlTable
from pipeline.definitions.view import read_filter
from pipeline.errors import DefinitionInvalid

REDUCERS = 'reducers, such as ["/px:last", "/px:max@hi"]'
MERGE = '"replace" or reducers of fields, such as {"/qty" = "sum"}'
TIME = '"processing" or a table such as {field = "/ts", watermark = "5s"}'
WATERMARK = "a duration of at most 1d, such as 5s"


@dataclass(frozen=True, slots=True)
class EventTime:
    """The field that has a message's time, and how late messages may come."""

    field: TimeField
    watermark_ms: int

    def __str__(self) -> str:
        return f"{self.field.path} in {self.field.unit}, watermark {self.watermark_ms}ms"


@dataclass(frozen=True, slots=True)
class ConflationDefinition:
    """How messages of a stream become one; `oof` tells removals, no `time` is processing time."""

    pace: Pace = Pace.BATCH
    filter: Filter | None = None
    reduce: Reduce | None = None
    oof: bool = False
    time: EventTime | None = None

    @property
    def holds(self) -> bool:
        """Whether something must outlive a batch."""
        return self.pace is Pace.KEY or self.oof or self.time is not None

    def __str__(self) -> str:
        """What a checkpoint remembers: what was held under another conflation is of no use."""
        if not self.holds:
            return ""
        parts = [f"pace {self.pace}", f"time {self.time or 'processing'}", f"oof {self.oof}"]
        parts += [f"filter {self.filter.text}"] if self.filter else []
        return ", ".join(parts + ([f"reduce {self.reduce}"] if self.reduce else []))


PLAIN = ConflationDefinition()


def read_conflation(table: TomlTable, key_spec: KeySpec) -> ConflationDefinition:
    """The conflation of a stream that is no view.

    Raises:
        DefinitionInvalid: the place, and what was expected there.
    """
    pace = table.text("pace", default=Pace.BATCH, expected="batch or key")
    if pace not in list(Pace):
        raise table.wrong("pace", "batch or key", pace)
    reduce = _reduce(table)
    if reduce is not None and reduce.writes_to(key_spec.paths):
        raise DefinitionInvalid(f"{table.where('reduce')}: a reducer writes to a field of the key")
    return ConflationDefinition(
        Pace(pace), read_filter(table), reduce, table.flag("oof", default=False), _time(table)
    )


def _reduce(table: TomlTable) -> Reduce | None:
    if {"reduce", "merge"} <= table.left.keys():
        raise DefinitionInvalid(f"{table.where('merge')}: not with reduce")
    field = "merge" if "merge" in table.left else "reduce"
    expected = MERGE if field == "merge" else REDUCERS
    found = table.left.pop(field, None)
    if found is None or (field == "merge" and found == "replace"):
        return None
    texts = [*found] if isinstance(found, list) else []
    if field == "merge" and isinstance(found, dict):
        texts = [f"{path}:{reducer}" for path, reducer in found.items()]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise table.wrong(field, expected, found)
    try:
        return Reduce.parse(f"[{','.join(texts)}]")
    except PathInvalid as error:
        raise _invalid(table, field, error) from None


def _time(table: TomlTable) -> EventTime | None:
    found = table.left.get("time", "processing")
    if found == "processing":
        table.left.pop("time", None)
        return None
    if not isinstance(found, dict):
        raise table.wrong("time", TIME, found)
    inner = table.table("time")
    unit = inner.text("unit", default=Unit.AUTO, expected="auto, ms or s")
    if unit not in list(Unit):
        raise inner.wrong("unit", "auto, ms or s", unit)
    watermark = inner.text("watermark", default="0s", expected=WATERMARK)
    lateness_ms = _lateness_ms(watermark)
    if lateness_ms is None:
        raise inner.wrong("watermark", WATERMARK, watermark)
    try:
        path = FieldPath.parse(inner.text("field", expected="a field path, such as /ts"))
    except PathInvalid as error:
        raise _invalid(inner, "field", error) from None
    inner.finish()
    return EventTime(TimeField(path, Unit(unit)), lateness_ms)


def _lateness_ms(text: str) -> int | None:
    found = DURATION.fullmatch(text)
    return 0 if found and int(found[1]) == 0 else duration_ms(text)


def _invalid(table: TomlTable, field: str, error: PathInvalid) -> DefinitionInvalid:
    return DefinitionInvalid(f"{table.where(field)}: {error.detail}")
