"""The table `sink`: where what a stream sends goes."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.definitions.names import TOPIC
from pipeline.definitions.tomltable import TomlTable
from pipeline.errors import DefinitionInvalid

NOT_YET = frozenset({"parquet"})


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A gateway topic, created if it is absent."""

    topic: str

    @property
    def place(self) -> str:
        """What a checkpoint remembers of it; no two streams of a file share it."""
        return f"topic {self.topic}"


def read_sink(table: TomlTable) -> TopicSink:
    """The sink of a stream."""
    kind = table.text("kind", default="topic")
    if kind in NOT_YET:
        raise DefinitionInvalid(f"{table.where('kind')}: {kind} is not available yet")
    if kind != "topic":
        raise table.wrong("kind", "topic", kind)
    topic = table.checked("topic", TOPIC.fullmatch, "a topic name")
    if topic.startswith("tidegate."):
        raise table.wrong("topic", "a name outside the gateway's own tidegate.", topic)
    table.finish()
    return TopicSink(topic)
