"""The page about forward has every field of every kind of sink, and no other."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from dev import ROOT
from tidegate.pipeline.definitions.toml import TomlTable, alike
from tidegate.pipeline.forward.definition import KINDS, read_sink

PAGE = (ROOT / "docs" / "forward.md").read_text(encoding="utf-8")
GIVEN: list[dict[str, Any]] = [
    {"kind": "file", "path": "a.ndjson"},
    {"kind": "kafka", "brokers": "h:9092", "topic": "t"},
    {"kind": "mqtt", "address": "mqtt://127.0.0.1", "topic": "a/{key/0}"},
    {"kind": "nats", "address": "nats://h", "stream": "s", "subject": "a.{key/0}"},
    {"kind": "parquet", "path": "a.parquet"},
    {"kind": "redis", "address": "redis://127.0.0.1", "stream": "s"},
    {"kind": "webhook", "address": "https://h/p", "secret_env": "PATH"},
]


def shown() -> dict[str, set[str]]:
    """The fields of each kind, as the table of the page has them."""
    found: dict[str, set[str]] = {}
    kind = ""
    table = PAGE.split("## Sinks")[1].split("\n\n")[1]
    for first, second in re.findall(r"^\| (`\w+`)? ?\| `(\w+)` \| .+ \|$", table, re.MULTILINE):
        kind = first.strip("`") or kind
        found.setdefault(kind, set()).add(second)
    return found


def test_every_kind_is_tried_here() -> None:
    assert {fields["kind"] for fields in GIVEN} == KINDS.keys()


@pytest.mark.parametrize("fields", GIVEN, ids=lambda fields: fields["kind"])
def test_every_field_of_a_kind_stands_on_the_page(fields: dict[str, Any]) -> None:
    table = TomlTable(fields, "f", "")
    read_sink(table, Path())
    assert shown()[fields["kind"]] == table.asked - {"kind"}
    names = table.asked - {"secret_file", "secret_env"}
    # Nobody is told that he has misspelt one field where he has written another.
    assert not any(alike(one, [other]) for one, other in permutations(names, 2))


def test_every_kind_has_its_guarantee_and_its_extra() -> None:
    guarantees = PAGE.split("## Guarantees")[1].split("\n\n")[1]
    assert set(re.findall(r"^\| `(\w+)`", guarantees, re.MULTILINE)) == KINDS.keys()
    extras = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE))
    assert all(f"`{kind}`" in extras[extra] for kind, extra in KINDS.items())
