"""One gateway for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.commands import serving_here
from tidegate.clients.gateway import Gateway


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving_here() as address:
        yield address


@pytest.fixture
def gateway(address: str) -> Iterator[Gateway]:
    """A client, and a gateway without topics after each test."""
    with Gateway(address) as client:
        yield client
        for topic in list(client.topics()):
            client.delete_topic(topic["topic"])
