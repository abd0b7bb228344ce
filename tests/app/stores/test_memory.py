"""What only the store that keeps nothing promises; the rest is in `test_store`."""

from __future__ import annotations

from tidegate.app.stores.memory import MemoryStore


def test_it_does_not_say_that_it_survives_the_process() -> None:
    assert MemoryStore.survives_process is False
