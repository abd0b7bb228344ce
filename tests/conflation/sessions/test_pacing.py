"""The speed of a replay."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tidegate.conflation.frame import Frame
from tidegate.conflation.sessions.rows import Pacing
from tidegate.keys.text.duration import MILLISECOND, SECOND
from tidegate.keys.text.rate import Rate

ROWS = [Frame(n, b"x" * 500, "", at_ms) for n, at_ms in enumerate((0, 100, 400, 400, 9_400), 1)]


def times(rate: Rate) -> list[float]:
    """When each row goes, in seconds, if its reader always takes at once."""
    pacing, now, gone = Pacing(rate, 0), 0, []
    for row in ROWS:
        now = max(now, pacing.due(row))
        pacing.went(row, now)
        gone.append(now / SECOND)
    return gone


@rule("resume-9")
@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (Rate(messages_per_s=4), [0, 0.25, 0.5, 0.75, 1.0]),
        (Rate(bytes_per_s=1_000), [0, 0.5, 1.0, 1.5, 2.0]),
        (Rate(times=1), [0, 0.1, 0.4, 0.4, 9.4]),
        (Rate(times=2), [0, 0.05, 0.2, 0.2, 4.7]),
        (Rate(times=0.5), [0, 0.2, 0.8, 0.8, 18.8]),
        (Rate(times=1, max_gap_ns=500 * MILLISECOND), [0, 0.1, 0.4, 0.4, 0.9]),
    ],
)
def test_each_row_waits_its_share(rate: Rate, expected: list[float]) -> None:
    assert times(rate) == pytest.approx(expected)


@rule("resume-9")
def test_a_reader_that_was_away_catches_up_a_second_at_most() -> None:
    pacing = Pacing(Rate(messages_per_s=10), 0)
    pacing.went(ROWS[0], 0)
    pacing.went(ROWS[1], 60 * SECOND)
    assert pacing.due(ROWS[2]) == 59 * SECOND + SECOND // 10
