"""A reader: a session's end towards one stream. What it takes is told in the session's terms."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from app.connection import Connection
from app.consumer import Consumer
from app.sessions.asked import Asked
from app.sessions.auto_watch import AutoWatch
from app.sessions.session import Session
from app.sse import Marks, Style, encode, event, goodbye
from conflation.bookmark import Bookmark
from conflation.errors import SessionUnknown, SubscriptionUnknown
from conflation.outputs import CloseReason, Output, Unsubscribed
from conflation.sessions.session import Seat, SeatId
from conflation.subscription import Subscription

SMALL_BUFFERS_BYTES = 64 << 10
"""What a healthy socket may hold on its way; more than that waits."""


class Reader:
    """Takes a session's outputs as bytes; `styles` says how each seat's rows are written.

    Raises:
        LimitReached: as many sessions as may be.
    """

    def __init__(self, session: Session) -> None:
        driver = session.gateway.driver
        self.session = session
        self.styles: dict[SeatId, Style] = {}
        self.connection: Connection | None = None
        self.consumer: Consumer = driver.open(
            session.id, session.limits, lasts=session.lasts, conflated=session.conflated
        )
        self.auto = AutoWatch(session, self.styles, self._move, self.consumer.tell)
        self.came_after, session.closed = session.closed, None
        self._turning: set[SeatId] = set()
        self._left: list[SeatId] = []
        self._told = 0
        self._waiting_bytes = 0
        if session.gateway.outage.is_on:
            self.consumer.tell(session.gateway.outage.notice())

    @property
    def unsent_bytes(self) -> int:
        """What its socket holds that the peer has not acknowledged."""
        return 0 if self.connection is None else self.connection.unsent_bytes

    @property
    def is_sent_away(self) -> bool:
        """Its session was closed in the middle of things, and it is owed no more than a goodbye."""
        return self.session.closed not in {None, CloseReason.UNSUBSCRIBED}

    @property
    def marks(self) -> Marks | None:
        """Where ids come from, if they are the session's own."""
        return None if self.session.cursor is None else self

    # What it reads

    def seat(
        self,
        asked: Asked,
        topic: str,
        *,
        subscription: Subscription | None = None,
        announced: bool = False,
    ) -> Style:
        """Have the engine seat one topic of a subscription, as granted if nothing else is said.

        Raises:
            EngineError: no seat was taken.
        """
        found = asked.topics[topic]
        subscription = subscription or found.subscription
        driver = self.session.gateway.driver
        cut = driver.subscribe(self.session.id, asked.name, subscription, announced=announced)
        kind = driver.engine.topic(topic).definition.kind
        style = Style(found.form, kind, subscription, cut, ids=self.session.cursor is None)
        self.styles[asked.name, topic] = style
        self.auto.refresh()
        return style

    def change(self, asked: Asked, topic: str, *, turns: bool) -> None:
        """Have the engine go over to what is granted now; `turns`: other rows, other fields."""
        seat = asked.name, topic
        subscription = asked.topics[topic].subscription
        with contextlib.suppress(SessionUnknown, SubscriptionUnknown):  # it has ended by itself
            self.session.gateway.driver.change(self.session.id, asked.name, subscription)
        if seat in self.styles:
            self.styles[seat] = replace(self.styles[seat], subscription=subscription)
        self.auto.refresh()
        if turns:
            self._turning.add(seat)

    def unsubscribe(self, name: str) -> bool:
        """Have the engine end a subscription and tell so; False if it has no seat of it."""
        try:
            self.session.gateway.driver.unsubscribe(self.session.id, name)
        except (SessionUnknown, SubscriptionUnknown):
            return False
        return True

    def tune(self) -> None:
        """Have the engine take the session's limits over."""
        session = self.session
        with contextlib.suppress(SessionUnknown):  # it has been told goodbye
            session.gateway.driver.tune(session.id, session.limits, conflated=session.conflated)

    def hello(self, *, id_text: str = "") -> bytes:
        """The first event: the session and its seats."""
        epochs = {style.cut.epoch for style in self.styles.values() if style.ids}
        document = {
            "session": self.session.id,
            "epoch": next(iter(epochs), None),
            "heartbeat_ms": self.session.gateway.settings.heartbeat.ms,
            "subscriptions": [style.entry(name) for (name, _), style in self.styles.items()],
        }
        return event("hello", document, id_text=id_text)

    # What it is told

    def encoded(self, outputs: Sequence[Output], retry_ms: int) -> bytes:
        """Outputs as events, with the session's own ids.

        The styles of seats that end among them stay until the next call: rows may come before.
        """
        for seat in self._left:
            if self._engine_seat(seat) is None:
                self.styles.pop(seat, None)
        self._left.clear()
        text = encode(outputs, self.styles, retry_ms, marks=self.marks, closed=self.came_after)
        if self.session.cursor is not None:
            self._told = self.session.cursor.number
        return text

    def moved(self, seat: SeatId, bookmark: Bookmark) -> str:
        """Nothing of the seat up to here is still to come; no id while it turns to other rows."""
        assert self.session.cursor is not None
        if seat in self._turning:
            found = self._engine_seat(seat)
            if found is not None and found.is_turning:
                return ""
            self._turning.discard(seat)
        return self.session.cursor.move(seat, bookmark)

    def ended(self, seat: SeatId, told: Unsubscribed) -> str:
        """The seat's end is told, unless its topic has been made again since: then only that."""
        session = self.session
        assert session.cursor is not None
        if self._engine_seat(seat) is None:
            session.cursor.end(seat)
            session.drop(*seat)
            self._left.append(seat)
            self._turning.discard(seat)
        return session.note_end(told)

    # Its peer

    def note_unsent(self) -> None:
        """See what the peer has not acknowledged; it counts where the session has a queue."""
        waiting_bytes = max(0, self.unsent_bytes - SMALL_BUFFERS_BYTES)
        if waiting_bytes != self._waiting_bytes:
            self._waiting_bytes = waiting_bytes
            self.consumer.note_unsent(waiting_bytes)

    def confirm(self) -> None:
        """What was encoded is written: if the peer has acknowledged it, it is not told again."""
        cursor = self.session.cursor
        is_there = self.connection is None or not self.connection.is_closing
        if cursor is not None and is_there and not self.unsent_bytes:
            cursor.confirmed = max(cursor.confirmed, self._told)

    def send_away(self, reason: CloseReason, retry_ms: int) -> None:
        """Another reader takes its place; who comes back with this event's id is not let in."""
        self._keep_endings()
        self.consumer.leave(goodbye(reason, retry_ms, self.session.farewell()))

    def close(self) -> None:
        """Its peer is gone, or has been told goodbye."""
        if not self.consumer.is_over:
            self._keep_endings()
            self.consumer.close()
            self.session.keeper.left(self.session)

    def _move(self, asked: Asked, topic: str) -> None:
        self.change(asked, topic, turns=False)

    def _engine_seat(self, seat: SeatId) -> Seat | None:
        with contextlib.suppress(SessionUnknown):
            return self.session.gateway.driver.engine.seat(self.session.id, seat)
        return None

    def _keep_endings(self) -> None:
        """What was not told of subscriptions that have ended will be when a reader is back."""
        if self.session.cursor is None:
            return
        with contextlib.suppress(SessionUnknown):  # it has told everything
            for told in self.session.gateway.driver.engine.untold(self.session.id):
                self.ended((told.name, told.topic), told)
