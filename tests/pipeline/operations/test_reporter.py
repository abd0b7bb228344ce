from __future__ import annotations

import json
import threading
from typing import Any, Self

import pytest

from pipeline.errors import GatewayRefused, GatewayUnreachable, PipelineError
from pipeline.operations import reporter as module
from pipeline.operations.condition import Condition, Pace, State
from pipeline.operations.reporter import Reporter, message_of, reporting

NOW = Condition(
    "ticks", State.WAITING, Pace(batch=6, rows_per_s=50.12345, batch_s=0.25, lag=12),
    batches=7, messages=100, published=70, refused=2, restarts=1, error="no room" * 1000, at_s=1.5,
)  # fmt: skip


class FakeGateway:
    """Takes reports, or is in trouble as often as it has troubles."""

    def __init__(self, *troubles: PipelineError) -> None:
        self.troubles = list(troubles)
        self.told: list[tuple[str, str, int, dict[str, Any]]] = []
        self.asked = threading.Semaphore(0)

    def __call__(self, address: str, patience_s: float) -> FakeGateway:
        assert patience_s == 0
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def report(self, topic: str, producer: str, sequence: int, message: bytes) -> None:
        self.asked.release()
        if self.troubles:
            raise self.troubles.pop(0)
        self.told.append((topic, producer, sequence, json.loads(message)))


def test_a_condition_is_a_message_of_its_pipeline() -> None:
    """Rule 584."""
    producer, number, message = message_of(NOW)
    assert (producer, number) == ("tidegate.pipeline.ticks.state", 1500)
    assert json.loads(message) == {
        "pipeline": "ticks", "state": "waiting", "batch": 6, "batches": 7, "messages": 100,
        "published": 70, "dead_letters": 2, "rows_per_s": 50.123, "batch_s": 0.25, "lag": 12,
        "held_keys": None, "restarts": 1, "error": ("no room" * 1000)[:1000], "at_ms": 1500,
    }  # fmt: skip


def test_what_is_told_last_is_told_also_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = FakeGateway(GatewayUnreachable("nobody"))
    monkeypatch.setattr(module, "Gateway", gateway)
    said: list[str] = []
    reporter = Reporter("http://127.0.0.1:1", said.append)
    with reporting(reporter):
        reporter.tell([NOW])
        assert gateway.asked.acquire(timeout=30)
        reporter.tell([NOW])
    assert gateway.told[-1][:3] == ("tidegate.pipelines", "tidegate.pipeline.ticks.state", 1500)
    assert said == []


def test_a_gateway_that_does_not_want_to_hear_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateway = FakeGateway(GatewayRefused("read-only"))
    monkeypatch.setattr(module, "Gateway", gateway)
    said: list[str] = []
    reporter = Reporter("http://127.0.0.1:1", said.append)
    with reporting(reporter):
        reporter.tell([NOW])
        assert gateway.asked.acquire(timeout=30)
    assert gateway.told == []
    assert said == ["the gateway is not told how streams stand: read-only"]
