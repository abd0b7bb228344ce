"""Redis, asked with patience."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.support.buses import BusServer, bus_server
from tidegate.clients.retry import Retry
from tidegate.pipeline.errors import DefinitionInvalid, GatewayRefused, GatewayUnreachable
from tidegate.pipeline.redis_server import RedisServer


@pytest.fixture(scope="module")
def server() -> Iterator[BusServer]:
    with bus_server() as running:
        yield running


@pytest.mark.redis
def test_commands_are_answered_as_bytes(server: BusServer) -> None:
    with RedisServer(server.url) as redis:
        redis.ask("XADD", "s", "1-0", "f", "\u00e9")
        assert redis.ask("XRANGE", "s", "-", "+") == [(b"1-0", {b"f": "\u00e9".encode()})]
        assert redis.ask_together(("HGET", "none", "f"), ("XLEN", "s")) == [None, 1]


@pytest.mark.redis
def test_a_refusal_is_not_retried(server: BusServer) -> None:
    with RedisServer(server.url) as redis:
        redis.ask("SET", "text", "1")
        with pytest.raises(GatewayRefused, match=r"refused: .*WRONGTYPE"):
            redis.ask_together(("HGET", "text", "f"), ("PING",))
        assert redis.ask("GET", "text") == b"1"


def test_an_unreachable_redis_is_named_without_its_password() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"redis://me:secret@127.0.0.1:{taken.getsockname()[1]}/0"
        with (
            RedisServer(address, Retry(0.2)) as redis,
            pytest.raises(GatewayUnreachable, match=r"cannot reach the Redis at 127\.0\.0\.1"),
        ):
            redis.ask("PING")
        assert "secret" not in redis.label


def test_an_address_is_one() -> None:
    with pytest.raises(DefinitionInvalid, match="not the address of a Redis"):
        RedisServer("http://127.0.0.1:6379")
    with pytest.raises(DefinitionInvalid, match="the address of a Redis has no option 'foo'"):
        RedisServer("redis://127.0.0.1:6379/0?foo=1")
    with pytest.raises(DefinitionInvalid, match="not the address of a Redis") as caught:
        RedisServer("redis://:hid/den@127.0.0.1:6379")
    assert "hid" not in str(caught.value)
