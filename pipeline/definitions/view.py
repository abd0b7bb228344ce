"""The part of a stream's table that makes it a view: groups of records, or a join of two topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from keys.errors import FilterInvalid, KeysError, PathInvalid
from keys.filter import Filter
from keys.path import FieldPath
from keys.projection import Projection
from keys.spec import KeySpec
from pipeline.definitions.source import Source, read_source
from pipeline.definitions.tomltable import TomlTable
from pipeline.errors import DefinitionInvalid

PATHS = 'field paths, such as ["/symbol", "/venue"]'
COLUMNS = 'columns, such as ["SUM(/qty) AS /qty", "/price"]'
PAIRS = 'pairs of fields, left and right, such as [["/symbol", "/ticker"]]'
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
        return f"{self.source.place} key {key} on {pairs} as {self.place} filter {self.filter}"


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """Records of `record_key`, or with keys of their own, that match; joined, grouped, or both."""

    record_key: KeySpec | None
    filter: Filter | None
    projection: Projection | None
    join: JoinDefinition | None

    def __str__(self) -> str:
        """What a checkpoint remembers of it: another view has other state."""
        key = self.record_key or "own"
        return f"key {key} filter {self.filter} {self.projection or ''} join {self.join}"


def read_view(table: TomlTable, folder: Path) -> ViewDefinition | None:
    """The view that a stream is, if it is one: then it has `grouping`, or a table `join`.

    Raises:
        DefinitionInvalid: the place, and what was expected there.
    """
    if not {"grouping", "projection", "join"} & table.left.keys():
        return None
    for field in NOT_WITH:
        if field in table.left:
            raise DefinitionInvalid(f"{table.where(field)}: not with grouping or join")
    if (pace := table.text("pace", default="batch")) != "batch":
        raise table.wrong("pace", "batch with grouping or join", pace)
    projection = _projection(table)
    join = _join(table.table("join"), folder) if "join" in table.left else None
    return ViewDefinition(_record_key(table, projection), read_filter(table), projection, join)


def read_filter(table: TomlTable) -> Filter | None:
    """A filter, if there is one."""
    if "filter" not in table.left:
        return None
    text = table.text("filter", expected="a filter, such as /qty > 0")
    try:
        return Filter.parse(text)
    except FilterInvalid as error:
        raise _invalid(table, "filter", error) from None


def read_paths(table: TomlTable, field: str) -> KeySpec:
    """A list of field paths, at least one."""
    paths = table.take(field, list, PATHS)
    if not paths or not all(isinstance(path, str) for path in paths):
        raise table.wrong(field, PATHS, paths)
    try:
        return KeySpec.of(paths)
    except PathInvalid as error:
        raise _invalid(table, field, error) from None


def _record_key(table: TomlTable, projection: Projection | None) -> KeySpec | None:
    """What tells source records apart; joined records that are not grouped have it as their key."""
    if projection is None:
        if "record_key" in table.left:
            raise DefinitionInvalid(f"{table.where('record_key')}: only with grouping, else key")
        return None
    if "key" in table.left:
        raise DefinitionInvalid(f"{table.where('key')}: the key of groups is their grouping")
    return read_paths(table, "record_key") if "record_key" in table.left else None


def _projection(table: TomlTable) -> Projection | None:
    if not {"grouping", "projection"} & table.left.keys():
        return None
    grouping = read_paths(table, "grouping")
    columns = table.take("projection", list, COLUMNS)
    if not columns or not all(isinstance(column, str) for column in columns):
        raise table.wrong("projection", COLUMNS, columns)
    try:
        # Positions tell the two options apart: those of the columns are not below 0.
        return Projection.parse(f"[{','.join(columns)}]", -1, str(grouping), -2)
    except KeysError as error:
        if error.position is not None and error.position < 0:
            raise _invalid(table, "grouping", error) from None
        place = f"projection[{_column_at(columns, error.position or 0)}]"
        raise _invalid(table, place, error) from None


def _column_at(columns: Sequence[str], position: int) -> int:
    """Which of some columns, joined by commas, a position is in."""
    ends = list(accumulate(len(column) + 1 for column in columns))
    return next((at for at, end in enumerate(ends) if position < end), len(columns) - 1)


def _join(table: TomlTable, folder: Path) -> JoinDefinition:
    source = read_source(table.table("source"), table, folder)
    join = JoinDefinition(
        source,
        read_paths(table, "record_key") if "record_key" in table.left else None,
        _pairs(table),
        _place(table),
        read_filter(table),
    )
    table.finish()
    return join


def _pairs(table: TomlTable) -> tuple[tuple[FieldPath, FieldPath], ...]:
    pairs = table.take("on", list, PAIRS)
    are_pairs = pairs and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
    if not are_pairs or not all(isinstance(path, str) for pair in pairs for path in pair):
        raise table.wrong("on", PAIRS, pairs)
    try:
        return tuple((FieldPath.parse(left), FieldPath.parse(right)) for left, right in pairs)
    except PathInvalid as error:
        raise _invalid(table, "on", error) from None


def _place(table: TomlTable) -> FieldPath:
    expected = "the field in which the right record stands, such as /quote"
    text = table.text("as", expected=expected)
    try:
        place = FieldPath.parse(text)
    except PathInvalid as error:
        raise _invalid(table, "as", error) from None
    if any(isinstance(step, int) for step in place.steps):
        raise table.wrong("as", expected, text)
    return place


def _invalid(table: TomlTable, field: str, error: KeysError) -> DefinitionInvalid:
    return DefinitionInvalid(f"{table.where(field)}: {error.detail}")
