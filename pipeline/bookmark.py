"""Positions of a topic as text, `<epoch>-<position>`; the one place that looks inside."""

from __future__ import annotations

START = "epoch"
"""Before the first message there will ever be: where an empty topic's reader stands."""
RECORDS = "records"
"""As `from`: the records that a topic has, of which its journal may not tell any more."""


def split_bookmark(text: str) -> tuple[str, int]:
    """The epoch and the position (contiguous, from 1) of a bookmark.

    Raises:
        ValueError: not a bookmark.
    """
    epoch, dash, position = text.rpartition("-")
    if not dash or not epoch or not (position.isascii() and position.isdigit()):
        raise ValueError(f"not a bookmark: {text[:140]!r}")
    return epoch, int(position)


def join_bookmark(epoch: str, position: int) -> str:
    """The bookmark of a position; 0 stands before the first message."""
    return f"{epoch}-{position}"
