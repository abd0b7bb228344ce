"""The records of a live dict, and its readers of changes: no I/O, no clock, no waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from tidegate.clients.errors import GatewayError, GatewayUnreachable
from tidegate.clients.live.request import LiveRequest
from tidegate.clients.order import in_order
from tidegate.clients.replica import Changes, RecordId, Replica, Row, comes_again
from tidegate.clients.retry import Trouble
from tidegate.clients.sse import Event

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

FLUSH_SECONDS_MAX = 0.5
"""How long a step waits for the rest of a flush, which may have nothing for this subscription."""
EXPONENT_FROM = 1e21  # the gateway writes whole numbers below it without an exponent


class Reader:
    """The changes that one loop has not read yet, merged: memory for the changed keys only."""

    def __init__(self, held: Mapping[RecordId, Row]) -> None:
        self.pending = Changes()
        for row in held.values():
            self.pending.put(row, is_new=True)

    def take(self) -> Changes:
        """Return the pending changes, and forget them."""
        taken, self.pending = self.pending, Changes()
        return taken


class Records(Mapping[Any, Any]):
    """A dict of the newest values, which follows a subscription.

    A key of one field is that field; of several, or of one that is an array, the tuple of them.
    With a pattern the topic comes first. The values are those of JSON, and integers are exact; they
    are not to be changed.

    Args:
        request: what is subscribed to.
        lock: held while the records are read or changed.

    Attributes:
        granted: the options that the gateway granted; empty before, and for a pattern.
        end: why it has ended, such as `REMOVED` with its topic; empty while it lives.
        error: what ended it; None while it lives, and after a normal end.
        is_ready: True once the records are complete for the first time.
    """

    def __init__(
        self, request: LiveRequest, lock: AbstractContextManager[Any] | None = None
    ) -> None:
        self.request = request
        self._lock = lock or threading.RLock()
        self._reset()

    def _reset(self) -> None:
        """Begin without records."""
        self.granted = ""
        self.end = ""
        self.error: Exception | None = None
        self.is_ready = False
        self._replica = Replica()
        self._readers: list[Reader] = []
        self._awaited: set[str] = set()
        self._flush_has_more = False

    def _held(self) -> AbstractContextManager[object]:
        """Return the lock for reading the records."""
        return self._lock

    def __getitem__(self, record_key: Any) -> Any:
        with self._held():
            return self._replica.rows[self._id_of(record_key)].value

    def __iter__(self) -> Iterator[Any]:
        return iter([self._key_of(row) for row in self.rows()])

    def __len__(self) -> int:
        with self._held():
            return len(self._replica.rows)

    def __repr__(self) -> str:
        state = f"ended: {self.end}" if self.end else f"{len(self)} records"
        return f"<{type(self).__name__} of {self.request.topic}, {state}>"

    # By identity: two live dicts are never equal, whatever they hold.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def row(self, record_key: Any) -> Row | None:
        """Return the record of a key with all that is known of it; None if it is not held."""
        with self._held():
            return self._replica.rows.get(self._id_of(record_key))

    def rows(self) -> list[Row]:
        """Return the records, in the order of their arrival."""
        with self._held():
            return list(self._replica.rows.values())

    def in_order(self) -> list[Row]:
        """Return the records as the gateway sorts them by `order_by`, ties by text of the key."""
        return in_order(self.rows(), self.request.order_by or "")

    def to_arrow(self) -> pyarrow.Table:
        """Return the records as a table of PyArrow; integers are exact, decimals doubles.

        Raises:
            ModuleNotFoundError: PyArrow is not installed.
        """
        from tidegate.clients.live.frames import to_arrow

        return to_arrow([row.value for row in self.in_order()])

    def to_pandas(self) -> pandas.DataFrame:
        """Return the records as a frame of pandas, of Arrow's types; numbers as in `to_arrow`.

        Raises:
            ModuleNotFoundError: PyArrow or pandas is not installed.
        """
        from tidegate.clients.live.frames import to_pandas

        return to_pandas([row.value for row in self.in_order()])

    def to_polars(self) -> polars.DataFrame:
        """Return the records as a frame of polars; numbers as in `to_arrow`.

        Raises:
            ModuleNotFoundError: PyArrow or polars is not installed.
        """
        from tidegate.clients.live.frames import to_polars

        return to_polars([row.value for row in self.in_order()])

    def _take(self, event: Event, report: Trouble) -> bool:
        """Apply an event; return False if the subscription has to begin again.

        `report` is called with a sentence for each record that cannot be read.
        """
        with self._lock:
            taken = self._replica.take(event)
            for reader in self._readers:
                reader.pending.join(taken.changes)
            if event.name == "message":
                self._flush_has_more = taken.has_more
            self._follow(event)
        for sentence in taken.unreadable:
            report(sentence)
        return taken.is_whole and not comes_again(event)

    def _follow(self, event: Event) -> None:
        match event.name:
            case "hello":
                entries = event.fields.get("subscriptions", [])
                if not self.request.is_pattern:
                    self.granted = entries[0]["options"] if entries else ""
                self._await_snapshots(event, entries)
            case "group_end" | "unsubscribed":
                self._awaited.discard(event.fields.get("topic", ""))
                if event.name == "unsubscribed" and not self._goes_on(event):
                    self.end = str(event.fields.get("reason"))
            case "goodbye" if event.fields.get("reconnect") is False:
                self.end = self.end or str(event.fields.get("reason"))
        if event.name in ("hello", "group_end", "unsubscribed") and not self._awaited:
            self.is_ready = True

    def _goes_on(self, end: Event) -> bool:
        """Return whether the records follow after the end of the subscription to a topic."""
        return self.request.is_pattern or comes_again(end)

    def _await_snapshots(self, event: Event, entries: list[dict[str, Any]]) -> None:
        if self.request.is_pattern:
            # Null: a snapshot or a replay of that topic comes first.
            self._awaited = {each["topic"] for each in entries if each.get("bookmark") is None}
        elif event.id or self.request.replays:
            self._awaited = set()  # `hello` has an id if no rows precede live ones
        else:
            self._awaited = {each["topic"] for each in entries}

    def _late(self, seconds: float, outage: GatewayError | None) -> GatewayUnreachable:
        """Return the error of records that were not complete in time, with the reason if known.

        The reason may be a refusal that may pass, such as `limit-reached`.
        """
        why = "" if outage is None else f": {outage}"
        return GatewayUnreachable(f"no records of {self.request.topic} in {seconds:g} s{why}")

    def _finish(self, reason: str, error: Exception | None = None) -> None:
        with self._lock:
            self.end, self.error = self.end or reason, self.error or error

    def _read(self) -> Reader:
        """Begin to read changes; the first are the records that are held."""
        with self._held():
            reader = Reader(self._replica.rows)
            self._readers.append(reader)
        return reader

    def _has_step(self, reader: Reader) -> bool:
        """Return whether there is something to read; in the middle of a snapshot there is not."""
        return len(reader.pending) > 0 and not self._replica.is_in_snapshot

    def _take_step(self, reader: Reader) -> Changes:
        """Return the changes since the last step; none in the middle of a snapshot."""
        return reader.take() if self._has_step(reader) or self.end else Changes()

    def _id_of(self, record_key: Any) -> RecordId:
        fields = list(record_key) if isinstance(record_key, tuple) else [record_key]
        topic = self.request.topic
        if self.request.is_pattern:
            topic, *fields = fields
        # A topic without key has one record, whose key is null; a group may have the key [null].
        without_key = RecordId(topic, "null")
        if not fields or (fields == [None] and without_key in self._replica.rows):
            return without_key
        return RecordId(topic, msgspec.json.encode(_as_sent(fields)).decode())

    def _key_of(self, row: Row) -> Any:
        fields = [_hashable(field) for field in row.key or []]
        if self.request.is_pattern:
            fields = [row.topic, *fields]
        # A key of one field that is a tuple would be taken for a key of several fields.
        is_plain = len(fields) == 1 and not isinstance(fields[0], tuple)
        return fields[0] if is_plain else tuple(fields) if fields else None


def _as_sent(field: Any) -> Any:
    """Return a field of a key as the gateway spells it: 1.0 is 1, as it is to Python."""
    if hasattr(field, "item"):  # a number of numpy
        field = field.item()
    if isinstance(field, float) and field.is_integer() and abs(field) < EXPONENT_FROM:
        return int(field)
    return [_as_sent(each) for each in field] if isinstance(field, list | tuple) else field


def _hashable(field: Any) -> Any:
    return tuple(map(_hashable, field)) if isinstance(field, list) else field
