"""Labels of batches sort in order, and a sink waits until a batch is due."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidegate.pipeline.sinks import sink as module
from tidegate.pipeline.sinks.sink import Batch, wait_until


def test_labels_of_batches_sort_in_the_order_of_batches() -> None:
    batches = [Batch(number, 1, "q", is_end=end) for number in (0, 9, 10) for end in (False, True)]
    labels = [batch.label for batch in batches]
    for ending in ("", ".parquet", ".ndjson"):
        names = [label + ending for label in labels]
        assert names == sorted(names)
    assert labels[-2:] == ["000000010", "000000010_end"]


def test_a_moment_is_waited_for_if_it_is_not_over(monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 100.0 + sum(slept_s), sleep=slept_s.append)
    monkeypatch.setattr(module, "time", clock)
    assert wait_until(107.0) == 7
    assert wait_until(107.0) == wait_until(50.0) == 0
    assert slept_s == [7, 0, 0]
