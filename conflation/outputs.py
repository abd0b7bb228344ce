"""Outputs: what a session takes, in order of sending; and announcements to the gateway."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidegate.conflation.frame import Batch
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.subscription import NotFound


class CloseReason(StrEnum):
    """Why a session ends."""

    QUEUE_LIMIT = "MESSAGE_QUEUE_LIMIT_REACHED"
    SHUTDOWN = "SHUTDOWN"
    CLOSED_BY_ADMIN = "CLOSED_BY_ADMIN"
    REPLACED = "REPLACED"
    UNSUBSCRIBED = "UNSUBSCRIBED"
    WRITE_TIMEOUT = "WRITE_TIMEOUT"
    TOKEN_EXPIRED = "TOKEN_EXPIRED"
    REVOKED = "REVOKED"

    @property
    def reconnect(self) -> bool:
        """True if the client should reconnect by itself."""
        return self not in _FINAL


# A person or the client has decided these; reconnecting would undo them.
_FINAL = frozenset((CloseReason.CLOSED_BY_ADMIN, CloseReason.REPLACED, CloseReason.UNSUBSCRIBED))


class ResumeMode(StrEnum):
    """The three ways to continue from a bookmark (CONTRACT 4.2)."""

    CHANGES = "changes"
    REPLAY = "replay"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one subscription; `op` is `publish` or `snapshot`, except for removals (`oof`)."""

    name: str
    topic: str
    epoch: str
    op: str
    batch: Batch


@dataclass(frozen=True, slots=True)
class GroupBegin:
    """A snapshot of this many rows begins."""

    name: str
    topic: str
    rows: int


@dataclass(frozen=True, slots=True)
class GroupEnd:
    """The snapshot is complete; `bookmark` is its cut."""

    name: str
    topic: str
    rows: int
    bookmark: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The mode in which a bookmark is continued, with the messages and time since it.

    The time is None if it is unknown. `bookmark` is the client's position if no row follows that
    would carry one. `not_found` is what replaces messages that are gone; None if none are missing.
    """

    name: str
    topic: str
    mode: ResumeMode
    gap_messages: int | None
    gap_ms: int | None = None
    bookmark: str = ""
    not_found: NotFound | None = None


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription was added, or a topic to the subscription of a pattern."""

    name: str
    topic: str


BACK_PRESSURE = "BACK_PRESSURE"
"""Why a subscription ends for which more waits than may."""


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """A subscription has ended: REQUESTED, REMOVED, UNUSABLE, BACK_PRESSURE, BOOKMARK_EXPIRED."""

    name: str
    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The session ends; nothing follows."""

    reason: CloseReason


Output = Rows | GroupBegin | GroupEnd | Resumed | Subscribed | Unsubscribed | Goodbye


@dataclass(frozen=True, slots=True)
class SessionReady:
    """An idle session has something to take.

    A session is announced once, and again only after a take that found nothing.
    """

    session: str


@dataclass(frozen=True, slots=True)
class CohortReady:
    """A cohort has something to take, for all its sessions at once.

    It is announced once, and again only after a take that found nothing.
    """

    cohort: Cohort


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The engine or its driver has closed a session."""

    session: str
    reason: CloseReason | None


@dataclass(frozen=True, slots=True)
class RecordsExpired:
    """Records that have not changed since this offset are to be removed, as `expired`."""

    topic: str
    epoch: str
    through: int


@dataclass(frozen=True, slots=True)
class QueueCrossed:
    """A session's queue rose above its upper threshold, or then fell to the lower one.

    `messages` and `bytes` were queued at that moment (Diffusion's queue events).
    """

    session: str
    upper: bool
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class HistoryWanted:
    """A replay needs what the journal has dropped: an epoch's messages after an offset.

    `subscriber` is its subscription and topic.
    """

    session: str
    # By id, as the subscription may have ended when its history is supplied.
    subscriber: tuple[str, str]
    epoch: str
    after: int


# What the engine announces to its driver; a client receives outputs, encoded as events.
Announcement = (
    SessionReady | CohortReady | SessionClosed | RecordsExpired | QueueCrossed | HistoryWanted
)
