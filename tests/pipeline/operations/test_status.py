"""Figures and progress lines of a stream, from the progress that Spark reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.pipeline.operations.status import (
    BatchCount,
    Pace,
    State,
    StreamStatus,
    Totals,
    finds_nothing,
    pace_of,
    progress_line,
    restart_line,
)

TOPIC = {"endOffset": '{"bookmark":"e1-40"}', "latestOffset": '{"bookmark":"e1-100"}'}


def test_the_pace_is_that_of_the_newest_batch() -> None:
    progress: dict[str, Any] = {
        "batchId": 7,
        "durationMs": {"triggerExecution": 1500, "addBatch": 1200},
        "processedRowsPerSecond": 2.0,  # pages, not messages
        "sources": [TOPIC],
    }
    assert pace_of(progress, messages=60) == Pace(batch=7, rows_per_s=40, batch_s=1.5, lag=60)


def test_before_the_first_batch_nothing_is_known() -> None:
    assert pace_of(None) == Pace()


@pytest.mark.parametrize(
    ("source", "lag"),
    [
        (TOPIC, 60),
        ({"endOffset": {"bookmark": "e-5"}, "latestOffset": {"bookmark": "e-7"}}, 2),
        ({"endOffset": {"bookmark": "e-9"}, "latestOffset": {"bookmark": "e-7"}}, 0),
        ({"endOffset": {"logOffset": 3}, "latestOffset": None}, None),
        ({"endOffset": "3", "latestOffset": "nonsense"}, None),
        ({}, None),
    ],
)
def test_the_lag_is_what_a_topic_has_more(source: dict[str, Any], lag: int | None) -> None:
    progress = {"batchId": 1, "durationMs": {"addBatch": 1}, "sources": [source]}
    assert pace_of(progress).lag == lag


@pytest.mark.parametrize(
    ("first", "margin"), [("e1-1", None), ("e1-31", 10), ("e1-41", 0), ("e1-60", 0), (None, None)]
)
def test_the_margin_is_what_the_journal_may_drop(first: str | None, margin: int | None) -> None:
    source = {"endOffset": {"bookmark": "e1-40"}, "latestOffset": {"first": first}}
    progress = {"batchId": 1, "durationMs": {"addBatch": 1}, "sources": [source, {}]}
    assert pace_of(progress).margin == margin


def test_a_line_warns_while_the_journal_may_soon_drop_what_is_unread() -> None:
    now = StreamStatus("s", State.RUNNING, Pace(batch=1, lag=60_000, margin=40_000), Totals(1))
    assert ", these are lost after 40,000 more: lengthen the history" in progress_line(now, DEAD)
    now = StreamStatus("s", State.RUNNING, Pace(batch=1, lag=40_000, margin=60_000), Totals(1))
    assert "history" not in progress_line(now, DEAD)


def test_the_last_line_has_the_rate_of_all_batches() -> None:
    now = StreamStatus(
        "s", State.ENDED, Pace(rows_per_s=0, batch_s=2), Totals(2, 5_000, took_s=20.0)
    )
    said = "s: 2 batches, 5,000 messages in, 0 out, 250/s in 20.00 s of batches, ended"
    assert progress_line(now, DEAD) == said


def test_a_trigger_that_finds_nothing_is_no_batch() -> None:
    idle = {"batchId": 8, "durationMs": {"triggerExecution": 40, "latestOffset": 40}}
    before = Pace(batch=7, rows_per_s=40.5, batch_s=1.5, lag=0)
    assert pace_of(idle, before) == before


@pytest.mark.parametrize(
    ("message", "has_rows", "is_at_work", "expected"),
    [
        ("Initializing sources", False, False, False),
        ("Getting offsets from TidegateStream", False, True, False),
        ("Processing new data", True, True, False),
        ("Waiting for next trigger", True, False, False),
        ("Waiting for next trigger", False, False, True),
    ],
)
def test_a_source_without_news_is_known_by_the_querys_last_look(
    message: str, has_rows: bool, is_at_work: bool, expected: bool
) -> None:
    status = {"message": message, "isDataAvailable": has_rows, "isTriggerActive": is_at_work}
    assert finds_nothing(status) is expected


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
def test_a_line_says_why_nothing_happens(now: StreamStatus, said: str) -> None:
    assert progress_line(now, DEAD) == f"s: 0 batches, 0 messages in, 0 out{said}"


def test_a_busy_stream_says_all_that_matters() -> None:
    now = StreamStatus(
        "s",
        State.RUNNING,
        pace=Pace(batch=6, rows_per_s=51234.4, batch_s=0.256, lag=1200),
        totals=Totals(7, 100_000, published=70, repeated=3, refused=2, unmatched=4),
        held=12,
        merger_failures=1500,
        restarts=1001,
    )
    assert progress_line(now, DEAD) == (
        "s: 7 batches, 100,000 messages in, 70 out, the newest batch in 0.26 s at 51,234/s, "
        "1,200 behind, 12 keys held, 3 written by an earlier run, 2 refused (see dead), "
        "4 removals found no record, 1,500 merges failed, 1,001 restarts"
    )


def test_one_of_a_kind_is_said_in_the_singular() -> None:
    done = Totals(1, messages=1, published=1, unmatched=1)
    one = StreamStatus("s", State.FAILED, totals=done, held=1, restarts=1)
    assert progress_line(one, DEAD) == (
        "s: 1 batch, 1 message in, 1 out, the newest batch in 0.00 s at 0/s, 1 key held, "
        "1 removal found no record, failed, 1 restart"
    )


def test_a_failure_says_when_the_next_start_is() -> None:
    assert restart_line("s: no room", 4.0) == "s: no room; it is started again in 4 s"


def test_a_batch_adds_to_what_was_there() -> None:
    once = Totals().with_batch(BatchCount(5, published=3))
    assert once == Totals(1, 5, 3, 0, 0)
    twice = once.with_batch(BatchCount(4, repeated=2, refused=1), took_s=1.5)
    assert twice == Totals(2, 9, 3, 2, 1)
    assert (once.newest, twice.newest) == (5, 4)
    assert twice.with_batch(BatchCount(), took_s=0.5).took_s == 2.0
