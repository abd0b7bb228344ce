"""Brokers of Kafka that are not there, which needs none that is."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.pipeline.forward.forwarding import definitions
from tidegate.pipeline.errors import EndpointUnavailable
from tidegate.pipeline.forward.target import Patience

pytestmark = pytest.mark.system
FILE = """
[forward.a]
source = {topic = "t"}
sink = {kind = "kafka", brokers = "127.0.0.1:1", topic = "k"}
"""


def test_an_address_that_takes_no_connection_is_named_with_the_reason(tmp_path: Path) -> None:
    [definition] = definitions(tmp_path, FILE, "http://127.0.0.1:8080")
    target = definition.sink.target("a", Patience(time.sleep, print))
    said = r"Kafka topic k at 127.0.0.1:1: .*127.0.0.1:1 failed: Connection refused"
    with closing(target), pytest.raises(EndpointUnavailable, match=said):
        target.open()
