"""The TOML file of `tidegate ingest`, parsed strictly; `docs/ingest.md` shows one."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.keys.spec import KeySpec
from tidegate.pipeline.definitions.shared import (
    module_of_kind,
    read_dead_letters,
    read_named_tables,
    read_topic,
)
from tidegate.pipeline.definitions.source import KeyFormat, read_key_format
from tidegate.pipeline.definitions.toml import TomlTable, read_path, read_paths
from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.ingest.connector import SourceDefinition
from tidegate.pipeline.ingest.encoding import NOT_WITHOUT_ENCODING, read_encoding
from tidegate.pipeline.ingest.payloads import (
    AddedField,
    PayloadForm,
    PayloadMapping,
    RecordPart,
)

KINDS = {
    "file": "ingest",
    "kafka": "kafka",
    "mqtt": "mqtt",
    "nats": "nats",
    "postgres": "postgres",
    "rabbitmq": "rabbitmq",
    "redis": "ingest",
    "sparkplug": "sparkplug",
    "websocket": "websocket",
}
"""The kinds of sources, each a module of `pipeline.ingest.sources`, and the extra of each."""
KIND_WITH_KEYS = "kafka"
"""The kind whose keys are written by a producer, who alone knows their format."""

SOURCE = 'a table such as {kind = "mqtt", address = "mqtt://127.0.0.1:1883", subscribe = ["a/#"]}'
SINK = 'a table such as {topic = "sensors"}'
FORMS = ", ".join(PayloadForm)
PARTS = "channel, channel/N (a level, from 0), key, timestamp or position"
_PART = re.compile(r"(key|timestamp|position|channel)(?:(?<=channel)/([0-9]{1,2}))?")
NO_FORMS = {
    "avro": 'an encoding: write encoding = "avro"',
    "protobuf": 'an encoding: write encoding = "protobuf"',
    "sparkplug": 'a kind of source: write kind = "sparkplug" in its table',
}
NOT_HERE = {
    "interval": "subscribers choose their interval; tidegate pipeline conflates before a topic",
    "filter": "subscribers filter; tidegate pipeline filters before a topic",
    "format": "is called payload",
    **NOT_WITHOUT_ENCODING,
}


@dataclass(frozen=True, slots=True)
class IngestDefinition:
    """One `[ingest.NAME]`: a source, how its records become messages, and their topic.

    `spec` is the topic's key, None where the definition names none: then it is that of the topic,
    or the topic is made without one.
    """

    name: str
    gateway: str
    source: SourceDefinition
    topic: str
    dead_letters: str
    spec: KeySpec | None
    mapping: PayloadMapping
    description: str

    @property
    def producer(self) -> str:
        """The name of the producer, with a part that differs by source.

        The numbers of one source would be taken for repetitions of another's.
        """
        digest = hashlib.blake2b(self.source.label.encode(), digest_size=4).hexdigest()
        return f"tidegate.ingest.{self.name}.{digest}"


def read_definitions(path: Path, gateway: str | None = None) -> list[IngestDefinition]:
    """Read the sources of a file, in its order; a `gateway` replaces the file's own.

    Raises:
        DefinitionInvalid: one line with the file, the place and what was expected.
        ExtraMissing: the library of a source is not installed.
        UsageInvalid: `gateway` is no address.
    """
    address, tables = read_named_tables(path, "ingest", gateway)
    found = [_definition(name, table, address, path.parent) for name, table in tables]
    return _with_shared_keys(path.name, found)


def _with_shared_keys(file: str, definitions: list[IngestDefinition]) -> list[IngestDefinition]:
    """Give a definition without a key that of another one of its topic.

    Otherwise the key would depend on which of them creates the topic.

    Raises:
        DefinitionInvalid: two definitions of a topic have different keys, or a key of several
            fields is to be the text of a broker's key.
    """
    named: dict[str, IngestDefinition] = {}
    for each in definitions:
        first = named.setdefault(each.topic, each) if each.spec is not None else each
        if first.spec != each.spec:
            raise DefinitionInvalid(
                f"{file}: {first.name} and {each.name} fill the topic {each.topic} "
                "with different keys"
            )
    found = [
        replace(each, spec=named[each.topic].spec) if each.topic in named else each
        for each in definitions
    ]
    for each in found:
        is_text = each.mapping.key_format is KeyFormat.TEXT
        if is_text and each.spec is not None and len(each.spec.paths) > 1:
            raise DefinitionInvalid(
                f"{file}: ingest.{each.name}.key_format: text is the key of one field, and the key "
                f"of {each.topic} has {len(each.spec.paths)}: expected json"
            )
    return found


def _definition(name: str, table: TomlTable, gateway: str, folder: Path) -> IngestDefinition:
    sink = table.table("sink", SINK)
    topic = read_topic(sink)
    sink.finish()
    definition = IngestDefinition(
        name=name,
        gateway=gateway,
        source=read_source(table.table("source", SOURCE), folder),
        topic=topic,
        dead_letters=read_dead_letters(table, topic, ".dead"),
        spec=read_paths(table, "key") if table.has("key") else None,
        mapping=_mapping(table, folder),
        description=table.text("description", default=f"Filled by the ingest {name}"),
    )
    if definition.mapping.key_format is not None and definition.source.kind != KIND_WITH_KEYS:
        raise DefinitionInvalid(
            f"{table.where('key_format')}: only with a source of kind {KIND_WITH_KEYS}, "
            "whose messages have keys"
        )
    table.finish(NOT_HERE)
    return definition


def read_source(table: TomlTable, folder: Path) -> SourceDefinition:
    """Read the table `source`; relative paths are below `folder`.

    Raises:
        ExtraMissing: its library is not installed.
    """
    module = module_of_kind(table, KINDS, "tidegate.pipeline.ingest.sources")
    source: SourceDefinition = module.read_source(table, folder)
    table.finish()
    return source


def _mapping(table: TomlTable, folder: Path) -> PayloadMapping:
    form = table.text("payload", default=PayloadForm.JSON)
    if form in NO_FORMS:
        raise DefinitionInvalid(f"{table.where('payload')}: {form} is {NO_FORMS[form]}")
    if form not in set(PayloadForm):
        raise table.wrong("payload", f"one of {FORMS}", form)
    has_value = table.has("value")
    if has_value and form in (PayloadForm.TEXT, PayloadForm.BYTES):
        raise DefinitionInvalid(f"{table.where('value')}: only with a payload of JSON")
    value = read_path(table, "value", "a field path such as /data") if has_value else None
    new_decoder = read_encoding(table, PayloadForm(form), folder)
    return PayloadMapping(
        PayloadForm(form), value, _fields(table), new_decoder, read_key_format(table)
    )


def _fields(table: TomlTable) -> dict[str, AddedField]:
    if not table.has("fields"):
        return {}
    fields = table.table("fields", 'a table such as {sensor = "channel/1"}')
    added: dict[str, AddedField] = {}
    for name in fields.left:
        text = fields.text(name, expected=PARTS)
        found = _PART.fullmatch(text)
        if found is None:
            raise fields.wrong(name, PARTS, text)
        level = None if found[2] is None else int(found[2])
        added[name] = AddedField(RecordPart(found[1]), level)
    return added
