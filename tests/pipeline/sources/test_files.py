from __future__ import annotations

import pyarrow as pa

from pipeline.sources.files import number_lines


def test_lines_are_numbered_within_their_part_across_batches() -> None:
    batches = [["a", "a", "b"], [], ["b", "b", "a\0"], ["c"]]
    arrow = (pa.RecordBatch.from_pydict({"part": pa.array(part, pa.string())}) for part in batches)
    numbered = [batch.column("row").to_pylist() for batch in number_lines(arrow)]
    assert numbered == [[1, 2, 1], [], [2, 3, 1], [1]]
