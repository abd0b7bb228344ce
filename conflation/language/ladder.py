"""The ladder of `conflation=auto`: the intervals that it may choose from (CONTRACT 5.2)."""

from __future__ import annotations

from conflation.duration import MILLISECOND, SECOND

STEPS_NS = (
    *(50 * MILLISECOND, 100 * MILLISECOND, 200 * MILLISECOND, 500 * MILLISECOND),
    *(1 * SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND),
)


def step_not_below(bound_ns: int) -> int | None:
    """The shortest step of at least this; None above the last one."""
    return next((step_ns for step_ns in STEPS_NS if step_ns >= bound_ns), None)


def step_not_above(bound_ns: int) -> int | None:
    """The longest step of at most this; None below the first one."""
    return next((step_ns for step_ns in reversed(STEPS_NS) if step_ns <= bound_ns), None)


def steps_within(min_ns: int, max_ns: int) -> tuple[int, int] | None:
    """The first and the last step between two bounds; None if there is no step between them."""
    first, last = step_not_below(min_ns), step_not_above(max_ns)
    return (first, last) if first is not None and last is not None and first <= last else None
