from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.pipeline.columns.blocks import Messages, packed, unpacked

NUMBERS = np.arange(4)
FOUND = Messages(
    "f\0" + "0" * 19, 7, 30, NUMBERS, NUMBERS * 10, NUMBERS * 11, NUMBERS + 7, NUMBERS * 2,
    NUMBERS % 2, pa.array([b"a", None, b"c", None], pa.binary()),
)  # fmt: skip


def test_some_of_them_travel_as_a_block() -> None:
    chosen = np.array([True, False, True, False])
    [block] = unpacked(iter([packed([FOUND.block(3, chosen, ["x", "y"], np.array([1, 0]))])]))
    found = Messages.of_block(block)
    assert (block.stream, found.part, found.row, found.clock_ns) == (3, FOUND.part, 7, 30)
    assert [block.keys[code] for code in found.codes.tolist()] == ["y", "x"]
    assert found.times_ns.tolist() == [0, 20]
    assert found.greatest_ns.tolist() == [0, 22]
    assert (found.positions.tolist(), found.published_ms.tolist()) == ([7, 9], [0, 4])
    assert found.bodies.to_pylist() == [b"a", b"c"]


def test_what_was_set_aside_brings_its_reasons_for_keys() -> None:
    everything = np.ones(4, np.bool_)
    block = FOUND.block(-1, everything, ["why", "so"], np.array([1, 0, 1, 1]))
    assert Messages.set_aside(block).reasons == ("so", "why", "so", "so")
