"""Delta publishing: merge patches become the whole records that they make."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from app.entry import Entry
from app.problems import Problem
from app.stores.store import Message
from conflation.boards.board import Board
from conflation.boards.screen import THE_RECORD
from keys.patch import apply

MERGED_AT_ONCE = 200
NOTHING = b"{}"


class Delta(Message, frozen=True, gc=False, kw_only=True):
    """A checked merge patch, with the line of the request that it stands on."""

    line: int | None = None


async def merged(
    entry: Entry, board: Board, deltas: Sequence[Delta], bytes_max: int
) -> list[Message]:
    """The records that deltas make of those on the board; several for one record build up.

    Where there is no record, the delta is merged into nothing. A large request leaves the loop
    room to breathe; the caller holds `entry.writing`, so that the board stays as it is.

    Raises:
        Problem: message-too-large, key-invalid or schema-violation, of the record that comes out.
    """
    newest: dict[str, bytes] = {}
    records: list[Message] = []
    for delta in deltas:
        before = newest.get(delta.record_key) or _record(board, delta.record_key)
        record = apply(before, delta.payload)
        _check(entry, delta, record, bytes_max)
        newest[delta.record_key] = record
        records.append(Message(record, delta.record_key, delta.exempt))
        if len(records) % MERGED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return records


def _check(entry: Entry, delta: Delta, record: bytes, bytes_max: int) -> None:
    """Whether the topic takes what a delta has made."""
    if len(record) > bytes_max:
        detail = f"The record that the delta makes has more than {bytes_max} bytes."
        raise Problem("message-too-large", detail, line=delta.line)
    if entry.key_of is not None and entry.key_of(record) != delta.record_key:
        raise Problem("key-invalid", "The delta changes its record's key.", line=delta.line)
    entry.check_schema(record, delta.line)


def _record(board: Board, record_key: str) -> bytes:
    frame = board.get(record_key or THE_RECORD)
    return NOTHING if frame is None else frame.payload
