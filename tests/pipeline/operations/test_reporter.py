from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.deadlines import HANGS_S
from tests.support.rules import rule
from tidegate.clients.errors import GatewayError, GatewayProblem, GatewayUnreachable
from tidegate.clients.retry import Retry
from tidegate.pipeline.operations import reporter as module
from tidegate.pipeline.operations.reporter import Reporter, message_of, reporting
from tidegate.pipeline.operations.status import Pace, State, StreamStatus

NOW = StreamStatus(
    "ticks", State.WAITING, Pace(batch=6, rows_per_s=50.12345, batch_s=0.25, lag=12),
    batches=7, messages=100, published=70, refused=2, restarts=1, error="no room" * 1000, at_s=1.5,
)  # fmt: skip


class FakeGateway:
    """Takes reports, or is in trouble as often as it has troubles."""

    def __init__(self, *troubles: GatewayError) -> None:
        self.troubles = list(troubles)
        self.told: list[tuple[str, str, int, dict[str, Any]]] = []
        self.asked = threading.Semaphore(0)

    @contextmanager
    def opened(self, address: str, retry: Retry) -> Iterator[FakeGateway]:
        assert retry.seconds_max == 0
        yield self

    def publish_body(
        self, topic: str, message: bytes, producer: str, sequence: int, media_type: str
    ) -> None:
        assert media_type == "application/json"
        self.asked.release()
        if self.troubles:
            raise self.troubles.pop(0)
        self.told.append((topic, producer, sequence, json.loads(message)))


@rule("pipeline-11")
def test_a_condition_is_a_message_of_its_pipeline() -> None:
    producer, number, message = message_of(NOW)
    assert (producer, number) == ("tidegate.pipeline.ticks.state", 1500)
    assert json.loads(message) == {
        "pipeline": "ticks", "state": "waiting", "batch": 6, "batches": 7, "messages": 100,
        "published": 70, "dead_letters": 2, "rows_per_s": 50.123, "batch_s": 0.25, "lag": 12,
        "held_keys": None, "restarts": 1, "error": ("no room" * 1000)[:1000], "at_ms": 1500,
    }  # fmt: skip


def test_what_is_told_last_is_told_also_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = FakeGateway(GatewayUnreachable("nobody"))
    monkeypatch.setattr(module, "gateway_at", gateway.opened)
    said: list[str] = []
    reporter = Reporter("http://127.0.0.1:1", said.append)
    with reporting(reporter):
        reporter.tell([NOW])
        assert gateway.asked.acquire(timeout=HANGS_S)
        reporter.tell([NOW])
    assert gateway.told[-1][:3] == ("tidegate.pipelines", "tidegate.pipeline.ticks.state", 1500)
    assert said == []


def test_a_gateway_that_does_not_want_to_hear_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateway = FakeGateway(GatewayProblem(403, "topic-read-only", "read-only"))
    monkeypatch.setattr(module, "gateway_at", gateway.opened)
    said: list[str] = []
    reporter = Reporter("http://127.0.0.1:1", said.append)
    with reporting(reporter):
        reporter.tell([NOW])
        assert gateway.asked.acquire(timeout=HANGS_S)
    assert gateway.told == []
    [line] = said
    assert line.startswith("the gateway is not told how streams stand: the gateway at http://127.")
    assert line.endswith("said no: read-only [topic-read-only]")
