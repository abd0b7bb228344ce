from __future__ import annotations

from typing import Any

import pytest

from tidegate.pipeline.operations.status import Pace, finds_nothing, pace_of

TOPIC = {"endOffset": '{"bookmark":"e1-40"}', "latestOffset": '{"bookmark":"e1-100"}'}


def test_the_pace_is_that_of_the_newest_batch() -> None:
    progress: dict[str, Any] = {
        "batchId": 7,
        "durationMs": {"triggerExecution": 1500, "addBatch": 1200},
        "processedRowsPerSecond": 40.5,
        "sources": [TOPIC],
    }
    assert pace_of(progress) == Pace(batch=7, rows_per_s=40.5, batch_s=1.5, lag=60)


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
