"""Group commit: one writer thread, and one transaction for all work that waits.

Callers get their result only after COMMIT. A group that fails is retried one by one, so that one
caller's work cannot fail another's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

from tidegate.app.logs import event
from tidegate.app.refusals import Refused, Unavailable
from tidegate.app.stores.store import HeadMoved

# Bounds how long the first caller of a group waits for the last one.
GROUP_MAX = 1_000
PROBE_BYTES = 64 << 10  # a typical request
# A check of the files takes 10 us, a tenth of a commit. What was written before their removal is
# lost anyway, so a few more lost commits matter little.
CHECK_FILES_EVERY_S = 0.1

Result = TypeVar("Result")
Work = Callable[[sqlite3.Connection], Result]

logger = logging.getLogger("tidegate.store")


@dataclass(frozen=True, slots=True)
class _Call:
    work: Work[Any]
    future: asyncio.Future[Any]


class GroupCommit:
    """Runs work with a connection in its own thread, in the order of the calls.

    Work must raise `Refused` or `HeadMoved` before it writes anything. `on_rollback` is called in
    that thread after a rollback. `missing` returns the name of a file that is gone, from any
    thread; while one is missing, nothing is committed. `commits` counts transactions.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        on_rollback: Callable[[], None],
        missing: Callable[[], str | None],
    ) -> None:
        self._connection = connection
        self._on_rollback = on_rollback
        self._missing = missing
        self._check_files_at_s = 0.0
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._is_failing = False
        self._reason = ""
        self.commits = 0
        # A daemon: a process whose loop has died must be able to end.
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """Return how many calls wait for the next transaction."""
        return self._queue.qsize()

    async def run(self, work: Work[Result]) -> Result:
        """Run work and commit it.

        Raises:
            Refused: bus-unavailable, or the refusal that the work raised.
            HeadMoved: from the work.
        """
        call = _Call(work, asyncio.get_running_loop().create_future())
        self._queue.put(call)
        return cast("Result", await call.future)

    async def fault(self) -> str | None:
        """Return why writes fail, or None; retry first if the last write failed."""
        if self._is_failing or self._missing():
            self._check_files_at_s = 0.0
            with contextlib.suppress(Refused):  # the fault is returned below
                await self.run(_nothing)  # its commit checks for the files, and runs the probe
        return f"the store cannot be written: {self._reason}" if self._is_failing else None

    async def aclose(self) -> None:
        """Finish the queued work and end the thread."""
        # Behind all queued work, which is therefore finished first.
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        is_open = True
        while is_open:
            group, is_open = self._next_group()
            for call, result in self._commit(group):
                _set_result(call.future, result)

    def _next_group(self) -> tuple[list[_Call], bool]:
        """Wait for work and return all that is queued, and whether the queue is still open."""
        group: list[_Call] = []
        next_one = self._queue.get()
        with contextlib.suppress(Empty):
            while next_one is not None:
                group.append(next_one)
                if len(group) == GROUP_MAX:
                    break
                next_one = self._queue.get_nowait()
        return group, next_one is not None

    def _commit(self, group: list[_Call]) -> Iterable[tuple[_Call, object]]:
        """Run a group in one transaction and return each result, or the exception to raise."""
        if not group:
            return []
        try:
            # The write lock comes first, as it could be refused in the middle of the work.
            self._connection.execute("BEGIN IMMEDIATE")
            results = [(call, self._attempt(call.work)) for call in group]
            if name := self._missing_file():
                raise sqlite3.OperationalError(f"the file {name} was removed or replaced")
            self._connection.execute("COMMIT")
            self.commits += 1
        except Exception as error:
            self._roll_back()
            if len(group) > 1:  # one call's failure must not fail the others
                return [result for call in group for result in self._commit([call])]
            return [(group[0], self._fail(error) if isinstance(error, sqlite3.Error) else error)]
        self._recover()
        return results

    def _missing_file(self) -> str | None:
        """Return the name of a file that is gone; checked ten times a second or if writes fail."""
        now_s = time.monotonic()
        if now_s < self._check_files_at_s and not self._is_failing:
            return None
        self._check_files_at_s = now_s + CHECK_FILES_EVERY_S
        return self._missing()

    def _attempt(self, work: Work[Any]) -> object:
        try:
            return work(self._connection)
        # An answer, not a failure: the rest of the group is committed.
        except (Refused, HeadMoved) as rejection:
            return rejection

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back already
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._on_rollback()

    def _fail(self, error: sqlite3.Error) -> Refused:
        if not self._is_failing:
            logger.error("the store is out: %s", error, extra=event("store-out"))
        self._is_failing, self._reason = True, str(error)
        detail = f"The store cannot be written: {error}."
        return Unavailable(detail)

    def _recover(self) -> None:
        """Clear the fault once a typical request fits; a tiny one may fit on a full disk."""
        if self._is_failing and self._has_room():
            logger.warning("the store is back", extra=event("store-back"))
            self._is_failing = False

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
    """Do nothing; an empty transaction still triggers the probe."""


def _probe(connection: sqlite3.Connection) -> None:
    """Allocate the space of a typical request and free it in the same transaction."""
    connection.execute("CREATE TABLE probe (bytes BLOB)")
    connection.execute("INSERT INTO probe VALUES (zeroblob(?))", (PROBE_BYTES,))
    connection.execute("DROP TABLE probe")


def _set_result(future: asyncio.Future[Any], result: object) -> None:
    """Set the result in the caller's loop, unless the loop has ended."""

    def resolve() -> None:
        if future.done():
            return  # the caller was cancelled
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    with contextlib.suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(resolve)
