"""The part of a stream's table that makes it a view: groups of records, or a join of two topics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidegate.keys.errors import PathInvalid
from tidegate.keys.filter import Filter
from tidegate.keys.path import FieldPath
from tidegate.keys.projection import Projection
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.definitions.source import BOUNDS, SOURCE, Source, read_source
from tidegate.pipeline.definitions.toml import (
    TomlTable,
    bracketed,
    read_filter,
    read_list,
    read_path,
    read_paths,
    refused,
)
from tidegate.pipeline.errors import DefinitionInvalid

COLUMNS = 'columns, such as ["SUM(/qty) AS /qty", "/price"]'
PAIRS = 'pairs of fields, left and right, such as [["/symbol", "/ticker"]]'
SHAPE = ("grouping", "projection")
# A view keeps the newest of each record and sends removals anyway: nothing is merged or held.
NOT_WITH = ("time", "merge", "reduce", "oof")


@dataclass(frozen=True, slots=True)
class JoinDefinition:
    """The right side of a join, its records keyed by `record_key` or, without, by their own key."""

    source: Source
    record_key: KeySpec | None
    on: tuple[tuple[FieldPath, FieldPath], ...]
    place: FieldPath
    filter: Filter | None

    def __str__(self) -> str:
        pairs = ",".join(f"{left}={right}" for left, right in self.on)
        key = self.record_key or "own"
        return f"{self.source.label} key {key} on {pairs} as {self.place} filter {self.filter}"


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """Records of `record_key`, or with keys of their own, that match; joined, grouped, or both."""

    record_key: KeySpec | None
    filter: Filter | None
    projection: Projection | None
    join: JoinDefinition | None

    def __str__(self) -> str:
        """Return what a checkpoint notes: another view has other state."""
        key = self.record_key or "own"
        return f"key {key} filter {self.filter} {self.projection or ''} join {self.join}"


def refuse_place_in_key(table: TomlTable, view: ViewDefinition, key_spec: KeySpec) -> None:
    """Refuse a join that would put the right record into a field of the key.

    Raises:
        DefinitionInvalid: it does; records of groups have their own key, whatever was joined.
    """
    if view.join is None or view.projection is not None:
        return
    place = tuple(map(str, view.join.place.steps))
    for path in key_spec.paths:
        field = tuple(map(str, path.steps))
        if field[: len(place)] == place or place[: len(field)] == field:
            where = table.where("join.as")
            raise DefinitionInvalid(f"{where}: the right record would replace a field of the key")


def read_view(table: TomlTable, folder: Path) -> ViewDefinition | None:
    """Read the view of a stream, if it has `grouping` or a table `join`.

    Raises:
        DefinitionInvalid: the place, and what was expected there.
    """
    if not any(map(table.has, (*SHAPE, "join"))):
        return None
    # Saying the default is no mistake; anything else is refused below.
    for field, usual in (("time", "processing"), ("merge", "replace")):
        table.says(field, usual)
    for field in NOT_WITH:
        if field in table.left:
            raise DefinitionInvalid(f"{table.where(field)}: not with grouping or join")
    if (pace := table.text("pace", default="batch")) != "batch":
        raise table.wrong("pace", "batch with grouping or join", pace)
    projection = _projection(table)
    join = _join(table.table("join"), folder) if table.has("join") else None
    return ViewDefinition(_record_key(table, projection), read_filter(table), projection, join)


def _record_key(table: TomlTable, projection: Projection | None) -> KeySpec | None:
    """Return the fields that identify source records; without grouping it is the stream's key."""
    if projection is None:
        if table.has("record_key"):
            raise DefinitionInvalid(f"{table.where('record_key')}: only with grouping, else key")
        return None
    if table.has("key"):
        raise DefinitionInvalid(f"{table.where('key')}: the key of groups is their grouping")
    return _own_key(table)


def _own_key(table: TomlTable) -> KeySpec | None:
    return read_paths(table, "record_key") if table.has("record_key") else None


def _projection(table: TomlTable) -> Projection | None:
    if not any(map(table.has, SHAPE)):
        return None
    grouping = read_paths(table, "grouping")
    for at, path in enumerate(grouping.paths):
        # A place in an array moves with every insertion, so it does not name a group.
        if any(isinstance(step, int) for step in path.steps):
            where = table.where(f"grouping[{at}]")
            raise DefinitionInvalid(f"{where}: groups are by fields, not by places in an array")

    def columns(texts: list[str]) -> Projection:
        return Projection.parse(*bracketed(texts), str(grouping), 0)

    return read_list(table, "projection", COLUMNS, columns)


def _join(table: TomlTable, folder: Path) -> JoinDefinition:
    source = read_source(table.table("source", SOURCE), table, folder)
    join = JoinDefinition(source, _own_key(table), _pairs(table), _place(table), read_filter(table))
    table.finish(BOUNDS)
    return join


def _pairs(table: TomlTable) -> tuple[tuple[FieldPath, FieldPath], ...]:
    pairs = table.take("on", list, PAIRS)
    if pairs is None:
        raise table.missing("on", PAIRS)
    are_pairs = pairs and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
    if not are_pairs or not all(isinstance(path, str) for pair in pairs for path in pair):
        raise table.wrong("on", PAIRS, pairs)
    return tuple(
        (_side(table, left, f"on[{at}][0]"), _side(table, right, f"on[{at}][1]"))
        for at, (left, right) in enumerate(pairs)
    )


def _side(table: TomlTable, text: str, place: str) -> FieldPath:
    try:
        return FieldPath.parse(text)
    except PathInvalid as error:
        raise refused(table, place, error) from None


def _place(table: TomlTable) -> FieldPath:
    expected = "the field for the right record, such as /quote"
    place = read_path(table, "as", expected)
    # An array may be too short for the place, and JSON has no hole to fill it up with.
    if any(isinstance(step, int) for step in place.steps):
        raise table.wrong("as", expected, str(place))
    return place
