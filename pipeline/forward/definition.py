"""The TOML file of `tidegate forward`, parsed strictly; `docs/forward.md` shows one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tidegate.keys.spec import split_list
from tidegate.pipeline.definitions.shared import (
    module_of_kind,
    read_dead_letters,
    read_named_tables,
)
from tidegate.pipeline.definitions.toml import TOPIC, TomlTable
from tidegate.pipeline.forward.target import SinkDefinition

KINDS = {
    "file": "ingest",
    "kafka": "kafka",
    "mqtt": "mqtt",
    "nats": "nats",
    "parquet": "archive",
    "redis": "ingest",
    "webhook": "ingest",
}
"""The kinds of sinks, each a module of `pipeline.forward.sinks`, and the extra of each."""

SOURCE = 'a table such as {topic = "prices", options = "conflation=1s"}'
SINK = 'a table such as {kind = "redis", address = "redis://127.0.0.1:6379/0", stream = "prices"}'
NOT_HERE = {"interval": 'is an option: options = "conflation=1s"'}
OF_SOURCE = dict.fromkeys(
    ("filter", "interval", "options", "topic"),
    'belongs in source = {topic = "prices", options = "conflation=1s"}',
)
OF_TIME = frozenset(
    {
        *("batch_size", "conflation", "edge", "flush_on", "max", "max_age", "min", "pace"),
        *("rate", "rate_max_gap", "bookmark_not_found", "progress"),
        *("live", "non_regex_topic", "oof"),
    }
)
"""Options that say when rows are sent, and not which: a position stays where one of these changes.

The last three change nothing here: removals (`oof`) are asked for wherever there are any.
"""


@dataclass(frozen=True, slots=True)
class ForwardDefinition:
    """One `[forward.NAME]`: a subscription, and where its rows go.

    `position` is the file that says how far the target is, None if the target itself does; `filter`
    is None for every message.
    """

    name: str
    gateway: str
    topic: str
    options: str
    filter: str | None
    sink: SinkDefinition
    dead_letters: str
    position: Path | None

    @property
    def identity(self) -> str:
        """A hash of what a position belongs to: the rows, and where they go."""
        parts = [self.topic, self.filter or "", self.sink.label, *_options_of_rows(self.options)]
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


def _options_of_rows(options: str) -> list[str]:
    """Return the options that choose or make rows, in an order that is not the text's."""
    # A gateway allows spaces around both signs, and a comma at the end.
    given = [part.partition("=") for part, _ in split_list(options)]
    found = {name.strip(): f"{equals}{value.strip()}" for name, equals, value in given}
    return sorted(name + value for name, value in found.items() if name not in {"", *OF_TIME})


def read_definitions(path: Path, gateway: str | None = None) -> list[ForwardDefinition]:
    """Read the forwards of a file, in its order; a `gateway` goes before the file's own.

    Raises:
        DefinitionInvalid: one line with the file, the place and what was expected.
        ExtraMissing: the library of a sink is not installed.
        UsageInvalid: `gateway` is no address.
    """
    address, tables = read_named_tables(path, "forward", gateway)
    return [_definition(name, table, address, path) for name, table in tables]


def _definition(name: str, table: TomlTable, gateway: str, path: Path) -> ForwardDefinition:
    source = table.table("source", SOURCE)
    topic = source.checked("topic", TOPIC.fullmatch, "the name of one topic")
    options = source.text("options", default="")
    has_filter = source.has("filter")
    # The gateway reads the filter, which needs no library here then.
    filter_text = source.checked("filter", str.strip, "a filter") if has_filter else None
    source.finish(NOT_HERE)
    sink = read_sink(table.table("sink", SINK), path.parent)
    position = None
    if not sink.keeps_position:
        position = path.parent / f"{path.stem}.{name}.position"
        if table.has("position"):
            position = path.parent / table.checked("position", str.strip, "the path of a file")
    definition = ForwardDefinition(
        name=name,
        gateway=gateway,
        topic=topic,
        options=options,
        filter=filter_text,
        sink=sink,
        dead_letters=read_dead_letters(table, topic, ".undelivered"),
        position=position,
    )
    table.finish(OF_SOURCE | {"position": f"the target of kind {sink.kind} keeps it"})
    return definition


def read_sink(table: TomlTable, folder: Path) -> SinkDefinition:
    """Read the table `sink`; relative paths are below `folder`.

    Raises:
        ExtraMissing: its library is not installed.
    """
    module = module_of_kind(table, KINDS, "tidegate.pipeline.forward.sinks")
    sink: SinkDefinition = module.read_sink(table, folder)
    table.finish()
    return sink
