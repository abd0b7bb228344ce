"""The steps of `conflation=auto` within bounds: the lower rounded up, the upper down."""

from __future__ import annotations

import pytest

from tidegate.conflation.options.conflicts import (
    STEPS_NS,
    step_not_above,
    step_not_below,
    steps_within,
)
from tidegate.keys.text.duration import parse_duration


def ns(text: str | None) -> int | None:
    return None if text is None else parse_duration(text)


@pytest.mark.parametrize(
    ("bound", "not_below", "not_above"),
    [
        ("1ms", "50ms", None),
        ("50ms", "50ms", "50ms"),
        ("51ms", "100ms", "50ms"),
        ("3s", "5s", "2s"),
        ("30s", "30s", "30s"),
        ("1d", None, "30s"),
    ],
)
def test_a_bound_is_rounded_inwards(
    bound: str, not_below: str | None, not_above: str | None
) -> None:
    assert step_not_below(parse_duration(bound)) == ns(not_below)
    assert step_not_above(parse_duration(bound)) == ns(not_above)


def test_steps_between_two_bounds() -> None:
    assert steps_within(1, STEPS_NS[-1] * 9) == (STEPS_NS[0], STEPS_NS[-1])
    assert steps_within(STEPS_NS[3], STEPS_NS[3]) == (STEPS_NS[3], STEPS_NS[3])
    assert steps_within(STEPS_NS[3] + 1, STEPS_NS[4] - 1) is None
    assert steps_within(STEPS_NS[-1] + 1, STEPS_NS[-1] * 9) is None
    assert steps_within(1, STEPS_NS[0] - 1) is None
