"""A client's own copy of a subscription's records, kept from its envelopes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from tidegate.clients.errors import AnswerInvalid
from tidegate.clients.sse import Event


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


Place = tuple[str, str]
"""A topic, and a key of it as JSON text; `null` where the topic has none."""


class Change(NamedTuple):
    """The effect of one row: the record as it is now, or None if it is gone."""

    topic: str
    key: Any
    op: str
    value: Any


class Replica:
    """The newest value of each key, from events in the formats `envelope` and `batch`.

    Deltas are applied, `oof` removes a record, and a snapshot replaces all records of its topic.
    """

    def __init__(self) -> None:
        self._values: dict[Place, Any] = {}

    @property
    def values(self) -> Mapping[Place, Any]:
        """The records, in the order of their first arrival."""
        return self._values

    def take(self, event: Event) -> list[Change]:
        """Apply one event and return the rows that it brought.

        Raises:
            AnswerInvalid: a message that is not an envelope, or a delta of an unknown record.
        """
        match event.name:
            case "message":
                return [self._apply(row) for row in _rows(_decoded(event))]
            # A snapshot has all records: one that it leaves out is gone, without a removal.
            case "group_begin" | "unsubscribed":
                self._forget(_decoded(event).get("topic"))
        return []

    def _apply(self, row: Mapping[str, Any]) -> Change:
        topic, op, fields = row["topic"], row["op"], row.get("key")
        # JSON text, as a key may hold lists, which no dict takes as a key.
        place = topic, msgspec.json.encode(fields).decode()
        if op == "oof":
            self._values.pop(place, None)
            return Change(topic, fields, op, None)
        value = row["value"]
        if op == "delta":
            # A guess would be wrong for good: deltas after it build on it.
            if place not in self._values:
                raise AnswerInvalid(f"a delta came for a record of {topic} that is not held")
            value = patched(self._values[place], value)
        self._values[place] = value
        return Change(topic, fields, op, value)

    def _forget(self, topic: str | None) -> None:
        for place in [place for place in self._values if topic in (None, place[0])]:
            del self._values[place]


def _rows(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    # Format `batch` has many rows in an event, `envelope` is one itself.
    for row in document.get("rows", [document]):
        if not {"topic", "op", "value"} <= row.keys():
            raise AnswerInvalid("a message of the stream is no envelope")
        yield row


def _decoded(event: Event) -> dict[str, Any]:
    try:
        return msgspec.json.decode(event.text, type=dict[str, Any])
    except msgspec.DecodeError:
        raise AnswerInvalid(f"the event {event.name} is no JSON object") from None
