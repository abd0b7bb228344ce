"""What one stream writes next: rows, notices, progress or a heartbeat; under every ASGI server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from tidegate.app.streams.auto_watch import AutoWatch
from tidegate.app.streams.connection import StreamConnection
from tidegate.app.streams.fanout import SMALL_BUFFERS_BYTES
from tidegate.app.streams.notices import Heartbeat, Progress, late_events
from tidegate.app.streams.reader import Reader
from tidegate.app.streams.sse import HEARTBEAT, jittered_retry_ms
from tidegate.app.streams.subscriptions import SessionSubscription
from tidegate.conflation.outputs import Goodbye, Output

# A socket that has taken everything is written a whole flush, the bytes that its lane shares. A
# slow reader is written little at a time, so that newer values replace those not sent yet.
TAKE_BYTES_MAX: Final = 1 << 20
TAKE_BYTES_BEHIND: Final = 16 << 10


class SubscriptionHolder(Protocol):
    """A session, or a reader of an embedded topic."""

    @property
    def asked(self) -> Mapping[str, SessionSubscription]:
        """Its subscriptions, by name."""


class EventWriter:
    """Chooses the bytes of one stream, and says when to ask for more.

    Write `hello` first. Then call `next` until it returns nothing, and `wrote` after each text that
    the socket has taken.

    Args:
        reader: takes the session's outputs.
        hello: the first event.
        session: has the subscriptions; those with `auto` have the socket observed.
        heartbeat: says when a heartbeat is due.
    """

    __slots__ = (
        "_auto", "_auto_revision", "_has_unsent", "_heartbeat", "_is_behind", "_outputs",
        "_progress", "_session", "_unsent_bytes", "_was_full", "hello", "is_over", "reader",
    )  # fmt: skip

    def __init__(
        self,
        reader: Reader,
        hello: bytes,
        session: SubscriptionHolder,
        heartbeat: Heartbeat,
    ) -> None:
        self.reader = reader
        self._session = session
        # Made once a subscription has the option, which saves memory of other streams.
        self._auto: AutoWatch | None = None
        self._auto_revision = -1  # the reader's revision when the option was searched for last
        self._progress: Progress | None = None
        # True once nothing follows what `next` returned last.
        self.is_over = False
        self.hello = hello
        self._heartbeat = heartbeat
        self._outputs: Sequence[Output] = ()
        self._has_unsent = False
        self._is_behind = False
        self._was_full = False
        self._unsent_bytes = 0  # when `next` was called last

    @property
    def has_much_unsent(self) -> bool:
        """True if the socket holds more than a healthy one: its peer is slow, or far away."""
        return self._unsent_bytes > SMALL_BUFFERS_BYTES

    @property
    def wrote_s(self) -> float:
        """When something was written last, by the loop's clock."""
        return self._heartbeat.wrote_s

    def wrote_in_cohort(self, wrote_s: float) -> None:
        """Record the time of the last write by the stream's cohort, which bypasses `next`."""
        self._heartbeat.wrote(max(self.wrote_s, wrote_s))

    def next(self, now_s: float) -> bytes:
        """Return what to write now; empty if there is nothing until a wake-up or `wait_s`."""
        if self.is_over:
            return b""
        reader, consumer = self.reader, self.reader.consumer
        self._unsent_bytes = reader.note_unsent()
        reader.confirm()
        connection = reader.connection
        has_buffered = connection is not None and connection.write_buffer_bytes > 0
        self._has_unsent, self._was_full = has_buffered or self._was_full, False
        outputs = consumer.take(TAKE_BYTES_BEHIND if self._has_unsent else TAKE_BYTES_MAX)
        self._outputs = outputs
        self.observe(connection, outputs)
        text = consumer.notices() + self._encoded(outputs) or self._quiet(now_s)
        if not text:
            self._is_behind = False
            self.is_over = consumer.is_over
        elif outputs and isinstance(outputs[-1], Goodbye):
            self.is_over = True
        return text

    def wrote(self, size_bytes: int, now_s: float) -> list[bytes]:
        """Record that the socket has taken a text; return `late` events about its rows."""
        reader, outputs, self._outputs = self.reader, self._outputs, ()
        if self._auto is not None:
            self._auto.wrote(size_bytes)
        is_behind, self._is_behind = self._is_behind, bool(outputs)
        self._heartbeat.wrote(now_s)
        if self.is_over or not reader.watches_age:
            return []
        # Also if the write began with room, and then waited for the peer.
        has_unsent = self._has_unsent or self._was_full
        context = reader.driver.write_context(has_unsent=has_unsent, is_behind=is_behind)
        return late_events(outputs, reader.styles, context)

    def waited(self) -> None:
        """Record that the socket was full: this text and the next are late due to the peer."""
        self._was_full = True

    def wait_s(self, now_s: float) -> float:
        """Return how long the stream may stay idle, in seconds, if nothing wakes it."""
        progress = self._asked_progress()
        return self.observe_in_s(self._heartbeat.wait_s(now_s, progress=progress is not None))

    def observe(
        self,
        connection: StreamConnection | None,
        outputs: Sequence[Output] = (),
        *,
        is_full: bool = False,
    ) -> None:
        """Observe the socket for subscriptions with `auto`; arguments as of `AutoWatch.observe`."""
        reader = self.reader
        if self._auto is None and self._auto_revision != reader.revision:
            self._auto_revision = reader.revision
            session = self._session
            if any(asked.may_be_auto for asked in session.asked.values()):
                self._auto = AutoWatch(reader, lambda: session.asked)
        if self._auto is not None:
            self._auto.observe(connection, outputs, is_full=is_full)

    def observe_in_s(self, seconds_max: float) -> float:
        """Return how long a stream may wait until it has to `observe` again."""
        return seconds_max if self._auto is None else self._auto.wait_s(seconds_max)

    def _asked_progress(self) -> Progress | None:
        """Return the writer of progress events, if a subscription has the option."""
        reader = self.reader
        if self._progress is None and reader.wants_progress:
            self._progress = Progress(reader.styles, reader.ids)
        asked = self._progress
        return asked if asked is not None and asked.is_asked_for else None

    def _encoded(self, outputs: Sequence[Output]) -> bytes:
        progress = self._asked_progress()
        if progress is not None:
            progress.wrote(outputs)
        ends = bool(outputs) and isinstance(outputs[-1], Goodbye)  # which says when to come back
        return self.reader.encoded(outputs, jittered_retry_ms() if ends else 0)

    def _quiet(self, now_s: float) -> bytes:
        """Return progress or a heartbeat if one is due; the stream is idle."""
        progress = self._asked_progress()
        if progress is not None and self._heartbeat.progress_due(now_s):
            self._heartbeat.progress_checked(now_s)
            events = progress.events(self.reader.consumer.caught_up())
            if events:
                return events
        return HEARTBEAT if self._heartbeat.heartbeat_due(now_s) else b""
