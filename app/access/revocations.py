"""Revocations: the subjects and tokens that the topic `tidegate.revoked` names.

The topic is kept and shared like any other, so that one message reaches every gateway on the bus,
survives restarts, and shows who is revoked. A logout is such a message, too: it names the token of
the cookie, and goes when that token is over.
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
    """What is read of a record: the time in ms of the epoch from which on nobody needs it."""

    expires_ms: int | None = None


class Revocations:
    """What the topic holds now.

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
        # By time and offset, which is unique, so that no two frames are ever compared.
        self._ends: list[tuple[int, int, str]] = []
        self._seen: tuple[str, int] = ("", 0)

    def revokes(self, subject: Subject) -> bool:
        """Return True if the subject, its token's `jti` or its very token is revoked.

        What the engine has counts at once: a request after a logout must not slip through.
        """
        self._refresh()
        found = self._frames
        if not found:
            return False
        return subject.sub in found or subject.token_id in found or subject.token in found

    def seen(self) -> object:
        """Return what is another once anything has changed."""
        self._refresh()
        return self._seen

    async def log_out(self, subject: Subject) -> None:
        """Revoke the token of a subject, and nothing else of it, at every gateway.

        Raises:
            Problem: bus-unavailable, not-ready; it may not be revoked.
        """
        record = {
            "id": subject.token,
            "reason": f"logout of {subject.sub}",
            "expires_ms": subject.expires_ms + SKEW_S * 1_000,
        }
        await self._publish(msgspec.json.encode(record))

    async def remove_expired(self, now_ms: int) -> None:
        """Remove the records whose time is over: their tokens are refused for that by now.

        Raises:
            Problem: bus-unavailable, not-ready; it is tried again at the next call.
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
        # Noted again until they are seen to be gone: the store may be out, or another gateway lead.
        for end, _ in over:
            heapq.heappush(self._ends, end)
        await self._remove([frame for _, frame in over])

    def _refresh(self) -> None:
        """Read what has changed in the topic since the last call."""
        try:
            topic = self._engine.topic(REVOKED)
        except TopicUnknown:
            # It comes when the store has opened. If it is gone, whoever was revoked stays so.
            return
        epoch, since = self._seen
        if (topic.epoch, topic.head) == self._seen or topic.sow is None:
            return
        self._seen = (topic.epoch, topic.head)
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
