"""Questions to the engine: what there is and what it came to. Asking changes nothing."""

from __future__ import annotations

from collections.abc import Iterable

from conflation.bookmark import Bookmark
from conflation.outputs import Unsubscribed
from conflation.parts import Parts
from conflation.sessions.accounting import session_stats
from conflation.sessions.session import QueueLimits, Seat, SeatId
from conflation.stats import EngineStats, SessionStats, TopicStats


class Questions(Parts):
    """What may be asked at any time."""

    @property
    def has_long_queues(self) -> bool:
        """Whether `relieve` may find something to do."""
        return self._relief.has_long

    def seat(self, session_id: str, seat_id: SeatId) -> Seat | None:
        """A subscription's seat in a topic, to read; None if it has none, or not any more.

        Raises:
            SessionUnknown: it is not there.
        """
        return self._roster.find(session_id).seats.get(seat_id)

    def untold(self, session_id: str) -> list[Unsubscribed]:
        """Ends of subscriptions that a session has not taken yet.

        Raises:
            SessionUnknown: it is not there.
        """
        outbox = self._roster.find(session_id).outbox
        return [output for output in outbox if isinstance(output, Unsubscribed)]

    def caught_up(self, session_id: str) -> list[tuple[SeatId, Bookmark]]:
        """Seats for which nothing is on the way, and up to where they have it all.

        Raises:
            SessionUnknown: it is not there.
        """
        return self._roster.find(session_id).caught_up()

    def crowded(self, topic_name: str) -> set[str]:
        """Sessions whose queue, filled by this topic among others, is more than half full.

        Raises:
            TopicUnknown: there is no such topic.
        """
        return self._relief.crowded(self.topic(topic_name))

    def limits_at(self, topic_name: str, session_ids: Iterable[str]) -> list[QueueLimits]:
        """The limits of those among these sessions that queue what the topic brings.

        Raises:
            TopicUnknown: there is no such topic.
        """
        return self._relief.limits_at(self.topic(topic_name), session_ids)

    def stats(self, names: Iterable[str] | None = None) -> EngineStats:
        """Counters, with those of all topics or of these alone; looking changes nothing."""
        return self._ledger.of_engine(self._flushes, self._relief.counts(), names)

    def topic_stats(self, name: str) -> TopicStats:
        """Counters of one topic.

        Raises:
            TopicUnknown: there is none.
        """
        return self._ledger.of_topic(self.topic(name))

    def session_stats(self, session_id: str) -> SessionStats:
        """Counters of one session.

        Raises:
            SessionUnknown: there is none.
        """
        return session_stats(self._roster.find(session_id))
