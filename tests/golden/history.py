"""What was published in one epoch of a topic, as the transcriber of a transcript keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `gone` is why it removes its key's record, empty if it does not."""

    offset: int
    payload: bytes
    key: str
    at_ms: int
    exempt: bool = False
    gone: str = ""


@dataclass(slots=True)
class History:
    """One epoch of a topic: every message since its beginning; `live` is the newest of each key."""

    epoch: str
    keeps_records: bool
    first: int = 1
    messages: list[Message] = field(default_factory=list)
    live: dict[str, Message] = field(default_factory=dict)

    @property
    def head(self) -> int:
        """The newest offset."""
        return self.first - 1 + len(self.messages)

    def make(self, rows: Sequence[dict[str, Any]], at_ms: int) -> list[Message]:
        """The next messages; a removal of a key that is not there is left out."""
        made: list[Message] = []
        live = set(self.live)
        for row in rows:
            key, gone = row["key"], row.get("gone", "")
            if gone and (key not in live or not self.keeps_records):
                continue
            (live.discard if gone else live.add)(key)
            offset, payload = self.head + 1 + len(made), row.get("payload", "").encode()
            made.append(Message(offset, payload, key, at_ms, row.get("exempt", False), gone))
        return made

    def add(self, messages: Iterable[Message]) -> None:
        """They were published."""
        for message in messages:
            self.messages.append(message)
            self.live.pop(message.key, None)
            if not message.gone and self.keeps_records:
                self.live[message.key] = message

    def expired(self, through: int) -> list[dict[str, Any]]:
        """Removals of the records that have not changed since an offset."""
        due = [one for one in self.live.values() if one.offset <= through]
        return [{"key": one.key, "gone": "expired"} for one in due]

    def after(self, offset: int, messages_max: int) -> list[Message]:
        """Messages behind an offset."""
        start = max(0, offset + 1 - self.first)
        return self.messages[start : start + messages_max]

    def kept(self, journal: int, tombstones: int) -> dict[str, Any]:
        """What a store has after a stop: the newest of each key, and a piece of journal.

        Of the keys that have left, the newest `tombstones` are still known.
        """
        newest: dict[str, Message] = {}
        for message in self.messages:
            newest.pop(message.key, None)
            newest[message.key] = message
        known = list(newest.values()) if self.keeps_records else []
        left = [message.offset for message in known if message.gone]
        horizon = 0 if len(left) <= tombstones else left[len(left) - tombstones - 1]
        records = [one for one in known if not one.gone or one.offset > horizon]
        piece = self.messages[len(self.messages) - min(journal, len(self.messages)) :]
        exempts = [one.offset for one in self.messages if one.exempt]
        return {
            "head": self.head,
            "records": records,
            "horizon": horizon,
            "journal": piece,
            "dropped_through": self.head - len(piece),
            "exempt_through": max(exempts, default=0),
        }
