"""Rows and changes of PostgreSQL as records: the messages of its output plugin `pgoutput`.

The messages are those of protocol version 1 (PostgreSQL's documentation, Logical Replication
Message Formats). Values are in the text form of their types there, as COPY writes them, so that the
rows that are there at first and those that change later look the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tidegate.pipeline.ingest.connector import SourceRecord

BOOL, JSON, JSONB = 16, 114, 3802
NUMBERS = frozenset({20, 21, 23, 26, 700, 701, 1700})
"""int8, int2, int4, oid, float4, float8, numeric."""
NO_NUMBERS = frozenset({b"NaN", b"Infinity", b"-Infinity"})
NULL = b"null"
MS_OF_2000 = 946_684_800_000
UNCHANGED = None
"""A large value that an update left as it was, so that PostgreSQL does not send it."""

Values = list[bytes | None]


def lsn_text(lsn: int) -> str:
    """Return a position in the log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _as_text(value: bytes) -> bytes:
    return msgspec.json.encode(value.decode(errors="replace"))


def _as_number(value: bytes) -> bytes:
    return _as_text(value) if value in NO_NUMBERS else value


def _as_bool(value: bytes) -> bytes:
    return b"true" if value == b"t" else b"false"


def _as_json(value: bytes) -> bytes:
    return value


def _converter(oid: int) -> Callable[[bytes], bytes]:
    if oid in NUMBERS:
        return _as_number
    return {BOOL: _as_bool, JSON: _as_json, JSONB: _as_json}.get(oid, _as_text)


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `is_key` if it is sent of a row that is deleted."""

    name: str
    oid: int
    is_key: bool


class Table:
    """A table, whose rows become JSON objects with a field for each column.

    Args:
        channel: its schema and name.
        columns: in the order of values.
        primary_key: names of columns; empty if there is none.
    """

    def __init__(
        self, channel: str, columns: Sequence[Column], primary_key: Iterable[str] = ()
    ) -> None:
        self.channel = channel
        self.columns = columns
        self._names = [msgspec.json.encode(each.name) + b":" for each in columns]
        self._converters = [_converter(each.oid) for each in columns]
        self._keys = [at for at, each in enumerate(columns) if each.is_key]
        names = set(primary_key)
        own = [at for at, each in enumerate(columns) if each.name in names]
        self._identity = own or self._keys

    def values(self, texts: Iterable[bytes | None]) -> Values:
        """Return the JSON texts of values in their text forms."""
        return [
            NULL if text is None else convert(text)
            for text, convert in zip(texts, self._converters, strict=True)
        ]

    def row(self, values: Values) -> bytes:
        """Return a row as a JSON object, without values that are not known."""
        return self._object(values, range(len(values)))

    def key(self, values: Values) -> bytes:
        """Return the columns that name a row as a JSON object."""
        return self._object(values, self._keys)

    def unknown(self, values: Values) -> list[str]:
        """Return the columns whose values were not sent."""
        return [
            each.name
            for each, value in zip(self.columns, values, strict=True)
            if value is UNCHANGED
        ]

    def is_same_row(self, one: Values, other: Values) -> bool:
        """Return whether two rows have the same primary key."""
        return all(one[at] == other[at] for at in self._identity)

    def _object(self, values: Values, places: Iterable[int]) -> bytes:
        fields = [self._names[at] + (values[at] or b"") for at in places if values[at]]
        return b"{" + b",".join(fields) + b"}"


@dataclass(slots=True)
class Transaction:
    """What a transaction changed.

    Attributes:
        lsn: position of its commit, which orders transactions.
        end_lsn: where the log continues after the commit.
        size: bytes of its payloads.
    """

    lsn: int
    timestamp_ms: int
    records: list[SourceRecord] = field(default_factory=list)
    end_lsn: int = 0
    size: int = 0

    def add(
        self, channel: str, payload: bytes | None, row_key: bytes | None = None, fault: str = ""
    ) -> None:
        """Add a change: a row, or the removal of the one that `row_key` names."""
        self.size += len(payload or row_key or b"")
        self.records.append(
            SourceRecord(
                payload=payload,
                number=self.lsn,
                position=lsn_text(self.lsn),
                broker_key=row_key,
                channel=channel,
                timestamp_ms=self.timestamp_ms,
                fault=fault,
            )
        )


class ChangeDecoder:
    """Puts messages of `pgoutput` together to transactions.

    Args:
        primary_keys: names of columns by table, `SCHEMA.NAME`.
    """

    def __init__(self, primary_keys: Mapping[str, Sequence[str]]) -> None:
        self._primary_keys = primary_keys
        self._tables: dict[int, Table] = {}
        self._open: Transaction | None = None

    @property
    def is_within(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._open is not None

    def decode(self, content: bytes) -> Transaction | None:
        """Take a message; return the transaction that it ends."""
        message = _Message(content)
        match message.tag():
            case b"B":
                lsn, timestamp_us, _ = message.unpack(">QqI")
                self._open = Transaction(lsn, timestamp_us // 1_000 + MS_OF_2000)
            case b"C":
                done, self._open = self._open, None
                assert done is not None
                _, _, done.end_lsn, _ = message.unpack(">BQQq")
                return done
            case b"R":
                self._describe(message)
            case b"I" | b"U" | b"D" as tag:
                self._change(tag, message)
            case b"T":
                self._truncate(message)
            case _:
                pass  # origins and types say nothing about rows
        return None

    def _describe(self, message: _Message) -> None:
        (relation,) = message.unpack(">I")
        channel = f"{message.text()}.{message.text()}"
        _, count = message.unpack(">BH")
        columns: list[Column] = []
        for _ in range(count):
            (flags,) = message.unpack(">B")
            name = message.text()
            oid, _ = message.unpack(">Ii")
            columns.append(Column(name, oid, bool(flags & 1)))
        self._tables[relation] = Table(channel, columns, self._primary_keys.get(channel, ()))

    def _change(self, tag: bytes, message: _Message) -> None:
        (relation,) = message.unpack(">I")
        table, done = self._tables[relation], self._open
        assert done is not None
        kind, old = message.tag(), None
        if kind in (b"K", b"O"):
            old = message.values(table)
            # Only with REPLICA IDENTITY FULL an update sends the old row if its key is the same.
            is_whole = kind == b"O"
            if tag == b"D":
                done.add(table.channel, None, table.key(old))
                return
            kind = message.tag()
            new = message.values(table)
            if is_whole:
                pairs = zip(old, new, strict=True)
                new = [before if value is UNCHANGED else value for before, value in pairs]
            if not (is_whole and table.is_same_row(old, new)):
                done.add(table.channel, None, table.key(old))
        else:
            new = message.values(table)
        unknown, fault = table.unknown(new), ""
        if unknown:
            fault = (
                f"not sent, as they are large and did not change: {', '.join(unknown)}; "
                f"ALTER TABLE {table.channel} REPLICA IDENTITY FULL has them sent"
            )
        done.add(table.channel, table.row(new), fault=fault)

    def _truncate(self, message: _Message) -> None:
        assert self._open is not None
        count, _ = message.unpack(">IB")
        for relation in message.unpack(f">{count}I"):
            channel = self._tables[relation].channel
            fault = f"table {channel} was truncated: its records stay in the topic"
            self._open.add(channel, None, fault=fault)


class _Message:
    """The fields of a message, one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def tag(self) -> bytes:
        self._at += 1
        return self._content[self._at - 1 : self._at]

    def unpack(self, form: str) -> tuple[int, ...]:
        found: tuple[int, ...] = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return found

    def text(self) -> str:
        end = self._content.index(0, self._at)
        found = self._content[self._at : end]
        self._at = end + 1
        return found.decode()

    def values(self, table: Table) -> Values:
        """Return the JSON texts of a row; `UNCHANGED` where a value was not sent."""
        (count,) = self.unpack(">H")
        texts: list[bytes | None] = []
        unchanged: list[int] = []
        for at in range(count):
            kind, text = self.tag(), None
            if kind == b"t":
                (size,) = self.unpack(">I")
                text = self._content[self._at : self._at + size]
                self._at += size
            elif kind == b"u":
                unchanged.append(at)
            texts.append(text)
        found = table.values(texts)
        for at in unchanged:
            found[at] = UNCHANGED
        return found
