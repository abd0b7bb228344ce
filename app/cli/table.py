"""The live table of `tidegate subscribe`: the newest value of each key, and the update rate."""

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

from tidegate.clients.replica import Change, Replica
from tidegate.clients.sse import Event

FRAMES_PER_SECOND = 8
RATE_OVER_S = 5.0  # long enough for a steady figure, short enough to see a change
FRESH_S = 0.6  # a changed row is green for so long
FIELDS_MAX = 10
LINES_AROUND = 6
WHOLE_TOPIC = "(topic)"


class LiveTable:
    """Takes events in format `batch`, and redraws itself a few times a second.

    Attributes:
        updates: rows taken, snapshot included.
    """

    def __init__(self, topic: str, console: Console | None = None) -> None:
        self.updates = 0
        self._topic = topic
        self._console = console or Console()
        self._replica = Replica()
        self._changed_at: dict[str, float] = {}
        self._fields: dict[str, None] = {}
        self._arrivals: deque[tuple[float, int]] = deque()
        self._granted = ""
        self._note = ""
        self._lock = threading.Lock()  # rich draws from a thread of its own
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

    def _take(self, event: Event) -> None:
        self._count(self._replica.take(event))
        if event.name == "hello":
            granted = [each["options"] for each in json.loads(event.text)["subscriptions"]]
            self._granted = granted[0] if granted else "no topic yet"
            self._note = ""
        elif event.name in ("goodbye", "unsubscribed"):
            self._note = f"{event.name}: {json.loads(event.text).get('reason')}"

    def note(self, sentence: str) -> None:
        """Show a sentence beneath the table until the connection is back."""
        self._note = sentence

    def render(self) -> RenderableType:
        """Return the table as it is now."""
        with self._lock:
            return self._render()

    def _render(self) -> RenderableType:
        now = time.monotonic()
        lines_max = max(3, self._console.height - LINES_AROUND)
        records = {
            self._name(topic, json.loads(key_text)): value
            for (topic, key_text), value in self._replica.values.items()
        }
        shown = sorted(records)[:lines_max]
        table = Table("key", *self._fields, title=self._title(now), expand=False)
        for name in shown:
            fresh = now - self._changed_at.get(name, 0.0) < FRESH_S
            cells = _cells(_record(records[name]), self._fields)
            table.add_row(Text(name), *cells, style="bold green" if fresh else "")
        left = len(records) - len(shown)
        beneath = [f"and {left} more keys" if left > 0 else "", self._note]
        return Group(table, Text("  ".join(filter(None, beneath)), style="dim"))

    def _count(self, changes: list[Change]) -> None:
        now = time.monotonic()
        for change in changes:
            self._changed_at[self._name(change.topic, change.key)] = now
            if change.op != "oof":
                self._fields |= dict.fromkeys(_record(change.value))
        while len(self._fields) > FIELDS_MAX:  # more columns would fold on a terminal
            self._fields.popitem()
        self.updates += len(changes)
        self._arrivals.append((now, len(changes)))

    def _name(self, topic: str, fields: list[object] | None) -> str:
        """Return a line's name: its key's fields, after its topic where there may be several."""
        name = WHOLE_TOPIC if fields is None else _key_text(fields)
        return name if topic == self._topic else f"{topic} {name}"

    def _title(self, now: float) -> Text:
        while self._arrivals and self._arrivals[0][0] < now - RATE_OVER_S:
            self._arrivals.popleft()
        rate = sum(rows for _, rows in self._arrivals) / RATE_OVER_S
        return Text(
            f"{self._topic}  {self._granted}  {self.updates:,} updates, {rate:,.0f} a second"
        )


def _record(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"value": value}


def _cells(record: dict[str, Any], fields: dict[str, None]) -> list[Text]:
    return [
        Text("") if name not in record else Text(_text(record[name]), justify=_side(record[name]))
        for name in fields
    ]


def _key_text(fields: list[object]) -> str:
    return " ".join(_text(field) for field in fields)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _side(value: object) -> Any:
    return "right" if isinstance(value, int | float) and not isinstance(value, bool) else "left"
