"""What a start of an archiver repairs, where it continues, and what does not delay it."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.pipeline.archive.archives import NOON_MS, files, positions
from tests.support.rules import rule
from tidegate.pipeline.archive import archiving as module
from tidegate.pipeline.archive.archiving import COMPACTS_AGAIN_S, ArchiveJob, Archiving
from tidegate.pipeline.archive.folder import FILES_MAX, TopicFolder, compact_day
from tidegate.pipeline.errors import ArchiveUnusable, GatewayUnreachable, SourceLost, StreamFailed


class Rows:
    """A micro-batch of these positions, its task done where it is planned."""

    def __init__(self, *offsets: int) -> None:
        self._read = pa.RecordBatch.from_pylist(
            [
                {"offset": at, "timestamp_ms": NOON_MS, "key": "[1]", "value": "1", "removed": None}
                for at in offsets
            ]
        )

    def coalesce(self, _: int) -> Rows:
        return self

    def mapInArrow(  # noqa: N802 - Spark's own custom
        self, task: Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]], _: str
    ) -> SimpleNamespace:
        found = [
            tuple(row.values()) for batch in task(iter([self._read])) for row in batch.to_pylist()
        ]
        return SimpleNamespace(collect=lambda: found)


class Writer:
    """What `writeStream` gives; keeps what is to be done with each batch."""

    def __init__(self) -> None:
        self.writeStream = self
        self.write: Callable[[Any, int], None] = lambda *_: None

    def foreachBatch(self, write: Callable[[Any, int], None]) -> Writer:  # noqa: N802 - Spark's own name
        self.write = write
        return self

    def __getattr__(self, name: str) -> Callable[..., Writer]:
        return lambda *_, **__: self


def archiving(
    path: Path, ask_epoch: Callable[[], str], said: list[str], folder: TopicFolder | None = None
) -> Archiving:
    errand = ArchiveJob("http://127.0.0.1:1", "ticks", 1_000, path / "_checkpoint")
    held = folder or TopicFolder(path, "ticks")
    return Archiving(held, errand, "e1", ask_epoch, said.append)


@rule("archive-2")
def test_messages_that_are_gone_are_mended_by_another_epoch_alone(tmp_path: Path) -> None:
    epochs = iter(["e1", "e2"])
    stream = archiving(tmp_path, lambda: next(epochs), [])
    assert not stream.mends(StreamFailed("ticks: no room"))
    assert not stream.mends(SourceLost("ticks: gone"))
    assert stream.mends(SourceLost("ticks: gone"))


def test_while_the_gateway_is_out_the_epoch_counts_as_new(tmp_path: Path) -> None:
    def ask() -> str:
        raise GatewayUnreachable("nobody")

    stream = archiving(tmp_path, ask, [])
    assert stream.mends(SourceLost("ticks: gone"))
    stream.query = cast(Any, "of an earlier start")
    with pytest.raises(GatewayUnreachable):
        stream.start(cast(Any, None))


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Writer:
    made = Writer()
    monkeypatch.setattr(module, "journal_rows", lambda *_: made)
    return made


def test_what_is_in_the_way_of_large_files_is_not_in_the_way_of_the_next_batch(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, said = SimpleNamespace(now_s=0.0), list[str]()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))

    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = TopicFolder(tmp_path, "ticks")
    with folder.locked():
        stream = archiving(tmp_path, lambda: "e1", said, folder)
        stream.start(cast(Any, None))
        monkeypatch.setattr(module, "compact_day", no_room)
        for at in range(1, FILES_MAX + 3):
            writer.write(Rows(at), at)
        assert said == ["journal.ticks: small files stay as they are: No space left on device"]
        monkeypatch.setattr(module, "compact_day", compact_day)
        clock.now_s = COMPACTS_AGAIN_S
        writer.write(Rows(FILES_MAX + 3), FILES_MAX + 3)
    assert positions(folder) == [*range(1, FILES_MAX + 4)]
    assert len(files(folder)) == 1


@rule("pipeline-9")
def test_a_batch_that_comes_again_is_counted_once(tmp_path: Path, writer: Writer) -> None:
    """Nothing was done, so the next pause is not the first one again."""
    folder = TopicFolder(tmp_path, "ticks")
    with folder.locked():
        stream = archiving(tmp_path, lambda: "e1", [], folder)
        stream.start(cast(Any, None))
        for number in (0, 0, 1):
            writer.write(Rows(*range(1, 3 + number)), number)
    assert (stream.totals.batches, stream.totals.messages) == (2, 3)
    assert positions(folder) == [1, 2, 3]


def test_an_archive_that_was_taken_away_ends_it(tmp_path: Path, writer: Writer) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    with folder.locked():
        stream = archiving(tmp_path, lambda: "e1", [], folder)
        stream.start(cast(Any, None))
        writer.write(Rows(1), 0)
        shutil.rmtree(folder.path)
        with pytest.raises(ArchiveUnusable, match="removed, or put elsewhere"):
            writer.write(Rows(2), 1)
        with pytest.raises(ArchiveUnusable, match="removed, or put elsewhere"):
            stream.start(cast(Any, None))
    assert not folder.path.exists()
