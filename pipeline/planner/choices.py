"""The cost of intervals, keys and paces over a recorded history, in one pass of Spark.

    lines ──► blocks (mapInArrow, where the lines are) ──► shuffle of blocks ──► tallies ──► driver

The first step reads each line once, for all choices, and keeps key, time and size as columns. A
stream is what must be seen in order: with `pace=key` one shard of a key spec's keys, with
`pace=batch` all keys of it, because they share their interval. The second step sees the blocks of
a stream in order of publication and holds one row for each key and interval. Only tallies reach
the driver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import count, groupby
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.blocks import pieces, trimmed, wrong_line
from tidegate.pipeline.columns.conflation import EARLIEST_NS
from tidegate.pipeline.columns.reading import LineInvalidError, MessageReader
from tidegate.pipeline.columns.rows import (
    ROWS,
    Block,
    KeyShards,
    arrow_schema,
    bound_batches,
    packed,
    to_tasks,
    unpacked,
)
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.intervals import MILLISECOND_NS, Column, Interval, Pace
from tidegate.pipeline.planner.tally import IntervalTally, KeyTally, Seen, Sent, Succession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


TALLIES = "kind string, place int, tally string"
ARROW_TALLIES = arrow_schema(TALLIES)


@dataclass(frozen=True, slots=True)
class Question:
    """Which choices are asked about; every one of `keys` with every interval and pace."""

    keys: tuple[KeySpec, ...]
    intervals_ns: tuple[int, ...]
    paces: tuple[Pace, ...]
    time: TimeField | None
    shards: int

    def choices(self) -> list[tuple[int, Interval]]:
        """Return each choice: the place of its key among `keys`, and its interval."""
        return [
            (place, Interval(interval_ns, pace))
            for place in range(len(self.keys))
            for pace in self.paces
            for interval_ns in self.intervals_ns
        ]

    def streams(self) -> list[tuple[int, Pace]]:
        """Return what the shuffle keeps apart: place of a key and pace, a row for each shard.

        One after the other they go to the tasks in turn: a task has a shard of each key.
        """
        return [
            (place, pace)
            for pace in sorted(self.paces, reverse=True)
            for place in range(len(self.keys))
            for _ in range(self.shards_of(pace))
        ]

    def shards_of(self, pace: Pace) -> int:
        """Return how many streams a key has: one alone where its values share their interval."""
        return self.shards if pace is Pace.KEY else 1


@dataclass(frozen=True, slots=True)
class Answer:
    """Counts of the input for each key spec, and of the output for each of `choices`."""

    seen: list[Seen]
    sent: list[Sent]


def tally_choices(lines: DataFrame, question: Question) -> DataFrame:
    """Return tallies (`TALLIES`) of a history, as `read_history` returns it."""
    bound_batches(lines)
    blocks = lines.mapInArrow(partial(cut_blocks, question=question), ROWS)
    tally = partial(tally_blocks, question=question)
    return to_tasks(blocks, question.shards).mapInArrow(tally, TALLIES)


def add_tallies(tallies: DataFrame, question: Question) -> Answer:
    """Add up the tallies of all streams."""
    seen: defaultdict[int, Seen] = defaultdict(Seen)
    sent: defaultdict[int, Sent] = defaultdict(Sent)
    for row in tallies.collect():
        if row.kind == "seen":
            seen[row.place] = seen[row.place].plus(msgspec.json.decode(row.tally, type=Seen))
        else:
            sent[row.place] = sent[row.place].plus(msgspec.json.decode(row.tally, type=Sent))
    return Answer(
        [seen[place] for place in range(len(question.keys))],
        [sent[place] for place in range(len(question.choices()))],
    )


def cut_blocks(batches: Iterator[pa.RecordBatch], question: Question) -> Iterator[pa.RecordBatch]:
    """Yield one task's lines as blocks, a row for each stream and piece of lines.

    Raises:
        HistoryInvalid: a line is no message, or has no time.
    """
    # One reader for all keys that are asked about: each line is decoded once.
    reader = MessageReader(question.keys, question.time)
    key_shards = {
        (place, pace): KeyShards(reader.codes[place].texts, question.shards_of(pace))
        for place, pace in question.streams()
    }
    for part, row, piece in pieces(batches):
        sizes, times_ns, codes = _read(reader, piece, part, row)
        if not len(sizes):
            continue
        # The recorded clock never runs back, as in the engine under that clock.
        times_ns = np.maximum.accumulate(times_ns)
        yield packed(list(_blocks(key_shards, part, row, (sizes, times_ns, codes))))


def tally_blocks(batches: Iterator[pa.RecordBatch], question: Question) -> Iterator[pa.RecordBatch]:
    """Yield the tallies of the streams of one task, whose blocks come in order."""
    for stream, blocks in groupby(unpacked(batches), lambda block: block.stream):
        rows = zip(*_tallies(stream, blocks, question), strict=True)
        arrays = [pa.array(row, kind) for row, kind in zip(rows, ARROW_TALLIES.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=ARROW_TALLIES)


def _read(
    reader: MessageReader, piece: pa.RecordBatch, part: str, row: int
) -> tuple[Column, Column, list[Column]]:
    """Return size, time and, for each key spec, key code of each line that is not blank."""
    lines = piece.column("body")
    sizes = pc.binary_length(trimmed(lines))
    written = pc.fill_null(pc.not_equal(sizes, 0), True)
    if not pc.all(written).as_py():  # rare, and a filter copies all lines
        lines, sizes = lines.filter(written), sizes.filter(written)
    try:
        times_ns, codes = reader.read(lines.fill_null(b"") if lines.null_count else lines)
    except LineInvalidError as error:
        number = row + pc.indices_nonzero(written)[error.index].as_py() + 1
        raise wrong_line(part, number, error.reason) from None
    if times_ns is None:
        stored = piece.column("time_ms").filter(written)
        if stored.null_count:
            number = row + pc.indices_nonzero(pc.is_null(stored))[0].as_py() + 1
            raise wrong_line(part, number, "no column timestamp_ms; say --time-field")
        times_ns = np.asarray(stored) * MILLISECOND_NS
    return np.asarray(sizes.fill_null(0)), times_ns, codes


def _blocks(
    key_shards: dict[tuple[int, Pace], KeyShards],
    part: str,
    row: int,
    messages: tuple[Column, Column, list[Column]],
) -> Iterator[Block]:
    sizes, times_ns, codes = messages
    clock_ns = int(times_ns[-1])
    streams = count()
    for (place, _), shards in key_shards.items():
        # Every stream gets a row of every block, because its clock advances with all messages.
        for chosen, keys, numbers in shards.split(codes[place]):
            weights, times = pa.array(sizes[chosen], pa.int32()), times_ns[chosen]
            yield Block(next(streams), part, row, clock_ns, keys, numbers, times, weights)


def _tallies(
    stream: int, blocks: Iterator[Block], question: Question
) -> Iterator[tuple[str, int, str]]:
    place, pace = question.streams()[stream]
    choices = [
        (number, IntervalTally(interval))
        for number, (key_place, interval) in enumerate(question.choices())
        if key_place == place and interval.pace is pace
    ]
    # Every pace sees all messages; one of them is enough to count what came in.
    counts = KeyTally() if pace is question.paces[0] else None
    succession = Succession()
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    clock_ns = EARLIEST_NS
    for block in blocks:
        known = list(map(numbers.__getitem__, block.keys))
        codes, sizes = np.array(known, np.int64)[block.codes], np.asarray(block.values)
        # A later block may begin before an earlier one ended: recorded clocks do not run back.
        times_ns = np.maximum(block.times_ns, clock_ns)
        clock_ns = max(clock_ns, block.clock_ns)
        found = succession.arrivals(codes, times_ns, sizes)
        for _, tally in choices:
            tally.take(found)
        if counts is not None:
            counts.add(codes, sizes)
    for number, tally in choices:
        yield "sent", number, _text(tally.finish())
    if counts is not None:
        yield "seen", place, _text(counts.finish(list(numbers)))


def _text(tally: Any) -> str:
    return msgspec.json.encode(tally).decode()


# --- the plan: each choice with its cost, and the recommended ones

ENOUGH = Fraction(9, 10)
"""The share of the longest interval's saving that is enough."""

HEADS = ("key", "pace", "interval", "messages", "bytes", "saving", "age p50", "age p99", "keys", "")
LEFT_HEADS = frozenset({"key", "pace", ""})
RECOMMENDED = "recommended"


@dataclass(frozen=True, slots=True)
class Choice:
    """A key, an interval and a pace, and what would have been sent; `key` as on the command."""

    key: str
    interval_text: str
    interval: Interval
    sent: Sent
    seen: Seen

    @property
    def saving(self) -> Fraction:
        """The part of the messages that is not sent, exactly."""
        return 1 - Fraction(self.sent.messages, self.seen.messages)

    @property
    def group(self) -> tuple[str, Pace]:
        """Choices that differ in nothing but the interval."""
        return self.key, self.interval.pace

    def document(self) -> dict[str, Any]:
        """Return the choice as in the contract, section 8."""
        return {
            "key": self.key,
            "interval": self.interval_text,
            "pace": str(self.interval.pace),
            "messages": self.sent.messages,
            "bytes": self.sent.bytes,
            "saving": round(float(self.saving), 6),
            "age_p50_ms": self.sent.age_ms(50),
            "age_p99_ms": self.sent.age_ms(99),
            "keys": self.seen.keys,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """All choices of one history: groups of equal key and pace one after the other."""

    choices: list[Choice]

    def recommended(self) -> list[Choice]:
        """Return for each group the shortest interval that saves enough of the longest's saving."""
        return [_best(list(group)) for _, group in groupby(self.choices, lambda one: one.group)]

    def document(self) -> dict[str, Any]:
        """Return the answer as JSON; `recommended` is for the first key and pace asked for."""
        best = self.recommended()
        seen = {choice.key: choice.seen for choice in self.choices}
        return {
            "choices": [choice.document() for choice in self.choices],
            "recommended": best[0].document(),
            "recommendations": [choice.document() for choice in best],
            "history": [_seen_document(key, found) for key, found in seen.items()],
        }

    def table(self) -> str:
        """Return the answer as a table, with the recommended rows marked."""
        best = self.recommended()
        rows = [HEADS, *(_cells(choice, choice in best) for choice in self.choices)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_line(row, widths) for row in rows]
        seen = {choice.key: choice.seen for choice in self.choices}
        for key, found in seen.items():
            hot = ", ".join(
                f"{one.key} {one.messages / found.messages:.0%}" for one in found.hot[:3]
            )
            lines.append(
                f"{key}: {found.messages:,} messages, {found.bytes:,} bytes in; "
                f"{found.keys:,} keys whose newest are {found.memory_bytes:,} bytes; most of {hot}"
            )
        return "\n".join(lines) + "\n"


def _best(group: list[Choice]) -> Choice:
    by_length = sorted(group, key=lambda choice: choice.interval.interval_ns)
    enough = by_length[-1].saving * ENOUGH
    return next(choice for choice in by_length if choice.saving >= enough)


def _seen_document(key_text: str, seen: Seen) -> dict[str, Any]:
    return {
        "key": key_text,
        "messages": seen.messages,
        "bytes": seen.bytes,
        "keys": seen.keys,
        "memory_bytes": seen.memory_bytes,
        "hot": [{"key": hot.key, "messages": hot.messages} for hot in seen.hot],
    }


def _cells(choice: Choice, is_recommended: bool) -> tuple[str, ...]:
    return (
        choice.key,
        str(choice.interval.pace),
        choice.interval_text,
        f"{choice.sent.messages:,}",
        f"{choice.sent.bytes:,}",
        f"{float(choice.saving):.1%}",
        f"{choice.sent.age_ms(50):,} ms",
        f"{choice.sent.age_ms(99):,} ms",
        f"{choice.seen.keys:,}",
        RECOMMENDED if is_recommended else "",
    )


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    columns = zip(HEADS, cells, widths, strict=True)
    return "  ".join(
        cell.ljust(width) if head in LEFT_HEADS else cell.rjust(width)
        for head, cell, width in columns
    ).rstrip()
