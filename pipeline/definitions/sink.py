"""The table `sink`: where what a stream sends goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tidegate.pipeline.definitions.terms import TOPIC
from tidegate.pipeline.definitions.toml import TomlTable


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A gateway topic, created if it is absent, unless it was `declared` at the gateway."""

    topic: str
    declared: bool = False

    @property
    def place(self) -> str:
        """What a checkpoint remembers of it; no two streams of a file share it."""
        return f"topic {self.topic}"


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """A folder that gets a Parquet file a batch."""

    folder: Path
    topic: ClassVar[None] = None

    @property
    def place(self) -> str:
        """What a checkpoint remembers of it; no two streams of a file share it."""
        return f"parquet {self.folder}"


Sink = TopicSink | ParquetSink


def read_sink(table: TomlTable, folder: Path) -> Sink:
    """The sink of a stream; paths are seen from `folder`."""
    kind = table.text("kind", default="topic")
    sink: Sink
    if kind == "topic":
        sink = TopicSink(_topic(table))
    elif kind == "parquet":
        path = table.checked("path", str.strip, "a folder")
        if "://" in path:
            raise table.wrong("path", "a folder that is mounted", path)
        sink = ParquetSink((folder / path).resolve())
    else:
        raise table.wrong("kind", "topic or parquet", kind)
    table.finish()
    return sink


def _topic(table: TomlTable) -> str:
    topic = table.checked("topic", TOPIC.fullmatch, "a topic name")
    if topic.startswith("tidegate."):
        raise table.wrong("topic", "a name outside the gateway's own tidegate.", topic)
    return topic
