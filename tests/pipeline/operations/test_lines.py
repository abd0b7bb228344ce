from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.pipeline.operations.status import (
    Pace,
    State,
    StreamStatus,
    progress_line,
    restart_line,
)

DEAD = Path("dead")


def test_a_stream_that_has_done_nothing_says_little() -> None:
    assert progress_line(StreamStatus("s"), DEAD) == "s: 0 batches, 0 messages in, 0 out, starting"


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (StreamStatus("s", State.RUNNING, working_s=4.4), ", at a batch for 4 s"),
        (StreamStatus("s", State.RUNNING, working_s=0.4), ""),
        (StreamStatus("s", State.RUNNING, finds_nothing=True), ", nothing new to read"),
        (StreamStatus("s", State.RUNNING), ", getting ready to read"),
        (StreamStatus("s", State.RUNNING, Pace(batch=3)), ""),
        (StreamStatus("s", State.WAITING, finds_nothing=True), ", waiting for its next start"),
        (StreamStatus("s", State.FAILED), ", failed"),
    ],
)
def test_why_nothing_seems_to_happen_is_said(now: StreamStatus, said: str) -> None:
    assert progress_line(now, DEAD) == f"s: 0 batches, 0 messages in, 0 out{said}"


def test_a_busy_stream_says_all_that_matters() -> None:
    now = StreamStatus(
        "s",
        State.RUNNING,
        pace=Pace(batch=6, rows_per_s=51234.4, batch_s=0.256, lag=1200),
        batches=7,
        messages=100_000,
        published=70,
        repeated=3,
        refused=2,
        held=12,
        merger_failures=1500,
        restarts=1001,
    )
    assert progress_line(now, DEAD) == (
        "s: 7 batches, 100,000 messages in, 70 out, 51,234/s, 0.26 s a batch, 1,200 behind, "
        "12 keys held, 3 written by an earlier run, 2 refused (see dead), 1,500 merges failed, "
        "1,001 restarts"
    )


def test_a_failure_says_when_it_goes_on() -> None:
    assert restart_line("s: no room", 4.0) == "s: no room; it is started again in 4 s"
