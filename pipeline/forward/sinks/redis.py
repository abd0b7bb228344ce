"""A Redis stream, with an entry for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec

from tidegate.pipeline.connection import reported_retry
from tidegate.pipeline.definitions.source import REDIS_ADDRESS, redis_place
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.forward.target import Patience, Refusal, Row
from tidegate.pipeline.redis_server import RedisServer

TEXTS = ("topic", "op", "bookmark", "reason", "first", "last")
"""Fields of an envelope that are strings; the others are sent as JSON."""


@dataclass(frozen=True, slots=True)
class RedisSink:
    """The table `sink` of kind redis; `entries_max` is None for a stream without a bound."""

    address: str
    stream: str
    entries_max: int | None
    kind: ClassVar[str] = "redis"
    keeps_position: ClassVar[bool] = False
    knows_message_ids: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The address without its password, and the stream."""
        return f"redis {redis_place(self.address)} stream {self.stream}"

    def target(self, name: str, patience: Patience) -> RedisTarget:
        """Return a target that is not connected yet."""
        return RedisTarget(self, patience)


def read_sink(table: TomlTable, folder: Path) -> RedisSink:
    """Read the table."""
    expected = "an address such as redis://127.0.0.1:6379/0"
    return RedisSink(
        address=table.secret("address", REDIS_ADDRESS, expected),
        stream=table.checked("stream", str, "the key of a Redis stream"),
        entries_max=table.count("entries_max"),
    )


class RedisTarget:
    """Adds the rows of a batch in one transaction (a `Target`)."""

    def __init__(self, sink: RedisSink, patience: Patience) -> None:
        self._sink = sink
        self._server = RedisServer(
            sink.address, reported_retry(sink.address, patience.say, patience.pause)
        )

    def open(self) -> None:
        """Connect.

        Raises:
            GatewayUnreachable, GatewayRefused: Redis does not answer, or says no.
        """
        self._server.ask("PING")

    def write(self, rows: Sequence[Row]) -> list[Refusal]:
        """Add an entry for each row; a transaction whose answer is lost is sent again."""
        sink = self._sink
        bound = () if sink.entries_max is None else ("MAXLEN", "~", sink.entries_max)
        self._server.ask_together(
            *(("XADD", sink.stream, *bound, "*", *entry_of(row)) for row in rows)
        )
        return []

    def close(self) -> None:
        """Close the connection."""
        self._server.close()


def entry_of(row: Row) -> list[str | bytes]:
    """Return names and values of an entry, one after the other."""
    words: list[str | bytes] = []
    for name, text in row.fields.items():
        value = msgspec.json.decode(text, type=str | None) if name in TEXTS else bytes(text)
        if value is not None:  # as the bookmark of a row that was polled
            words += [name, value]
    return words
