"""The gateway's own topics, `tidegate.…`, with their writers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.names import REVOKED
from tidegate.app.refusals import Refused, Unavailable
from tidegate.app.stores.items import Item, Message, Removal
from tidegate.app.timers import Backoff
from tidegate.app.topics.catalog import Catalog
from tidegate.app.topics.leadership import Leadership
from tidegate.app.topics.registry import TopicRegistry
from tidegate.app.topics.writer import Writer
from tidegate.conflation.frame import Frame, RemovalReason
from tidegate.keys.spec import record_key

SESSIONS = "tidegate.sessions"
PENDING_MAX = 10_000
WRITTEN_AT_ONCE = 1_000
RETRY_S = 1.0
TOGETHER_S = 0.05  # a write costs as much as an opening: those of a crowd are written together

SESSIONS_DOCUMENT = TopicDefinition.parse(
    msgspec.json.encode(
        {
            "key": ["/session"],
            "history": {"messages": PENDING_MAX},
            "description": "What becomes of sessions; the newest message of each tells its state.",
        }
    )
)
_KEY_OF = record_key(SESSIONS_DOCUMENT.key_spec)

logger = logging.getLogger("tidegate.sessions")
topics_logger = logging.getLogger("tidegate.topics")


class EventTopic:
    """Publishes events in one of the gateway's own topics, in order and many at once.

    No caller waits for it. While the store is out, the newest ten thousand are kept.
    """

    def __init__(self, name: str, catalog: TopicRegistry, writer: Writer) -> None:
        self._name = name
        self._catalog = catalog
        self._writer = writer
        # The newest event of a session tells its state, so the oldest ones may go.
        self._pending: deque[Item] = deque(maxlen=PENDING_MAX)
        self._woken = asyncio.Event()

    def note(self, item: Item) -> None:
        """Queue an event, or a removal."""
        self._pending.append(item)
        self._woken.set()

    def publish(self, payload: bytes) -> None:
        """Queue an event that has no key."""
        self.note(Message(payload, ""))

    async def run(self) -> None:
        """Write queued events until cancelled.

        An outage of the store is logged once.
        """
        backoff = Backoff(RETRY_S)
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._write_some()
                backoff.succeeded()
                await asyncio.sleep(TOGETHER_S)
            except Refused as refusal:
                level = backoff.level
                logger.log(level, "%s is behind; tried again: %s", self._name, refusal.detail)
                await backoff.pause()
            except Exception:
                logger.exception("%s is behind; tried again", self._name)
                await backoff.pause()
            if self._pending:
                self._woken.set()

    async def aclose(self) -> None:
        """Write what still waits, unless the store is out."""
        with contextlib.suppress(Refused):
            while self._pending:
                await self._write_some()

    async def settle(self) -> None:
        """Write what waits now, behind what is being written.

        Raises:
            Refusal: the store is out, or the topic is of no use.
        """
        for _ in range(1 + len(self._pending) // WRITTEN_AT_ONCE):
            await self._write_some()

    async def _write_some(self) -> None:
        entry = self._catalog.get(self._name)
        async with entry.writing:
            count = min(len(self._pending), WRITTEN_AT_ONCE)
            if not count:
                return
            items = [self._pending.popleft() for _ in range(count)]
            try:
                await self._writer.write(entry, items)
            except BaseException:  # back in their order; a repeated event does no harm
                # What came meanwhile is newer, and takes the room of the oldest.
                room = PENDING_MAX - len(self._pending)
                self._pending.extendleft(reversed(items[max(0, count - room) :]))
                raise


class SessionsTopic:
    """Publishes what becomes of sessions."""

    def __init__(self, catalog: TopicRegistry, writer: Writer) -> None:
        self._events = EventTopic(SESSIONS, catalog, writer)
        self.run, self.aclose = self._events.run, self._events.aclose
        self.settle = self._events.settle

    def note(self, session: str, document: dict[str, object]) -> None:
        """Queue an event of a session."""
        payload = msgspec.json.encode({"session": session, **document})
        self._events.note(Message(payload, _KEY_OF(payload)))

    def forget(self, session: str) -> None:
        """Queue the removal of a session's record."""
        record = _KEY_OF(msgspec.json.encode({"session": session}))
        self._events.note(Removal(record, RemovalReason.DELETED))


AUDIT = "tidegate.audit"
_AUDIT_DOCUMENT = TopicDefinition.parse(
    msgspec.json.encode(
        {
            "history": {"messages": 10 * PENDING_MAX},
            "description": "Administration and refusals; events that are alike are counted.",
        }
    )
)


# `tidegate.revoked` holds the subjects (`sub`) and tokens (`jti`) that are revoked, and the tokens
# of logins that have ended. A subject whose grants name the topic may write it: patterns such as
# `>` do not cover the gateway's own topics.


_REVOKED_DOCUMENT = TopicDefinition.parse(
    msgspec.json.encode(
        {
            "key": ["/id"],
            "schema": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "minLength": 1, "maxLength": 255},
                    "reason": {"type": "string", "maxLength": 1000},
                    "expires_ms": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
                },
                "required": ["id"],
                "additionalProperties": False,
            },
            "history": {"messages": 10_000},
            "description": "Subjects (sub) and tokens (jti) that are revoked, and logouts.",
        }
    )
)
_REVOKED_KEY_OF = record_key(_REVOKED_DOCUMENT.key_spec)


class RevokedTopic:
    """Writes what the gateway itself revokes: the tokens of logins that have ended."""

    def __init__(self, catalog: TopicRegistry, writer: Writer, leadership: Leadership) -> None:
        self._catalog = catalog
        self._writer = writer
        self._leadership = leadership

    async def publish(self, payload: bytes) -> None:
        """Write a record, and wait until it counts here.

        Raises:
            Refused: bus-unavailable, not-ready.
        """
        entry = self._catalog.get(REVOKED)
        async with entry.writing:
            await self._writer.write(entry, [Message(payload, _REVOKED_KEY_OF(payload))])

    async def remove(self, records: Sequence[Frame]) -> None:
        """Remove records that have not changed since; the leader does it for all gateways.

        Raises:
            Refused: bus-unavailable, not-ready.
        """
        if self._leadership.is_held:
            entry, fence = self._catalog.get(REVOKED), self._leadership.fence
            await self._writer.remove(entry, records, RemovalReason.EXPIRED, fence)


# `tidegate.pipelines` holds the status of pipeline queries. Without authentication it is the only
# own topic that clients may publish to: the pipelines themselves.


PIPELINES = "tidegate.pipelines"
STATES = ("starting", "running", "waiting", "failed", "ended")
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_MAYBE: dict[str, Any] = {"type": ["integer", "null"], "minimum": 0}
_RATE: dict[str, Any] = {"type": "number", "minimum": 0}
_FIELDS: dict[str, Any] = {
    "pipeline": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,263}$"},
    "state": {"enum": list(STATES)},
    "batch": _MAYBE,
    "batches": _COUNT,
    "messages": _COUNT,
    "published": _COUNT,
    "dead_letters": _COUNT,
    "rows_per_s": _RATE,
    "batch_s": _RATE,
    "lag": _MAYBE,
    "held_keys": _MAYBE,
    "restarts": _COUNT,
    "error": {"type": "string", "maxLength": 1000},
    "at_ms": _COUNT,
}
_PIPELINES_DOCUMENT = TopicDefinition.parse(
    msgspec.json.encode(
        {
            "key": ["/pipeline"],
            "schema": {
                "type": "object",
                "properties": _FIELDS,
                "required": list(_FIELDS),
                "additionalProperties": False,
            },
            "history": {"messages": 10_000},
            "description": "How pipelines stand; the newest message of each tells its state.",
        }
    )
)


OWN_TOPICS: Mapping[str, TopicDefinition] = {
    AUDIT: _AUDIT_DOCUMENT,
    SESSIONS: SESSIONS_DOCUMENT,
    PIPELINES: _PIPELINES_DOCUMENT,
}


async def open_own(catalog: Catalog, *, asks_for_tokens: bool = False) -> None:
    """Create the gateway's own topics if they do not exist: other topics derive from them.

    A stored topic with another definition stays unusable, which is logged; all others are served.
    `asks_for_tokens`: only then somebody can be revoked.

    Raises:
        Refused: bus-unavailable.
    """
    # Each by itself: one that another version has defined must not keep the rest from serving.
    own = {**OWN_TOPICS, **({REVOKED: _REVOKED_DOCUMENT} if asks_for_tokens else {})}
    for name, document in own.items():
        try:
            await catalog.put(name, document)
        except Unavailable:
            raise
        except Refused as refusal:
            topics_logger.error(
                "%s differs from this gateway's definition: %s", name, refusal.detail
            )
