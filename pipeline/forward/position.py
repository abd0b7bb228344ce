"""The file that says how far a target is: the last event id before which it has everything.

For a target that stores each message id once, it also has the batch that is being written. After a
kill the gateway may conflate otherwise, and send other rows or older ones. So the batch is written
again as it was, with the same ids.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import msgspec

from tidegate.pipeline import atomic_files
from tidegate.pipeline.errors import CheckpointUnusable, EndpointUnavailable, InUse
from tidegate.pipeline.forward.target import FeedBatch, Fields, Row

BATCH_ID_BYTES = 8


class UnfinishedBatch(msgspec.Struct, frozen=True):
    """The envelopes of a batch that is being written, and the event id after it.

    The message id of a row is `batch_id` and its place in the batch.
    """

    batch_id: str
    rows: list[Fields]
    after: str


class Noted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content: an event id, and the hash of what it belongs to.

    `file` is the name of a file that belongs to the position: where it has another name still, it
    is to get this one. `unfinished` is a batch that the target may have a part of.
    """

    identity: str
    after: str
    file: str = ""
    unfinished: UnfinishedBatch | None = None


class PositionFile:
    """Replaced in one step, and locked as long as it is open (a `Position`).

    Args:
        path: the file, in a folder that exists.

    Raises:
        CheckpointUnusable: the file cannot be opened.
        InUse: another process has locked it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._noted = Noted("", "")
        try:
            self._lock = atomic_files.lock(path.with_name(f"{path.name}.lock"))
        except BlockingIOError:
            raise InUse(f"another process forwards from {path}") from None
        except OSError as error:
            raise CheckpointUnusable(f"{path}: {error.strerror or error}") from None

    def resume(self, identity: str) -> str:
        """Return the event id to resume after; empty to begin.

        Raises:
            CheckpointUnusable: the file cannot be read.
        """
        found = self._read()
        self._noted = found if found.identity == identity else Noted(identity, "", found.file)
        return self._noted.after

    @property
    def file(self) -> str:
        """The name of the file that was noted with the position, or empty."""
        return self._noted.file

    @property
    def unfinished(self) -> FeedBatch | None:
        """The batch that was begun and not noted, with the same message ids; None if there is none.

        It precedes what follows the position.
        """
        found = self._noted.unfinished
        return None if found is None else _identified(found)

    def begin(self, batch: FeedBatch) -> FeedBatch:
        """Keep a batch until it is noted; return it with message ids.

        Raises:
            EndpointUnavailable: the file cannot be written.
        """
        rows = [row.fields for row in batch.rows]
        found = UnfinishedBatch(secrets.token_hex(BATCH_ID_BYTES), rows, batch.after)
        self._replace(Noted(self._noted.identity, self._noted.after, unfinished=found))
        return _identified(found)

    def note(self, after: str, file: str = "") -> None:
        """Replace the position, if it has changed.

        Raises:
            EndpointUnavailable: the file cannot be written.
        """
        noted = self._noted
        if after != noted.after or file or noted.unfinished is not None:
            self._replace(Noted(noted.identity, after, file))

    def _replace(self, noted: Noted) -> None:
        try:
            atomic_files.write(self._path, msgspec.json.encode(noted))
        except OSError as error:  # such as of a full disk, which may have room later
            raise EndpointUnavailable(
                f"{self._path} cannot be written: {error.strerror or error}"
            ) from error
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
            raise CheckpointUnusable(f"{self._path}: {error.strerror or error}") from None
        except msgspec.DecodeError:
            raise CheckpointUnusable(
                f"{self._path} is not a position: remove it to begin with a snapshot"
            ) from None


def _identified(batch: UnfinishedBatch) -> FeedBatch:
    """Return a batch whose rows have message ids."""
    rows = [
        Row(msgspec.json.decode(fields["op"], type=str), fields, f"{batch.batch_id}-{at}")
        for at, fields in enumerate(batch.rows)
    ]
    return FeedBatch(rows, batch.after)
