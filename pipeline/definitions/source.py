"""The table `source`: where a stream's messages come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.bookmark import START, split_bookmark
from pipeline.definitions.names import TOPIC
from pipeline.definitions.tomltable import TomlTable
from pipeline.errors import DefinitionInvalid

NOT_YET = frozenset({"kafka", "redis", "rate"})


@dataclass(frozen=True, slots=True)
class TopicSource:
    """A gateway topic, read from `start` (`epoch`, `now` or a bookmark)."""

    topic: str
    start: str
    rows_per_batch: int | None

    @property
    def place(self) -> str:
        """What a checkpoint remembers of it."""
        return f"topic {self.topic}"


@dataclass(frozen=True, slots=True)
class FilesSource:
    """NDJSON files matching `pattern`; `topic` is what the sink names as its source, if any."""

    pattern: str
    topic: str | None
    files_per_batch: int | None

    @property
    def place(self) -> str:
        """What a checkpoint remembers of it."""
        return f"files {self.pattern}"


Source = TopicSource | FilesSource


def read_source(table: TomlTable, stream: TomlTable, folder: Path) -> Source:
    """The source of a stream; `stream` has the bounds of a batch, paths are seen from `folder`."""
    kind = table.text("kind", expected="tidegate or files")
    source: Source
    if kind == "tidegate":
        source = TopicSource(
            topic=table.checked("topic", TOPIC.fullmatch, "a topic name"),
            start=_start(table),
            rows_per_batch=stream.count("rows_per_batch"),
        )
    elif kind == "files":
        topic = "topic" in table.left
        pattern = table.checked("path", str.strip, "a path or pattern, such as in/*.ndjson")
        source = FilesSource(
            pattern=pattern if "://" in pattern else str(folder.resolve() / pattern),
            topic=table.checked("topic", TOPIC.fullmatch, "a topic name") if topic else None,
            files_per_batch=stream.count("files_per_batch"),
        )
    elif kind in NOT_YET:
        raise DefinitionInvalid(f"{table.where('kind')}: {kind} is not available yet")
    else:
        raise table.wrong("kind", "tidegate or files", kind)
    table.finish()
    return source


def _start(table: TomlTable) -> str:
    start = table.text("from", default=START)
    if start not in {START, "now"}:
        try:
            split_bookmark(start)
        except ValueError:
            raise table.wrong("from", "epoch, now or a bookmark", start) from None
    return start
