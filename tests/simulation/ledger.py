"""The ledger: what was accepted, in which order and when. All else is judged by it.

It is kept where messages get their numbers, before the driver and the engine have seen them.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

from tidegate.app.stores.items import Item, Message
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.store import Appended, Publication

OWN = "tidegate."
"""How the names of topics begin that the gateway fills about itself."""

Value = dict[str, Any]


@dataclass(slots=True, eq=False)
class Entry:
    """One message or removal; `at_ns` is when the engine took it in, None until then."""

    offset: int
    own: str
    text: str
    value: Value
    gone: bool
    at_ns: int | None = None


@dataclass(slots=True, eq=False)
class EpochLedger:
    """One epoch of a topic: every entry from offset 1, and those of each key."""

    topic: str
    epoch: str
    entries: list[Entry] = field(default_factory=list)
    by_own: dict[str, list[Entry]] = field(default_factory=dict)
    by_serial: dict[int, Entry] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """The next one."""
        assert entry.offset == len(self.entries) + 1, "offsets have no holes"
        self.entries.append(entry)
        self.by_own.setdefault(entry.own, []).append(entry)
        if not entry.gone:
            self.by_serial[entry.value["n"]] = entry

    def after(self, offset: int, until: int | None = None) -> list[Entry]:
        """Entries behind an offset."""
        return self.entries[offset:until]

    def newest(self, own: str, until: int) -> Entry | None:
        """The last entry of a key, up to an offset."""
        entries = self.by_own.get(own, [])
        at = bisect_left(entries, until + 1, key=lambda entry: entry.offset)
        return entries[at - 1] if at else None


class LedgerStore(MemoryStore):
    """The store that keeps nothing, with somebody who writes all down."""

    def __init__(self) -> None:
        super().__init__()
        self.ledgers: dict[str, EpochLedger] = {}

    async def append(self, topic: str, publication: Publication) -> Appended:
        """Number items, and note them."""
        appended = await super().append(topic, publication)
        if topic.startswith(OWN):
            return appended
        epoch = next(it.epoch for it in await self.records() if it.name == topic)
        ledger = self.ledgers.setdefault(epoch, EpochLedger(topic, epoch))
        for offset, item in enumerate(publication.items, appended.first):
            ledger.add(_entry(offset, item))
        return appended


def _entry(offset: int, item: Item) -> Entry:
    if not isinstance(item, Message):
        return Entry(offset, json.loads(item.record_key)[0], "", {}, gone=True)
    text = item.payload.decode()
    value = json.loads(text)
    return Entry(offset, value["k"], text, value, gone=False)
