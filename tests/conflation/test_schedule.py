"""One heap over all deadlines."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tidegate.conflation.schedule import Schedule


@dataclass
class Alarm:
    deadline: int | None


def test_the_earliest_deadline_is_next() -> None:
    schedule: Schedule[str] = Schedule()
    assert schedule.next_deadline() is None
    for name, at in (("late", 9), ("early", 3), ("middle", 5)):
        schedule.arm(Alarm(at), name)
    assert schedule.next_deadline() == 3
    assert [schedule.pop_due(5), schedule.pop_due(5), schedule.pop_due(5)] == [
        "early",
        "middle",
        None,
    ]


def test_what_is_due_this_very_moment_is_due() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.arm(Alarm(5), "a")
    assert schedule.pop_due(4) is None
    assert schedule.pop_due(5) == "a"
    assert schedule.pop_due(5) is None


def test_equal_deadlines_go_in_arming_order() -> None:
    schedule: Schedule[int] = Schedule()
    for number in range(20):
        schedule.arm(Alarm(1), number)
    assert [schedule.pop_due(1) for _ in range(20)] == list(range(20))


def test_an_alarm_that_was_put_off_is_stale() -> None:
    schedule: Schedule[str] = Schedule()
    alarm = Alarm(3)
    schedule.arm(alarm, "a")
    alarm.deadline = 7
    schedule.arm(alarm, "a")
    assert schedule.next_deadline() == 7
    alarm.deadline = None
    assert schedule.next_deadline() is None
    schedule.arm(alarm, "a")
    assert schedule.pop_due(100) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 20)))))
def test_alarms_ring_in_order_of_what_they_were_set_to_last(
    settings: list[tuple[int, int | None]],
) -> None:
    schedule: Schedule[int] = Schedule()
    watermarks = [Alarm(None) for _ in range(4)]
    for number, at in settings:
        if at is None or at != watermarks[number].deadline:
            watermarks[number].deadline = at
            schedule.arm(watermarks[number], number)
    rung = []
    while (number_due := schedule.pop_due(20)) is not None:
        at = watermarks[number_due].deadline
        assert at is not None
        rung.append(at)
        watermarks[number_due].deadline = None
    assert rung == sorted(rung)
    assert all(alarm.deadline is None for alarm in watermarks)


def test_what_is_left_goes_in_turns_with_the_other_topics() -> None:
    schedule: Schedule[str] = Schedule()
    for number in range(9):
        schedule.arm(Alarm(1), f"a{number}", "a")
    schedule.arm(Alarm(2), "b0", "b")
    schedule.arm(Alarm(2), "b1", "b")
    assert [schedule.pop_due(2) for _ in range(2)] == ["a0", "a1"]
    schedule.leave(2)  # a step has ended
    schedule.arm(Alarm(3), "a9", "a")
    schedule.arm(Alarm(3), "c", "c")
    assert schedule.next_deadline() == 1
    order = [schedule.pop_due(3) for _ in range(12)]
    assert order[:5] == ["a2", "c", "b0", "a3", "b1"]
    assert order[5:] == ["a4", "a5", "a6", "a7", "a8", "a9", None]
    assert schedule.next_deadline() is None


def test_what_is_left_may_become_stale() -> None:
    schedule: Schedule[str] = Schedule()
    moved, ended = Alarm(1), Alarm(1)
    schedule.arm(moved, "moved", "t")
    schedule.arm(ended, "ended", "t")
    schedule.leave(1)
    moved.deadline, ended.deadline = 5, None
    schedule.arm(moved, "moved", "t")
    assert schedule.next_deadline() == 5
    assert [schedule.pop_due(4), schedule.pop_due(5), schedule.pop_due(5)] == [None, "moved", None]
