"""A client's own copy of a subscription's records, and what each event changes in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import msgspec

from tidegate.clients.errors import AnswerInvalid
from tidegate.clients.sse import Event

_Known = TypeVar("_Known")

COMES_AGAIN = frozenset({"BACK_PRESSURE", "UNUSABLE"})  # reasons of an end that may pass


def comes_again(event: Event) -> bool:
    """Return True for the end of a subscription that a client is to begin again."""
    return event.name == "unsubscribed" and event.fields.get("reason") in COMES_AGAIN


def patched(value: Any, patch: Any) -> Any:
    """Return `value` with a merge patch applied; neither is changed.

    Objects are merged member by member, null removes a member, any other value replaces the old
    one (RFC 7396).
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        if change is None:
            merged.pop(name, None)
        else:
            merged[name] = patched(merged.get(name), change)
    return merged


class RecordId(NamedTuple):
    """A topic, and the JSON text of one of its keys; `null` where the topic has none."""

    topic: str
    key_text: str


@dataclass(frozen=True, slots=True)
class Row:
    """A record as it is now, or a removed one as it last was.

    Attributes:
        id: identifies the record among those of a subscription.
        key: the fields of the key; None on a topic without key.
        op: `snapshot`, `publish`, `delta` or `oof`.
        value: the record; after a delta the whole one, None for a removed one.
        previous: the value before; None for a new record.
        reason: of a removal: `deleted`, `expired`, `match`, `missed` for a record that was removed
            while the stream was lost, `unsubscribed` for one of a topic that may not be read any
            more, or `unreadable` for one whose newest value cannot be read.
        envelope: the row as it was sent, with its bookmark and, where asked for, its receipt.
    """

    id: RecordId
    key: list[Any] | None
    op: str
    value: Any
    previous: Any = None
    reason: str | None = None
    envelope: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def topic(self) -> str:
        """The topic of the record."""
        return self.id.topic


class Changes:
    """The net effect of one or more flushes: each record is in one of the three lists."""

    def __init__(self) -> None:
        self._added: dict[RecordId, Row] = {}
        self._changed: dict[RecordId, Row] = {}
        self._removed: dict[RecordId, Row] = {}

    @property
    def added(self) -> list[Row]:
        """Records that were not held before."""
        return list(self._added.values())

    @property
    def changed(self) -> list[Row]:
        """Records with a new value; `previous` is the one before."""
        return list(self._changed.values())

    @property
    def removed(self) -> list[Row]:
        """Records that are no longer there; `reason` says why."""
        return list(self._removed.values())

    def __len__(self) -> int:
        return len(self._added) + len(self._changed) + len(self._removed)

    def __repr__(self) -> str:
        return f"Changes(added={self.added}, changed={self.changed}, removed={self.removed})"

    def put(self, row: Row, is_new: bool) -> None:
        """Record a value; `is_new` if nothing was held before it."""
        removed = self._removed.pop(row.id, None)
        before = self._changed.get(row.id) or removed
        if before is not None:
            self._changed[row.id] = replace(row, previous=before.previous)
        elif is_new or row.id in self._added:
            self._added[row.id] = replace(row, previous=None)
        else:
            self._changed[row.id] = row

    def remove(self, row: Row) -> None:
        """Record a removal."""
        if self._added.pop(row.id, None) is not None:
            return  # came and went: nothing for a reader to do
        before = self._changed.pop(row.id, None)
        self._removed[row.id] = replace(row, previous=before.previous) if before else row

    def join(self, later: Changes) -> None:
        """Add later changes, so that a reader that is behind gets both as one."""
        for row in later.removed:
            self.remove(row)
        for row in later.added:
            self.put(row, is_new=True)
        for row in later.changed:
            self.put(row, is_new=False)


class Taken(NamedTuple):
    """The effect of one event: its rows, what they changed, and whether each could be applied.

    `is_whole` is False after a delta without its record; the other rows are applied all the same.
    `unreadable` has a sentence for each record whose value cannot be read from now on. `has_more`
    is True if another event continues the flush.
    """

    rows: list[Row]
    changes: Changes
    is_whole: bool = True
    unreadable: Sequence[str] = ()
    has_more: bool = False


class Replica:
    """The newest value of each key, from events in the formats `envelope` and `batch`.

    Deltas are applied, `oof` removes a record, and a snapshot replaces all records of its topic:
    at its end, so that a record that it repeats is no change.

    A record whose value this client cannot read, such as `1e400` from a store of an earlier
    version, is not held until it has a readable value: an older one would pass for the newest. A
    record whose key has such a number is never held.
    """

    def __init__(self) -> None:
        self._rows: dict[RecordId, Row] = {}
        # The ids of each topic, so that those of one topic are found without a search of all.
        self._ids: dict[str, set[RecordId]] = {}
        self._unseen: dict[str, set[RecordId]] = {}
        self._unreadable: set[RecordId] = set()

    @property
    def rows(self) -> Mapping[RecordId, Row]:
        """The records, in the order of their first arrival."""
        return self._rows

    @property
    def values(self) -> dict[RecordId, Any]:
        """The values of the records, in the order of their first arrival."""
        return {id_: row.value for id_, row in self._rows.items()}

    @property
    def is_in_snapshot(self) -> bool:
        """True while a topic is in the middle of a snapshot."""
        return bool(self._unseen)

    def take(self, event: Event) -> Taken:
        """Apply one event.

        Raises:
            AnswerInvalid: a message that is not an envelope.
        """
        taken = Taken([], Changes())
        match event.name:
            case "hello":
                self._unseen.clear()  # a snapshot that was cut off is not continued
                self._begin(_decoded(event).get("subscriptions") or (), taken.changes)
            case "message":
                rows, has_more = _rows_of(event)
                return self._take_rows(rows)._replace(has_more=has_more)
            case "group_begin":
                topic = _decoded(event)["topic"]
                self._unseen[topic] = set(self._ids.get(topic, ()))
            case "group_end":
                # A snapshot has all records: one that it leaves out is gone, without a removal.
                for missed in self._unseen.pop(_decoded(event)["topic"], ()):
                    self._drop(missed, "missed", taken.changes)
            case "unsubscribed":
                fields = _decoded(event)
                self._unseen.pop(fields.get("topic", ""), None)
                # A subscription that begins again keeps its records until its next snapshot.
                if comes_again(event):
                    return taken
                reason = "deleted" if fields.get("reason") == "REMOVED" else "unsubscribed"
                for left in set(self._ids.get(fields.get("topic", ""), ())):
                    self._drop(left, reason, taken.changes)
        return taken

    def _begin(self, entries: Iterable[Mapping[str, Any]], changes: Changes) -> None:
        """Drop the records of the topics of a pattern that it does not have any more."""
        listed = {entry["topic"] for entry in entries if "topic" in entry}
        gone = [topic for topic in self._ids if topic not in listed] if listed else []
        for missed in [id_ for topic in gone for id_ in self._ids[topic]]:
            self._drop(missed, "missed", changes)

    def _take_rows(self, given_rows: Iterable[Mapping[str, Any] | Unreadable]) -> Taken:
        taken = Taken([], Changes())
        is_whole, sentences = True, []
        for given in given_rows:
            if isinstance(given, Unreadable):
                if self._lose(given.id, taken.changes):
                    sentences.append(given.sentence)
                continue
            if not {"topic", "op", "value"} <= given.keys():
                raise AnswerInvalid("a message of the stream is not an envelope")
            id_ = _id_of(given)
            # A delta of a record that could not be read finds none: the subscription begins again.
            self._unreadable.discard(id_)
            row = self._apply(id_, given, taken.changes)
            if row is None:
                is_whole = False
            else:
                taken.rows.append(row)
        return taken._replace(is_whole=is_whole, unreadable=sentences)

    def _lose(self, id_: RecordId, changes: Changes) -> bool:
        """Give up a record whose value cannot be read; return True if it could be before."""
        if id_ in self._rows:
            self._drop(id_, "unreadable", changes)
        is_new = id_ not in self._unreadable
        self._unreadable.add(id_)
        return is_new

    def _apply(self, id_: RecordId, given: Mapping[str, Any], changes: Changes) -> Row | None:
        """Return the row as it is now; None for a delta without its record."""
        key, op, value = given.get("key"), given["op"], given["value"]
        held = self._rows.get(id_)
        previous = None if held is None else held.value
        if op == "oof":
            row = Row(id_, key, op, None, previous, given.get("reason"), given)
            self._forget(id_)
            if held is not None:
                changes.remove(row)
            return row
        if op == "delta":
            # A guess would be wrong for good: deltas after it build on it.
            if held is None:
                return None
            value = patched(held.value, value)
        row = Row(id_, key, op, value, previous, None, given)
        unseen = self._unseen.get(id_.topic, ())
        repeats = held is not None and id_ in unseen and _are_same(held.value, value)
        if unseen:
            self._unseen[id_.topic].discard(id_)
        self._rows[id_] = row
        self._ids.setdefault(id_.topic, set()).add(id_)
        # A snapshot after a lost stream repeats what is held; that is no change.
        if not repeats:
            changes.put(row, is_new=held is None)
        return row

    def _drop(self, id_: RecordId, reason: str, changes: Changes) -> None:
        held = self._rows[id_]
        self._forget(id_)
        changes.remove(replace(held, op="oof", value=None, previous=held.value, reason=reason))

    def _forget(self, id_: RecordId) -> None:
        self._rows.pop(id_, None)
        self._ids.get(id_.topic, set()).discard(id_)
        self._unseen.get(id_.topic, set()).discard(id_)


class SessionEvent(NamedTuple):
    """An event, its subscription if it has one, and its rows as they are now.

    `unreadable` has a sentence for each record whose value cannot be read from now on.
    """

    event: Event
    sub: str | None
    rows: list[Row]
    unreadable: Sequence[str] = ()


class Replicas(dict[str, Replica]):
    """The records of each subscription of a session, by its name."""

    def named(self, name: str) -> str:
        """Add a replica for a new subscription, and return its name."""
        # The stream may have seen the name first: its replica has rows then.
        self.setdefault(name, Replica())
        return name

    def applied(self, event: Event) -> SessionEvent:
        """Apply an event of the session's stream.

        Raises:
            AnswerInvalid: a delta came for a record that is not held.
        """
        # A row in format `value` does not name its subscription, so no replica can take it.
        sub = event.head.sub
        if sub is None:
            return SessionEvent(event, None, [])
        taken = self.setdefault(sub, Replica()).take(event)
        if not taken.is_whole:
            raise AnswerInvalid(f"a delta came for a record of {sub} that is not held")
        return SessionEvent(event, sub, taken.rows, taken.unreadable)


def _are_same(one: Any, other: Any) -> bool:
    """Return True if two JSON values are equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _are_same(value, other[name]) for name, value in one.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_are_same, one, other))
    # Python finds true equal to 1.
    return one == other and isinstance(one, bool) == isinstance(other, bool)


class Unreadable(NamedTuple):
    """A record whose value cannot be read, and a sentence that says so."""

    id: RecordId
    sentence: str


class _Rows(msgspec.Struct):
    rows: list[msgspec.Raw] | None = None
    more: bool = False


_Fields = dict[str, msgspec.Raw]


def _rows_of(event: Event) -> tuple[list[Mapping[str, Any] | Unreadable], bool]:
    """Return the rows of a message, and whether another event continues their flush.

    Format `batch` has many rows in an event, `envelope` is one itself.

    Raises:
        AnswerInvalid: they are no envelopes.
    """
    try:
        document = msgspec.json.decode(event.text, type=dict[str, Any])
    except msgspec.DecodeError:
        # One row at a time, as one that cannot be read must not cost the others.
        found = _as(_Rows, event.text.encode())
        texts = [event.text.encode()] if found.rows is None else found.rows
        return [_row_of(text) for text in texts], found.more
    rows: list[Mapping[str, Any] | Unreadable] = document.get("rows", [document])
    return rows, document.get("more") is True


def _row_of(text: bytes | msgspec.Raw) -> Mapping[str, Any] | Unreadable:
    """Return a row field by field, as its value or its key may be one that cannot be read.

    Raises:
        AnswerInvalid: it is no envelope.
    """
    given: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    fields = _as(_Fields, text)
    for name, field_text in fields.items():
        try:
            given[name] = msgspec.json.decode(field_text)
        except msgspec.DecodeError as error:
            reasons[name] = str(error).partition(" - at ")[0]
    if given.get("op") == "oof" and reasons.keys() == {"value"}:
        return {**given, "value": None}  # its last value does not matter
    if not reasons:
        return given
    if not isinstance(given.get("topic"), str) or "op" not in given:
        raise AnswerInvalid("a message of the stream is not an envelope")
    # A key that cannot be read is named by its own text, under which no record is held.
    key_text = bytes(fields["key"]).decode() if "key" in reasons else _key_text(given.get("key"))
    named = "the record" if key_text == "null" else f"record {key_text}"
    reason = next(iter(reasons.values()))
    sentence = f"{named} of {given['topic']} cannot be read: {reason}"
    return Unreadable(RecordId(given["topic"], key_text), sentence)


def _as(kind: type[_Known], text: bytes | msgspec.Raw) -> _Known:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        raise AnswerInvalid("a message of the stream is not an envelope") from None


def _id_of(given: Mapping[str, Any]) -> RecordId:
    return RecordId(given["topic"], _key_text(given.get("key")))


def _key_text(fields: Any) -> str:
    # JSON text, as a key may hold lists, which no dict takes as a key; and 1 is not true.
    return msgspec.json.encode(fields).decode()


def _decoded(event: Event) -> dict[str, Any]:
    try:
        return msgspec.json.decode(event.text, type=dict[str, Any])
    except msgspec.DecodeError:
        raise AnswerInvalid(f"the event {event.name} is not a JSON object") from None
