"""A worker knows its place among those of its parent."""

from __future__ import annotations

import dataclasses

import pytest

from tidegate.app.cluster.workers import WorkerGroup


def test_its_place_stays() -> None:
    group = WorkerGroup("c1", 2, 3)
    assert group == WorkerGroup("c1", 2, 3) != WorkerGroup("c2", 2, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        group.number = 1  # type: ignore[misc]  # that is what is tried
