"""The newest of each record: of what one task has seen, and of what several have told."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pipeline.columns.conflation import Conflation
from pipeline.columns.conflator import NEVER_MS, REASONS
from pipeline.columns.intake import Intake
from pipeline.columns.messages import Messages
from pipeline.columns.rows import SENT, arrow_schema
from pipeline.columns.shard import milliseconds, placed, refused

ARROW_SENT = arrow_schema(SENT)
FOREVER = 2**63 - 1
ORDER = [("file", "ascending"), ("block", "ascending"), ("position", "ascending")]


def news(batches: Iterator[pa.RecordBatch], asked: Conflation) -> Iterator[pa.RecordBatch]:
    """One task's PUBLISHED rows as SENT ones: of each record the newest of a piece, removals too.

    Without fields of a key in `asked` a message tells its own. A line that is no record is set
    aside.
    """
    intake = Intake(asked)
    for found in intake.messages(batches):
        if found.reasons:
            yield refused(found).select(ARROW_SENT.names)
        else:
            yield from newest(_sent(found, intake.texts)).to_batches()


def newest(rows: pa.Table) -> pa.Table:
    """One row of each key (`SENT`), in order of publication; it stands for the messages of all."""
    rows = rows.select(ARROW_SENT.names).sort_by(ORDER).combine_chunks()
    encoded = rows.column("key").combine_chunks().dictionary_encode()
    codes = np.asarray(encoded.indices)
    last = np.full(len(encoded.dictionary), -1)
    np.maximum.at(last, codes, np.arange(len(codes)))
    messages, first_ms = np.zeros(len(last), np.int64), np.full(len(last), FOREVER)
    np.add.at(messages, codes, np.asarray(rows.column("messages")))
    np.minimum.at(first_ms, codes, np.asarray(rows.column("first_ms").fill_null(FOREVER)))
    first_ms[first_ms == FOREVER] = NEVER_MS
    in_order = np.argsort(last)
    found = rows.take(pa.array(last[in_order]))
    return _with(
        found, messages=pa.array(messages[in_order]), first_ms=milliseconds(first_ms[in_order])
    )


def _with(rows: pa.Table, **columns: pa.Array) -> pa.Table:
    for name, column in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows


def _sent(found: Messages, texts: list[str]) -> pa.Table:
    """A row for each message or removal."""
    count = len(found.codes)
    removed = [REASONS[gone] for gone in found.gone.tolist()]
    columns = {
        "key": pa.array(texts, pa.string()).take(pa.array(found.codes)),
        **placed({found.part: 0}, np.zeros(count, np.int64)),
        "position": found.positions,
        "value": found.bodies,
        "messages": np.ones(count, np.int64),
        "first_ms": milliseconds(found.published_ms),
        "removed": pa.array(removed, pa.string()),
        "refused": pa.nulls(count, pa.string()),
        "due_ns": pa.nulls(count, pa.int64()),
    }
    return pa.Table.from_pydict(columns, schema=ARROW_SENT)
