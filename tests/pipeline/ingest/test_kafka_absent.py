"""Brokers of Kafka that are not there, which needs none that is."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from tests.pipeline.ingest.ingesting import connector_of
from tidegate.pipeline.errors import EndpointUnavailable
from tidegate.pipeline.ingest.sources import kafka

pytestmark = pytest.mark.system


def check(address: str, said: str) -> None:
    connector = connector_of({"kind": "kafka", "brokers": address, "topic": "t"})
    with closing(connector), pytest.raises(EndpointUnavailable, match=said):
        connector.open(lambda partition: None)


def test_an_address_that_takes_no_connection_is_named_long_before_the_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka, "ANSWER_SECONDS_MAX", float("inf"))
    check("127.0.0.1:1", r"Kafka topic t at 127.0.0.1:1: .*127.0.0.1:1 failed: Connection refused")


def test_a_server_that_does_not_answer_is_given_up_after_the_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka, "CONNECT_SECONDS", 0.1)
    monkeypatch.setattr(kafka, "ANSWER_SECONDS_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        check(address, f"Kafka topic t at {address}: .*")
