"""By shards after a shuffle, recorded messages are delivered as by one task that sees all."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.pipeline.columns.test_conflator import (
    REDUCERS,
    WANTED,
    batch,
    conflation,
    cuts,
    pieces,
    recorded,
    rows,
    steps,
)
from tidegate.pipeline.columns.deliveries import conflate_blocks, conflate_in_place, cut_messages
from tidegate.pipeline.columns.intervals import Pace


@pytest.mark.parametrize("oof", [False, True])
@pytest.mark.parametrize("reduce", ["", REDUCERS])
@pytest.mark.parametrize("pace", Pace)
@settings(deadline=None)
@given(steps, cuts)
def test_shards_deliver_what_one_task_does(
    pace: Pace, reduce: str, oof: bool, told: list[tuple[str, int | None, int]], edges: list[int]
) -> None:
    messages = recorded(told)
    asked, _ = conflation(pace, WANTED, reduce, oof=oof)
    shards = 3 if pace is Pace.KEY else 1
    blocks = [
        block
        for piece in reversed(pieces(messages, edges))
        for block in cut_messages(iter([piece.set_column(0, "file", named(piece))]), asked, shards)
    ]
    if not blocks:
        return
    table = pa.Table.from_batches(blocks)
    in_order = table.sort_by([(name, "ascending") for name in ("stream", "part", "row")])
    found = rows(conflate_blocks(iter(in_order.to_batches()), asked))
    assert sorted(found, key=str) == sorted(
        rows(conflate_in_place(iter([batch(messages)]), asked)), key=str
    )


def named(piece: pa.RecordBatch) -> pa.Array:
    """A file's name for a piece, which sorts as its messages do."""
    first = piece.column("position")[0].as_py() if len(piece) else 0
    return pa.array([f"{first:04}"] * len(piece), pa.string())
