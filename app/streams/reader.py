"""A reader: attaches a session to one stream, and writes its outputs with its own ids."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tidegate.app.streams.auto import requested_document
from tidegate.app.streams.connection import StreamConnection
from tidegate.app.streams.cursor import Cursor
from tidegate.app.streams.driver import Consumer, Driver
from tidegate.app.streams.encoding import EventIds, Format, Style, Styles, encode
from tidegate.app.streams.fanout import SMALL_BUFFERS_BYTES
from tidegate.app.streams.sse import event
from tidegate.conflation.errors import SessionUnknown, SubscriptionUnknown
from tidegate.conflation.outputs import CloseReason, Output, Unsubscribed
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.sessions.subscriber import Subscriber, SubscriberId
from tidegate.conflation.subscription import Subscription
from tidegate.keys.text.bookmark import Bookmark

NO_STYLES: Styles = MappingProxyType({})


class Reader:
    """Reads a session's outputs from the engine and encodes them as events.

    `revision` grows with each subscriber that begins or changes, so that an `AutoWatch` knows when
    to search for subscriptions again.

    Args:
        driver: runs the engine.
        consumer: takes the outputs from the driver.
        heartbeat_ms: the longest silence, as the hello announces it.
        cursor: makes the ids of a kept session's events; None: ids are the topic's bookmarks.
        came_after: why the session's last reader was closed.
        on_closed: called once the peer is gone.
        on_subscriber_left: for readers with a cursor; called when a topic left its subscription.
    """

    __slots__ = (
        "_changing", "_cursor", "_cut_offset", "_encoded_number", "_heartbeat_ms", "_left",
        "_on_closed", "_on_subscriber_left", "_waiting_bytes", "came_after", "connection",
        "consumer", "driver", "ids", "revision", "styles",
    )  # fmt: skip

    def __init__(
        self,
        driver: Driver,
        consumer: Consumer,
        cursor: Cursor | None,
        *,
        heartbeat_ms: int,
        came_after: CloseReason | None,
        on_closed: Callable[[], None],
        on_subscriber_left: Callable[[Unsubscribed], None] | None = None,
    ) -> None:
        self.consumer = consumer
        self.revision = 0
        self.came_after = came_after
        # How the rows of each subscriber are written; those of equal plain GETs share it.
        self.styles: Styles = NO_STYLES
        # The cut of the one subscriber whose style is shared.
        self._cut_offset = 0
        self.connection: StreamConnection | None = None
        self.ids = None if cursor is None else EventIds(self._move_id, self._end_id)
        self.driver = driver
        self._heartbeat_ms = heartbeat_ms
        self._cursor = cursor
        self._on_subscriber_left = on_subscriber_left
        self._on_closed = on_closed
        # Subscribers that change to other rows: an id must not be a bookmark of their old rows.
        self._changing: Sequence[SubscriberId] = ()
        # Subscribers that have ended; the next call of `encoded` drops their styles.
        self._left: Sequence[SubscriberId] = ()
        # The cursor as of the last encoded outputs, for `confirm`.
        self._encoded_number = 0
        self._waiting_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        """Bytes in the socket that the peer has not acknowledged."""
        return 0 if self.connection is None else self.connection.unsent_bytes

    @property
    def is_closed_early(self) -> bool:
        """True once the session was closed by the gateway: only the goodbye is still sent."""
        return self.consumer.close_reason not in {None, CloseReason.UNSUBSCRIBED}

    @property
    def plain_style(self) -> Style | None:
        """The style of a stream that may join a cohort: one subscription, no option that needs it.

        None for a session with its own ids, and with `auto`, `max_age` or `progress`.
        """
        if self.ids is not None or len(self.styles) != 1:
            return None
        [style] = self.styles.values()
        return style if style.is_plain else None

    @property
    def wants_progress(self) -> bool:
        """Whether any subscription has the option `progress`."""
        return any(style.subscription.shown.progress for style in self.styles.values())

    @property
    def watches_age(self) -> bool:
        """Whether any subscription has the option `max_age`."""
        return any(
            style.subscription.shown.max_age_ns is not None for style in self.styles.values()
        )

    # Subscribers in the engine

    def subscribe(
        self, name: str, subscription: Subscription, form: Format, *, announced: bool = False
    ) -> Style:
        """Subscribe to one topic in the engine; `name` is the subscription's in its session.

        Raises:
            EngineError: no subscriber was taken.
        """
        session, topic = self.consumer.session, subscription.topic
        if subscription.resume is not None:  # as a place in the present epoch
            place = self.driver.engine.topic(topic).place(subscription.resume)
            subscription = replace(subscription, resume=place)
        cut = self.driver.subscribe(session, name, subscription, announced=announced)
        kind = self.driver.engine.topic(topic).definition.kind
        style = Style(form, kind, subscription, cut, ids=self._cursor is None)
        self._own_styles()[name, topic] = style
        self.revision += 1
        return style

    def subscribe_plain(self, name: str, subscription: Subscription, styles: Styles) -> None:
        """Subscribe in the engine for a plain GET, whose style equal streams share.

        Raises:
            EngineError: no subscriber was taken.
        """
        cut = self.driver.subscribe(self.consumer.session, name, subscription)
        self.styles, self._cut_offset = styles, cut.offset
        self.revision += 1

    def _own_styles(self) -> dict[SubscriberId, Style]:
        """Return the styles to be changed; shared ones are replaced by a copy."""
        if isinstance(self.styles, dict):
            return self.styles
        own = self.styles = {
            subscriber: replace(style, cut=Bookmark(style.cut.epoch, self._cut_offset))
            for subscriber, style in self.styles.items()
        }
        return own

    def change(self, name: str, subscription: Subscription, *, changes_rows: bool) -> None:
        """Change one topic's subscription in the engine.

        `changes_rows`: it has other rows or fields then.
        """
        subscriber = name, subscription.topic
        with contextlib.suppress(SessionUnknown, SubscriptionUnknown):  # it has ended meanwhile
            self.driver.change(self.consumer.session, name, subscription)
        styles = self._own_styles()
        if subscriber in styles:
            styles[subscriber] = replace(styles[subscriber], subscription=subscription)
        self.revision += 1
        if changes_rows and subscriber not in self._changing:
            self._changing = (*self._changing, subscriber)

    def unsubscribe(self, name: str) -> bool:
        """End a subscription in the engine; return False if the engine has no subscriber of it."""
        try:
            self.driver.unsubscribe(self.consumer.session, name)
        except (SessionUnknown, SubscriptionUnknown):
            return False
        return True

    def send_interval(self, name: str, before: Subscription, after: Subscription) -> None:
        """Send an event with the new interval of a subscription, if it has changed."""
        old, new = before.lane_id.interval_ns, after.lane_id.interval_ns
        if old != new:
            document = {"sub": name, "topic": after.topic, **requested_document(old, new)}
            self.consumer.send(event("conflation", document))

    def tune(self, limits: QueueLimits, *, conflated: bool) -> None:
        """Set the session's limits in the engine."""
        with contextlib.suppress(SessionUnknown):  # it has said goodbye
            self.driver.tune(self.consumer.session, limits, conflated=conflated)

    def hello(
        self, *, id_text: str = "", entries: Sequence[Mapping[str, object]] | None = None
    ) -> bytes:
        """Encode the first event: the session and its subscriptions.

        `entries` are those of the subscriptions, if they were made in steps, as hundreds are.
        """
        if entries is None:
            entries = [style.entry(name) for (name, _), style in self.styles.items()]
        epochs = {style.cut.epoch for style in self.styles.values() if style.ids}
        document = {
            "session": self.consumer.session,
            "epoch": next(iter(epochs), None),
            "heartbeat_ms": self._heartbeat_ms,
            "subscriptions": entries,
        }
        return event("hello", document, id_text=id_text)

    # Events

    def encoded(self, outputs: Sequence[Output], retry_ms: int) -> bytes:
        """Encode outputs, with the session's own ids.

        Styles of subscribers that end here are dropped in the next call: these outputs may have
        their last rows.
        """
        for subscriber in self._left:
            if self._engine_subscriber(subscriber) is None:
                self._own_styles().pop(subscriber, None)
        self._left = ()
        text = encode(outputs, self.styles, retry_ms, ids=self.ids, closed=self.came_after)
        if self._cursor is not None:
            self._encoded_number = self._cursor.number
        return text

    def _move_id(self, subscriber: SubscriberId, bookmark: Bookmark) -> str:
        """Record that all rows up to the bookmark are sent; return the event's id.

        There is no id while the subscriber changes to other rows.
        """
        assert self._cursor is not None
        if subscriber in self._changing:
            found = self._engine_subscriber(subscriber)
            if found is not None and found.is_changing:
                return ""
            self._end_change(subscriber)
        return self._cursor.move(subscriber, bookmark)

    def _end_id(self, end: Unsubscribed) -> str:
        """Record the end of a subscriber, and return its event's id.

        If the topic and the subscriber were created again since, only the event is recorded.
        """
        assert self._cursor is not None
        assert self._on_subscriber_left is not None
        subscriber = end.name, end.topic
        if self._engine_subscriber(subscriber) is None:
            self._cursor.end(subscriber)
            self._on_subscriber_left(end)
            self._left = (*self._left, subscriber)
            self._end_change(subscriber)
        return self._cursor.note_end(end)

    def _end_change(self, subscriber: SubscriberId) -> None:
        self._changing = tuple(each for each in self._changing if each != subscriber)

    # The peer

    def note_unsent(self) -> int:
        """Count unacknowledged bytes beyond healthy socket buffers against the session's queue.

        Returns:
            All bytes that are not acknowledged.
        """
        unsent_bytes = self.unsent_bytes
        waiting_bytes = max(0, unsent_bytes - SMALL_BUFFERS_BYTES)
        if waiting_bytes != self._waiting_bytes:
            self._waiting_bytes = waiting_bytes
            self.consumer.note_unsent(waiting_bytes)
        return unsent_bytes

    def confirm(self) -> None:
        """Record what was written as received, if the peer has acknowledged all of it."""
        cursor = self._cursor
        is_there = self.connection is None or not self.connection.is_closing
        if cursor is not None and is_there and not self.unsent_bytes:
            cursor.confirmed = max(cursor.confirmed, self._encoded_number)

    def close(self) -> None:
        """Close the reader: the peer is gone, or has received its goodbye."""
        if not self.consumer.is_over:
            self.keep_endings()
            self.consumer.close()
            self._on_closed()

    def _engine_subscriber(self, subscriber: SubscriberId) -> Subscriber | None:
        with contextlib.suppress(SessionUnknown):
            session = self.driver.engine.session(self.consumer.session)
            return session.subscribers.get(subscriber)
        return None

    def keep_endings(self) -> None:
        """Keep the ends of subscriptions that the stream has not sent, for the next reader."""
        if self._cursor is None:
            return
        with contextlib.suppress(SessionUnknown):  # then everything was sent
            for end in self.driver.engine.session(self.consumer.session).unsent_endings():
                self._end_id(end)
