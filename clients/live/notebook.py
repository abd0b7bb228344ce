"""A live table and chart in a notebook: an anywidget on a live dict (extra `notebook`)."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anywidget
import msgspec
import traitlets

from tidegate.clients.live.live import Live
from tidegate.clients.replica import Changes, Row

MODULES = ("client/json.js", "client/order.js", "client/replica.js", "adapters/notebook.js")
POLL_S = 1.0  # how often a thread looks at the connection, and whether it is to end
IMPORT_OR_EXPORT = re.compile(r"^(?:import .*;$|export (?!default))", re.MULTILINE)


def module_text() -> str:
    """Return the JavaScript of the widget as one module, as anywidget asks for."""
    # The modules are those that the gateway serves to pages; names in them differ.
    folder = Path(__file__).resolve().parents[1] / "js"
    return "\n".join(IMPORT_OR_EXPORT.sub("", (folder / name).read_text()) for name in MODULES)


class LiveView(anywidget.AnyWidget):
    """A table of a live dict, and a chart of one of its fields, which follow it by themselves.

    They are redrawn at the interval of the subscription. The browser need not reach the gateway:
    the kernel has the connection and its token. Closing the live dict ends them; the last values
    stay, and are shown as old while the connection is lost. Closing the view ends it alone.

    Args:
        live: whose records are shown, in its `order_by`.
        columns: fields of the table; by default all.
        chart: field of the chart's lines, of the first six rows; without one there is no chart.
        rows_max: rows of the table.
    """

    _esm = module_text()
    topic = traitlets.Unicode().tag(sync=True)
    order_by = traitlets.Unicode().tag(sync=True)
    columns = traitlets.List(traitlets.Unicode()).tag(sync=True)
    chart = traitlets.Unicode().tag(sync=True)
    rows_max = traitlets.Int(20).tag(sync=True)
    status = traitlets.Unicode().tag(sync=True)

    def __init__(
        self, live: Live, *, columns: Sequence[str] = (), chart: str = "", rows_max: int = 20
    ) -> None:
        self._sending = threading.RLock()
        self._reader = 0
        super().__init__(
            topic=live.request.topic,
            order_by=live.request.order_by or "",
            columns=list(columns),
            chart=chart,
            rows_max=rows_max,
        )
        self._live = live
        self.on_msg(self._begin)

    def close(self) -> None:
        """Remove the table and the chart from the page, and end what fills them."""
        self._next_reader()
        super().close()

    def _begin(self, widget: object, message: Any, buffers: object) -> None:
        """Send all records, because a page was opened, and then the changes."""
        reader = self._next_reader()
        thread = threading.Thread(
            target=self._follow, args=(reader,), name="tidegate-view", daemon=True
        )
        thread.start()

    def _next_reader(self) -> int:
        """Return the number of the thread that may send from now on; the one before ends."""
        with self._sending:
            self._reader += 1
            return self._reader

    def _follow(self, reader: int) -> None:
        write = snapshot
        with suppress(Exception):  # the live dict says why it has ended, too
            for changes in self._live.steps(POLL_S):
                events = list(write(changes)) if changes else []
                write = flush if changes else write
                outage = self._live.outage
                if not self._show(reader, events, "" if outage is None else str(outage)):
                    return
        if self._live.end:
            self._show(reader, [], f"ended: {self._live.end}")

    def _show(self, reader: int, events: Sequence[Any], status: str) -> bool:
        """Send events and the status; return False if another thread sends now, or none."""
        # Only the newest thread sends, or an older value could follow a newer one.
        with self._sending:
            if reader != self._reader:
                return False
            if events:
                self.send({"text": msgspec.json.encode(events).decode()})
            self.status = status
            return True


def snapshot(changes: Changes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events of a snapshot of these records, topic by topic."""
    topics = dict.fromkeys(row.topic for row in changes.added)
    for topic in topics:
        rows = [row for row in changes.added if row.topic == topic]
        yield "group_begin", {"topic": topic}
        yield "message", {"rows": [_envelope(row) for row in rows]}
        yield "group_end", {"topic": topic}


def flush(changes: Changes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the event of a flush with these changes."""
    rows = [*changes.removed, *changes.added, *changes.changed]
    yield "message", {"rows": [_envelope(row) for row in rows]}


def _envelope(row: Row) -> dict[str, Any]:
    # Whole values, as the page may have missed earlier deltas.
    op = "oof" if row.op == "oof" else "publish"
    return {"topic": row.topic, "key": row.key, "op": op, "value": row.value}
