"""Group commit: one thread that writes, and one transaction for all that has been asked meanwhile.

Nobody is answered before COMMIT. What fails as a group is tried again one by one, so that nobody
fails for what others asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

from app.logs import event
from app.problems import Problem
from app.stores.store import HeadMoved

GROUP_MAX = 1_000
PROBE_BYTES = 64 << 10
RETRY_AFTER_S = "1"

Answer = TypeVar("Answer")
Work = Callable[[sqlite3.Connection], Answer]

logger = logging.getLogger("tidegate.store")


@dataclass(frozen=True, slots=True)
class _Asked:
    work: Work[Any]
    future: asyncio.Future[Any]


class GroupCommit:
    """Does work with a connection in a thread of its own, in the order in which it was asked.

    Work refuses by `Problem` or `HeadMoved` before it writes anything. `on_rollback` is called in
    that thread whenever something written was taken back. `commits` are transactions so far.
    """

    def __init__(self, connection: sqlite3.Connection, on_rollback: Callable[[], None]) -> None:
        self._connection = connection
        self._on_rollback = on_rollback
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._is_out = False
        self._reason = ""
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """How much waits for the next transaction."""
        return self._asked.qsize()

    async def do(self, work: Work[Answer]) -> Answer:
        """Have work done and committed.

        Raises:
            Problem: bus-unavailable, or what the work refuses for.
            HeadMoved: from the work.
        """
        asked = _Asked(work, asyncio.get_running_loop().create_future())
        self._asked.put(asked)
        return cast("Answer", await asked.future)

    async def fault(self) -> str | None:
        """Why nothing is written: what the last transaction has failed of, if it does so still."""
        if self._is_out:
            await self.do(_nothing)  # which has it looked at
        return f"the store cannot be written: {self._reason}" if self._is_out else None

    async def aclose(self) -> None:
        """Finish what was asked, and end the thread."""
        self._asked.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        is_open = True
        while is_open:
            group, is_open = self._next_group()
            for asked, answer in self._committed(group):
                _tell(asked.future, answer)

    def _next_group(self) -> tuple[list[_Asked], bool]:
        """All that waits, at least one; and whether there is more to come."""
        group: list[_Asked] = []
        next_one = self._asked.get()
        with contextlib.suppress(Empty):
            while next_one is not None:
                group.append(next_one)
                if len(group) == GROUP_MAX:
                    break
                next_one = self._asked.get_nowait()
        return group, next_one is not None

    def _committed(self, group: list[_Asked]) -> Iterable[tuple[_Asked, object]]:
        """What to answer each; an exception is raised where it was asked."""
        if not group:
            return []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            answers = [(asked, self._attempt(asked.work)) for asked in group]
            self._connection.execute("COMMIT")
            self.commits += 1
        except Exception as error:
            self._roll_back()
            if len(group) > 1:
                return [answer for asked in group for answer in self._committed([asked])]
            return [(group[0], self._out(error) if isinstance(error, sqlite3.Error) else error)]
        self._back()
        return answers

    def _attempt(self, work: Work[Any]) -> object:
        try:
            return work(self._connection)
        except (Problem, HeadMoved) as refusal:
            return refusal

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # it may have been rolled back already
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._on_rollback()

    def _out(self, error: sqlite3.Error) -> Problem:
        if not self._is_out:
            logger.error("the store is out: %s", error, extra=event("store-out"))
        self._is_out, self._reason = True, str(error)
        detail = f"The store cannot be written: {error}."
        return Problem("bus-unavailable", detail, headers={"Retry-After": RETRY_AFTER_S})

    def _back(self) -> None:
        """It is back with room for a request of some size; a small one may fit without."""
        if self._is_out and self._has_room():
            logger.warning("the store is back", extra=event("store-back"))
            self._is_out = False

    def _has_room(self) -> bool:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            _probe(self._connection)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._reason = str(error)
            self._roll_back()
            return False
        return True


def _nothing(connection: sqlite3.Connection) -> None:
    """No work at all."""


def _probe(connection: sqlite3.Connection) -> None:
    """Take room for a request of some size, and give it back, in the same transaction."""
    connection.execute("CREATE TABLE probe (bytes BLOB)")
    connection.execute("INSERT INTO probe VALUES (zeroblob(?))", (PROBE_BYTES,))
    connection.execute("DROP TABLE probe")


def _tell(future: asyncio.Future[Any], answer: object) -> None:
    """Answer in the loop where it was asked, unless that has ended."""

    def answered() -> None:
        if future.done():
            return  # whoever asked has gone
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    with contextlib.suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(answered)
