"""The part of a stream's table that says which messages become one, and when it goes out."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.keys.errors import PathInvalid, TextInvalid
from tidegate.keys.filter import Filter
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import DAY, parse_duration, whole_ms
from tidegate.pipeline.columns.bodies import registered
from tidegate.pipeline.columns.times import TimeField, Unit
from tidegate.pipeline.definitions.toml import (
    TomlTable,
    bracketed,
    read_filter,
    read_list,
    read_path,
    refused,
)
from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.intervals import Pace

REDUCERS = 'reducers, such as ["/px:last", "/px:max@hi"]'
MERGE = '"replace", reducers of fields such as {"/qty" = "sum"}, or "package.module:function"'
PUBLISHED = "published"
TIME = '"processing", "published" or a table such as {field = "/ts", watermark = "5s"}'
WATERMARK = "a duration of at most 1d, such as 5s"


@dataclass(frozen=True, slots=True)
class EventTime:
    """The field that has a message's time (None: the source says it), and how late it may come."""

    field: TimeField | None
    watermark_ms: int

    def __str__(self) -> str:
        if self.field is None:
            return PUBLISHED
        return f"{self.field.path} in {self.field.unit}, watermark {self.watermark_ms}ms"


@dataclass(frozen=True, slots=True)
class ConflationDefinition:
    """How messages of a stream become one; `oof` sends removals, no `time` is processing time.

    `merger` is the name of a registered one, if there is one; then there are no reducers.
    """

    pace: Pace = Pace.BATCH
    filter: Filter | None = None
    reduce: Reduce | None = None
    oof: bool = False
    time: EventTime | None = None
    merger: str = ""

    @property
    def holds(self) -> bool:
        """True if something must outlive a batch."""
        return bool(self.pace is Pace.KEY or self.oof or self.time or self.merger)

    def __str__(self) -> str:
        """Return what a checkpoint notes: held rows are useless under another conflation."""
        if not self.holds:
            return ""
        parts = [f"pace {self.pace}", f"time {self.time or 'processing'}", f"oof {self.oof}"]
        parts += [f"filter {self.filter.text}"] if self.filter else []
        parts += [f"merger {self.merger}"] if self.merger else []
        return ", ".join(parts + ([f"reduce {self.reduce}"] if self.reduce else []))


PLAIN = ConflationDefinition()


def read_conflation(table: TomlTable, key_spec: KeySpec) -> ConflationDefinition:
    """Read the conflation of a stream that is not a view.

    Raises:
        DefinitionInvalid: the place, and what was expected there.
    """
    pace = table.text("pace", default=Pace.BATCH, expected="batch or key")
    # Pace(pace) would say what is wrong in Python's words, and not what was expected.
    if pace not in list(Pace):
        raise table.wrong("pace", "batch or key", pace)
    merge = _merge(table)
    reduce = merge if isinstance(merge, Reduce) else None
    # A row with another key would be another record for the sink.
    if reduce is not None and reduce.writes_to(key_spec.paths):
        raise DefinitionInvalid(f"{table.where('reduce')}: a reducer writes to a field of the key")
    return ConflationDefinition(
        Pace(pace),
        read_filter(table),
        reduce,
        table.flag("oof", default=False),
        _time(table),
        merge if isinstance(merge, str) else "",
    )


def _merge(table: TomlTable) -> Reduce | str | None:
    if not table.has("merge"):
        return read_list(table, "reduce", REDUCERS, _reducers) if table.has("reduce") else None
    if table.has("reduce"):
        raise DefinitionInvalid(f"{table.where('merge')}: not with reduce")
    match table.raw("merge"):
        case "replace":
            return None
        case str(text) if ":" in text:
            return _merger(table, text)
        case dict(known) if known:
            return _named_reducers(table, known)
        case found:
            raise table.wrong("merge", MERGE, found)


def _merger(table: TomlTable, name: str) -> str:
    try:
        # Import it now: a merger that is missing should not first fail in a task.
        registered(name)
    except DefinitionInvalid as error:
        raise DefinitionInvalid(f"{table.where('merge')}: {error}") from None
    return name


def _reducers(texts: list[str]) -> Reduce:
    return Reduce.parse(*bracketed(texts))


def _named_reducers(table: TomlTable, found: dict[str, object]) -> Reduce:
    known: dict[str, str] = {}
    for path, reducer in found.items():
        known[path] = str(reducer)
        try:
            reduce = Reduce.of(known)
        except PathInvalid as error:
            # The position counts in `path:reducer`: it is in the name of the field or in its value.
            at = error.position or 0
            inside = at if at <= len(path) else at - len(path) - 1
            raise refused(table, f'merge."{path}"', error, inside) from None
    return reduce


def _time(table: TomlTable) -> EventTime | None:
    if not table.has("time") or table.says("time", "processing"):
        return None
    if table.says("time", PUBLISHED):
        return EventTime(None, 0)
    inner = table.table("time", TIME)
    unit = inner.text("unit", default=Unit.AUTO, expected="auto, ms or s")
    if unit not in list(Unit):
        raise inner.wrong("unit", "auto, ms or s", unit)
    watermark = inner.text("watermark", default="0s", expected=WATERMARK)
    try:
        lateness_ns = parse_duration(watermark)
    except TextInvalid:
        raise inner.wrong("watermark", WATERMARK, watermark) from None
    # Messages wait in memory for the watermark: more than a day of them is a mistake in the unit.
    if lateness_ns > DAY:
        raise inner.wrong("watermark", WATERMARK, watermark)
    path = read_path(inner, "field", "a field path, such as /ts")
    inner.finish()
    return EventTime(TimeField(path, Unit(unit)), whole_ms(lateness_ns))
