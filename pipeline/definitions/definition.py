"""The TOML file of `tidegate pipeline run`, parsed strictly; `docs/pipeline.md` shows one."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from keys.errors import PathInvalid
from keys.spec import KeySpec
from pipeline.bookmark import START, split_bookmark
from pipeline.definitions.tomltable import TomlTable
from pipeline.errors import DefinitionInvalid
from pipeline.gateway import DEFAULT_GATEWAY

SOURCES_NOT_YET = frozenset({"kafka", "redis", "rate"})
SINKS_NOT_YET = frozenset({"parquet"})
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
DURATION = re.compile(r"([0-9]{1,18})(ns|us|ms|s|m|h|d|w)", re.IGNORECASE)
UNIT_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
    "w": 604_800_000_000_000,
}


@dataclass(frozen=True, slots=True)
class TopicSource:
    """A gateway topic, read from `start` (`epoch`, `now` or a bookmark)."""

    topic: str
    start: str
    rows_per_batch: int | None


@dataclass(frozen=True, slots=True)
class FilesSource:
    """NDJSON files matching `pattern`; `topic` is what the sink names as its source, if any."""

    pattern: str
    topic: str | None
    files_per_batch: int | None


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """One `[pipeline.NAME]`: a source conflated by key each interval into a sink topic."""

    name: str
    gateway: str
    source: TopicSource | FilesSource
    key: KeySpec
    interval_text: str
    interval_ms: int
    sink_topic: str
    description: str
    checkpoint: Path
    dead_letters: Path


def read_definitions(path: Path) -> list[StreamDefinition]:
    """The streams of a file, in its order.

    Raises:
        DefinitionInvalid: one line with the file, the place and what was expected.
    """
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DefinitionInvalid(f"{path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DefinitionInvalid(f"{path}: {error}") from None
    top = TomlTable(tree, path.name, "")
    gateway = top.text("gateway", default=DEFAULT_GATEWAY)
    if not re.fullmatch(r"https?://[^\s/]+/?", gateway):
        raise top.wrong("gateway", f"an address such as {DEFAULT_GATEWAY}", gateway)
    named = top.table("pipeline")
    top.finish()
    if not named.left:
        raise top.wrong("pipeline", "at least one table [pipeline.NAME]", {})
    streams = [_stream(name, named.table(name), gateway, path.parent) for name in list(named.left)]
    _refuse_shared(path.name, streams)
    return streams


def duration_ms(text: str) -> int | None:
    """A duration such as `500ms` or `2S` in whole milliseconds; None if not from 1 ms to 1 d."""
    found = DURATION.fullmatch(text)
    duration_ns = int(found[1]) * UNIT_NS[found[2].lower()] if found else 0
    if not UNIT_NS["ms"] <= duration_ns <= UNIT_NS["d"] or duration_ns % UNIT_NS["ms"]:
        return None
    return duration_ns // UNIT_NS["ms"]


def _stream(name: str, table: TomlTable, gateway: str, folder: Path) -> StreamDefinition:
    if not NAME.fullmatch(name):
        raise DefinitionInvalid(f"{table.where('')[:-1]}: a name is 1 to 63 of A-Z a-z 0-9 _ -")
    pace = table.text("pace", default="batch")
    if pace == "key":
        raise DefinitionInvalid(f"{table.where('pace')}: pace key is not available yet")
    if pace != "batch":
        raise table.wrong("pace", "batch", pace)
    interval = table.checked("interval", duration_ms, "a duration from 1ms to 1d, such as 500ms")
    sink = _sink(table.table("sink"))
    source = _source(table.table("source"), table, folder)
    checkpoint = _folder(table, "checkpoint", folder, f"checkpoints/{name}")
    definition = StreamDefinition(
        name=name,
        gateway=gateway.rstrip("/"),
        source=source,
        key=_key(table),
        interval_text=interval.lower(),
        interval_ms=duration_ms(interval) or 0,
        sink_topic=sink,
        description=table.text("description", default=f"Filled by the pipeline {name}"),
        checkpoint=checkpoint,
        dead_letters=_folder(table, "dead_letters", folder, str(checkpoint / "dead")),
    )
    table.finish()
    if definition.sink_topic == source.topic:
        raise table.wrong("sink.topic", "a topic other than the source", definition.sink_topic)
    return definition


def _key(table: TomlTable) -> KeySpec:
    expected = 'field paths, such as ["/symbol", "/venue"]'
    paths = table.take("key", list, expected)
    if not paths or not all(isinstance(path, str) for path in paths):
        raise table.wrong("key", expected, paths)
    try:
        return KeySpec.of(paths)
    except PathInvalid as error:
        raise DefinitionInvalid(f"{table.where('key')}: {error.detail}") from None


def _source(table: TomlTable, stream: TomlTable, folder: Path) -> TopicSource | FilesSource:
    kind = table.text("kind", expected="tidegate or files")
    source: TopicSource | FilesSource
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
    elif kind in SOURCES_NOT_YET:
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


def _sink(table: TomlTable) -> str:
    kind = table.text("kind", default="topic")
    if kind in SINKS_NOT_YET:
        raise DefinitionInvalid(f"{table.where('kind')}: {kind} is not available yet")
    if kind != "topic":
        raise table.wrong("kind", "topic", kind)
    topic = table.checked("topic", TOPIC.fullmatch, "a topic name")
    if topic.startswith("tidegate."):
        raise table.wrong("topic", "a name outside the gateway's own tidegate.", topic)
    table.finish()
    return topic


def _folder(table: TomlTable, field: str, folder: Path, default: str) -> Path:
    text = table.text(field, default=default)
    if "://" in text:
        raise DefinitionInvalid(
            f"{table.where(field)}: {text[:100]}: a folder that is not mounted is not available yet"
        )
    return (folder / text).resolve()


def _refuse_shared(file: str, streams: list[StreamDefinition]) -> None:
    for what, taken in (
        ("checkpoint", [str(stream.checkpoint) for stream in streams]),
        ("sink topic", [stream.sink_topic for stream in streams]),
    ):
        for shared in {name for name in taken if taken.count(name) > 1}:
            raise DefinitionInvalid(f"{file}: two streams have the {what} {shared}")
