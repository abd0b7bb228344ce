"""What becomes of topics in the engine: made, given what was kept, begun again, ended."""

from __future__ import annotations

from conflation.definition import Definition
from conflation.duration import Instant
from conflation.kept import Kept
from conflation.outputs import RecordsExpired
from conflation.questions import Questions
from conflation.topics.topic import Topic


class TopicVerbs(Questions):
    """The verbs about topics; whoever subscribes to one is seen to by the usher."""

    def define_topic(self, name: str, definition: Definition, epoch: str) -> None:
        """Make a topic; one that is there takes the new definition, its key stays."""
        found = self._topics.get(name)
        if found is None:
            self._topics[name] = Topic(name, definition, epoch)
            self._ledger.begin(name)
            return
        assert found.definition.key_spec == definition.key_spec, "a topic's key is for life"
        found.definition = definition
        for session in {session.id: session for session, _ in self._roster.of_topic(name)}.values():
            self._usher.reseat(session, self._now)
        found.journal.keep(definition.history)
        if definition.expiration_ns is None:
            found.expiry.forget()

    def restore_topic(self, name: str, kept: Kept, now: Instant, now_ms: int) -> None:
        """Give a topic that has just been made what was kept of it; `now_ms` is wall time."""
        self._clock(now)
        topic = self.topic(name)
        topic.restore(kept, now, now_ms)
        self._schedule.arm(topic.expiry, topic)

    def renew_topic(self, name: str, epoch: str, kept: Kept, now: Instant, now_ms: int) -> None:
        """Begin a topic again with what is left of it: whoever is there gets that as a snapshot.

        Raises:
            TopicUnknown: there is none of that name.
        """
        before = self.topic(name)
        before.expiry.forget()
        self._topics[name] = before.successor(epoch)
        self.restore_topic(name, kept, now, now_ms)
        self._usher.renew(self._topics[name], now)

    def checkpointed(self, name: str, offset: int) -> None:
        """Records up to an offset are kept: what leaves behind it is not forgotten untold."""
        if (sow := self.topic(name).sow) is not None:
            sow.checkpointed(offset)

    def drop_topic(self, name: str) -> None:
        """End a topic: its subscriptions are told REMOVED.

        Raises:
            TopicUnknown: there is none of that name.
        """
        self.topic(name)
        for session, seat in self._roster.of_topic(name):
            self._roster.leave(session, seat, "REMOVED")
        del self._topics[name]
        self._ledger.forget(name)

    def _expire(self, topic: Topic, now: Instant) -> None:
        through = topic.expiry.expired(now)
        self._schedule.arm(topic.expiry, topic)
        oldest = None if topic.sow is None else topic.sow.board.oldest()
        if oldest is not None and oldest.offset <= through:
            self._roster.tell(RecordsExpired(topic.name, topic.epoch, through))
