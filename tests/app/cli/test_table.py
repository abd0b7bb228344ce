"""The live table shows the newest of each key, drawn to a console that is none."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import pytest
from rich.console import Console

from tidegate.app.cli.table import FIELDS_MAX, LiveTable
from tidegate.clients.sse import Event


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=120, height=20)


def drawn(table: LiveTable, console: Console) -> str:
    with console.capture() as captured:
        console.print(table.render())
    return captured.get()


def batch(
    *rows: tuple[Sequence[object] | None, object], topic: str = "t", op: str = "publish"
) -> Event:
    shown = [{"topic": topic, "op": op, "key": fields, "value": value} for fields, value in rows]
    return Event("message", json.dumps({"topic": topic, "rows": shown}))


def test_the_newest_value_of_each_key(console: Console) -> None:
    table = LiveTable("t", console)
    table.take(Event("hello", '{"subscriptions":[{"options":"conflation=1s"}]}'))
    table.take(batch((["IBM", 7], {"price": 1.5}), (["AIG", 7], {"price": 2, "note": "[b]x"})))
    table.take(batch((["IBM", 7], {"price": 3.25})))
    text = drawn(table, console)
    assert table.updates == 3
    assert "conflation=1s" in text
    assert "3.25" in text
    assert "1.5" not in text
    assert "[b]x" in text
    assert text.index("AIG 7") < text.index("IBM 7")


def test_deltas_are_applied_and_what_left_is_gone(console: Console) -> None:
    table = LiveTable("t", console)
    table.take(batch((["IBM"], {"price": 1.5, "size": 700}), (["AIG"], {"price": 2})))
    table.take(batch((["IBM"], {"price": 8.25}), op="delta"))
    table.take(batch((["AIG"], {"price": 2}), op="oof"))
    text = drawn(table, console)
    assert "8.25" in text
    assert "700" in text
    assert "AIG" not in text
    assert table.updates == 4


def test_the_lines_of_a_pattern_name_their_topics(console: Console) -> None:
    table = LiveTable("px.*", console)
    table.take(Event("hello", '{"subscriptions":[]}'))
    assert "no topic yet" in " ".join(drawn(table, console).split())
    table.take(batch((["IBM"], {"price": 1}), topic="px.us"))
    table.take(batch((["IBM"], {"price": 2}), topic="px.eu"))
    text = drawn(table, console)
    assert text.index("px.eu IBM") < text.index("px.us IBM")


def test_a_snapshot_replaces_what_was_there(console: Console) -> None:
    table = LiveTable("t", console)
    table.take(batch((["IBM"], {"price": 1})))
    table.take(Event("group_begin", '{"sub":"s1","topic":"t","rows":1}'))
    table.take(batch((["AIG"], {"price": 1}), op="snapshot"))
    assert "IBM" not in drawn(table, console)


def test_values_that_are_no_objects_and_topics_without_key(console: Console) -> None:
    table = LiveTable("t", console)
    table.take(batch((None, [1, 2])))
    assert "[1, 2]" in drawn(table, console)


def test_more_keys_and_fields_than_fit_are_counted_and_left_out(console: Console) -> None:
    table = LiveTable("t", console)
    table.take(batch(*(([n], {f"f{n}": n}) for n in range(50))))
    text = drawn(table, console)
    assert "more keys" in text
    assert f"f{FIELDS_MAX - 1}" in text
    assert f"f{FIELDS_MAX}" not in text
    assert len(text.splitlines()) <= console.height


def test_a_note_stays_below_until_the_connection_is_back(console: Console) -> None:
    table = LiveTable("t", console)
    table.note("the stream was lost")
    assert "the stream was lost" in drawn(table, console)
    table.take(Event("hello", '{"subscriptions":[{"options":""}]}'))
    assert "the stream was lost" not in drawn(table, console)
    table.take(Event("goodbye", '{"reason":"SHUTDOWN","reconnect":true}'))
    assert "SHUTDOWN" in drawn(table, console)
