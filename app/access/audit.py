"""The audit log: administration and refusals, in a topic of the gateway's own and in a file.

What is alike within a second is one event with a count, and of different ones there are only so
many a second: a flood of refused requests costs neither the disk nor the loop. No event has a
token, a ticket, a query, a key or a payload.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tidegate.app.logs import event
from tidegate.app.settings.settings import SettingsInvalid
from tidegate.app.shielding import run_shielded

logger = logging.getLogger("tidegate.audit")

WRITE_EVERY_S: Final = 1.0
ACTIONS_MAX: Final = 1_000
"""Different acts of administration in a second; those beyond are counted together."""
REFUSALS_MAX: Final = 10
"""Different refusals in a second; those beyond are counted together."""
KEPT_LINES_MAX: Final = 10_000
"""Lines that wait for a file which cannot be written."""


class Kind(NamedTuple):
    """What makes events alike; "" where something is not known or does not matter."""

    event: str
    code: str = ""
    sub: str = ""
    client: str = ""
    topic: str = ""
    session: str = ""
    detail: str = ""


class AuditLog:
    """Counts events, and writes them once a second.

    Args:
        file: lines are appended there; it is opened for each write, so that it may be rotated.
        publish: puts an event into the topic.
        wall_ms: the time of events.
        gateway: the id of this gateway.

    Raises:
        SettingsInvalid: the file cannot be written.
    """

    def __init__(
        self,
        file: str | None,
        publish: Callable[[bytes], None],
        wall_ms: Callable[[], int],
        gateway: str,
    ) -> None:
        self._file = None if file is None else Path(file)
        self._publish = publish
        self._wall_ms = wall_ms
        self._gateway = gateway
        self._actions: Counter[Kind] = Counter()
        self._refusals: Counter[Kind] = Counter()
        self._lines: deque[bytes] = deque(maxlen=KEPT_LINES_MAX)
        self._is_failing = False
        self._writing = asyncio.Lock()
        if file is not None:
            try:
                _append(Path(file), b"")
            except OSError as error:
                raise SettingsInvalid(f"audit_log: {error.strerror or error}") from None

    def act(self, kind: Kind) -> None:
        """Note an act of administration."""
        _count(self._actions, kind, ACTIONS_MAX)

    def refuse(self, kind: Kind) -> None:
        """Note a refusal."""
        _count(self._refusals, kind, REFUSALS_MAX)

    async def run(self) -> None:
        """Write what was noted, once a second, until cancelled."""
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            await self.write()

    async def write(self) -> None:
        """Write what was noted since the last call."""
        noted = [*self._actions.items(), *self._refusals.items()]
        self._actions.clear()
        self._refusals.clear()
        at_ms = self._wall_ms()
        for kind, count in noted:
            shown = {name: value for name, value in kind._asdict().items() if value}
            document = {"at_ms": at_ms, **shown, "count": count, "gateway": self._gateway}
            line = msgspec.json.encode(document)
            self._publish(line)
            if self._file is not None:
                self._lines.append(line + b"\n")
        # One write at a time, or two would write the same lines.
        async with self._writing:
            if self._lines:
                # A thread cannot be cancelled, so its lines must not be left for the next write.
                await run_shielded(self._write_lines())

    async def _write_lines(self) -> None:
        assert self._file is not None
        lines = list(self._lines)
        try:
            # In a thread: a disk may be slow, and nobody waits for it.
            await asyncio.to_thread(_append, self._file, b"".join(lines))
        except OSError as error:
            if not self._is_failing:
                reason = error.strerror or str(error)
                figures = event("audit-not-written", reason=reason)
                logger.error("the audit log waits: %s", reason, extra=figures)
            self._is_failing = True
            return
        for _ in lines:
            self._lines.popleft()
        if self._is_failing:
            logger.info("the audit log is written again", extra=event("audit-written"))
        self._is_failing = False


def _count(noted: Counter[Kind], kind: Kind, most: int) -> None:
    if kind not in noted and len(noted) >= most:
        kind = Kind(kind.event, kind.code, detail="others")
    noted[kind] += 1


def _append(file: Path, lines: bytes) -> None:
    # For its owner alone: names of subjects and topics are not for everybody on the machine.
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if lines and os.write(descriptor, lines) < len(lines):
            raise OSError(errno.ENOSPC, "not all of it could be written")
    finally:
        os.close(descriptor)
