"""How far a replay is, so that a kill neither loses nor doubles.

Before a request is sent, its number and the stretch of messages in it are noted. Who comes after a
kill sends exactly that stretch again, under that number: the gateway knows whether it has it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pipeline.archive.recorded import BEGINNING, Place
from pipeline.errors import CheckpointMismatch
from pipeline.lasting import write

PRODUCER_PREFIX = "tidegate.replay."


class Noted(msgspec.Struct, frozen=True):
    """Request `sequence` of `producer` has the messages behind `after` up to `through`.

    `of` is what is replayed to where: another replay has its own file.
    """

    of: str
    producer: str
    sequence: int = 0
    after: Place = BEGINNING
    through: Place = BEGINNING


class Mark:
    """The file in which that is noted; held by one process."""

    def __init__(self, folder: Path, of: str) -> None:
        self._folder = folder
        self._path = folder / "replay.json"
        self._of = of

    @contextmanager
    def held(self) -> Iterator[Noted]:
        """What was noted last, or a new beginning.

        Raises:
            CheckpointMismatch: another process has it, it is another replay's, or unreadable.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise CheckpointMismatch(f"{self._folder}: {error.strerror or error}") from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CheckpointMismatch(f"{self._folder}: another process replays this") from None
            yield self._last()
        finally:
            os.close(lock)

    def note(self, noted: Noted) -> None:
        """Have the disk keep it.

        Raises:
            CheckpointMismatch: the disk does not take it.
        """
        try:
            write(self._path, msgspec.json.encode(noted))
        except OSError as error:
            raise CheckpointMismatch(f"{self._path}: {error.strerror or error}") from None

    def forget(self) -> None:
        """All is published; the same replay begins anew the next time."""
        self._path.unlink(missing_ok=True)

    def _last(self) -> Noted:
        if not self._path.exists():
            return Noted(self._of, PRODUCER_PREFIX + secrets.token_hex(8))
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=Noted)
        except msgspec.MsgspecError:
            raise CheckpointMismatch(f"{self._path} cannot be read: remove it") from None
        if found.of != self._of:
            raise CheckpointMismatch(
                f"{self._path} is of another replay ({found.of[:200]}): choose another --checkpoint"
            )
        return found
