"""A Redis with a stream `ticks` that something else fills."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """A client of a Redis that has no such stream yet."""
    with Redis.from_url(redis_url) as client:
        client.delete("ticks")
        yield client
