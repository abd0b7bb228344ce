"""A stream's checkpoint folder: Spark's own files, whose stream they are, and a lock.

<checkpoint>/spark            Spark's offsets and commits
<checkpoint>/definition.json  what the stream was when it began
<checkpoint>/run              the number of the last run
<checkpoint>/sink             the epoch of the topic that it has written to
<checkpoint>/start.SOURCE     the position before the first message of a source
<checkpoint>/lock             held while a process runs the stream
<checkpoint>/dead             dead letters, unless the definition says otherwise
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tidegate.pipeline.atomic_files import lock, write
from tidegate.pipeline.definitions.stream import StreamDefinition
from tidegate.pipeline.errors import CheckpointUnusable, InUse, StreamFailed

# --- Spark's own files in a checkpoint
#
# <folder>/metadata     the query's id, a part of the producer's name
# <folder>/offsets/N    what batch N reads, written before it begins
# <folder>/commits/N    that it is done
#
# Spark reads the newest of each and silently creates what is missing. A query without its id, or a
# plan for a number that was used, would silently skip messages.

_VERSION = re.compile(rb"v\d+")


def newest_planned(folder: Path) -> int:
    """Return the number of the newest planned batch, perhaps done already; -1 for none."""
    return max(_numbers(folder / "offsets"), default=-1)


def require_whole(folder: Path) -> None:
    """Check the files from which Spark continues.

    Raises:
        CheckpointUnusable: something is missing, or cannot be read; the text says which file.
    """
    newest, done = newest_planned(folder), max(_numbers(folder / "commits"), default=-1)
    if newest < 0 and done < 0:
        return
    # Spark writes the plan of a batch before it notes its end, so an end without a plan is a loss.
    if done > newest:
        raise _not_whole(folder / "offsets" / str(done), "is gone")
    _require_texts(folder / "metadata", versioned=False)
    _require_texts(folder / "offsets" / str(newest))
    if done >= 0:
        _require_texts(folder / "commits" / str(done))


def _require_texts(path: Path, *, versioned: bool = True) -> None:
    """Require JSON texts, one on a line, after a line with a version; a dash is no text."""
    if not path.exists():
        raise _not_whole(path, "is gone")
    content = path.read_bytes() if versioned else b"v1\n" + path.read_bytes()
    version, _, rest = content.partition(b"\n")
    texts = [line for line in rest.split(b"\n") if line.strip() not in (b"", b"-")]
    if not _VERSION.fullmatch(version) or not texts:
        raise _not_whole(path, "is not whole")
    for text in texts:
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _not_whole(path, "is not whole") from None


def _not_whole(path: Path, what: str) -> CheckpointUnusable:
    return CheckpointUnusable(
        f"the checkpoint's {path} {what}: put all of it back, or remove it to begin again"
    )


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("*") if path.name.isdigit()]


def wall_ms() -> int:
    """Return wall time in milliseconds of the epoch."""
    return time.time_ns() // 1_000_000


class Checkpoint:
    """The checkpoint of one stream, held by this process from `with` to its end.

    Args:
        definition: the stream's definition.
        wall_ms: wall time in ms of the epoch; for tests.

    Attributes:
        run: which run of the stream this is; from `with` on. It rises with each: it is the time,
            so that a folder that was put back from a copy continues above the runs that it does not
            know, and above the last one where the clock was set back.

    Raises:
        InUse: on entry, if another process has locked it.
        CheckpointUnusable: on entry, if another stream made it, or it is not whole.
        StreamFailed: on entry, if it cannot be read or written.
    """

    def __init__(self, definition: StreamDefinition, wall_ms: Callable[[], int] = wall_ms) -> None:
        self.run = 0
        self._definition = definition
        self._folder = definition.checkpoint
        self._wall_ms = wall_ms
        self._lock: int | None = None

    @property
    def spark_folder(self) -> Path:
        """Where Spark keeps offsets and commits."""
        return self._folder / "spark"

    @property
    def query(self) -> str:
        """The id of the query that Spark's files belong to; empty before its first start."""
        path = self.spark_folder / "metadata"
        return str(msgspec.json.decode(path.read_bytes())["id"]) if path.exists() else ""

    def newest_planned(self) -> int:
        """Return the number of the newest planned batch, perhaps done already; -1 for none."""
        return newest_planned(self.spark_folder)

    def require_sink(self, epochs: Sequence[str]) -> None:
        """Note the epoch of the sink; later starts must find the same one, or one continuing it.

        Args:
            epochs: the topic's present epoch and those that it continues; none where the sink has
                no epoch.

        Raises:
            CheckpointUnusable: it is another one, without what was sent before.
        """
        path = self._folder / "sink"
        known = path.read_text().strip() if path.exists() else ""
        epoch = epochs[0] if epochs else ""
        if known and epoch and known not in epochs:
            raise CheckpointUnusable(
                f"{self._definition.name}: the checkpoint {self._folder} has written to another "
                f"epoch of {self._definition.sink.label} ({known}, now {epoch}: made again, "
                "or at another gateway), which has what was sent so far: remove the checkpoint to "
                f"send all again, or {path} to go on after it"
            )
        if epoch and known != epoch:
            write(path, epoch.encode())

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # First the lock: what is checked and counted below must not change meanwhile.
            self._lock = lock(self._folder / "lock")
            self._require_own()
            require_whole(self.spark_folder)
            self.run = self._next_run()
        except BlockingIOError:
            self._release()
            raise InUse(
                f"{self._definition.name}: another process runs the stream of {self._folder}"
            ) from None
        except OSError as error:
            self._release()
            raise StreamFailed(
                f"{self._definition.name}: {self._folder} cannot be used: "
                f"{(error.strerror or str(error)).lower()}"
            ) from None
        except CheckpointUnusable:
            self._release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def _release(self) -> None:
        # The kernel drops the lock with the descriptor, also when the process is killed.
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _require_own(self) -> None:
        path = self._folder / "definition.json"
        mine = identity(self._definition)
        if not path.exists():
            write(path, msgspec.json.encode(mine))
            return
        try:
            made = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except msgspec.DecodeError:
            raise CheckpointUnusable(f"{path} cannot be read: remove {self._folder}") from None
        for field, setting in mine.items():
            if made.get(field) != setting:
                raise CheckpointUnusable(
                    f"{self._definition.name}: the checkpoint {self._folder} was made with {field} "
                    f"{made.get(field)!r}, the definition says {setting!r}: "
                    "choose another checkpoint, or remove it to begin again"
                )

    def _next_run(self) -> int:
        path = self._folder / "run"
        text = path.read_bytes().strip() if path.exists() else b""
        last = int(text) if text.isdigit() else 0
        run = max(last + 1, self._wall_ms())
        # On the disk before it is used: a number that is given twice would fence nobody.
        write(path, b"%d\n" % run)
        return run


def identity(definition: StreamDefinition) -> dict[str, str]:
    """Return what may not change between two runs; interval and limits may.

    The name is that of the producer, by which a batch that comes again is known.
    """
    return {
        "name": definition.name,
        "source": definition.source.label,
        "key": str(definition.key),
        "sink": definition.sink.label,
        "view": str(definition.view or ""),
        "conflation": str(definition.conflation),
    }
