"""Print documents: as tables on a terminal, as JSON in a pipe."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tidegate.app.cli.terminal import print_line

if TYPE_CHECKING:
    from rich.console import RenderableType

Column = Callable[[Mapping[str, Any]], object]


def print_list(documents: Iterable[Mapping[str, Any]], columns: Mapping[str, Column]) -> None:
    """Print a table with these columns on a terminal, else NDJSON."""
    if not sys.stdout.isatty():
        for document in documents:
            print_line(msgspec.json.encode(document).decode())
        return
    _print(table_of(documents, columns))


def print_document(document: Mapping[str, Any]) -> None:
    """Print a document's fields, a line each, on a terminal; else JSON."""
    if not sys.stdout.isatty():
        print_line(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    _print(fields_of(document))


def table_of(
    documents: Iterable[Mapping[str, Any]], columns: Mapping[str, Column]
) -> RenderableType:
    """Return a table with a row for each document."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns)
    table.columns[0].no_wrap = True  # a folded name cannot be copied
    for document in documents:
        cells = [column(document) for column in columns.values()]
        table.add_row(*(Text(shown(cell), justify=_side(cell)) for cell in cells))
    return table


def fields_of(document: Mapping[str, Any]) -> RenderableType:
    """Return a line for each field with a value; each object in a list gets its own line."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, value in document.items():
        lines = value if _are_objects(value) else [value]
        for number, line in enumerate(lines):
            label = Text("" if number else name.replace("_", " "), style="dim")
            if line not in (None, "", []):
                text = moment(value) if name.endswith("_ms") else shown(line)
                table.add_row(label, Text(text, overflow="fold"))
    return table


def shown(value: object) -> str:
    """Return a value for people: grouped digits, lists without brackets, objects by name."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case str():
            return value
        case list() if all(isinstance(each, str) for each in value):
            return ", ".join(value)
        case dict() if all(not isinstance(each, dict | list) for each in value.values()):
            texts = {name: shown(each) for name, each in value.items()}
            return ", ".join(f"{name} {text}" for name, text in texts.items() if text)
    return msgspec.json.encode(value).decode()


def moment(timestamp_ms: int) -> str:
    """Return milliseconds of the epoch as a date and a time of day in UTC."""
    at = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


def _are_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _side(cell: object) -> Any:
    return "right" if isinstance(cell, int | float) and not isinstance(cell, bool) else "left"


def _print(renderable: RenderableType) -> None:
    from rich.console import Console

    Console().print(renderable)
