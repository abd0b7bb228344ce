"""The topics there are here, by name: entries, each in step with the engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from app.driver import Driver
from app.entry import Entry
from app.problems import Problem
from app.query import OWN_PREFIX
from app.settings import Settings
from app.stores.store import Kept, TopicRecord
from app.topic_document import TopicDocument
from app.topic_graph import is_source

ENDED_EPOCHS_MAX = 1_000


class Topics:
    """Entries by name. What is done to one here is done in the engine in the same step."""

    def __init__(self, driver: Driver, settings: Settings) -> None:
        self._driver = driver
        self._settings = settings
        self._entries: dict[str, Entry] = {}
        self._ended: deque[str] = deque(maxlen=ENDED_EPOCHS_MAX)
        self._listeners: dict[Callable[[str], None], None] = {}

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call it with the name of each topic that is made from now on."""
        self._listeners[listener] = None

    def unlisten(self, listener: Callable[[str], None]) -> None:
        """Call it no more."""
        self._listeners.pop(listener, None)

    def get(self, name: str) -> Entry:
        """The topic of this name.

        Raises:
            Problem: topic-unknown.
        """
        found = self._entries.get(name)
        if found is None:
            raise Problem("topic-unknown", "There is no topic of this name.")
        return found

    def find(self, name: str) -> Entry | None:
        """The topic of this name, if there is one."""
        return self._entries.get(name)

    def entries(self) -> list[Entry]:
        """Every topic there is now, the gateway's own too."""
        return list(self._entries.values())

    def has_ended(self, epoch: str) -> bool:
        """Whether the topic of this epoch was deleted, as far back as is remembered."""
        return epoch in self._ended

    def listed(self, prefix: str, after: str, limit: int) -> Iterator[Entry]:
        """Topics by name, at most `limit` from behind `after`.

        The gateway's own are listed only where the prefix says that they are meant.
        """
        hides_own = not prefix.startswith(OWN_PREFIX)
        names = sorted(
            name
            for name in self._entries
            if name.startswith(prefix)
            and name > after
            and not (hides_own and name.startswith(OWN_PREFIX))
        )
        return (self._entries[name] for name in names[:limit])

    def document(self, name: str) -> TopicDocument | None:
        """The definition of a topic, if it is there."""
        found = self._entries.get(name)
        return None if found is None else found.document

    def is_source(self, name: str) -> bool:
        """Whether another topic is filled from this one."""
        return is_source(name, (entry.document for entry in self._entries.values()))

    def has_room(self) -> bool:
        """Whether there may be one more; the gateway's own do not count."""
        own = sum(name.startswith(OWN_PREFIX) for name in self._entries)
        return len(self._entries) < own + self._settings.topics_max

    # What becomes of them

    def admit(self, record: TopicRecord) -> Entry:
        """A topic is there from now on, without messages."""
        entry = Entry(record)
        definition = record.document.definition(self._settings)
        self._driver.define_topic(record.name, definition, record.epoch)
        self._entries[record.name] = entry
        for listener in list(self._listeners):
            listener(record.name)
        return entry

    def restore(self, record: TopicRecord, kept: Kept) -> Entry:
        """A topic is there from now on, with what is kept of it."""
        entry = self.admit(record)
        entry.checkpointed = kept.through
        self._driver.restore_topic(record.name, kept)
        return entry

    def define(self, known: Entry, record: TopicRecord) -> None:
        """A topic has another definition of the same identity."""
        known.redefine(record)
        definition = record.document.definition(self._settings)
        self._driver.define_topic(record.name, definition, record.epoch)

    def renew(self, record: TopicRecord, kept: Kept) -> None:
        """A topic begins again in this epoch; whoever subscribes stays."""
        entry = self._entries.get(record.name)
        if entry is not None:
            entry.redefine(record)
            driver = self._driver
            now, now_ms = driver.now(), driver.wall_ms()
            driver.engine.renew_topic(record.name, record.epoch, kept, now, now_ms)
            driver.settle()

    def drop(self, entry: Entry) -> None:
        """A topic is no more; its subscriptions end with REMOVED."""
        del self._entries[entry.record.name]
        self._ended.append(entry.record.epoch)
        self._driver.drop_topic(entry.record.name)

    def supersede(self, record: TopicRecord) -> Entry:
        """Another topic takes a name over, in an epoch of its own."""
        self._driver.drop_topic(record.name)
        return self.admit(record)
