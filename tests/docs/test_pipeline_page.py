"""The page about the pipeline has every field of every source and sink, and no other."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from dev import ROOT
from tidegate.pipeline.definitions.source import read_source
from tidegate.pipeline.definitions.stream import read_definitions, read_sink
from tidegate.pipeline.definitions.toml import TomlTable, alike

PAGE = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
GIVEN = [
    {"kind": "tidegate", "topic": "t", "address": "redis://h"},
    {"kind": "redis", "address": "redis://127.0.0.1", "stream": "s"},
    {"kind": "kafka", "brokers": "127.0.0.1:9092", "topic": "t"},
    {"kind": "files", "path": "a.csv", "topic": "t"},
    {"kind": "rate", "rows_per_second": 1},
    {"kind": "topic", "topic": "t"},
    {"kind": "parquet", "path": "out"},
]


def shown() -> dict[str, set[str]]:
    """The fields of each kind, as the tables of the page have them."""
    found: dict[str, set[str]] = {}
    kind = ""
    for first, second in re.findall(r"^\| (`\w+`)? ?\| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE):
        kind = first.strip("`") or kind
        found.setdefault(kind, set()).update(re.findall(r"`(\w+)`", second))
    return found


@pytest.mark.parametrize("fields", GIVEN, ids=lambda fields: fields["kind"])
def test_every_field_of_a_kind_stands_on_the_page(fields: dict[str, Any]) -> None:
    table = TomlTable(fields, "f", "")
    if fields["kind"] in {"topic", "parquet"}:
        read_sink(table, Path())
    else:
        read_source(table, TomlTable({}, "f", ""), Path())
    assert shown()[fields["kind"]] == table.asked - {"kind"}
    # Nobody is told that he has misspelt one field where he has written another.
    assert not any(alike(one, [other]) for one, other in permutations(table.asked, 2))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("pipeline-*.toml")), ids=str)
def test_every_example_is_understood(path: Path) -> None:
    assert read_definitions(path)
