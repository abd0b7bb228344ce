"""Messages of one block as columns, and how they travel to the shard of their key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pipeline.columns.blocks import Block
from pipeline.columns.intervals import Column

_CARRIED = ["greatest_ns", "positions", "published_ms", "gone"]


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages in order of publication, each put, removed, or not wanted by the filter.

    Attributes:
        part: the block, as text that sorts in order of publication.
        row: the place of the first of them in it.
        clock_ns: the greatest time of the piece that they were cut from.
        codes: of each its key's number; of what was set aside, its reason's.
        times_ns: its own time; EARLIEST_NS where it has none.
        greatest_ns: the greatest time of the piece up to it.
        positions: its place in the block.
        published_ms: when it was published; NEVER_MS where nobody knows.
        gone: PUT, or why it is gone: DELETED, UNMATCHED or EXPIRED.
        bodies: null where it is not put.
        reasons: why these were set aside; empty for messages that can be taken.
    """

    part: str
    row: int
    clock_ns: int
    codes: Column
    times_ns: Column
    greatest_ns: Column
    positions: Column
    published_ms: Column
    gone: Column
    bodies: pa.Array
    reasons: tuple[str, ...] = ()

    def block(self, stream: int, chosen: Column, keys: Sequence[str], codes: Column) -> Block:
        """Those chosen, on their way to a shard, `codes` numbering `keys`."""
        columns = [pa.array(getattr(self, name)[chosen], pa.int64()) for name in _CARRIED]
        columns.append(self.bodies.filter(pa.array(chosen)))
        carried = pa.StructArray.from_arrays(columns, [*_CARRIED, "bodies"])
        times_ns = self.times_ns[chosen]
        return Block(stream, self.part, self.row, self.clock_ns, [*keys], codes, times_ns, carried)

    @classmethod
    def of_block(cls, block: Block) -> Messages:
        """Those of a block that has arrived."""
        *carried, bodies = block.values.flatten()
        greatest_ns, positions, published_ms, gone = map(np.asarray, carried)
        return cls(
            block.part, block.row, block.clock_ns, block.codes, block.times_ns, greatest_ns,
            positions, published_ms, gone, bodies,
        )  # fmt: skip

    @classmethod
    def set_aside(cls, block: Block) -> Messages:
        """Those of a block whose keys are reasons."""
        reasons = tuple(block.keys[code] for code in block.codes.tolist())
        return replace(cls.of_block(block), reasons=reasons)
