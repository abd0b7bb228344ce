"""The two kinds of rows of the pipeline: what sources give, and what sinks take.

PUBLISHED, a message or removal each:
    file, block   the piece of the source that it stands in; these pairs sort in the order of
                  publication. What follows the last NUL of `file` is its name
    position      its place in the piece; null: the rows of a piece stand in order, and count from 1
    time_ms       when it was published, or null
    key           the record that it is of; null: its fields say it
    body          JSON text; null for a removal, which has a key
    removed       of a removal why the record is gone, if that is known; null: `deleted`
    refused       null, or why `body` is no message, known already by its source

SENT, what is told of a key:
    key           of the record; null for a row that was refused
    file, block, position   where the last message that it stands for was published
    value         the newest text, or what reducers made of it; null for a removal
    messages      how many messages it stands for
    first_ms      when the first of them was published, or null
    removed       null, or why the record is gone: `deleted`, `expired`, `match`
    refused       null, or why `value` is no message: a dead letter
    due_ns        when it was due on the stream's own timeline; null where it goes out at once

DELIVERIES are SENT rows that also tell
    first         the position of the first message, in its own piece
"""

from __future__ import annotations

import pyarrow as pa

PUBLISHED = (
    "file string, block long, position long, time_ms long, key string, body binary, "
    "removed string, refused string"
)
SENT = (
    "key string, file string, block long, position long, value binary, messages long, "
    "first_ms long, removed string, refused string, due_ns long"
)
DELIVERIES = SENT + ", first long"
_KINDS = {"string": pa.string(), "long": pa.int64(), "binary": pa.binary()}


def arrow_schema(columns: str) -> pa.Schema:
    """The Arrow schema of columns as Spark spells them."""
    pairs = (column.split(" ") for column in columns.split(", "))
    return pa.schema([(name, _KINDS[kind]) for name, kind in pairs])


def file_name(file: str) -> str:
    """What people call a `file`; empty where there is none."""
    return file.rpartition("\0")[2]
