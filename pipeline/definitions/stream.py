"""The TOML file of `tidegate pipeline run`, parsed strictly; `docs/pipeline.md` shows one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import ClassVar

from tidegate.keys.errors import TextInvalid
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import parse_interval, whole_ms
from tidegate.pipeline.definitions.conflation import PLAIN, ConflationDefinition, read_conflation
from tidegate.pipeline.definitions.shared import read_named_tables, read_topic
from tidegate.pipeline.definitions.source import BOUNDS, SOURCE, Source, TopicSource, read_source
from tidegate.pipeline.definitions.toml import RECORDS, TomlTable, read_paths
from tidegate.pipeline.definitions.view import ViewDefinition, read_view, refuse_place_in_key
from tidegate.pipeline.errors import DefinitionInvalid

# --- the table `sink`


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A gateway topic, created if it is absent, unless it was `declared` at the gateway."""

    topic: str
    declared: bool = False

    @property
    def label(self) -> str:
        """The name of the sink in a checkpoint; no two streams of a file share it."""
        return f"topic {self.topic}"


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """A folder that gets a Parquet file a batch."""

    folder: Path
    topic: ClassVar[None] = None

    @property
    def label(self) -> str:
        """The name of the sink in a checkpoint; no two streams of a file share it."""
        return f"parquet {self.folder}"


SinkDefinition = TopicSink | ParquetSink


def read_sink(table: TomlTable, folder: Path) -> SinkDefinition:
    """Read the sink of a stream; paths are below `folder`."""
    kind = table.text("kind", default="topic")
    sink: SinkDefinition
    if kind == "topic":
        sink = TopicSink(read_topic(table))
    elif kind == "parquet":
        path = table.checked("path", str.strip, "a folder")
        # The driver renames what a task has written; an object store has no rename in one step.
        if "://" in path:
            raise table.wrong("path", "a folder that is mounted", path)
        sink = ParquetSink((folder / path).resolve())
    else:
        raise table.wrong("kind", "topic or parquet", kind)
    table.finish()
    return sink


# --- the table of a stream

INTERVAL = "a duration from 1ms to 1d, such as 500ms"
SINK = 'a table such as {topic = "ticks.1s"}'
NOT_HERE = {
    "edge": "not available yet",
    "never": "not available yet",
    **BOUNDS,
    "record_key": "only with grouping and projection",
    "watermark": 'belongs in the table time, such as {field = "/ts", watermark = "5s"}',
    "conflation_key": "is called key",
}


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """One `[pipeline.NAME]`: each interval a source, conflated by key, or a view, into a sink."""

    name: str
    gateway: str
    source: Source
    key: KeySpec
    interval_text: str
    interval_ms: int
    sink: SinkDefinition
    description: str
    checkpoint: Path
    dead_letters: Path
    view: ViewDefinition | None = None
    conflation: ConflationDefinition = PLAIN

    @property
    def sources(self) -> tuple[Source, ...]:
        """Its source, and the one that it is joined with."""
        join = self.view.join if self.view else None
        return (self.source,) if join is None else (self.source, join.source)

    def own_topic(self, source: Source) -> str | None:
        """Return the topic of the stream's own gateway that a source is or names, or None."""
        if isinstance(source, TopicSource) and source.gateway(self.gateway) != self.gateway:
            return None
        return source.topic

    @property
    def begins_with_records(self) -> bool:
        """True if its first batch has all records of its source, whatever the journal has."""
        return isinstance(self.source, TopicSource) and self.source.start == RECORDS


def read_definitions(path: Path, gateway: str | None = None) -> list[StreamDefinition]:
    """Read the streams of a file, in its order; a `gateway` overrides the file's own.

    Raises:
        DefinitionInvalid: one line with the file, the place and what was expected.
        UsageInvalid: `gateway` is no address.
    """
    address, tables = read_named_tables(path, "pipeline", gateway)
    streams = [_stream(name, table, address, path.parent) for name, table in tables]
    _refuse_shared(path.name, streams)
    return streams


def _stream(name: str, table: TomlTable, gateway: str, folder: Path) -> StreamDefinition:
    interval_text, interval_ms = _interval(table)
    sink = read_sink(table.table("sink", SINK), folder)
    source = read_source(table.table("source", SOURCE), table, folder)
    view = read_view(table, folder)
    grouped = view.projection if view else None
    key_spec = grouped.grouping if grouped else read_paths(table, "key")
    # Only now is the key known: a view without grouping has the stream's own.
    if view is not None:
        refuse_place_in_key(table, view, key_spec)
    checkpoint = _folder(table, "checkpoint", folder, f"checkpoints/{name}")
    definition = StreamDefinition(
        name=name,
        gateway=gateway,
        source=source,
        key=key_spec,
        interval_text=interval_text,
        interval_ms=interval_ms,
        sink=sink,
        description=table.text("description", default=f"Filled by the pipeline {name}"),
        checkpoint=checkpoint,
        dead_letters=_folder(table, "dead_letters", folder, str(checkpoint / "dead")),
        view=view,
        conflation=read_conflation(table, key_spec) if view is None else PLAIN,
    )
    table.finish(NOT_HERE)
    # The stream would read what it has published, without end.
    if sink.topic is not None and sink.topic in map(definition.own_topic, definition.sources):
        raise table.wrong("sink.topic", "a topic other than the source", sink.topic)
    return definition


def _interval(table: TomlTable) -> tuple[str, int]:
    """Return the interval as it is shown, and in whole milliseconds, as Spark counts."""
    text = table.text("interval", expected=INTERVAL)
    try:
        return text.lower(), whole_ms(parse_interval(text))
    except TextInvalid:
        raise table.wrong("interval", INTERVAL, text) from None


def _folder(table: TomlTable, field: str, folder: Path, default: str) -> Path:
    text = table.text(field, default=default)
    # Checkpoints need locks and renames, which an object store does not offer.
    if "://" in text:
        raise DefinitionInvalid(
            f"{table.where(field)}: {text[:100]}: a folder that is not mounted is not available yet"
        )
    return (folder / text).resolve()


_PLACES: dict[str, Callable[[StreamDefinition], str]] = {
    "checkpoint": lambda stream: str(stream.checkpoint),
    "sink": lambda stream: stream.sink.label,
    "dead_letters": lambda stream: str(stream.dead_letters),
}


def _refuse_shared(file: str, streams: list[StreamDefinition]) -> None:
    """Refuse streams that would overwrite each other's files or topics."""
    for what, place_of in _PLACES.items():
        # By text: paths are resolved by now, and two spellings of a topic are two topics.
        owners: dict[str, str] = {}
        for stream in streams:
            place = place_of(stream)
            if place in owners:
                both = f"{owners[place]} and {stream.name}"
                raise DefinitionInvalid(f"{file}: two streams have the {what} {place}: {both}")
            owners[place] = stream.name
    # A checkpoint is removed as a whole; files of another stream in it would go with it.
    for owner, other in permutations(streams, 2):
        for what, folder in _folders(other):
            if folder.is_relative_to(owner.checkpoint):
                raise DefinitionInvalid(
                    f"{file}: the {what} {folder} of {other.name} is in the checkpoint of "
                    f"{owner.name}: {owner.checkpoint}"
                )


def _folders(stream: StreamDefinition) -> list[tuple[str, Path]]:
    """Return the folders that a stream writes to, with their names in the definition."""
    folders = [("checkpoint", stream.checkpoint), ("dead_letters", stream.dead_letters)]
    if isinstance(stream.sink, ParquetSink):
        folders.append(("sink", stream.sink.folder))
    return folders
