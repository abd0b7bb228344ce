"""A Redis stream of other programs, read by the ids of its entries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tidegate.keys.text.bookmark import START
from tidegate.pipeline.connection import AT_ONCE
from tidegate.pipeline.definitions.source import RedisSource
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import SourceLost
from tidegate.pipeline.ingest.connector import (
    SourceBatch,
    SourceRecord,
    Through,
)
from tidegate.pipeline.ingest.sources.shared import RECORDS_FIRST, next_count, read_skips_gaps
from tidegate.pipeline.redis_server import RedisServer
from tidegate.pipeline.sources.redis_entries import BEGINNING, Entries, Fields, as_json

SEQUENCE_BITS = 21
SEQUENCE_MAX = (1 << SEQUENCE_BITS) - 1
TIME_MAX = (1 << 63 - SEQUENCE_BITS) - 1  # of milliseconds: the year 2109
LAG_MAX = 10_000  # what is behind is counted by the server, so only so far


@dataclass(frozen=True, slots=True)
class RedisStream:
    """The table `source` of kind redis; its fields are those of a pipeline's, and one more.

    `skips_gaps`: entries that were trimmed before they were read are a dead letter, and no end.
    """

    source: RedisSource
    skips_gaps: bool = False
    kind: ClassVar[str] = "redis"
    separator: ClassVar[str] = ":"

    @property
    def label(self) -> str:
        """The address without its password, and the stream."""
        return self.source.label

    def connector(self, name: str) -> RedisConnector:
        """Return a connector that is not connected yet."""
        return RedisConnector(self)


def read_source(table: TomlTable, folder: Path) -> RedisStream:
    """Read the table."""
    # In a pipeline, a source has bounds of its batches next to it; here there are none.
    source = RedisSource.read(table, TomlTable({}, "", ""), folder)
    return RedisStream(source, read_skips_gaps(table))


class RedisConnector:
    """Reads entries after the one that the gateway has (a `Connector`).

    Nothing is written to Redis: the gateway knows the position.
    """

    def __init__(self, definition: RedisStream) -> None:
        self._source = definition.source
        self._skips_gaps = definition.skips_gaps
        self._server = RedisServer(self._source.address, AT_ONCE)
        self._entries = Entries(self._server, self._source.stream)
        self._after = BEGINNING
        self._was_there = True
        self._count = RECORDS_FIRST

    def open(self, through: Through) -> None:
        """Connect, and find where to begin.

        Raises:
            GatewayUnreachable, GatewayRefused: Redis does not answer, or says no.
            SourceLost: the entry from which to read is not there.
        """
        self._server.ask("PING")
        number = through("")
        if number is not None:
            self._after = id_of(number)
        elif self._source.start == "now":
            self._after = self._entries.last()
        elif self._source.start != START:
            self._after = self._source.start
            if not self._entries.can_resume_after(self._after):
                raise SourceLost(
                    f"Redis stream {self._source.stream} does not hold entry {self._after}, after "
                    "which it is to be read: it was deleted or trimmed, so messages may be gone; "
                    'from = "epoch" reads what is there'
                )
        if number is None:
            # The newest entry ever added may be deleted: all that follow it are there.
            self._was_there = self._entries.exists(self._after)

    def read(self, seconds: float) -> SourceBatch | None:
        """Return the entries that follow, once there is one.

        Raises:
            SourceLost: entries may have been trimmed before they were read.
        """
        source, after = self._source, self._after
        block_ms = max(1, int(seconds * 1_000))
        if not self._server.ask(
            "XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", source.stream, after
        ):
            return None
        # In one transaction: trimming in between would go unnoticed.
        last, page = self._server.ask_together(
            ("XRANGE", source.stream, after, after),
            ("XRANGE", source.stream, f"({after}", "+", "COUNT", self._count),
        )
        records = [self._record(at.decode(), fields) for at, fields in page]
        if not records:
            return None
        if not last and self._was_there:
            records.insert(0, self._gap(records[0]))
        self._after, self._was_there = records[-1].position, True
        lag = self._entries.step(self._after, "+", LAG_MAX)[0] if len(page) == self._count else 0
        self._count = next_count(records)
        return SourceBatch(records, lag=lag)

    def acknowledge(self, batch: SourceBatch) -> None:
        """Do nothing: the gateway's number is the position."""

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def _gap(self, following: SourceRecord) -> SourceRecord:
        """Return a dead letter for entries that may be gone before this one.

        Raises:
            SourceLost: the definition says so.
        """
        stream, after = self._source.stream, self._after
        said = f"Redis stream {stream} no longer holds entry {after}, which was read last"
        gone = "it was deleted or trimmed, so messages may be gone"
        if not self._skips_gaps:
            raise SourceLost(f'{said}: {gone}; gaps = "skip" continues with what is there')
        return SourceRecord(None, following.number, after, channel=stream, fault=f"{said}: {gone}")

    def _record(self, at: str, fields: Fields) -> SourceRecord:
        field = self._source.field
        payload = as_json(fields) if field is None else fields.get(field.encode(), b"")
        return SourceRecord(
            payload=payload,
            number=number_of(at),
            position=at,
            channel=self._source.stream,
            timestamp_ms=int(at.partition("-")[0]),
        )


def number_of(entry_id: str) -> int:
    """Return the number of an entry: milliseconds and sequence of its id in 63 bits.

    Raises:
        SourceLost: they have no room there.
    """
    time_ms, sequence = map(int, entry_id.split("-"))
    if time_ms > TIME_MAX or sequence > SEQUENCE_MAX:
        raise SourceLost(
            f"entry {entry_id} has no number: an id has at most {TIME_MAX} milliseconds and the "
            f"sequence {SEQUENCE_MAX}"
        )
    return time_ms << SEQUENCE_BITS | sequence


def id_of(number: int) -> str:
    """Return the id of the entry with a number."""
    return f"{number >> SEQUENCE_BITS}-{number & SEQUENCE_MAX}"
