"""The live table shows the newest of each key, drawn to a console that is none."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from rich.console import Console

from tidegate.app.cli.live import table as module
from tidegate.app.cli.live.table import CHANGED, DOWN, FIELDS_MAX, UP, LiveTable
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


def test_a_field_of_the_key_stands_once(console: Console) -> None:
    table = LiveTable("t", console)
    table.take(batch((["IBM", 7], {"symbol": "IBM", "side": 7, "lots": 7, "price": 1.5})))
    table.take(batch((["AIG", 8], {"symbol": "AIG", "side": 8, "lots": 7, "price": 2.5})))
    text = drawn(table, console)
    assert (text.count("symbol"), text.count("IBM"), text.count("lots")) == (1, 1, 1)
    assert "symbol side" in text
    table.press("right")
    assert "lots ▲" in drawn(table, console)


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
    table.take(Event("group_end", '{"sub":"s1","topic":"t","rows":1}'))
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


def lines(table: LiveTable, console: Console, *names: str) -> list[str]:
    """The names among those given in the order in which the table shows them."""
    text = drawn(table, console)
    return sorted((name for name in names if name in text), key=text.index)


def test_rows_are_sorted_as_asked_for_and_by_the_column_that_keys_choose(console: Console) -> None:
    table = LiveTable("t", console, order_by="/price DESC")
    rows = (["IBM"], {"price": 9, "size": 2}), (["AIG"], {"price": 10, "size": 1})
    table.take(batch(*rows, (["ZZZ"], {"price": 9.5, "size": 30})))
    names = ("IBM", "AIG", "ZZZ")
    assert lines(table, console, *names) == ["AIG", "ZZZ", "IBM"]
    table.press("r")
    assert lines(table, console, *names) == ["IBM", "ZZZ", "AIG"]
    table.press("r")
    for _ in range(2):
        table.press("right")
    assert lines(table, console, *names) == ["AIG", "IBM", "ZZZ"]
    assert "size ▲" in drawn(table, console)
    table.press("r")
    assert lines(table, console, *names) == ["ZZZ", "IBM", "AIG"]
    assert "size ▼" in drawn(table, console)
    table.press("left")
    assert lines(table, console, *names) == ["AIG", "ZZZ", "IBM"]


def test_it_scrolls_by_pages_and_not_past_the_end(console: Console) -> None:
    table = LiveTable("t", console)
    table.take(batch(*(([f"k{n:02}"], n) for n in range(30))))
    assert lines(table, console, "k00", "k13", "k14", "k29") == ["k00", "k13"]
    table.press("down")
    assert lines(table, console, "k13", "k14", "k27", "k28") == ["k14", "k27"]
    for _ in range(5):
        table.press("down")
        assert lines(table, console, "k15", "k16", "k29") == ["k16", "k29"]
    for _ in range(5):
        table.press("up")
        drawn(table, console)
    assert lines(table, console, "k00", "k13", "k14") == ["k00", "k13"]


def test_decimals_of_a_column_stand_under_one_another(console: Console) -> None:
    table = LiveTable("t", console)
    table.take(batch((["a"], {"p": 355.0, "n": 1e300}), (["b"], {"p": 355.24, "n": 7})))
    text = drawn(table, console)
    assert "355.00" in text
    assert "355.24" in text
    assert "1e+300" in text


def test_what_rises_is_green_and_what_falls_is_red(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 0.0))
    table = LiveTable("t", console)
    table.take(batch((["a"], {"up": 1, "down": 2, "same": 3, "text": "x"})))
    [row] = table._replica.rows.values()
    assert table._styles(row, 0.0) == {}
    table.take(batch((["a"], {"up": 2, "down": 1, "same": 3, "text": "y"})))
    [row] = table._replica.rows.values()
    assert table._styles(row, 0.0) == {"up": UP, "down": DOWN, "text": CHANGED}
    assert table._styles(row, module.FRESH_S) == {}


def test_a_row_that_cannot_be_read_is_named_beneath_the_table(console: Console) -> None:
    table = LiveTable("t", console)
    table.take(batch((["a"], {"price": 1.5}), (["b"], {"price": 2.5})))
    rows = '{"topic":"t","op":"publish","key":["a"],"value":{"price":1e400}}'
    table.take(Event("message", f'{{"topic":"t","rows":[{rows}]}}'))
    text = drawn(table, console)
    assert 'record ["a"] of t cannot be read' in text
    assert ("1.5" in text, "2.5" in text) == (False, True)
