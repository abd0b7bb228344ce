"""Sources outside of the gateway that are no files: Redis, Kafka, and rows that are made up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from pipeline.bookmark import START
from pipeline.definitions.tomltable import TomlTable
from pipeline.errors import DefinitionInvalid

REDIS_ADDRESS = re.compile(r"(redis|rediss|unix)://\S+")
ENTRY_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
BROKERS = re.compile(r"[^\s,:]+:[0-9]{1,5}(,[^\s,:]+:[0-9]{1,5})*")
KAFKA_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+[A-Za-z0-9.-]*")
ROWS_PER_SECOND_MAX = 1_000_000


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
    def place(self) -> str:
        """What a checkpoint remembers of it: no password."""
        parts = urlsplit(self.address)
        return f"redis {parts.netloc.rpartition('@')[2]}{parts.path} stream {self.stream}"

    @classmethod
    def read(cls, table: TomlTable, stream: TomlTable, folder: Path) -> RedisSource:
        """From its table."""
        expected = "an address such as redis://127.0.0.1:6379/0"
        start = table.text("from", default=START)
        if start not in {START, "now"} and not ENTRY_ID.fullmatch(start):
            raise table.wrong("from", "epoch, now or the id of an entry", start)
        return cls(
            address=table.secret("address", REDIS_ADDRESS, expected),
            stream=table.checked("stream", str, "the key of a Redis stream"),
            start=start,
            field=table.text("field", default="") or None,
            rows_per_batch=stream.count("rows_per_batch"),
        )


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A topic of Kafka, read from `start` (`epoch`, `now`) on.

    `connector` is the version of Spark's Kafka connector, or the folder of its jars; None is
    Spark's own version. `options` are what clients of Kafka are told besides, `kafka.` before each.
    """

    brokers: str
    kafka_topic: str
    start: str
    connector: str | Path | None
    options: tuple[tuple[str, str], ...]
    rows_per_batch: int | None
    topic: ClassVar[None] = None

    @property
    def place(self) -> str:
        """What a checkpoint remembers of it; brokers come and go."""
        return f"kafka topic {self.kafka_topic}"

    @classmethod
    def read(cls, table: TomlTable, stream: TomlTable, folder: Path) -> KafkaSource:
        """From its table; a folder of jars is seen from `folder`."""
        start = table.text("from", default=START)
        if start not in {START, "now"}:
            raise table.wrong("from", "epoch or now", start)
        return cls(
            brokers=table.checked("brokers", BROKERS.fullmatch, "brokers such as 127.0.0.1:9092"),
            kafka_topic=table.checked("topic", KAFKA_TOPIC.fullmatch, "the name of a Kafka topic"),
            start=start,
            connector=_connector(table, folder),
            options=_options(table),
            rows_per_batch=stream.count("rows_per_batch"),
        )


@dataclass(frozen=True, slots=True)
class RateSource:
    """Made rows for trying out: `rows_per_second` over `keys` symbols, chosen by `seed`."""

    rows_per_second: int
    keys: int
    seed: int
    topic: ClassVar[None] = None

    @property
    def place(self) -> str:
        """What a checkpoint remembers of it."""
        return f"rate {self.rows_per_second}/s of {self.keys} keys, seed {self.seed}"

    @classmethod
    def read(cls, table: TomlTable, stream: TomlTable, folder: Path) -> RateSource:
        """From its table."""
        rows = table.count("rows_per_second", ROWS_PER_SECOND_MAX)
        if rows is None:
            raise table.missing("rows_per_second", "how many rows are made")
        return cls(rows, keys=table.count("keys") or 100, seed=table.count("seed") or 1)


def _connector(table: TomlTable, folder: Path) -> str | Path | None:
    text = table.text("connector", default="")
    if not text or VERSION.fullmatch(text):
        return text or None
    jars = (folder / text).resolve()
    if not any(jars.glob("*.jar")):
        raise table.wrong("connector", "a version such as 4.1.0, or a folder of jars", text)
    return jars


def _options(table: TomlTable) -> tuple[tuple[str, str], ...]:
    expected = 'texts, such as {"kafka.security.protocol" = "SSL"}'
    options = table.raw("options")
    if options is None:
        return ()
    # Never shown: Kafka's clients are told passwords in this way.
    if not isinstance(options, dict) or not all(map(_is_option, options, options.values())):
        raise DefinitionInvalid(f"{table.where('options')}: expected {expected}")
    return tuple(sorted(options.items()))


def _is_option(name: str, setting: object) -> bool:
    return name.startswith("kafka.") and isinstance(setting, str)
