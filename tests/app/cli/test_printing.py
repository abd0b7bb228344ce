"""Documents are printed as tables for people and as JSON for programs."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from rich.console import Console, RenderableType

from tidegate.app.cli.printing import fields_of, print_document, print_list, shown, table_of

TOPIC = {"topic": "prices.us", "keys": 12_345, "key": ["/symbol", "/venue"], "source": None}


def lines(renderable: RenderableType) -> list[str]:
    console = Console(file=StringIO(), width=60)
    console.print(renderable)
    assert isinstance(console.file, StringIO)
    return [line.strip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (12_345, "12,345"),
        (["/a", "/b"], "/a, /b"),
        ({"messages": 1_000, "age": "1h"}, "messages 1,000, age 1h"),
        ({"sub": "s1", "filter": None, "options": "", "waiting": 0}, "sub s1, waiting 0"),
        ({"properties": {"a": {}}}, '{"properties":{"a":{}}}'),
        ([1, 2], "[1,2]"),
        (0.25, "0.25"),
        ("[red]x", "[red]x"),
    ],
)
def test_a_value_as_people_read_it(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_table_has_a_row_a_document_and_numbers_to_the_right() -> None:
    columns: dict[str, Any] = {name: lambda it, name=name: it[name] for name in ("topic", "keys")}
    drawn = lines(table_of([TOPIC, {"topic": "[b]", "keys": 1}], columns))
    assert "│ prices.us │ 12,345 │" in drawn
    assert "│ [b]       │      1 │" in drawn, "names are no markup"


def test_one_document_has_a_line_for_each_field_that_says_something() -> None:
    subscriptions = [{"sub": "s1", "paused": False}, {"sub": "s2", "paused": True}]
    drawn = lines(fields_of({**TOPIC, "messages_in": 0, "subscriptions": subscriptions}))
    assert drawn == [
        "topic          prices.us",
        "keys           12,345",
        "key            /symbol, /venue",
        "messages in    0",
        "subscriptions  sub s1, paused no",
        "sub s2, paused yes",
    ]


def test_a_time_is_a_date_for_people() -> None:
    assert lines(fields_of({"opened_ms": 1_000_000_000_999})) == ["opened ms  2001-09-09 01:46:40Z"]


def test_programs_get_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_list([TOPIC, TOPIC], {})
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [TOPIC, TOPIC]
    print_document(TOPIC)
    assert json.loads(capsys.readouterr().out) == TOPIC


def test_terminals_get_tables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_list([TOPIC], {"topic": lambda it: it["topic"]})
    print_document(TOPIC)
    out = capsys.readouterr().out
    assert "│ prices.us │" in out
    assert "  /symbol, /venue" in out
