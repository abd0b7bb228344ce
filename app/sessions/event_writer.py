"""What a stream writes next: rows, notices, progress, heartbeats; the same for every server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidegate.app.delivery.fanout import SMALL_BUFFERS_BYTES
from tidegate.app.delivery.notices import Heartbeat, Progress, late_events
from tidegate.app.http.wire import HEARTBEAT, jittered_retry_ms
from tidegate.app.sessions.auto_watch import AutoWatch
from tidegate.app.sessions.reader import Reader
from tidegate.conflation.outputs import Goodbye, Output

# A socket that has taken everything gets a whole flush at once, the bytes that its lane shares.
# One with a backlog gets little at a time, so that newer values conflate those not sent yet.
TAKE_BYTES_MAX: Final = 1 << 20
TAKE_BYTES_BEHIND: Final = 16 << 10


class EventWriter:
    """Chooses the bytes of one stream, and knows when it has to be asked again.

    Write `hello` first. Then call `next` until it returns nothing, and `wrote` after each text that
    the socket has taken.

    Args:
        reader: takes the session's outputs.
        hello: the first event.
        auto: observes the socket for subscriptions with `auto`.
        heartbeat: knows when silence is to be filled.
    """

    __slots__ = (
        "_has_unsent", "_heartbeat", "_is_behind", "_outputs", "_progress", "_unsent_bytes_max",
        "_was_full", "auto", "hello", "is_over", "reader",
    )  # fmt: skip

    def __init__(self, reader: Reader, hello: bytes, auto: AutoWatch, heartbeat: Heartbeat) -> None:
        self.reader = reader
        self.auto = auto
        # True once nothing follows what `next` returned last.
        self.is_over = False
        self.hello = hello
        self._progress = Progress(reader.styles, reader.ids)
        self._heartbeat = heartbeat
        self._outputs: Sequence[Output] = ()
        self._has_unsent = False
        self._is_behind = False
        self._was_full = False
        # What may be on its way: what was when the kernel was asked, and what was written since.
        self._unsent_bytes_max = 0

    @property
    def has_much_unsent(self) -> bool:
        """True if a healthy socket would hold less: its peer is behind, or far away."""
        return self._unsent_bytes_max > SMALL_BUFFERS_BYTES

    @property
    def wrote_s(self) -> float:
        """When something was written last, by the loop's clock."""
        return self._heartbeat.wrote_s

    def wrote_in_cohort(self, wrote_s: float) -> None:
        """Note that something was written past `next`, the last of it then."""
        self._heartbeat.wrote(wrote_s)

    def next(self, now_s: float) -> bytes:
        """Return what to write now; empty: nothing until the stream is woken, or time goes by."""
        if self.is_over:
            return b""
        reader, consumer = self.reader, self.reader.consumer
        self._unsent_bytes_max = reader.note_unsent()
        reader.confirm()
        connection = reader.connection
        has_buffered = connection is not None and connection.write_buffer_bytes > 0
        self._has_unsent, self._was_full = has_buffered or self._was_full, False
        outputs = consumer.take(TAKE_BYTES_BEHIND if self._has_unsent else TAKE_BYTES_MAX)
        self._outputs = outputs
        self.auto.look(connection, outputs)
        text = consumer.notices() + self._encoded(outputs) or self._quiet(now_s)
        if not text:
            self._is_behind = False
            self.is_over = consumer.is_over
        elif outputs and isinstance(outputs[-1], Goodbye):
            self.is_over = True
        return text

    def wrote(self, size_bytes: int, now_s: float) -> list[bytes]:
        """Note that the socket has taken a text; return what is to be said of its rows."""
        reader, outputs, self._outputs = self.reader, self._outputs, ()
        self.auto.wrote(size_bytes)
        is_behind, self._is_behind = self._is_behind, bool(outputs)
        self._heartbeat.wrote(now_s)
        if self.is_over or not reader.watches_age:
            return []
        context = reader.consumer.write_context(has_unsent=self._has_unsent, is_behind=is_behind)
        return late_events(outputs, reader.styles, context)

    def waited(self) -> None:
        """Note that the socket was full: what comes next is late because of the peer."""
        self._was_full = True

    def wait_s(self, now_s: float) -> float:
        """Return how long the stream may rest, in seconds, if nothing wakes it."""
        wait_s = self._heartbeat.wait_s(now_s, progress=self._progress.is_asked_for)
        return self.auto.wait_s(wait_s)

    def _encoded(self, outputs: Sequence[Output]) -> bytes:
        self._progress.wrote(outputs)
        ends = bool(outputs) and isinstance(outputs[-1], Goodbye)  # which says when to come back
        return self.reader.encoded(outputs, jittered_retry_ms() if ends else 0)

    def _quiet(self, now_s: float) -> bytes:
        """Return progress or a heartbeat if one is due."""
        if self._progress.is_asked_for and self._heartbeat.progress_due(now_s):
            self._heartbeat.looked(now_s)
            progress = self._progress.events(self.reader.consumer.caught_up())
            if progress:
                return progress
        return HEARTBEAT if self._heartbeat.heartbeat_due(now_s) else b""
