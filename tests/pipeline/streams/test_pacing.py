from __future__ import annotations

import pytest

from tidegate.pipeline.streams.stream import INTERVAL_S_MAX, MARGIN_S, Pacing


def test_the_first_batch_waits_for_nothing() -> None:
    pacing = Pacing(1.0)
    assert pacing.not_before_s == 0
    pacing.worked(0.5, 0.0)
    assert (pacing.not_before_s, pacing.slack_s(10.0)) == (0, 0)


def test_a_batch_stays_open_until_the_next_has_just_the_time_that_batches_take() -> None:
    pacing = Pacing(1.0)
    pacing.worked(0.4, 10.0)
    assert pacing.not_before_s == 11.0
    assert pacing.slack_s(10.0) == pytest.approx(0.6 - MARGIN_S)
    pacing.worked(0.2, 11.0)
    assert pacing.slack_s(11.1) == pytest.approx(0.5 - MARGIN_S), "the slowest of the last counts"
    for at in range(12, 17):
        pacing.worked(0.2, float(at))
    assert pacing.slack_s(16.0) == pytest.approx(0.8 - MARGIN_S)


def test_a_batch_that_takes_the_interval_leaves_no_slack() -> None:
    pacing = Pacing(1.0)
    pacing.worked(1.3, 10.0)
    assert pacing.slack_s(10.0) == 0


def test_a_batch_that_sent_nothing_leaves_the_interval_as_it_was() -> None:
    pacing = Pacing(1.0)
    pacing.worked(0.4, 10.0)
    pacing.worked(0.1, 0.0)
    assert pacing.not_before_s == 11.0


@pytest.mark.parametrize("interval_s", [0.0, INTERVAL_S_MAX + 1])
def test_what_is_not_paced_or_paced_slowly_holds_nothing_open(interval_s: float) -> None:
    pacing = Pacing(interval_s)
    pacing.worked(0.4, 10.0)
    assert not pacing.holds
    assert pacing.slack_s(10.0) == 0
