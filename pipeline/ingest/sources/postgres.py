"""Tables of PostgreSQL by logical replication, read by the positions of commits in its log.

The first start reads the rows that are there, from the snapshot with which a temporary replication
slot begins, and then copies that slot to a lasting one: so the lasting slot is there only once the
gateway has all rows. Rows that come twice, because the first start was killed, come in full again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tidegate.pipeline.definitions.toml import TomlTable, place_of
from tidegate.pipeline.errors import EndpointRefused, EndpointUnavailable, SourceLost
from tidegate.pipeline.ingest.connector import (
    BYTES_MAX,
    RECORDS_MAX,
    SourceBatch,
    SourceRecord,
    Through,
)
from tidegate.pipeline.ingest.sources.postgres_changes import (
    ChangeDecoder,
    Column,
    Table,
    lsn_text,
)
from tidegate.pipeline.ingest.sources.postgres_stream import ReplicationStream
from tidegate.pipeline.ingest.sources.shared import NOW, read_start

ADDRESS = re.compile(r"postgres(ql)?://\S+")
PUBLICATION = re.compile(r"[^\s\"',]{1,63}")
SLOT = re.compile(r"[a-z0-9_]{1,63}")  # the legal names
CONNECT_SECONDS_MAX = 10
FIRST_LSN = 0x100000
"""A log begins after a segment of 1 MiB or more: lower numbers are batches of the first rows."""
SLOT_LOST = "55000"  # object_not_in_prerequisite_state

TABLES = """
SELECT p.schemaname, p.tablename, to_jsonb(p) ->> 'rowfilter',
       array_agg(a.attname::text ORDER BY a.attnum),
       array_agg(a.atttypid::bigint ORDER BY a.attnum),
       array_agg(i.indrelid IS NOT NULL ORDER BY a.attnum)
FROM pg_publication_tables p
JOIN pg_class c ON c.relname = p.tablename
JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = p.schemaname
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
     AND a.attgenerated = '' AND coalesce(to_jsonb(p) -> 'attnames' ? a.attname, true)
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY (i.indkey)
WHERE p.pubname = %s
GROUP BY 1, 2, 3 ORDER BY 1, 2
"""
SLOTS = "SELECT to_jsonb(s) ->> 'wal_status' FROM pg_replication_slots s WHERE slot_name = %s"


@dataclass(frozen=True, slots=True)
class PostgresTables:
    """The table `source` of kind postgres; `slot` is None for one of the definition's name."""

    address: str
    publication: str
    slot: str | None
    start: str
    kind: ClassVar[str] = "postgres"
    separator: ClassVar[str] = "."

    @property
    def label(self) -> str:
        """The server without user and password, the database and the publication."""
        return f"postgres {self.server} publication {self.publication}"

    @property
    def server(self) -> str:
        """Server and database without user, password and parameters."""
        return place_of(self.address)

    def connector(self, name: str) -> PostgresConnector:
        """Return a connector that is not connected yet."""
        own = "tidegate_" + name.lower().replace("-", "_")
        return PostgresConnector(self, self.slot or own[:63])


def read_source(table: TomlTable, folder: Path) -> PostgresTables:
    """Read the table."""
    expected = "an address such as postgresql://USER:PASSWORD@127.0.0.1:5432/DATABASE"
    name = "the name of a publication"
    slot = "the name of a replication slot: a-z 0-9 _"
    return PostgresTables(
        address=table.secret("address", ADDRESS, expected, conninfo_to_dict, psycopg.Error),
        publication=table.checked("publication", PUBLICATION.fullmatch, name),
        slot=table.checked("slot", SLOT.fullmatch, slot) if table.has("slot") else None,
        start=read_start(table),
    )


class PublishedTable:
    """A table of a publication, with the rows and columns that it publishes.

    Args:
        row_filter: an SQL condition; None for all rows.
        names: of the columns.
        types: of the columns, as object ids.
        in_key: whether columns are part of the primary key.
    """

    def __init__(
        self,
        schema: str,
        name: str,
        row_filter: str | None,
        names: Sequence[str],
        types: Sequence[int],
        in_key: Sequence[bool],
    ) -> None:
        columns = [Column(*each) for each in zip(names, types, in_key, strict=True)]
        self.table = Table(f"{schema}.{name}", columns)
        self.primary_key = [each.name for each in columns if each.is_key]
        where = f" WHERE {row_filter}" if row_filter else ""
        rows = f"SELECT {', '.join(map(_quoted, names))} FROM {_quoted(schema)}.{_quoted(name)}"
        self.copy_out = f"COPY ({rows}{where}) TO STDOUT".encode()


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


class PostgresConnector:
    """Reads rows that are there, and then transactions after the gateway's (a `Connector`)."""

    def __init__(self, source: PostgresTables, slot: str) -> None:
        self._source = source
        self._slot = slot
        self._session: psycopg.Connection[Any] | None = None
        self._replication: ReplicationStream | None = None
        self._cluster = ""
        self._rows: Generator[SourceBatch] | None = None
        self._decoder = ChangeDecoder({})
        self._read_to = 0

    def open(self, through: Through) -> None:
        """Connect, and find where to begin.

        Raises:
            EndpointUnavailable: the server does not answer.
            EndpointRefused: it refuses, or has no such publication.
            SourceLost: the replication slot is gone, or no longer has what follows.
        """
        with self._sentences():
            self._session = psycopg.connect(self._conninfo(), autocommit=True)
            self._replication = ReplicationStream(self._conninfo(replication="database"))
            self._cluster, _, log_end, _ = self._replication.ask("IDENTIFY_SYSTEM")
            tables = self._published_tables()
            known, has_slot = through(self._cluster), self._has_slot()
            if known is not None and known >= FIRST_LSN:
                self._require_log(known, has_slot, log_end)
            is_new = known is None or not has_slot
            if self._source.start != NOW and is_new:
                # The gateway has no rows, or not all of those that were there at first.
                if has_slot:
                    self._replication.ask(f'DROP_REPLICATION_SLOT "{self._slot}"')
                self._rows = self._read_rows(self._begin_rows(), tables, known or 0)
                return
            if not has_slot:
                self._replication.ask(f'CREATE_REPLICATION_SLOT "{self._slot}" LOGICAL pgoutput')
            self._begin_changes(known or 0)

    def read(self, seconds: float) -> SourceBatch | None:
        """Return the next rows or transactions, once there are some.

        Raises:
            EndpointUnavailable: the connection is lost.
            EndpointRefused: the server refuses.
            SourceLost: the slot no longer has what follows.
        """
        with self._sentences():
            if self._rows is not None:
                batch = next(self._rows, None)
                if batch is not None:
                    return batch
                self._rows = None
                self._begin_changes(0)
            return self._read_changes(seconds)

    def acknowledge(self, batch: SourceBatch) -> None:
        """Let the server forget the transactions."""
        if self._rows is None:
            with self._sentences():
                self._stream.confirm(self._read_to)

    def close(self) -> None:
        """Close the connections."""
        with suppress(psycopg.Error):
            if self._rows is not None:
                self._rows.close()
        for each in (self._session, self._replication):
            if each is not None:
                each.close()

    @property
    def _stream(self) -> ReplicationStream:
        assert self._replication is not None
        return self._replication

    @property
    def _queries(self) -> psycopg.Connection[Any]:
        assert self._session is not None
        return self._session

    def _conninfo(self, **more: str) -> str:
        return make_conninfo(
            self._source.address,
            client_encoding="UTF8",
            connect_timeout=CONNECT_SECONDS_MAX,
            application_name="tidegate ingest",
            **more,
        )

    # Where to begin

    def _published_tables(self) -> list[PublishedTable]:
        name = self._source.publication
        query = "SELECT 1 FROM pg_publication WHERE pubname = %s"
        if self._queries.execute(query, (name,)).fetchone() is None:
            raise EndpointRefused(
                f"there is no publication {name} at {self._source.server}: "
                f"CREATE PUBLICATION {name} FOR TABLE ... makes one"
            )
        rows = self._queries.execute(TABLES, (name,)).fetchall()
        found = [PublishedTable(*row) for row in rows]
        self._decoder = ChangeDecoder({each.table.channel: each.primary_key for each in found})
        return found

    def _has_slot(self) -> bool:
        found = self._queries.execute(SLOTS, (self._slot,)).fetchone()
        if found is not None and found[0] == "lost":
            raise self._lost()
        return found is not None

    def _require_log(self, known: int, has_slot: bool, log_end: str) -> None:
        """Raise SourceLost if the server no longer has what follows a commit."""
        if not has_slot:
            raise SourceLost(
                f"there is no replication slot {self._slot} at {self._source.server} any more, so "
                "changes may be gone; another name of the ingest reads what is there"
            )
        if lsn_of(log_end) < known:
            raise SourceLost(
                f"the log of {self._source.server} ends at {log_end}, and {lsn_text(known)} was "
                "published: an older state was restored; another name of the ingest reads it"
            )

    def _lost(self) -> SourceLost:
        return SourceLost(
            f"replication slot {self._slot} at {self._source.server} no longer has what follows: "
            "max_slot_wal_keep_size was too small for the outage; drop the slot, and another name "
            "of the ingest reads what is there"
        )

    # Rows that are there at first

    def _begin_rows(self) -> str:
        """Begin a transaction that sees what a new temporary slot begins after; return its name."""
        first = f"{self._slot[:57]}_first"
        create = f'CREATE_REPLICATION_SLOT "{first}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT'
        _, _, snapshot, _ = self._stream.ask(create)
        self._queries.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._queries.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
        return first

    def _read_rows(
        self, first: str, tables: Sequence[PublishedTable], number: int
    ) -> Generator[SourceBatch]:
        """Read all rows; each batch has a number of its own, above those of an earlier attempt."""
        records: list[SourceRecord] = []
        size = 0
        for channel, payload in self._rows_of(tables):
            position = f"first rows, batch {number + 1}"
            records.append(SourceRecord(payload, number + 1, position, channel=channel))
            size += len(payload)
            if len(records) == RECORDS_MAX or size >= BYTES_MAX:
                yield SourceBatch(records, self._cluster)
                number += 1
                records, size = [], 0
        if records:
            yield SourceBatch(records, self._cluster)
        self._queries.execute("COMMIT")
        # Here the gateway has all of them. A start that finds this slot reads no rows again.
        copy = "SELECT pg_copy_logical_replication_slot(%s, %s, false)"
        self._queries.execute(copy, (first, self._slot))
        self._stream.ask(f'DROP_REPLICATION_SLOT "{first}"')

    def _rows_of(self, tables: Sequence[PublishedTable]) -> Iterator[tuple[str, bytes]]:
        for each in tables:
            table = each.table
            with self._queries.cursor() as cursor, cursor.copy(each.copy_out) as copy:
                for row in copy.rows():
                    texts = [None if text is None else text.encode() for text in row]
                    yield table.channel, table.row(table.values(texts))

    # Changes

    def _begin_changes(self, known: int) -> None:
        after = lsn_text(known if known >= FIRST_LSN else 0)
        publication = self._source.publication
        self._stream.begin(
            f'START_REPLICATION SLOT "{self._slot}" LOGICAL {after} '
            f"(proto_version '1', publication_names '\"{publication}\"')"
        )

    def _read_changes(self, seconds: float) -> SourceBatch | None:
        """Return the transactions that have arrived; wait for the first one."""
        give_up_at = time.monotonic() + seconds
        records: list[SourceRecord] = []
        size = 0
        while len(records) < RECORDS_MAX and size < BYTES_MAX:
            left_s = 0.0 if records else max(0.0, give_up_at - time.monotonic())
            content = self._stream.receive(left_s)
            if content is None:
                break
            done = self._decoder.decode(content)
            if done is not None:
                records += done.records
                size += done.size
                self._read_to = done.end_lsn
        if records:
            return SourceBatch(records, self._cluster)
        if not self._decoder.is_within:
            self._stream.confirm_idle()
        return None

    # Errors

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """Raise what the server or the client says as a sentence."""
        try:
            yield
        except psycopg.Error as error:
            said = " ".join(str(error).split())
            if error.sqlstate == SLOT_LOST and "replication slot" in said:
                raise self._lost() from None
            kind = EndpointRefused if _is_refusal(error) else EndpointUnavailable
            raise kind(f"postgres {self._source.server}: {said}") from None


def lsn_of(text: str) -> int:
    """Return a position in the log from PostgreSQL's spelling of it."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def _is_refusal(error: psycopg.Error) -> bool:
    """Return whether the server has said no; one that ends or begins may soon say yes."""
    state = error.sqlstate
    if state is None:  # psycopg gives none for a connection that fails
        return "FATAL" in str(error) and "system is" not in str(error)
    return not state.startswith(("08", "57"))
