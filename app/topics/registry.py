"""The topics that a gateway serves, by name, each in step with the engine.

Requests look topics up here. `catalog.py` decides and stores changes, which it then applies here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.app.definitions.fields import FilledBy
from tidegate.app.definitions.graph import is_source
from tidegate.app.definitions.schema import WORK_MAX, Schema, SchemaViolation, SchemaWork
from tidegate.app.definitions.topic import TopicDefinition, Unusable
from tidegate.app.names import OWN_PREFIX
from tidegate.app.refusals import Refused, topic_unknown
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.store import Producer, TopicRecord
from tidegate.app.streams.driver import Driver
from tidegate.conflation.definition import Definition
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.frame import RestoredTopic
from tidegate.keys.lines import LineReader
from tidegate.keys.spec import record_key

PIPELINE_PREFIX = "tidegate.pipeline."
INGEST_PREFIX = "tidegate.ingest."
WORK_AT_ONCE = 50_000
"""Steps of schema checks after which other tasks run."""

ANY = "*"
"""The entity tag of every topic that is there."""


@dataclass(slots=True, eq=False)
class CatalogTopic:
    """A topic; `writing` keeps its messages in the store's order.

    `checkpoint_offset`: the store has the records of messages up to this offset. `filler_run`: the
    newest stream that has filled the topic from here. `key_of` returns the SOW key of a JSON text,
    `reader` reads many together, and `schema` checks one, unless the topic is derived.
    """

    record: TopicRecord
    key_of: Callable[[bytes], str] | None = field(init=False)
    reader: LineReader | None = field(init=False)
    schema: Schema | None = field(init=False)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    checkpoint_offset: int = 0
    filler_run: int = 0
    _work: int = 0

    def __post_init__(self) -> None:
        self.redefine(self.record)

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.record.name

    @property
    def document(self) -> TopicDefinition:
        """The topic's definition."""
        return self.record.document

    @property
    def etag(self) -> str:
        """The entity tag of the definition."""
        return self.document.etag(self.record.epoch)

    def redefine(self, record: TopicRecord) -> None:
        """Take a new definition over."""
        spec = record.document.key_spec
        self.record = record
        # Compiled with the definition, as each message needs them.
        self.key_of = record_key(spec) if spec else None
        self.reader = LineReader.of(spec)
        self.schema = record.document.schema_checked

    def check_schema(self, payload: bytes, line: int | None) -> None:
        """Check a message, a JSON text, by the topic's schema.

        Raises:
            Refused: schema-violation, with the pointer to what does not fit; message-too-large,
                it could take too long to find out.
        """
        if self.schema is None:
            return
        try:
            self._work += self.schema.check(payload)
        except SchemaViolation as violation:
            detail = f"The message breaks {violation.keyword[:64]} of the topic's schema."
            raise Refused(
                "schema-violation", detail, line=line, pointer=violation.pointer
            ) from None
        except SchemaWork as most:
            detail = f"The topic's schema could take {most.work} steps, of at most {WORK_MAX}."
            raise Refused("message-too-large", detail, line=line) from None

    async def yield_after_work(self) -> None:
        """Let other tasks run after checks that have blocked the loop for some milliseconds."""
        if self._work >= WORK_AT_ONCE:
            self._work = 0
            await asyncio.sleep(0)


ENDED_EPOCHS_MAX = 1_000


logger = logging.getLogger("tidegate.topics")


@dataclass(frozen=True, slots=True)
class Precondition:
    """What a change requires of its topic, by entity tags; `ANY` is the tag of each that is there.

    `wanted`: the topic has one of these. `unwanted`: it has none of these.
    """

    wanted: Collection[str] | None = None
    unwanted: Collection[str] | None = None

    def check(self, entry: CatalogTopic | Unusable | None) -> None:
        """Refuse a change of a topic that is not as required; an unusable one is there.

        Raises:
            Refused: precondition-failed.
        """
        its = set() if entry is None else {ANY, entry.etag}
        if self.wanted is not None and its.isdisjoint(self.wanted):
            raise Refused("precondition-failed", "The topic's entity tag is another one.")
        if self.unwanted is not None and not its.isdisjoint(self.unwanted):
            raise Refused("precondition-failed", "The topic is there already.")


class TopicRecreated(TopicUnknown):
    """The topic was deleted and another one has its name by now; nothing was written.

    A `TopicUnknown`: the topic that was asked for does not exist any more.
    """


class Fault(NamedTuple):
    """A topic with a fault, while the gateway serves the others."""

    topic: str
    state: str
    reason: str


class TopicRegistry:
    """Topics by name. Each change here is made in the engine in the same step.

    Unusable topics are kept separately: they exist, and have no entry. `revision` grows with each
    change, so that decisions about topics over several iterations can be repeated.
    """

    def __init__(self, driver: Driver, settings: Settings) -> None:
        self._driver = driver
        self._settings = settings
        self.revision = 0
        self._entries: dict[str, CatalogTopic] = {}
        self._unusable: dict[str, Unusable] = {}
        # Bounded, because topics may come and go for ever; an older epoch counts as unknown.
        self._ended: dict[str, None] = {}
        self._listeners: dict[Callable[[str], None], None] = {}
        # Called before another definition counts.
        self.on_redefined: Callable[[str, Definition], None] = lambda name, definition: None

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of each topic that is created from now on."""
        self._listeners[listener] = None

    def unlisten(self, listener: Callable[[str], None]) -> None:
        """Stop calling the listener."""
        self._listeners.pop(listener, None)

    def get(self, name: str) -> CatalogTopic:
        """Return the topic of this name.

        Raises:
            Refused: topic-unknown; not-ready, if it cannot be used here.
        """
        found = self.find(name)
        if found is None:
            raise topic_unknown(name)
        return found

    def find(self, name: str) -> CatalogTopic | None:
        """Return the topic of this name; None if it does not exist.

        Raises:
            Refused: not-ready. There is one, and it cannot be used here: that is never None.
        """
        unusable = self._unusable.get(name)
        if unusable is not None:
            raise unusable.refusal()
        return self._entries.get(name)

    def served(self, name: str) -> CatalogTopic | None:
        """Return the usable topic of this name; None for one that is unusable or does not exist."""
        return self._entries.get(name)

    def exists(self, name: str) -> bool:
        """Return True if there is a topic of this name, usable or not."""
        return name in self._entries or name in self._unusable

    def unusable(self, name: str) -> Unusable | None:
        """Return the unusable topic of this name, if that is what it is."""
        return self._unusable.get(name)

    def all_unusable(self) -> list[Unusable]:
        """Return every unusable topic."""
        return list(self._unusable.values())

    def entries(self) -> list[CatalogTopic]:
        """Return every usable topic, the gateway's own included."""
        return list(self._entries.values())

    def has_ended(self, epoch: str) -> bool:
        """Return True if the topic of this epoch was deleted, as far back as epochs are kept.

        A topic whose deletion the bus has lost is served again, and has not ended.
        """
        return epoch in self._ended

    def listed(self, prefix: str, after: str, limit: int) -> Iterator[CatalogTopic]:
        """Return up to `limit` usable topics by name, after the name `after`.

        The gateway's own topics are listed only for a prefix that names them.
        """
        names = _page(self._entries, prefix, after, limit)
        return (self._entries[name] for name in names)

    def listed_all(
        self, prefix: str, after: str, limit: int, shown: Callable[[str], bool] | None = None
    ) -> list[CatalogTopic | Unusable]:
        """Return the same page with unusable topics; `shown` leaves out others before counting."""
        every: Iterable[str] = [*self._entries, *self._unusable]
        names = _page(every if shown is None else filter(shown, every), prefix, after, limit)
        return [self._unusable.get(name) or self._entries[name] for name in names]

    def document(self, name: str) -> TopicDefinition | None:
        """Return the definition of a topic; None if it does not exist.

        Raises:
            Refused: not-ready, if it cannot be used here.
        """
        found = self.find(name)
        return None if found is None else found.document

    def is_source(self, name: str) -> bool:
        """Return True if another topic is derived from this one."""
        # An unusable definition keeps its source: another version may be able to use it.
        if any(each.source_topic == name for each in self._unusable.values()):
            return True
        return is_source(name, (entry.document for entry in self._entries.values()))

    def has_room(self) -> bool:
        """Return True if one more topic fits; the gateway's own do not count."""
        # Unusable topics count: repairing their definitions must not exceed the limit.
        room = self._settings.topics_max - len(self._entries) - len(self._unusable)
        if room > 0:
            return True  # mostly: a scan of ten thousand names is slow
        # The gateway makes its own topics, so they take no one's room.
        names = (*self._entries, *self._unusable)
        return room + sum(name.startswith(OWN_PREFIX) for name in names) > 0

    # Changes, each in the engine too

    def admit(self, record: TopicRecord) -> CatalogTopic:
        """Add a new topic, without messages."""
        entry = CatalogTopic(record)
        self._driver.define_topic(record.name, self._definition(record), record.epoch)
        self._note_served([record.epoch])
        self._unusable.pop(record.name, None)
        self._entries[record.name] = entry
        self.revision += 1
        for listener in list(self._listeners):  # a copy: a listener may stop its own listening
            listener(record.name)
        return entry

    def restore(self, record: TopicRecord, kept: RestoredTopic) -> CatalogTopic:
        """Add a topic with its stored state."""
        entry = self.admit(record)
        self._note_served(kept.former)
        entry.checkpoint_offset = kept.through
        self._driver.restore_topic(record.name, kept)
        return entry

    def set_aside(self, unusable: Unusable) -> None:
        """Add an unusable topic; its subscriptions end with UNUSABLE."""
        logger.error("%s cannot be used here: %s", unusable.name, unusable.reason)
        self._unusable[unusable.name] = unusable
        self.revision += 1
        if self._entries.pop(unusable.name, None) is not None:
            # Subscribers of a topic that is out of use must not wait for its messages.
            self._driver.drop_topic(unusable.name, "UNUSABLE")

    def drop_unusable(self, unusable: Unusable) -> None:
        """Remove an unusable topic."""
        del self._unusable[unusable.name]
        self.revision += 1
        self._note_ended([unusable.epoch])

    def define(self, known: CatalogTopic, record: TopicRecord) -> None:
        """Give a topic another definition of the same identity."""
        definition = self._definition(record)
        self.on_redefined(record.name, definition)
        known.redefine(record)
        self.revision += 1
        self._driver.define_topic(record.name, definition, record.epoch)

    def _definition(self, record: TopicRecord) -> Definition:
        settings = self._settings
        return record.document.definition(settings.journal_messages_max, settings.journal_bytes_max)

    def renew(self, record: TopicRecord, kept: RestoredTopic) -> bool:
        """Restart a topic in this epoch; its subscribers stay.

        Return False if it continues, as the epoch lacks nothing of the one before.
        """
        entry = self._entries.get(record.name)
        if entry is None:
            return False
        entry.redefine(record)
        self._note_served([*kept.former, record.epoch])
        self.revision += 1
        driver = self._driver
        now, now_ms = driver.now(), driver.wall_ms()
        has_begun = driver.engine.restart_topic(record.name, record.epoch, kept, now, now_ms)
        driver.dispatch()
        return has_begun

    def drop(self, entry: CatalogTopic) -> None:
        """Remove a topic; its subscriptions end with REMOVED."""
        del self._entries[entry.record.name]
        self.revision += 1
        topic = self._driver.engine.topic(entry.record.name)
        self._note_ended([*topic.continues, entry.record.epoch])
        self._driver.drop_topic(entry.record.name)

    def supersede(self, record: TopicRecord) -> CatalogTopic:
        """Replace a topic by another one of its name, in an epoch of its own."""
        self.drop(self._entries[record.name])
        return self.admit(record)

    def _note_ended(self, epochs: Iterable[str]) -> None:
        self._ended |= dict.fromkeys(epochs)
        while len(self._ended) > ENDED_EPOCHS_MAX:
            del self._ended[next(iter(self._ended))]

    def _note_served(self, epochs: Iterable[str]) -> None:
        for epoch in epochs:
            self._ended.pop(epoch, None)


def _page(names: Iterable[str], prefix: str, after: str, limit: int) -> list[str]:
    hides_own = not prefix.startswith(OWN_PREFIX)
    fitting = sorted(
        name
        for name in names
        if name.startswith(prefix)
        and name > after
        and not (hides_own and name.startswith(OWN_PREFIX))
    )
    return fitting[:limit]


def makes_topics(producer: str | None) -> bool:
    """Return True if a producer creates its topics by itself, as a pipeline and ingest do."""
    return is_pipeline(producer) or (producer or "").startswith(INGEST_PREFIX)


def is_pipeline(producer: str | None) -> bool:
    """Return True if the producer's name is that of a pipeline stream."""
    return producer is not None and producer.startswith(PIPELINE_PREFIX)


def check_filler(entry: CatalogTopic, producer: str | None) -> None:
    """Refuse clients' messages to a derived topic: only its filler may publish.

    Raises:
        Refused: topic-read-only.
    """
    source = entry.document.source
    if source is None:
        return
    if source.engine is not FilledBy.SPARK or not is_pipeline(producer):
        raise Refused("topic-read-only", "The topic is filled from another; publish there.")


def check_newest(entry: CatalogTopic, producer: Producer) -> None:
    """Refuse an older stream: of several that fill a topic the newest counts (rule pipeline-14).

    Raises:
        Refused: producer-fenced.
    """
    if entry.document.source is None:
        return
    if producer.run < entry.filler_run:
        raise Refused("producer-fenced", "A stream that was started later fills this topic.")
    entry.filler_run = producer.run
