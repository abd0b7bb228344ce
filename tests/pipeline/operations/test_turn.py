"""One stream starts at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.rules import rule
from tidegate.pipeline.operations.supervisor import TURN_SECONDS_MAX, StartGate


def query(message: str, *, active: bool = True) -> Any:
    return SimpleNamespace(isActive=active, status={"message": message})


@rule("pipeline-9")
@pytest.mark.parametrize(
    ("message", "active", "is_free"),
    [
        ("Initializing StreamExecution", True, False),
        ("Initializing sources", True, False),
        ("Initializing sources", False, True),
        ("Getting offsets from TopicStream", True, True),
        ("Waiting for next trigger", True, True),
    ],
)
def test_a_turn_is_over_when_the_query_reads_or_has_ended(
    message: str, active: bool, is_free: bool
) -> None:
    turn = StartGate()
    assert turn.is_free()
    turn.take(query(message, active=active))
    assert turn.is_free() is is_free


def test_nobody_waits_longer_than_spark_does() -> None:
    now = [0.0]
    turn = StartGate(lambda: now[0])
    turn.take(query("Initializing sources"))
    now[0] = TURN_SECONDS_MAX - 0.1
    assert not turn.is_free()
    now[0] = TURN_SECONDS_MAX
    assert turn.is_free()
