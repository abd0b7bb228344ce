from __future__ import annotations

import time

from tidegate.pipeline.sinks.sink import Batch, wait_until


def test_labels_of_batches_sort_in_the_order_of_batches() -> None:
    batches = [Batch(number, 1, "q", is_end=end) for number in (0, 9, 10) for end in (False, True)]
    labels = [batch.label for batch in batches]
    for ending in ("", ".parquet", ".ndjson"):
        names = [label + ending for label in labels]
        assert names == sorted(names)
    assert labels[-2:] == ["000000010", "000000010_end"]


def test_a_moment_is_waited_for_if_it_is_not_over() -> None:
    moment_s = time.monotonic() + 0.05
    assert wait_until(moment_s) > 0
    assert time.monotonic() >= moment_s
    assert wait_until(moment_s) == 0
