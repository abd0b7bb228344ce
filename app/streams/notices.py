"""Events that a stream sends in addition to rows: `late`, `progress` and heartbeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from tidegate.app.streams.encoding import EventIds, Styles
from tidegate.app.streams.sse import event
from tidegate.conflation.frame import receipt_of
from tidegate.conflation.outputs import GroupEnd, Output, Rows
from tidegate.conflation.sessions.subscriber import SubscriberId
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import MILLISECOND


class Cause(StrEnum):
    """Where a late row spent its time."""

    CLIENT = "client"
    QUEUE = "queue"
    SOURCE = "source"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What decides the cause of late rows once they are written.

    `has_unsent`: the peer, and so the kernel, had not taken earlier bytes. `is_behind`: the rows
    waited for earlier writes. `arrival_ages_ms`: how old each topic's newest messages were on
    arrival.
    """

    now_ms: int
    has_unsent: bool
    is_behind: bool
    arrival_ages_ms: dict[str, int]


def late_events(
    outputs: Iterable[Output], styles: Styles, write_context: WriteContext
) -> list[bytes]:
    """Encode one `late` event for each subscriber whose rows are older than its `max_age`."""
    oldest = _oldest(outputs, styles)
    events: list[bytes] = []
    for (name, topic), first_ms in oldest.items():
        max_age_ns = styles[name, topic].subscription.shown.max_age_ns
        age_ms = write_context.now_ms - first_ms
        if max_age_ns is not None and age_ms * MILLISECOND > max_age_ns:
            cause = cause_of(write_context, topic, max_age_ns)
            events.append(event("late", {"sub": name, "age_ms": age_ms, "cause": cause}))
    return events


def cause_of(write_context: WriteContext, topic: str, max_age_ns: int) -> Cause:
    """Return the first cause that explains a late row, from the peer back to the source."""
    # In this order, because a peer that takes nothing makes every earlier stage seem slow.
    if write_context.has_unsent:
        return Cause.CLIENT
    if write_context.is_behind:
        return Cause.QUEUE
    if write_context.arrival_ages_ms.get(topic, 0) * MILLISECOND > max_age_ns:
        return Cause.SOURCE
    return Cause.GATEWAY


def _oldest(outputs: Iterable[Output], styles: Styles) -> dict[tuple[str, str], int]:
    """Return the time of the first message of each subscriber; `max_age` excludes openings."""
    oldest: dict[tuple[str, str], int] = {}
    for output in outputs:
        # A snapshot may have a later cut than the style, if its board was built in steps.
        if not isinstance(output, Rows) or output.op == "snapshot":
            continue
        subscriber = output.name, output.topic
        style = styles[subscriber]
        if style.subscription.shown.max_age_ns is None:
            continue
        live = (frame for frame in output.batch.frames if frame.offset > style.cut.offset)
        times = [receipt_of(frame).first_ms for frame in live]
        if times:
            oldest[subscriber] = min(*times, oldest.get(subscriber, times[0]))
    return oldest


NONE_SENT: Mapping[SubscriberId, Bookmark] = MappingProxyType({})


class Progress:
    """Sends the bookmark up to which a subscription has everything (option `progress`).

    A filter may hide all rows for hours; without these events the client's id would grow stale.
    `ids`: of a session of several subscriptions.
    """

    __slots__ = ("_ids", "_sent", "_styles")

    def __init__(self, styles: Styles, ids: EventIds | None = None) -> None:
        self._styles = styles
        self._ids = ids
        # Replaced with each bookmark, so that streams without one share `NONE_SENT`.
        self._sent: Mapping[SubscriberId, Bookmark] = NONE_SENT

    @property
    def is_asked_for(self) -> bool:
        """True if any subscription has the option."""
        return any(style.subscription.shown.progress for style in self._styles.values())

    def wrote(self, outputs: Iterable[Output]) -> None:
        """Record the ids of the outputs, as they tell progress, too."""
        for output in outputs:
            if isinstance(output, GroupEnd):
                self._has_id((output.name, output.topic), Bookmark.parse(output.bookmark))
            elif isinstance(output, Rows) and output.batch.low_water is not None:
                bookmark = Bookmark(output.epoch, output.batch.low_water)
                self._has_id((output.name, output.topic), bookmark)

    def events(self, caught_up: Iterable[tuple[SubscriberId, Bookmark]]) -> bytes:
        """Encode progress for the subscribers whose bookmark has moved."""
        events: list[bytes] = []
        for subscriber, bookmark in caught_up:
            style = self._styles[subscriber]
            known = self._sent.get(subscriber, style.cut)
            if style.subscription.shown.progress and bookmark != known:
                self._sent = {**self._sent, subscriber: bookmark}
                name, topic = subscriber
                document = {"sub": name, "topic": topic, "bookmark": str(bookmark)}
                id_text = self._ids.move(subscriber, bookmark) if self._ids else str(bookmark)
                events.append(event("progress", document, id_text=id_text))
        return b"".join(events)

    def _has_id(self, subscriber: SubscriberId, bookmark: Bookmark) -> None:
        style = self._styles[subscriber]
        if style.ids and style.subscription.shown.progress:
            self._sent = {**self._sent, subscriber: bookmark}


PROGRESS_S = 1.0
"""How often progress is checked. Each check calls the engine, so it is not done for every row."""


class Heartbeat:
    """When a stream is due for a heartbeat or for progress; seconds that never go back.

    A heartbeat fills a silence of `heartbeat_s`. Progress is checked once a second, and at least as
    often as heartbeats are due.

    Attributes:
        wrote_s: when the stream wrote last.
    """

    __slots__ = ("_heartbeat_s", "_progress_checked_s", "_progress_s", "wrote_s")

    def __init__(self, heartbeat_s: float, now: float) -> None:
        self._heartbeat_s = heartbeat_s
        self._progress_s = min(PROGRESS_S, heartbeat_s)
        self.wrote_s = now
        self._progress_checked_s = now

    def wrote(self, now: float) -> None:
        """Record that the stream has written."""
        self.wrote_s = now

    def progress_checked(self, now: float) -> None:
        """Record that progress was checked."""
        self._progress_checked_s = now

    def heartbeat_due(self, now: float) -> bool:
        """Return True once the stream has been silent for `heartbeat_s`."""
        return now >= self.wrote_s + self._heartbeat_s

    def progress_due(self, now: float) -> bool:
        """Return True once progress is to be checked again."""
        return now >= self._progress_checked_s + self._progress_s

    def wait_s(self, now: float, *, progress: bool) -> float:
        """Return the seconds until either is due; `progress`: a subscription has the option."""
        due = self.wrote_s + self._heartbeat_s
        if progress:
            due = min(due, self._progress_checked_s + self._progress_s)
        return max(0.0, due - now)
