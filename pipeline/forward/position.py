"""The file that says how far a target is: the last event id before which it has everything."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tidegate.pipeline import atomic_files
from tidegate.pipeline.errors import CheckpointMismatch


class Noted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content: an event id, and the hash of what it belongs to.

    `file` is the name of a file that belongs to the position: where it has another name still, it
    is to get this one.
    """

    identity: str
    after: str
    file: str = ""


class PositionFile:
    """Replaced in one step, and locked as long as it is open (a `Position`).

    Args:
        path: the file, in a folder that exists.

    Raises:
        CheckpointMismatch: the file cannot be locked, as another process uses it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._noted = Noted("", "")
        try:
            self._lock = atomic_files.lock(path.with_name(f"{path.name}.lock"))
        except BlockingIOError:
            raise CheckpointMismatch(f"another process forwards from {path}") from None
        except OSError as error:
            raise CheckpointMismatch(f"{path}: {error.strerror or error}") from None

    def resume(self, identity: str) -> str:
        """Return the event id to resume after; empty to begin.

        Raises:
            CheckpointMismatch: the file cannot be read.
        """
        found = self._read()
        self._noted = found if found.identity == identity else Noted(identity, "", found.file)
        return self._noted.after

    @property
    def file(self) -> str:
        """The name of the file that was noted with the position, or empty."""
        return self._noted.file

    def note(self, after: str, file: str = "") -> None:
        """Replace the position, if it has changed.

        Raises:
            CheckpointMismatch: the file cannot be written.
        """
        if after == self._noted.after and not file:
            return
        noted = Noted(self._noted.identity, after, file)
        try:
            atomic_files.write(self._path, msgspec.json.encode(noted))
        except OSError as error:
            raise CheckpointMismatch(f"{self._path}: {error.strerror or error}") from None
        self._noted = noted

    def close(self) -> None:
        """Let another process use the file."""
        os.close(self._lock)

    def _read(self) -> Noted:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Noted)
        except FileNotFoundError:
            return Noted("", "")
        except OSError as error:
            raise CheckpointMismatch(f"{self._path}: {error.strerror or error}") from None
        except msgspec.DecodeError:
            raise CheckpointMismatch(
                f"{self._path} is not a position: remove it to begin with a snapshot"
            ) from None
