"""Revocations: the subjects and tokens that the topic `tidegate.revoked` names.

The topic is stored and shared like any other, so that one message reaches every gateway on the bus,
survives restarts, and shows who is revoked. A logout is such a message, too: it names the token of
the cookie, and is removed when that token has expired.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from tidegate.app.access.grants import Subject
from tidegate.app.access.tokens import SKEW_S
from tidegate.app.names import REVOKED
from tidegate.conflation.engine import Engine
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.frame import Frame

Publish = Callable[[bytes], Awaitable[None]]
Remove = Callable[[Sequence[Frame]], Awaitable[None]]


class _Record(msgspec.Struct):
    """The field that is read of a record: when it is no longer needed, in ms since 1970."""

    expires_ms: int | None = None


class Revocations:
    """The current records of the topic.

    Args:
        engine: has the topic.
        publish: writes a record; it returns when the engine has it.
        remove: removes records that have not changed since, unless that is another gateway's duty.
    """

    def __init__(self, engine: Engine, publish: Publish, remove: Remove) -> None:
        self._engine = engine
        self._publish = publish
        self._remove = remove
        self._frames: dict[str, Frame] = {}
        # A heap of (expires_ms, offset, key).
        self._ends: list[tuple[int, int, str]] = []
        self._version: tuple[str, int] = ("", 0)

    def revokes(self, subject: Subject) -> bool:
        """Return True if the subject, its token's `jti` or its very token is revoked.

        The engine is read at each call: a request after a logout must not slip through.
        """
        self._refresh()
        found = self._frames
        if not found:
            return False
        return subject.sub in found or subject.token_id in found or subject.token in found

    def version(self) -> tuple[str, int]:
        """Return the topic's epoch and head, which differ after every change."""
        self._refresh()
        return self._version

    async def log_out(self, subject: Subject) -> None:
        """Revoke this token of a subject at every gateway; its other tokens stay valid.

        Raises:
            Refused: bus-unavailable, not-ready; it may not be revoked.
        """
        record = {
            "id": subject.token,
            "reason": f"logout of {subject.sub}",
            "expires_ms": subject.expires_ms + SKEW_S * 1_000,
        }
        await self._publish(msgspec.json.encode(record))

    async def remove_expired(self, now_ms: int) -> None:
        """Remove the records of expired tokens, which are refused without a record.

        Raises:
            Refused: bus-unavailable, not-ready; it is tried again at the next call.
        """
        self._refresh()
        over = []
        while self._ends and self._ends[0][0] <= now_ms:
            end = heapq.heappop(self._ends)
            frame = self._frames.get(end[2])
            # One that was published again has its own entry, and one that was removed needs none.
            if frame is not None and frame.offset == end[1]:
                over.append((end, frame))
        if not over:
            return
        # Kept until they are seen to be removed: the store may be out, or another gateway may lead.
        for end, _ in over:
            heapq.heappush(self._ends, end)
        await self._remove([frame for _, frame in over])

    def _refresh(self) -> None:
        """Read what has changed in the topic since the last call."""
        try:
            topic = self._engine.topic(REVOKED)
        except TopicUnknown:
            # It appears when the store has opened. If it was deleted, its subjects stay revoked.
            return
        epoch, since = self._version
        if (topic.epoch, topic.head) == self._version or topic.sow is None:
            return
        self._version = (topic.epoch, topic.head)
        board = topic.sow.board
        # Only what has changed: a gateway may hold as many logouts as it has had users today.
        if epoch == topic.epoch and since >= board.horizon:
            changed = board.newest(since)
        else:
            self._frames, self._ends, changed = {}, [], board.live()
        for frame in changed:
            self._note(frame)

    def _note(self, frame: Frame) -> None:
        name: str = msgspec.json.decode(frame.key)[0]
        if frame.removed:
            self._frames.pop(name, None)
            return
        self._frames[name] = frame
        expires_ms = msgspec.json.decode(frame.payload, type=_Record).expires_ms
        if expires_ms is not None:
            heapq.heappush(self._ends, (expires_ms, frame.offset, name))
