"""The live table of `tidegate subscribe`: the newest value of each key, sorted, with its rate."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidegate.clients.order import by_field, in_order
from tidegate.clients.replica import RecordId, Replica, Row
from tidegate.clients.sse import Event

FRAMES_PER_SECOND = 8
RATE_OVER_S = 5.0  # long enough for a steady figure, short enough to see a change
FRESH_S = 0.6  # a changed cell is colored for so long
FIELDS_MAX = 10
LINES_AROUND = 6
DECIMALS_MAX = 6  # more of them are noise of binary fractions
WHOLE_TOPIC = "(topic)"
HELP = "left/right: sort by  r: reverse  up/down: scroll  q: quit"
UP, DOWN, CHANGED = "bold green", "bold red", "bold"


class LiveTable:
    """Takes events in format `batch`, and redraws itself a few times a second.

    Args:
        topic: the topic in the title; names of other topics stand before their keys.
        console: the console to draw on.
        order_by: the order of the rows, such as `/price DESC`; by default that of the keys.

    Attributes:
        updates: rows taken, snapshot included.
    """

    def __init__(self, topic: str, console: Console | None = None, order_by: str = "") -> None:
        self.updates = 0
        self._topic = topic
        self._console = console or Console()
        self._replica = Replica()
        # Of each record: when it last changed, and the styles of the cells that did.
        self._marks: dict[RecordId, tuple[float, dict[str, str]]] = {}
        self._fields: dict[str, None] = {}
        self._of_key: list[str] | None = None  # fields that only repeat the key of every record
        self._order_by = order_by
        self._column = 0  # by which the rows are sorted: 0 for the order given, then the fields
        self._is_reversed = False
        self._first = 0
        self._shown_max = 0
        self._arrivals: deque[tuple[float, int]] = deque()
        self._granted = ""
        self._note = ""
        self._help = ""
        self._lock = threading.Lock()  # rich draws from its own thread, keys arrive from another
        self._live = Live(
            console=self._console,
            refresh_per_second=FRAMES_PER_SECOND,
            get_renderable=self.render,
            screen=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._live.stop()

    def take(self, event: Event) -> None:
        """Apply one event of the stream."""
        with self._lock:
            self._take(event)

    def press(self, pressed: str) -> None:
        """Apply a key: sort by another column, reverse the order, or scroll."""
        with self._lock:
            self._help = HELP
            match pressed:
                case "left" | "right":
                    step = 1 if pressed == "right" else -1
                    self._column = (self._column + step) % (len(self._columns) + 1)
                    self._first = 0
                case "r":
                    self._is_reversed = not self._is_reversed
                case "up" | "down":
                    step = self._shown_max if pressed == "down" else -self._shown_max
                    self._first = max(0, self._first + step)

    def note(self, sentence: str) -> None:
        """Show a sentence beneath the table until the next one, or the next connection."""
        self._note = sentence

    def render(self) -> RenderableType:
        """Return the table as it is now."""
        with self._lock:
            return self._render()

    def _take(self, event: Event) -> None:
        taken = self._replica.take(event)
        self._apply_rows(taken.rows)
        if taken.unreadable:
            self._note = taken.unreadable[-1]
        if event.name == "hello":
            granted = [each["options"] for each in json.loads(event.text)["subscriptions"]]
            self._granted = granted[0] if granted else "no topic yet"
            self._note = ""
        elif event.name in ("goodbye", "unsubscribed"):
            self._note = f"{event.name}: {json.loads(event.text).get('reason')}"

    def _render(self) -> RenderableType:
        now = time.monotonic()
        self._shown_max = max(3, self._console.height - LINES_AROUND)
        rows = self._sorted()
        # A page past the last row would show nothing, and look like an empty topic.
        self._first = min(self._first, max(0, len(rows) - self._shown_max))
        shown = rows[self._first : self._first + self._shown_max]
        records = [_record(row.value) for row in shown]
        columns = {name: _Column([each.get(name) for each in records]) for name in self._columns}
        first = " ".join(self._of_key or ["key"])
        heads = (f"{name}{self._arrow(at)}" for at, name in enumerate([first, *columns]))
        table = Table(*heads, expand=False)
        for row, record in zip(shown, records, strict=True):
            styles = self._styles(row, now)
            cells = [
                column.cell(record[name], styles.get(name, "")) if name in record else Text("")
                for name, column in columns.items()
            ]
            table.add_row(Text(self._name(row), style=CHANGED if styles else ""), *cells)
        left = len(rows) - len(shown)
        beneath = [f"and {left} more keys" if left > 0 else "", self._note, self._help]
        return Group(self._title(now), table, Text("  ".join(filter(None, beneath)), style="dim"))

    @property
    def _columns(self) -> list[str]:
        return [name for name in self._fields if name not in (self._of_key or [])]

    def _sorted(self) -> list[Row]:
        rows = sorted(self._replica.rows.values(), key=self._name)
        if self._column > 0:
            name = self._columns[self._column - 1]
            return by_field(rows, name, descending=self._is_reversed)
        if self._order_by:
            rows = in_order(rows, self._order_by)
        return rows[::-1] if self._is_reversed else rows

    def _arrow(self, column: int) -> str:
        if column != self._column or not self._help:
            return ""
        return " ▼" if self._is_reversed else " ▲"

    def _styles(self, row: Row, now: float) -> dict[str, str]:
        changed_at, styles = self._marks.get(row.id, (0.0, {}))
        return styles if now - changed_at < FRESH_S else {}

    def _apply_rows(self, rows: list[Row]) -> None:
        now = time.monotonic()
        for row in rows:
            if row.op == "oof":
                self._marks.pop(row.id, None)
                continue
            record = _record(row.value)
            if row.previous is not None:
                before = _record(row.previous)
                moved = {name: _direction(before.get(name), record[name]) for name in record}
                self._marks[row.id] = now, {name: style for name, style in moved.items() if style}
            self._fields |= dict.fromkeys(record)
            names = record if self._of_key is None else self._of_key
            key = row.key or []
            self._of_key = [name for name in names if name in record and record[name] in key]
        while len(self._fields) > FIELDS_MAX:  # more columns would fold on a terminal
            self._fields.popitem()
        self.updates += len(rows)
        self._arrivals.append((now, len(rows)))

    def _name(self, row: Row) -> str:
        """Return a row's name: its key's fields, after its topic where there may be several."""
        name = WHOLE_TOPIC if row.key is None else " ".join(_text(field) for field in row.key)
        return name if row.topic == self._topic else f"{row.topic} {name}"

    def _title(self, now: float) -> Text:
        while self._arrivals and self._arrivals[0][0] < now - RATE_OVER_S:
            self._arrivals.popleft()
        rate = sum(rows for _, rows in self._arrivals) / RATE_OVER_S
        return Text(
            f"{self._topic}  {self._granted}  {self.updates:,} updates, {rate:,.0f} a second"
        )


class _Column:
    """How one column is shown: its fractions have as many decimals as the longest of them."""

    def __init__(self, values: list[object]) -> None:
        lengths = [_decimals(value) for value in values if isinstance(value, float)]
        self._decimals = max(lengths, default=0)

    def cell(self, value: object, style: str) -> Text:
        """Return a value as this column shows it."""
        is_plain = isinstance(value, float) and _decimals(value) > 0
        text = f"{value:.{self._decimals}f}" if is_plain else _text(value)
        return Text(text, style=style, justify="right" if _is_number(value) else "left")


def _decimals(value: float) -> int:
    """Return how many decimals a number is shown with; 0 for one with an exponent."""
    decimals = repr(value).partition(".")[2]
    return min(DECIMALS_MAX, len(decimals)) if decimals.isdigit() else 0


def _direction(before: Any, after: Any) -> str:
    if before == after:
        return ""
    if _is_number(before) and _is_number(after):
        return UP if after > before else DOWN
    return CHANGED


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _record(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"value": value}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
