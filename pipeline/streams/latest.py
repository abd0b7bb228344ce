"""The newest of each key of one micro-batch, combined on the executors.

Twice the same associative step: each task first reduces its own messages to one row per key, then
only those rows are shuffled by key and reduced again. "Newest" is publication order, (`file`,
`block`, `position`). A line that cannot be a record stays a row of its own, without a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from keys.errors import JsonInvalid, KeyMissing, KeysError
from keys.extract import KeyOf, record_key
from keys.jsontext import check_json, one_line
from keys.spec import KeySpec
from pipeline.columns.history import lines_by_block
from pipeline.columns.rows import SENT, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMBINED = SENT + ", first_file string, first_block long, first_position long"
DELETED = "deleted"
LINE_BYTES_MAX = 1024 * 1024
BATCH_ROWS_MAX = 10_000
BATCH_BYTES_MAX = 32 * 1024 * 1024
_ARROW_COMBINED = arrow_schema(COMBINED)

Place = tuple[str, int, int]


@dataclass(slots=True)
class Winner:
    """The newest message of a key, and what it stands for."""

    place: Place
    value: bytes | None
    messages: int
    first: Place
    first_ms: int | None

    def join(self, other: Winner) -> None:
        """Become the newer of both, standing for the messages of both."""
        if other.place > self.place:
            self.place, self.value = other.place, other.value
        if other.first < self.first:
            self.first, self.first_ms = other.first, other.first_ms
        self.messages += other.messages


def conflated(messages: DataFrame, spec: KeySpec, *, are_checked: bool) -> DataFrame:
    """SENT rows of PUBLISHED ones: one per key, and one per line that is no record.

    Messages of a topic have passed the gateway's checks; others are checked here. Removals are
    not told.
    """
    combine = partial(combine_messages, spec=spec, are_checked=are_checked)
    combined = messages.mapInArrow(combine, COMBINED).repartition("key")
    return combined.mapInArrow(merge_winners, COMBINED).select(*arrow_schema(SENT).names)


def combine_messages(
    batches: Iterator[pa.RecordBatch],
    spec: KeySpec,
    are_checked: bool,
    tells_removals: bool = False,
) -> Iterator[pa.RecordBatch]:
    """One task's messages reduced to rows as in `COMBINED`; without `spec` each tells its key."""
    key_of = record_key(spec) if spec else _no_key
    winners: dict[str, Winner] = {}
    for _, start, piece in lines_by_block(batches):
        refused: list[tuple[Any, ...]] = []
        for place, time_ms, key_text, body in _messages(piece, start, are_checked):
            if body is None:
                if tells_removals and key_text is not None:
                    _hold(winners, key_text, Winner(place, None, 1, place, time_ms))
                continue
            try:
                record = _checked_key(body, key_text, key_of, are_checked)
            except KeysError as error:
                reason = f"{error.code}: {error.detail}"
                refused.append((None, *place, body, 1, time_ms, None, reason, None, *place))
                continue
            _hold(winners, record, Winner(place, body, 1, place, time_ms))
        yield from _row_batches(refused)
    yield from _row_batches(_winner_rows(winners))


def merge_winners(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows as in `COMBINED` reduced to one per key; those that were refused pass through."""
    winners: dict[str, Winner] = {}
    for batch in batches:
        refused: list[tuple[Any, ...]] = []
        for fields in _columns(batch, *_ARROW_COMBINED.names):
            record, *place, value, messages, first_ms, _, reason, _ = fields[:-3]
            if reason is not None:
                refused.append(fields)
            else:
                first: Any = fields[-3:]
                _hold(winners, record, Winner((*place,), value, messages, first, first_ms))
        yield from _row_batches(refused)
    yield from _row_batches(_winner_rows(winners))


def _messages(
    piece: pa.RecordBatch, start: int, are_checked: bool
) -> Iterator[tuple[Place, int | None, str | None, bytes | None]]:
    """Place, time, key if it is told, and body of each message of a piece; null for a removal."""
    rows = _columns(piece, "file", "block", "position", "time_ms", "key", "body")
    for number, (file, block, position, time_ms, key_text, body) in enumerate(rows, start + 1):
        line = body if are_checked or body is None else one_line(body)
        if line or line is None:
            place = (file, block, number if position is None else position)
            yield place, time_ms, key_text, line


def _no_key(line: bytes) -> str:
    raise KeyMissing("the message does not tell its key")


def _checked_key(line: bytes, told: str | None, key_of: KeyOf, is_checked: bool) -> str:
    if not is_checked:
        if len(line) > LINE_BYTES_MAX:
            raise JsonInvalid(f"longer than {LINE_BYTES_MAX} bytes")
        check_json(line)
    try:
        return key_of(line) if told is None else told
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
        removed = DELETED if held.value is None else None
        told = (held.value, held.messages, held.first_ms, removed, None, None)
        yield (record, *held.place, *told, *held.first)


def _row_batches(rows: Iterable[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches bounded in rows and bytes."""
    held: list[tuple[Any, ...]] = []
    held_bytes = 0
    for row in rows:
        held.append(row)
        held_bytes += len(row[4] or b"")
        if len(held) == BATCH_ROWS_MAX or held_bytes >= BATCH_BYTES_MAX:
            yield _row_batch(held)
            held, held_bytes = [], 0
    if held:
        yield _row_batch(held)


def _row_batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column, kind) for column, kind in zip(columns, _ARROW_COMBINED.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_COMBINED)
