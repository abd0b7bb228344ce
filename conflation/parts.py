"""The engine's parts: topics, sessions, the schedule, and what keeps them together."""

from __future__ import annotations

from conflation.duration import Instant
from conflation.errors import TopicUnknown
from conflation.schedule import Schedule
from conflation.sessions.accounting import Ledger
from conflation.sessions.recorders import Recorders
from conflation.sessions.relief import Relief
from conflation.sessions.roster import Roster
from conflation.sessions.session import Session
from conflation.sessions.usher import Due, Usher
from conflation.topics.topic import Topic


class Parts:
    """Put together once; every bound is the caller's to say."""

    def __init__(self, *, sessions_max: int, subscriptions_max: int) -> None:
        self._subscriptions_max = subscriptions_max
        self._topics: dict[str, Topic] = {}
        sessions: dict[str, Session] = {}
        self._schedule: Schedule[Due] = Schedule()
        self._ledger = Ledger(self._topics, sessions)
        self._roster = Roster(sessions, self._ledger, sessions_max)
        self._relief = Relief(self._roster)
        self._usher = Usher(self._schedule, self._roster, self._relief)
        self._flushes = 0
        self._now: Instant = 0
        self.recorders = Recorders()

    def topic(self, name: str) -> Topic:
        """The topic of this name, to read.

        Raises:
            TopicUnknown: there is none.
        """
        found = self._topics.get(name)
        if found is None:
            raise TopicUnknown(f"there is no topic {name}")
        return found

    def _clock(self, now: Instant) -> None:
        assert now >= self._now, "the clock never runs back"
        self._now = now
