"""The newest of each key of a batch, or what reducers make of them, in two associative steps.

First a row for each key and block where the messages are, then one for each key where those rows
come together: what is shuffled between are rows, not messages.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.conflation import Conflation
from pipeline.columns.intake import Intake
from pipeline.columns.shard import Shard, refused


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
