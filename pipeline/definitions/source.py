"""The table `source`: where a stream's messages come from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

from tidegate.keys.text.bookmark import START, split_bookmark
from tidegate.pipeline.definitions.toml import TOPIC, TomlTable, place_of
from tidegate.pipeline.errors import DefinitionInvalid

# --- Redis, Kafka, and generated rows

# Forms are checked here, before Spark starts: what a library says of them comes from inside a task.
REDIS_ADDRESS = re.compile(r"(redis|rediss|unix)://\S+")
ENTRY_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")  # two numbers of 64 bits
BROKERS = re.compile(r"[^\s,:]+:[0-9]{1,5}(,[^\s,:]+:[0-9]{1,5})*")
SPARK_PREFIX = "kafka."  # before the names of options in Spark; no client has such an option
KAFKA_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")  # the legal names, kafka.common.internals.Topic
EPOCH, NOW = "epoch (the earliest)", "now (the latest)"
BEGINNINGS = f"{EPOCH} or {NOW}"
"""What `from` may say, with the words that Kafka has for it."""
VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+[A-Za-z0-9.-]*")
ROWS_PER_SECOND_MAX = 1_000_000


def redis_place(address: str) -> str:
    """Return the address of a Redis without password and options, but with its database."""
    # It goes before the one of the path, and is the only way to name one with a socket.
    database = parse_qs(urlsplit(address).query).get("db", [])
    return f"{place_of(address)} db {database[0]}" if database else place_of(address)


@dataclass(frozen=True, slots=True)
class RedisSource:
    """A Redis stream of others, read from `start` (`epoch`, `now` or an entry's id) on.

    `field` holds the JSON text of a message; without it an entry's fields are one JSON object.
    """

    address: str
    stream: str
    start: str
    field: str | None
    rows_per_batch: int | None
    topic: ClassVar[None] = None

    @property
    def label(self) -> str:
        """The name in a checkpoint, without the password."""
        return f"redis {redis_place(self.address)} stream {self.stream}"

    @classmethod
    def read(cls, table: TomlTable, stream: TomlTable, folder: Path) -> RedisSource:
        """Read it from its table."""
        expected = "an address such as redis://127.0.0.1:6379/0"
        start = table.text("from", default=START)
        if start not in {START, "now"} and not ENTRY_ID.fullmatch(start):
            raise table.wrong("from", f"{EPOCH}, {NOW} or the id of an entry", start)
        return cls(
            address=table.secret("address", REDIS_ADDRESS, expected),
            stream=table.checked("stream", str, "the key of a Redis stream"),
            start=start,
            field=table.text("field", default="") or None,
            rows_per_batch=stream.count("rows_per_batch"),
        )


class KeyFormat(StrEnum):
    """How a broker's keys are written.

    TEXT: the key is the text of the topic's one key field. JSON: an object with the key's fields,
    an array of them, or the value of one.
    """

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A topic of Kafka, read from `start` (`epoch`, `now`) on.

    `connector` is the version of Spark's Kafka connector, or the folder of its jars; None is
    Spark's own version. `options` go to Kafka's clients. `key_format` is how the keys of tombstones
    are written; None where the definition does not say.
    """

    brokers: str
    kafka_topic: str
    start: str
    connector: str | Path | None
    options: tuple[tuple[str, str], ...]
    rows_per_batch: int | None
    key_format: KeyFormat | None = None
    topic: ClassVar[None] = None

    @property
    def label(self) -> str:
        """The name in a checkpoint, without brokers: these come and go."""
        return f"kafka topic {self.kafka_topic}"

    @classmethod
    def read(cls, table: TomlTable, stream: TomlTable, folder: Path) -> KafkaSource:
        """Read it from its table; a relative folder of jars is below `folder`."""
        start = table.text("from", default=START)
        if start not in {START, "now"}:
            raise table.wrong("from", BEGINNINGS, start)
        return cls(
            brokers=table.checked("brokers", BROKERS.fullmatch, "brokers such as 127.0.0.1:9092"),
            kafka_topic=table.checked("topic", KAFKA_TOPIC.fullmatch, "the name of a Kafka topic"),
            start=start,
            connector=_connector(table, folder),
            options=read_kafka_options(table),
            rows_per_batch=stream.count("rows_per_batch"),
            key_format=read_key_format(table),
        )


@dataclass(frozen=True, slots=True)
class RateSource:
    """Made rows for trying out: `rows_per_second` over `keys` symbols, chosen by `seed`."""

    rows_per_second: int
    keys: int
    seed: int
    topic: ClassVar[None] = None

    @property
    def label(self) -> str:
        """The name of the source in a checkpoint."""
        return f"rate {self.rows_per_second}/s of {self.keys} keys, seed {self.seed}"

    @classmethod
    def read(cls, table: TomlTable, stream: TomlTable, folder: Path) -> RateSource:
        """Read it from its table."""
        rows = table.count("rows_per_second", ROWS_PER_SECOND_MAX)
        if rows is None:
            raise table.missing("rows_per_second", "how many rows are made")
        return cls(rows, keys=table.count("keys") or 100, seed=table.count("seed") or 1)


def _connector(table: TomlTable, folder: Path) -> str | Path | None:
    text = table.text("connector", default="")
    # A folder may look like a version; name it with a slash then.
    if not text or VERSION.fullmatch(text):
        return text or None
    jars = (folder / text).resolve()
    if not any(jars.glob("*.jar")):
        raise table.wrong("connector", "a version such as 4.1.0, or a folder of jars", text)
    return jars


def read_key_format(table: TomlTable) -> KeyFormat | None:
    """Take the optional field `key_format` from a table; None where it is left out."""
    if not table.has("key_format"):
        return None
    found = table.text("key_format")
    if found not in set(KeyFormat):
        raise table.wrong("key_format", "text or json", found)
    return KeyFormat(found)


def read_kafka_options(table: TomlTable) -> tuple[tuple[str, str], ...]:
    """Read options of a Kafka client, by the client's own names."""
    options = table.raw("options")
    if options is None:
        return ()
    # Do not show a value: options of Kafka's clients may be passwords.
    if not isinstance(options, dict) or not all(isinstance(each, str) for each in options.values()):
        expected = 'a table of texts, such as {"security.protocol" = "SSL"}'
        raise DefinitionInvalid(f"{table.where('options')}: expected {expected}")
    for name in options:
        if name.startswith(SPARK_PREFIX):
            expected = f"{name.removeprefix(SPARK_PREFIX)} instead of {name}"
            raise DefinitionInvalid(
                f"{table.where('options')}: expected names of Kafka's clients, {expected}"
            )
    return tuple(sorted(options.items()))


# --- files: their format and columns

# Types whose values have one text in JSON. A nested type would need a schema language of its own.
COLUMN_TYPE = re.compile(
    r"string|boolean|int|long|float|double|date|timestamp|decimal\([0-9]{1,2},[0-9]{1,2}\)"
)
COLUMN_TYPES = "one of string, boolean, int, long, float, double, date, timestamp, decimal(10,2)"


_PACKED = re.compile(r"\.(gz|bz2|zst)$")
# Such an option would be in Spark's plan and its event log.
_SECRET = re.compile("key|secret|token|password|credential|signature", re.IGNORECASE)


class FileFormat(StrEnum):
    """The format of a file; NDJSON and CSV may be compressed."""

    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"

    @classmethod
    def of_name(cls, pattern: str) -> FileFormat:
        """Return the format that a path's ending names; NDJSON if it names none."""
        ending = Path(_PACKED.sub("", pattern)).suffix
        return {".csv": cls.CSV, ".parquet": cls.PARQUET}.get(ending, cls.NDJSON)


@dataclass(frozen=True, slots=True)
class FilesSource:
    """Files matching `pattern`; `topic` is what the sink names as its source, if any.

    `schema` are columns and their types, as Spark spells them; empty where the files say them.
    `arrow` are options with which tasks open an address; None where only Spark reaches it.
    """

    pattern: str
    topic: str | None = None
    files_per_batch: int | None = None
    format: FileFormat = FileFormat.NDJSON
    schema: tuple[tuple[str, str], ...] = ()
    delimiter: str = ","
    has_header: bool = True
    arrow: tuple[tuple[str, str], ...] | None = None

    @property
    def label(self) -> str:
        """The name of the source in a checkpoint."""
        kind = "" if self.format is FileFormat.NDJSON else f"{self.format} "
        return f"{kind}files {self.pattern}"

    @classmethod
    def read(cls, table: TomlTable, stream: TomlTable, folder: Path) -> FilesSource:
        """Read it from its table; a relative path is below `folder`."""
        pattern = table.checked("path", str.strip, "a path or pattern, such as in/*.ndjson")
        if stream.says("time", "published"):
            raise DefinitionInvalid(f"{stream.where('time')}: files have no time of publication")
        content = _format(table, pattern)
        is_csv = content is FileFormat.CSV
        has_header = table.flag("header", default=True) if is_csv else True
        # NDJSON keeps each line as it is: there are no columns to name.
        schema = () if content is FileFormat.NDJSON else _schema(table)
        # Without names Spark would call the columns _c0, _c1: no key is called so.
        if not has_header and not schema:
            raise table.missing("schema", "the columns of files without a header")
        return cls(
            # Absolute, for it is a part of the checkpoint's identity, and Spark has its own folder.
            pattern=pattern if "://" in pattern else str(folder.resolve() / pattern),
            topic=_topic(table) if table.has("topic") else None,
            files_per_batch=stream.count("files_per_batch"),
            format=content,
            schema=schema,
            delimiter=_delimiter(table) if is_csv else ",",
            has_header=has_header,
            arrow=_arrow(table) if table.has("arrow") else None,
        )


def _topic(table: TomlTable) -> str:
    return table.checked("topic", TOPIC.fullmatch, "a topic name")


def _format(table: TomlTable, pattern: str) -> FileFormat:
    text = table.text("format", default=FileFormat.of_name(pattern))
    if text not in set(FileFormat):
        raise table.wrong("format", "ndjson, csv or parquet", text)
    return FileFormat(text)


def _arrow(table: TomlTable) -> tuple[tuple[str, str], ...]:
    expected = 'texts without secrets, such as {region = "eu-west-1"}, or {}'
    options = table.raw("arrow")
    # Do not show the value: it may be a secret.
    if not isinstance(options, dict) or not all(
        isinstance(value, str) and not _SECRET.search(name) for name, value in options.items()
    ):
        raise DefinitionInvalid(f"{table.where('arrow')}: expected {expected}")
    return tuple(sorted(options.items()))


def _delimiter(table: TomlTable) -> str:
    delimiter = table.text("delimiter", default=",")
    # Spark's parser would take these for quotes, escapes and the ends of lines.
    if len(delimiter) != 1 or delimiter in '"\\\r\n':
        raise table.wrong("delimiter", "one character, such as ; or \\t", delimiter)
    return delimiter


def _schema(table: TomlTable) -> tuple[tuple[str, str], ...]:
    """Read the columns in their order."""
    columns = table.take("schema", dict, 'columns, such as {symbol = "string"}') or {}
    for column, kind in columns.items():
        if not isinstance(kind, str) or not COLUMN_TYPE.fullmatch(kind):
            raise table.wrong(f"schema.{column}", COLUMN_TYPES, kind)
    return tuple(columns.items())


# --- a gateway topic, and the choice among all kinds

ADDRESS = re.compile(r"(https?|redis|rediss|unix)://\S+")
REDIS_PREFIX = "tidegate"
SOURCE = 'a table such as {kind = "tidegate", topic = "ticks"}'
BOUNDS = {
    "rows_per_batch": "only with a source of kind tidegate, redis or kafka",
    "files_per_batch": "only with a source of kind files",
}
NOT_HERE = {
    **dict.fromkeys(
        (*BOUNDS, "filter", "key", "record_key", "interval", "time"),
        "belongs beside source, not in it",
    ),
    "arrow": "only with files",
    "schema": "only with files of csv or parquet",
    "header": "only with files of csv",
    "delimiter": "only with files of csv",
}


@dataclass(frozen=True, slots=True)
class TopicSource:
    """A gateway topic, read from `start` (`epoch`, `now` or a bookmark).

    `address`: of another gateway than the file's, or of the Redis that gateways share, where the
    names of keys begin with `prefix`.
    """

    topic: str
    start: str
    rows_per_batch: int | None
    address: str | None = None
    prefix: str = REDIS_PREFIX

    @property
    def label(self) -> str:
        """The name of the source in a checkpoint."""
        # Without the address: gateway and Redis give the same bookmarks, which name the epoch.
        return f"topic {self.topic}"

    @classmethod
    def read(cls, table: TomlTable, stream: TomlTable, folder: Path) -> TopicSource:
        """Read it from its table."""
        return cls(
            topic=table.checked("topic", TOPIC.fullmatch, "a topic name"),
            start=_start(table),
            rows_per_batch=stream.count("rows_per_batch"),
            address=_address(table) if table.has("address") else None,
            prefix=_prefix(table),
        )

    def gateway(self, own: str) -> str:
        """Return the gateway of the topic: `own`, the stream's, unless `address` is one."""
        address = self.address or ""
        return address.rstrip("/") if address.startswith(("http:", "https:")) else own


Source = TopicSource | FilesSource | RedisSource | KafkaSource | RateSource
KINDS: dict[str, Callable[[TomlTable, TomlTable, Path], Source]] = {
    "tidegate": TopicSource.read,
    "redis": RedisSource.read,
    "kafka": KafkaSource.read,
    "files": FilesSource.read,
    "rate": RateSource.read,
}


def read_source(table: TomlTable, stream: TomlTable, folder: Path) -> Source:
    """Read a stream's source; `stream` has the bounds of a batch, paths are below `folder`."""
    expected = "tidegate, redis, kafka, files or rate"
    kind = table.text("kind", expected=expected)
    if kind not in KINDS:
        raise table.wrong("kind", expected, kind)
    source = KINDS[kind](table, stream, folder)
    table.finish(NOT_HERE)
    return source


def redis_of(source: Source) -> str | None:
    """Return the address of the Redis that a source is read from, if it is one."""
    address = source.address if isinstance(source, TopicSource | RedisSource) else None
    return address if address is not None and REDIS_ADDRESS.fullmatch(address) else None


def _address(table: TomlTable) -> str:
    expected = "an address such as http://127.0.0.1:8080 or redis://127.0.0.1:6379/0"
    return table.secret("address", ADDRESS, expected)


def _prefix(table: TomlTable) -> str:
    prefix = table.text("prefix", default=REDIS_PREFIX)
    # Braces delimit the hash tag of a key: in the prefix they would end it early.
    if not prefix or set("{}") & set(prefix):
        raise table.wrong("prefix", "the redis_prefix of the gateways, without braces", prefix)
    return prefix


def _start(table: TomlTable) -> str:
    start = table.text("from", default=START)
    if start not in {START, "now"}:
        try:
            split_bookmark(start)
        except ValueError:
            raise table.wrong("from", f"{EPOCH}, {NOW} or a bookmark", start) from None
    return start
