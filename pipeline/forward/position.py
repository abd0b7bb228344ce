"""The file that says how far a target is: the last event id before which it has everything."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tidegate.pipeline import atomic_files
from tidegate.pipeline.errors import CheckpointMismatch


class Noted(msgspec.Struct, frozen=True):
    """The content: an event id, and the hash of what it belongs to."""

    identity: str
    after: str


class PositionFile:
    """A position that is replaced in one step, and locked as long as it is open.

    Args:
        path: the file, in a folder that exists.
        identity: what the position belongs to; that of another one counts as none.

    Raises:
        CheckpointMismatch: the file cannot be read or written, or another process uses it.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self._path = path
        self._identity = identity
        try:
            self._lock = atomic_files.lock(path.with_name(f"{path.name}.lock"))
        except BlockingIOError:
            raise CheckpointMismatch(f"another process forwards from {path}") from None
        except OSError as error:
            raise CheckpointMismatch(f"{path}: {error.strerror or error}") from None
        try:
            self._after = self._read()
        except BaseException:
            self.close()
            raise

    @property
    def after(self) -> str:
        """The event id to resume after; empty to begin."""
        return self._after

    def note(self, after: str) -> None:
        """Replace the position, if it has changed.

        Raises:
            CheckpointMismatch: the file cannot be written.
        """
        if after == self._after:
            return
        try:
            atomic_files.write(self._path, msgspec.json.encode(Noted(self._identity, after)))
        except OSError as error:
            raise CheckpointMismatch(f"{self._path}: {error.strerror or error}") from None
        self._after = after

    def close(self) -> None:
        """Let another process use the file."""
        os.close(self._lock)

    def _read(self) -> str:
        try:
            noted = msgspec.json.decode(self._path.read_bytes(), type=Noted)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise CheckpointMismatch(f"{self._path}: {error.strerror or error}") from None
        except msgspec.DecodeError:
            raise CheckpointMismatch(
                f"{self._path} is no position: remove it to begin with a snapshot"
            ) from None
        return noted.after if noted.identity == self._identity else ""
