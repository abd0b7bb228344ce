"""Filters, field paths and lists in a TOML table; errors say the place, and the position in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from tidegate.keys.errors import KeysError
from tidegate.keys.filter import Filter
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import DefinitionInvalid

PATHS = 'field paths, such as ["/symbol", "/venue"]'

Read = TypeVar("Read")


def refused(
    table: TomlTable, field: str, error: KeysError, position: int | None = None
) -> DefinitionInvalid:
    """The error for a text that is no term; `position` (0-based) is the error's own if None."""
    at = error.position if position is None else position
    place = table.where(field) if at is None else f"{table.where(field)}, position {at}"
    return DefinitionInvalid(f"{place}: {error.detail}")


def read_filter(table: TomlTable) -> Filter | None:
    """The field `filter`, if there is one."""
    if not table.has("filter"):
        return None
    text = table.checked("filter", str.strip, "a filter, such as /qty > 0")
    try:
        return Filter.parse(text)
    except KeysError as error:
        raise refused(table, "filter", error) from None


def read_path(table: TomlTable, field: str, expected: str) -> FieldPath:
    """A required field path."""
    text = table.text(field, expected=expected)
    try:
        return FieldPath.parse(text)
    except KeysError as error:
        raise refused(table, field, error) from None


def read_paths(table: TomlTable, field: str) -> KeySpec:
    """A required list of field paths, at least one."""
    return read_list(table, field, PATHS, KeySpec.of)


def read_list(
    table: TomlTable, field: str, expected: str, parse: Callable[[list[str]], Read]
) -> Read:
    """What `parse` makes of a required list of texts; its errors tell positions in the last one.

    It is asked for one text more each time, so that the first which is wrong is the one named.
    """
    texts = table.texts(field, expected)
    for at in range(len(texts)):
        try:
            read = parse(texts[: at + 1])
        except KeysError as error:
            raise refused(table, f"{field}[{at}]", error) from None
    return read


def bracketed(texts: list[str]) -> tuple[str, int]:
    """A list as options spell it, and where that begins if the last text begins at 0."""
    text = f"[{','.join(texts)}]"
    return text, len(texts[-1]) + 1 - len(text)


# Names that a definition file may give.


RECORDS = "records"
"""As `from`: the records that a topic has, which its journal may no longer hold."""

STREAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
