"""What is known of a recorded message."""

from __future__ import annotations

from tests.support.rules import rule
from tidegate.pipeline.archive.recorded import Recorded, RecordedClock, RecordedPlace, Spot, Window


def test_the_recorded_clock_never_runs_back() -> None:
    clock = RecordedClock(50)
    assert [clock.at(time_ms) for time_ms in (40, 60, 55, 61)] == [50, 60, 60, 61]


@rule("archive-1")
def test_a_window_is_half_open() -> None:
    window = Window(10, 20)
    assert [window.has_begun(at) for at in (9, 10)] == [False, True]
    assert [window.is_over(at) for at in (19, 20)] == [False, True]
    assert Window().has_begun(0)
    assert not Window().is_over(1 << 60)


def test_a_message_weighs_what_its_value_does() -> None:
    spot, place = Spot("f", "line", 1), RecordedPlace("e1", 1)
    assert Recorded(spot, place, 0, None, b"abc").size == 3
    assert Recorded(spot, place, 0, '["a"]', None, "deleted").size == 0


def test_where_it_was_found_is_told_in_words() -> None:
    assert str(Spot("a.ndjson", "line", 1007)) == "a.ndjson, line 1007"
