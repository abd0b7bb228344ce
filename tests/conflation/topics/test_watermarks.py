"""Watermarks are reported for subscribers with that many messages, and for no others."""

from __future__ import annotations

from tidegate.conflation.topics.watermarks import Place, Watermarks

A, B = ("s1", "sub", "px"), ("s2", "sub", "px")


def watermarks(**at: tuple[int, int]) -> Watermarks:
    """Alarms of places a and b at messages and bytes."""
    found = Watermarks()
    for name, (messages, size) in at.items():
        found.set(place(name), messages, size)
    return found


def place(name: str) -> Place:
    return {"a": A, "b": B}[name]


def test_an_alarm_rings_once_more_has_come_than_it_allows() -> None:
    found = watermarks(a=(5, 1_000), b=(9, 1_000))
    assert found.due(5, 0) == []
    assert found.due(6, 0) == [A]
    assert found.due(6, 0) == []
    assert found.due(10, 0) == [B]


def test_bytes_ring_as_messages_do_and_an_alarm_rings_for_one_of_them() -> None:
    found = watermarks(a=(5, 1_000))
    assert found.due(1, 1_001) == [A]
    assert found.due(6, 1_001) == []
    assert not found.places


def test_an_alarm_set_anew_rings_at_its_new_place_only() -> None:
    found = watermarks(a=(5, 1_000))
    found.set(A, 8, 1_000)
    assert found.due(6, 0) == []
    assert found.due(9, 0) == [A]


def test_a_cleared_alarm_is_silent() -> None:
    found = watermarks(a=(5, 1_000))
    found.clear(A)
    found.clear(A)
    assert found.due(99, 9_999) == []


def test_alarms_that_are_set_again_and_again_leave_nothing_behind() -> None:
    found = Watermarks()
    for number in range(10_000):
        found.set(A, number, 1 << 30)
    assert len(found.places) == 1
    assert len(found._by_bytes) < 100
