"""The page about ingest has every field of every kind of source, and no other."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from dev import ROOT
from tidegate.pipeline.definitions.toml import TomlTable, alike
from tidegate.pipeline.ingest.definition import KINDS, read_definitions, read_source

PAGE = (ROOT / "docs" / "ingest.md").read_text(encoding="utf-8")
GIVEN: list[dict[str, Any]] = [
    {"kind": "redis", "address": "redis://127.0.0.1", "stream": "s"},
    {"kind": "file", "path": "a.ndjson"},
    {"kind": "mqtt", "address": "mqtt://127.0.0.1", "subscribe": ["#"], "ca": "ca.pem"},
    {"kind": "nats", "address": "nats://h", "stream": "s", "subscribe": ["a.>"], "ca": "ca.pem"},
    {"kind": "postgres", "address": "postgres://h/d", "publication": "p", "slot": "s"},
    {"kind": "kafka", "brokers": "h:9092", "topic": "t", "group": "g"},
    {"kind": "rabbitmq", "address": "amqp://h", "queue": "q", "ca": "ca.pem"},
    {"kind": "sparkplug", "address": "mqtt://h", "groups": ["g"], "ca": "ca.pem"},
    {"kind": "websocket", "address": "wss://h", "subscribe": ["{}"], "headers": {"A": "b"}},
]


def shown() -> dict[str, set[str]]:
    """The fields of each kind, as the table of the page has them."""
    found: dict[str, set[str]] = {}
    kind = ""
    table = PAGE.split("## Sources")[1].split("\n\n")[1]
    for first, second in re.findall(r"^\| (`\w+`)? ?\| `(\w+)` \| .+ \|$", table, re.MULTILINE):
        kind = first.strip("`") or kind
        found.setdefault(kind, set()).add(second)
    return found


def test_every_kind_is_tried_here() -> None:
    assert {fields["kind"] for fields in GIVEN} == KINDS.keys()


@pytest.mark.parametrize("fields", GIVEN, ids=lambda fields: fields["kind"])
def test_every_field_of_a_kind_stands_on_the_page(fields: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    table = TomlTable(fields, "f", "")
    read_source(table, tmp_path)
    assert shown()[fields["kind"]] == table.asked - {"kind"}
    # Nobody is told that he has misspelt one field where he has written another.
    assert not any(alike(one, [other]) for one, other in permutations(table.asked, 2))


def test_every_kind_has_its_guarantee_and_its_extra() -> None:
    guarantees = PAGE.split("## Guarantees")[1].split("\n\n")[1]
    assert set(re.findall(r"^\| `(\w+)`", guarantees, re.MULTILINE)) == KINDS.keys()
    extras = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE))
    assert all(f"`{kind}`" in extras[extra] for kind, extra in KINDS.items())


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("ingest-*.toml")), ids=str)
def test_every_example_is_understood(path: Path) -> None:
    assert read_definitions(path)
