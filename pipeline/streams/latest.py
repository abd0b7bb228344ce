"""The newest of each key of one micro-batch, combined on the executors.

Twice the same associative step: each task first reduces its own lines to one row per key, then
only those rows are shuffled by key and reduced again. "Newest" is publication order, (`part`,
`row`). A line that cannot be a record stays a row of its own, with a `reason` and no key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from keys.errors import JsonInvalid, KeysError
from keys.extract import KeyOf, record_key
from keys.jsontext import check_json, one_line
from keys.spec import KeySpec
from pipeline.sources.files import number_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = (
    "record_key string, part string, row long, line binary, messages long, "
    "first_part string, first_row long, first_ms long, reason string"
)
ARROW_ROWS = pa.schema(
    [
        ("record_key", pa.string()),
        ("part", pa.string()),
        ("row", pa.int64()),
        ("line", pa.binary()),
        ("messages", pa.int64()),
        ("first_part", pa.string()),
        ("first_row", pa.int64()),
        ("first_ms", pa.int64()),
        ("reason", pa.string()),
    ]
)
LINE_BYTES_MAX = 1024 * 1024
BATCH_ROWS_MAX = 10_000
BATCH_BYTES_MAX = 32 * 1024 * 1024


@dataclass(slots=True)
class Winner:
    """The newest line of a key, and what it stands for."""

    part: str
    row: int
    line: bytes
    messages: int
    first_part: str
    first_row: int
    first_ms: int | None

    def join(self, other: Winner) -> None:
        """Become the newer of both, standing for the messages of both."""
        if (other.part, other.row) > (self.part, self.row):
            self.part, self.row, self.line = other.part, other.row, other.line
        if (other.first_part, other.first_row) < (self.first_part, self.first_row):
            self.first_part, self.first_row = other.first_part, other.first_row
            self.first_ms = other.first_ms
        self.messages += other.messages


def conflated(lines: DataFrame, spec: KeySpec, *, from_files: bool) -> DataFrame:
    """Rows as in `ROWS`: one per key of `lines`, and one per line that is no record.

    `lines` has `part`, `line`, `timestamp_ms` and, unless it comes from files, `row`. Lines of
    a topic have passed the gateway's checks; those of files are checked here.
    """
    combine = partial(combine_lines, spec=spec, from_files=from_files)
    return lines.mapInArrow(combine, ROWS).repartition("record_key").mapInArrow(merge_winners, ROWS)


def combine_lines(
    batches: Iterator[pa.RecordBatch], spec: KeySpec, from_files: bool
) -> Iterator[pa.RecordBatch]:
    """One task's lines reduced to rows as in `ROWS`."""
    key_of = record_key(spec)
    winners: dict[str, Winner] = {}
    for batch in number_lines(batches) if from_files else batches:
        refused: list[tuple[Any, ...]] = []
        for part, row, line, ms in _columns(batch, "part", "row", "line", "timestamp_ms"):
            if from_files:
                line = one_line(line)
                if not line:
                    continue
            try:
                record = _checked_key(line, key_of, strict=from_files)
            except KeysError as error:
                reason = f"{error.code}: {error.detail}"
                refused.append((None, part, row, line, 1, part, row, ms, reason))
                continue
            _hold(winners, record, Winner(part, row, line, 1, part, row, ms))
        yield from _row_batches(refused)
    yield from _row_batches(_winner_rows(winners))


def merge_winners(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows as in `ROWS` reduced to one per key; those without key pass through."""
    winners: dict[str, Winner] = {}
    for batch in batches:
        refused: list[tuple[Any, ...]] = []
        for fields in _columns(batch, *ARROW_ROWS.names):
            if fields[0] is None:
                refused.append(fields)
            else:
                _hold(winners, fields[0], Winner(*fields[1:8]))
        yield from _row_batches(refused)
    yield from _row_batches(_winner_rows(winners))


def _checked_key(line: bytes, key_of: KeyOf, *, strict: bool) -> str:
    if strict:
        if len(line) > LINE_BYTES_MAX:
            raise JsonInvalid(f"longer than {LINE_BYTES_MAX} bytes")
        check_json(line)
    try:
        return key_of(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JsonInvalid(f"not JSON: {error}") from None


def _hold(winners: dict[str, Winner], record: str, winner: Winner) -> None:
    held = winners.get(record)
    if held is None:
        winners[record] = winner
    else:
        held.join(winner)


def _columns(batch: pa.RecordBatch, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _winner_rows(winners: dict[str, Winner]) -> Iterator[tuple[Any, ...]]:
    for record, held in winners.items():
        yield (
            record,
            held.part,
            held.row,
            held.line,
            held.messages,
            held.first_part,
            held.first_row,
            held.first_ms,
            None,
        )


def _row_batches(rows: Iterable[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches bounded in rows and bytes."""
    held: list[tuple[Any, ...]] = []
    held_bytes = 0
    for row in rows:
        held.append(row)
        held_bytes += len(row[3])
        if len(held) == BATCH_ROWS_MAX or held_bytes >= BATCH_BYTES_MAX:
            yield _row_batch(held)
            held, held_bytes = [], 0
    if held:
        yield _row_batch(held)


def _row_batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column, kind) for column, kind in zip(columns, ARROW_ROWS.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_ROWS)
