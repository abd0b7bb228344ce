"""What tables and connectors of several kinds have in common."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.keys.text.bookmark import START
from tidegate.pipeline.definitions.source import BEGINNINGS
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.ingest.connector import BYTES_MAX, RECORDS_MAX, SourceRecord

EPOCH, NOW = START, "now"
RECORDS_FIRST = 100
GROWTH = 8


def read_start(table: TomlTable) -> str:
    """Read where a source begins that has no message at the gateway yet: `epoch` or `now`."""
    start = table.text("from", default=EPOCH)
    if start not in {EPOCH, NOW}:
        raise table.wrong("from", BEGINNINGS, start)
    return start


def read_skips_gaps(table: TomlTable) -> bool:
    """Read whether messages that are gone before they were read are a dead letter, and no end."""
    gaps = table.text("gaps", default="stop")
    if gaps not in {"stop", "skip"}:
        raise table.wrong("gaps", "stop or skip", gaps)
    return gaps == "skip"


def next_count(records: Sequence[SourceRecord]) -> int:
    """Return how many records of this size make a batch of the right number of bytes."""
    size = sum(len(each.payload or b"") for each in records) // len(records) + 1
    # In steps: after small records there may be large ones.
    return max(1, min(RECORDS_MAX, BYTES_MAX // size, GROWTH * len(records)))
