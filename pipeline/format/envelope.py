"""NDJSON envelopes of the journal as rows, values byte for byte as published."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.jsontext import NULL
from tidegate.keys.text.bookmark import join_bookmark, split_bookmark
from tidegate.keys.text.time import parse_time
from tidegate.pipeline.columns.rows import arrow_schema, shard_of
from tidegate.pipeline.errors import SourceLost

# --- rows of format "tidegate": a message or removal each, as columns

SCHEMA = "offset long, key string, value string, timestamp_ms long, bookmark string, removed string"
ROWS = arrow_schema(SCHEMA)


def column_batch(
    columns: tuple[
        Sequence[bytes | str | None],
        Sequence[bytes | None],
        Sequence[int | None],
        Sequence[str | None],
    ],
    epoch: str,
    positions: Sequence[int],
) -> pa.RecordBatch:
    """Return rows at these positions, as `ROWS`.

    `columns` are keys, values, times and reasons. Keys and values are JSON texts; without a key it
    is None, and so is the value of a removal, which has a reason.
    """
    keys, values, times, reasons = columns
    offsets = pa.array(positions, pa.int64())
    # In Arrow: a text for each row, made in Python, costs as much as the rest of the row.
    bookmarks = pc.binary_join_element_wise(
        join_bookmark(epoch, 0)[:-1], offsets.cast("string"), ""
    )
    arrays = [
        offsets,
        pa.array(keys, pa.string()),
        pa.array(values, pa.string()),
        pa.array(times, pa.int64()),
        bookmarks,
        pa.array(reasons, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


def of_shard(batch: pa.RecordBatch, shard: int, shards: int) -> pa.RecordBatch:
    """Return the rows whose keys belong to a shard; rows without key belong to the first one."""
    homes = (
        0 if text is None else shard_of(text, shards) for text in batch.column("key").to_pylist()
    )
    return batch.filter(pa.array([home == shard for home in homes], pa.bool_()))


# `gc=False`: an envelope refers to nothing that could refer back to it, and the collector would
# otherwise walk thousands of them in each page.
class Envelope(msgspec.Struct, gc=False):
    """One line of the journal; `key` and `value` stay JSON text. A removal has a `reason`."""

    bookmark: str
    value: msgspec.Raw
    key: msgspec.Raw = msgspec.Raw(b"null")
    timestamp: int | float | str | None = None
    reason: str | None = None


_lines = msgspec.json.Decoder(Envelope).decode_lines


def envelope_batch(body: bytes, epoch: str, after: int) -> pa.RecordBatch:
    """Return the rows of one page, which must continue position `after` without a gap.

    Raises:
        SourceLost: a gap or another epoch: some message would have been passed over.
    """
    envelopes = _lines(body)
    for position, envelope in enumerate(envelopes, start=after + 1):
        # The gateway answers from the oldest message it has; only this check notices a gap.
        found = split_bookmark(envelope.bookmark)
        if found != (epoch, position):
            gone = f"positions {position} to {found[1] - 1} left the journal before they were read"
            raise SourceLost(
                f"expected position {position} of epoch {epoch} in the journal, "
                f"found {envelope.bookmark}" + (f": {gone}" if found[0] == epoch else "")
            )
    return _batch(envelopes, epoch, range(after + 1, after + 1 + len(envelopes)))


def record_batch(body: bytes, epoch: str, last: int) -> pa.RecordBatch:
    """Return the records of a state of the world that were published up to position `last`.

    Raises:
        SourceLost: they are of another epoch.
    """
    envelopes, positions = [], []
    for envelope in _lines(body):
        found, position = split_bookmark(envelope.bookmark)
        # The topic began again between planning and reading: these records are of another history.
        if found != epoch:
            raise SourceLost(f"expected records of epoch {epoch}, found {envelope.bookmark}")
        # Records that changed after position `last` are read from the journal instead.
        if position <= last:
            envelopes.append(envelope)
            positions.append(position)
    return _batch(envelopes, epoch, positions)


def _batch(envelopes: Sequence[Envelope], epoch: str, positions: Sequence[int]) -> pa.RecordBatch:
    """Return envelopes as `ROWS`; a removal has no value, and a topic without a key no keys."""
    # `msgspec.Raw` is the text as it stands in the line: a number keeps its digits.
    texts = [bytes(each.key) for each in envelopes]
    keys = [None if text == NULL else text for text in texts]
    values = [bytes(each.value) if each.reason is None else None for each in envelopes]
    times = [_milliseconds(each.timestamp) for each in envelopes]
    reasons = [each.reason for each in envelopes]
    return column_batch((keys, values, times, reasons), epoch, positions)


def _milliseconds(timestamp: float | str | None) -> int | None:
    if isinstance(timestamp, str):
        return parse_time(timestamp)
    return None if timestamp is None else int(timestamp)
