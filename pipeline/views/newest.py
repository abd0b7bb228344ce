"""The newest of each record among rows of several tasks, which each have told of it already."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.columns.rows import SENT, arrow_schema

ARROW_SENT = arrow_schema(SENT)
ORDER = [("file", "ascending"), ("block", "ascending"), ("position", "ascending")]
NEVER_MS = 2**63 - 1


def newest(rows: pa.Table) -> pa.Table:
    """One row of each key (`SENT`), in order of publication; it stands for the messages of all."""
    rows = rows.select(ARROW_SENT.names).sort_by(ORDER).combine_chunks()
    encoded = rows.column("key").combine_chunks().dictionary_encode()
    codes = np.asarray(encoded.indices)
    last = np.full(len(encoded.dictionary), -1)
    np.maximum.at(last, codes, np.arange(len(codes)))
    messages, first_ms = np.zeros(len(last), np.int64), np.full(len(last), NEVER_MS)
    np.add.at(messages, codes, np.asarray(rows.column("messages")))
    np.minimum.at(first_ms, codes, np.asarray(rows.column("first_ms").fill_null(NEVER_MS)))
    in_order = np.argsort(last)
    found = rows.take(pa.array(last[in_order]))
    return _with(found, messages=pa.array(messages[in_order]), first_ms=_known(first_ms[in_order]))


def _known(first_ms: np.ndarray) -> pa.Array:
    return pa.array(first_ms, mask=first_ms == NEVER_MS)


def _with(rows: pa.Table, **columns: pa.Array) -> pa.Table:
    for name, column in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows
