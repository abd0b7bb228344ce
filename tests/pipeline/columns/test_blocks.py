from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.pipeline.columns.blocks import Block, compact, packed, shard_of, unpacked


def test_a_block_comes_back_as_it_was_also_without_a_message() -> None:
    full = Block(
        3, "a\0", 7, 99, ["x", "é"], np.array([1, 0, 1]), np.array([5, 6, 7]),
        pa.array([b"1", None, b"3"], pa.binary()),
    )  # fmt: skip
    none = np.zeros(0, np.int64)
    empty = Block(4, "b", 0, 5, [], none, none, pa.array([], pa.int64()))
    first, second = unpacked(iter([packed([full, empty])]))
    assert (first.stream, first.part, first.row, first.clock_ns) == (3, "a\0", 7, 99)
    assert first.keys == ["x", "é"]
    assert first.codes.tolist() == [1, 0, 1]
    assert first.times_ns.tolist() == [5, 6, 7]
    assert first.values.to_pylist() == [b"1", None, b"3"]
    assert (second.keys, len(second.codes), len(second.values)) == ([], 0, 0)


def test_compact_numbers_what_is_there() -> None:
    present, places = compact(np.array([4, 1, 4]), 6)
    assert present.tolist() == [1, 4]
    assert places.tolist() == [1, 0, 1]


def test_a_key_has_one_shard_in_every_process() -> None:
    assert [shard_of(f'["{name}"]', 4) for name in ("IBM", "AIG", "BAC", "SPY")] == [2, 0, 3, 1]
