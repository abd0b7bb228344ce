"""A session: its subscriptions, and the reader that takes them, who may be away for a while.

Both kinds of stream are read from one. That of a plain GET has one subscription, whose topic's
bookmarks are its ids; it ends with its stream. One that is kept has a cursor for its ids, and waits
for its reader to come back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Protocol

from app.auto import at_interval
from app.premises import Premises
from app.problems import Problem
from app.sessions.asked import (
    Asked,
    Granted,
    changed,
    decisions_of,
    declined,
    granted,
    shows_otherwise,
)
from app.sessions.cursor import Cursor
from app.sessions.reading import Reading
from app.sse import event, unsubscribed
from app.topic_pattern import TopicPattern
from app.wish import Decided, Wish, granted_to
from conflation.bookmark import Bookmark
from conflation.duration import duration_text
from conflation.errors import EngineError
from conflation.outputs import CloseReason, Unsubscribed
from conflation.sessions.session import QueueLimits
from conflation.subscription import Command, Subscription
from keys.errors import KeysError

ENDINGS_MAX = 256
"""What a session remembers of what has ended, to tell it to who comes back."""

REQUESTED = "requested"


class Keeper(Protocol):
    """Who knows all sessions, and for how long: `app.sessions.registry`."""

    def attached(self, session: Session, *, is_back: bool) -> None:
        """A reader has come; `is_back`: there was one before."""

    def left(self, session: Session) -> None:
        """The reader is gone, or has been told goodbye."""


class State(StrEnum):
    """Where a session stands."""

    ATTACHED = "attached"
    AWAY = "away"
    ENDED = "ended"


class Session:
    """Subscriptions by name; while it is read the engine has a seat for each of their topics.

    `closed`: why the last reader was sent away. `lasts`: it stays open without subscriptions.
    `pattern`: its stream is a plain GET of that. `named`: so many names were given away.
    """

    def __init__(
        self,
        gateway: Premises,
        keeper: Keeper,
        session_id: str,
        *,
        limits: QueueLimits | None = None,
        conflated: bool = True,
        kept: bool = False,
        lasts: bool = False,
    ) -> None:
        self.id = session_id
        self.gateway = gateway
        self.keeper = keeper
        self.limits = limits or gateway.driver.limits
        self.conflated = conflated
        self.lasts = lasts
        self.opened_ms = gateway.driver.wall_ms()
        self.asked: dict[str, Asked] = {}
        self.reader: Reading | None = None
        self.cursor = Cursor(session_id) if kept else None
        self.endings: list[tuple[int, Unsubscribed]] = []
        self.replaced: deque[int] = deque(maxlen=ENDINGS_MAX)
        self.closed: CloseReason | None = None
        self.has_ended = False
        self.was_read = False
        self.pattern = ""
        self.named = 0

    @property
    def state(self) -> State:
        """Attached to a reader, waiting for one, or over."""
        if self.has_ended:
            return State.ENDED
        return State.AWAY if self.reader is None else State.ATTACHED

    @property
    def is_read(self) -> bool:
        """Whether the engine has seats for it: there is a reader, who has not been sent away."""
        return self.reader is not None and self.closed is None

    def subscribe(
        self,
        target: str | TopicPattern,
        wish: Wish,
        decisions: Mapping[str, Decided] | None = None,
        *,
        announced: bool = True,
    ) -> tuple[Asked, tuple[str, ...]]:
        """Add a subscription; returns it and what its asker should know.

        `decisions`: by topic, if that is decided already. `announced`: a reader is told of it.

        Raises:
            Problem, EngineError, KeysError: nothing was added.
        """
        asked = Asked(f"s{self.named + 1}", target, wish)
        if decisions is None:
            decisions = decisions_of(self.gateway, target, wish)
        self._check_room(len(decisions))
        for topic, decision in decisions.items():
            asked.topics[topic] = granted(self.gateway.driver.engine.topic(topic), decision)
        self.named += 1
        self.asked[asked.name] = asked
        if self.is_read and self.reader is not None:
            for topic in asked.topics:
                self.reader.seat(asked, topic, announced=announced)
        if isinstance(target, TopicPattern) and wish.command != Command.SOW:
            self.follow(asked, target)
        return asked, _warnings(decisions.values())

    def change(self, name: str, wish: Wish, *, paused: bool | None) -> tuple[str, ...]:
        """Have a subscription ask for something else, in all of its topics or in none.

        Raises:
            Problem, EngineError, KeysError: nothing was changed.
        """
        asked = self.subscription(name)
        decisions = {topic: self._decided(asked, topic, wish) for topic in asked.topics}
        asked.wish = wish
        for topic, decision in decisions.items():
            before = asked.topics[topic]
            after = asked.topics[topic] = changed(before, decision, paused=paused)
            is_anew = shows_otherwise(before.subscription, after.subscription)
            if is_anew and self.cursor is not None:
                self.cursor.begin_anew((name, topic))
            if self.reader is not None:
                self.reader.change(asked, topic, turns=is_anew)
                self._tell_interval(name, before.subscription, after.subscription)
        return _warnings(decisions.values())

    def unsubscribe(self, name: str) -> None:
        """End a subscription; its reader is told, now or when it comes.

        Raises:
            Problem: subscription-unknown.
        """
        asked = self.subscription(name)
        topics = list(asked.topics)
        asked.end()
        del self.asked[name]
        if self.reader is not None and self.reader.unsubscribe(name):
            return
        for topic in topics or [asked.text]:
            self.tell_end(Unsubscribed(name, topic, "REQUESTED"))

    def subscription(self, name: str) -> Asked:
        """The subscription of this name.

        Raises:
            Problem: subscription-unknown.
        """
        found = self.asked.get(name)
        if found is None:
            raise Problem("subscription-unknown", "The session has no such subscription.")
        return found

    def tune(self, limits: QueueLimits, *, conflated: bool) -> None:
        """Give it other limits, and switch its topics' policies on or off."""
        self.limits, self.conflated = limits, conflated
        if self.reader is not None:
            self.reader.tune()

    def drop(self, name: str, topic: str) -> None:
        """A topic has left a subscription; without topics, and without a pattern, that is over."""
        asked = self.asked.get(name)
        if asked is None:
            return
        asked.topics.pop(topic, None)
        if not asked.by_pattern:
            del self.asked[name]

    def farewell(self) -> str:
        """The id of a goodbye to a reader whose place is taken."""
        if self.cursor is None:
            return ""
        id_text = self.cursor.note()
        self.replaced.append(self.cursor.number)
        return id_text

    def note_end(self, told: Unsubscribed) -> str:
        """A reader is to know of a subscription's end, if need be later; the event's id."""
        if self.cursor is None:
            return ""
        id_text = self.cursor.note()
        self.endings = [*self.endings[1 - ENDINGS_MAX :], (self.cursor.number, told)]
        return id_text

    def tell_end(self, told: Unsubscribed) -> None:
        """The same, told at once if there is a reader."""
        id_text = self.note_end(told)
        if self.reader is not None:
            self.reader.consumer.tell(unsubscribed(told, id_text))

    def end(self) -> None:
        """It is over: nothing is listened for any more."""
        self.has_ended = True
        for asked in self.asked.values():
            asked.end()
        self.asked.clear()

    def regrant(self, asked: Asked, topic: str) -> Granted:
        """What a subscription gets of a topic that has been made anew, or is new to it.

        Raises:
            Problem, EngineError, KeysError: it does not fit the topic.
        """
        decision = self._decided(asked, topic, asked.wish)
        found = granted(self.gateway.driver.engine.topic(topic), decision)
        if asked.auto is not None:
            interval_ns = asked.auto.state.interval_ns
            found = found._replace(subscription=at_interval(found.subscription, interval_ns))
        asked.topics[topic] = found
        return found

    def follow(self, asked: Asked, pattern: TopicPattern) -> None:
        """Take topics that are made later; one that the request does not fit is passed over."""

        def made(topic: str) -> None:
            if pattern.matches(topic):
                self._take(asked, topic)

        catalog = self.gateway.catalog
        catalog.listen(made)
        asked.unlisten = lambda: catalog.unlisten(made)

    def catch_up(self, asked: Asked, declined_before: Mapping[str, str]) -> None:
        """Take topics of its pattern that were made while nobody listened, from their beginning.

        `declined_before`: what it had not taken before that, by name and epoch.
        """
        for topic, epoch in declined(self.gateway, asked).items():
            if declined_before.get(topic) != epoch:
                self._take(asked, topic)
                found = asked.topics.get(topic)
                if found is not None and found.start is not None:
                    asked.topics[topic] = found._replace(start=Bookmark(epoch, 0))

    def _take(self, asked: Asked, topic: str) -> None:
        try:
            self._check_room(1)
            self.regrant(asked, topic)
            if self.is_read and self.reader is not None:
                self.reader.seat(asked, topic, announced=True)
        except (Problem, EngineError, KeysError) as error:
            asked.topics.pop(topic, None)
            if self.reader is not None:
                self.reader.consumer.tell(_passed_over(asked.name, topic, error))

    def _decided(self, asked: Asked, topic: str, wish: Wish) -> Decided:
        return granted_to(self.gateway, topic, wish, by_pattern=asked.by_pattern)

    def _tell_interval(self, name: str, before: Subscription, after: Subscription) -> None:
        """A reader that is there is told of another interval, be it one that was asked for."""
        old, new = before.lane_id.interval_ns, after.lane_id.interval_ns
        if self.reader is None or old == new:
            return
        document = {"sub": name, "topic": after.topic, "from": _interval(old), "to": _interval(new)}
        told = event("conflation", {**document, "reason": REQUESTED, "inputs": {}})
        self.reader.consumer.tell(told)

    def _check_room(self, more: int) -> None:
        most = self.gateway.settings.session_subscriptions_max
        if self._count() + more > most:
            self._forget_finished()
        check_count(self._count() + more, most)

    def _count(self) -> int:
        return sum(len(asked.topics) for asked in self.asked.values())

    def _forget_finished(self) -> None:
        """A `sow` stays until its reader is known to have it all, in case it must be sent again."""
        marks = {} if self.cursor is None else self.cursor.marks(self.cursor.confirmed) or {}
        for asked in list(self.asked.values()):
            for topic, found in list(asked.topics.items()):
                if found.is_over(marks.get((asked.name, topic))):
                    self.drop(asked.name, topic)


def check_count(count: int, most: int) -> None:
    """Whether a session may have so many subscriptions.

    Raises:
        Problem: limit-reached.
    """
    if count > most:
        detail = f"A session has at most {most} subscriptions, each topic of a pattern being one."
        raise Problem("limit-reached", detail, headers={"Retry-After": "60"})


def _interval(interval_ns: int) -> str:
    return duration_text(interval_ns) if interval_ns else "none"


def _warnings(decisions: Iterable[Decided]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for each in decisions for text in each.warnings))


def _passed_over(name: str, topic: str, error: Problem | EngineError | KeysError) -> bytes:
    problem = error
    if not isinstance(problem, Problem):
        problem = Problem(problem.code, f"{problem.detail}.", position=problem.position)
    return event("error", {"sub": name, "topic": topic, **problem.document()})
