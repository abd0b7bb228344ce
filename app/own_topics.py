"""The gateway's own topics, filled by itself: `tidegate.sessions`, what becomes of sessions."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

import msgspec

from app.catalog import Catalog
from app.problems import Problem
from app.stores.store import Item, Message, Removal
from app.topic_document import TopicDocument
from app.writer import Writer
from conflation.frame import Gone
from keys.extract import record_key

SESSIONS = "tidegate.sessions"
PENDING_MAX = 10_000
WRITTEN_AT_ONCE = 1_000
RETRY_S = 1.0

_DOCUMENT = TopicDocument.parse(
    msgspec.json.encode(
        {
            "key": ["/session"],
            "history": {"messages": PENDING_MAX},
            "description": "What becomes of sessions; the newest message of each tells its state.",
        }
    )
)
_KEY_OF = record_key(_DOCUMENT.key_spec)

logger = logging.getLogger("tidegate.sessions")


class SessionsTopic:
    """Writes what is noted, some time later, in that order and many at once.

    Nobody waits for it. While the store is out, the newest ten thousand are kept.
    """

    def __init__(self, catalog: Catalog, writer: Writer) -> None:
        self._catalog = catalog
        self._writer = writer
        self._pending: deque[Item] = deque(maxlen=PENDING_MAX)
        self._woken = asyncio.Event()

    async def open(self) -> None:
        """Make the topic where it is not there yet."""
        await self._catalog.put(SESSIONS, _DOCUMENT)

    def note(self, session: str, document: dict[str, object]) -> None:
        """Something has become of a session."""
        payload = msgspec.json.encode({"session": session, **document})
        self._pending.append(Message(payload, _KEY_OF(payload)))
        self._woken.set()

    def forget(self, session: str) -> None:
        """Nothing is known of a session any more: its record goes."""
        record = _KEY_OF(msgspec.json.encode({"session": session}))
        self._pending.append(Removal(record, Gone.DELETED))
        self._woken.set()

    async def run(self) -> None:
        """Write whenever there is something, until cancelled.

        While the store is out, of which its outage tells, that is one line and no more.
        """
        is_told = False
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._write()
                is_told = False
            except Problem as problem:
                level = logging.DEBUG if is_told else logging.WARNING
                logger.log(level, "%s is behind; tried again: %s", SESSIONS, problem.detail)
                is_told = True
                await self._again()
            except Exception:
                logger.exception("%s is behind; tried again", SESSIONS)
                await self._again()

    async def _again(self) -> None:
        self._woken.set()
        await asyncio.sleep(RETRY_S)

    async def _write(self) -> None:
        entry = self._catalog.get(SESSIONS)
        while self._pending:
            async with entry.writing:
                items = [
                    self._pending.popleft() for _ in range(min(len(self._pending), WRITTEN_AT_ONCE))
                ]
                try:
                    await self._writer.write(entry, items)
                except BaseException:
                    self._pending.extendleft(reversed(items))
                    raise
