"""The table `source`: where a stream's messages come from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidegate.keys.text.bookmark import START, split_bookmark
from tidegate.pipeline.definitions.external import FilesSource, KafkaSource, RateSource, RedisSource
from tidegate.pipeline.definitions.terms import TOPIC
from tidegate.pipeline.definitions.toml import TomlTable

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
        "stands beside source, not in it",
    ),
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
    def place(self) -> str:
        """What a checkpoint remembers of it."""
        return f"topic {self.topic}"

    @classmethod
    def read(cls, table: TomlTable, stream: TomlTable, folder: Path) -> TopicSource:
        """From its table."""
        return cls(
            topic=table.checked("topic", TOPIC.fullmatch, "a topic name"),
            start=_start(table),
            rows_per_batch=stream.count("rows_per_batch"),
            address=_address(table) if table.has("address") else None,
            prefix=_prefix(table),
        )

    def gateway(self, own: str) -> str:
        """The gateway that tells of the topic: `own`, the stream's, unless `address` is one."""
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
    """The source of a stream; `stream` has the bounds of a batch, paths are seen from `folder`."""
    expected = "tidegate, redis, kafka, files or rate"
    kind = table.text("kind", expected=expected)
    if kind not in KINDS:
        raise table.wrong("kind", expected, kind)
    source = KINDS[kind](table, stream, folder)
    table.finish(NOT_HERE)
    return source


def _address(table: TomlTable) -> str:
    expected = "an address such as http://127.0.0.1:8080 or redis://127.0.0.1:6379/0"
    return table.secret("address", ADDRESS, expected)


def _prefix(table: TomlTable) -> str:
    prefix = table.text("prefix", default=REDIS_PREFIX)
    if not prefix or set("{}") & set(prefix):
        raise table.wrong("prefix", "the redis_prefix of the gateways, without braces", prefix)
    return prefix


def _start(table: TomlTable) -> str:
    start = table.text("from", default=START)
    if start not in {START, "now"}:
        try:
            split_bookmark(start)
        except ValueError:
            raise table.wrong("from", "epoch, now or a bookmark", start) from None
    return start
