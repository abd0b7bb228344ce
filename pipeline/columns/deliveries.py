"""The deliveries of recorded messages: in one task where they are, or by shards after a shuffle.

PUBLISHED rows in: those of one (`file`, `block`) are in order of publication, and so are those
pairs. `DELIVERIES` out: SENT rows with the position of the first message that each stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.columns.blocks import Messages, packed, split, unpacked
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.intake import Intake
from tidegate.pipeline.columns.shard import Shard, refused

REFUSED = -1


def cut_messages(
    batches: Iterator[pa.RecordBatch], conflation: Conflation, shards: int
) -> Iterator[pa.RecordBatch]:
    """One task's messages as blocks (`blocks.ROWS`), a row for each shard and piece.

    What was set aside is of the shard `REFUSED`, with reasons for keys.
    """
    intake = Intake(conflation)
    for found in intake.messages(batches):
        if found.reasons:
            yield packed([found.block(REFUSED, found.codes >= 0, found.reasons, found.codes)])
            continue
        parts = enumerate(split(found.codes, intake.texts, shards))
        yield packed([found.block(shard, *part) for shard, part in parts])


def conflate_blocks(
    batches: Iterator[pa.RecordBatch], conflation: Conflation
) -> Iterator[pa.RecordBatch]:
    """Deliveries of the shards of one task, whose blocks come in order."""
    for stream, blocks in groupby(unpacked(batches), lambda block: block.stream):
        if stream == REFUSED:
            yield from map(refused, map(Messages.set_aside, blocks))
            continue
        shard = Shard(conflation)
        for block in blocks:
            yield from shard.add(Messages.of_block(block), block.keys)
        yield from shard.finish()


def conflate_in_place(
    batches: Iterator[pa.RecordBatch], conflation: Conflation
) -> Iterator[pa.RecordBatch]:
    """Deliveries of one task's messages, which are all there are of their keys, in order."""
    intake, shard = Intake(conflation), Shard(conflation)
    for found in intake.messages(batches):
        if found.reasons:
            yield refused(found)
        else:
            yield from shard.add(found, intake.texts)
    yield from shard.finish()


# The newest of each key of a batch, or what reducers make of them, in two associative steps.
#
# First a row for each key and block where the messages are, then one for each key where those rows
# come together: what is shuffled between are rows, not messages.


def combine(batches: Iterator[pa.RecordBatch], conflation: Conflation) -> Iterator[pa.RecordBatch]:
    """One task's PUBLISHED rows as DELIVERIES whose values are saved, and those set aside."""
    intake, shard, part = Intake(conflation), Shard(conflation, now_ns=0), ""
    for found in intake.messages(batches):
        if found.reasons:
            yield refused(found)
            continue
        if found.part != part:
            yield from shard.combined()
            part = found.part
        yield from shard.add(found, intake.texts)
    yield from shard.combined()


def merge(batches: Iterator[pa.RecordBatch], conflation: Conflation) -> Iterator[pa.RecordBatch]:
    """Rows of `combine`, in order of publication, as one for each key; others pass."""
    shard = Shard(conflation, now_ns=0)
    for rows in batches:
        is_put = pc.is_null(rows.column("refused"))
        shard.join(rows.filter(is_put))
        aside = rows.filter(pc.invert(is_put))
        if len(aside):
            yield aside
    yield from shard.finish()
