"""Heartbeats of a stream, on a clock that the test sets."""

from __future__ import annotations

from tidegate.app.streams.notices import PROGRESS_S, Heartbeat


def test_a_heartbeat_is_due_after_silence() -> None:
    pulse = Heartbeat(15, 100)
    assert not pulse.heartbeat_due(114.9)
    assert pulse.heartbeat_due(115)
    pulse.wrote(110)
    assert not pulse.heartbeat_due(124.9)
    assert pulse.heartbeat_due(125)


def test_progress_is_looked_for_once_a_second() -> None:
    pulse = Heartbeat(15, 100)
    assert not pulse.progress_due(100 + PROGRESS_S / 2)
    assert pulse.progress_due(100 + PROGRESS_S)
    pulse.progress_checked(101.5)
    assert not pulse.progress_due(102)
    assert pulse.progress_due(101.5 + PROGRESS_S)


def test_progress_comes_no_more_rarely_than_heartbeats() -> None:
    assert Heartbeat(0.2, 0).progress_due(0.2)


def test_output_is_no_reason_to_put_progress_off() -> None:
    pulse = Heartbeat(15, 0)
    pulse.wrote(PROGRESS_S)
    assert pulse.progress_due(PROGRESS_S)


def test_a_stream_waits_until_the_next_is_due() -> None:
    pulse = Heartbeat(15, 0)
    assert pulse.wait_s(5, progress=False) == 10
    assert pulse.wait_s(0.25, progress=True) == 0.75
    assert pulse.wait_s(99, progress=True) == 0
