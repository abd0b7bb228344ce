"""A token that is renewed somewhere else reaches every request."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.support.streams import plain, scripted
from tidegate.clients.aio.gateway import AsyncGateway
from tidegate.clients.errors import GatewayProblem, TokenUnusable
from tidegate.clients.gateway import Gateway

TOPIC = plain(200, b'{"topic":"t"}', "application/json")
REFUSED = plain(401, b'{"code":"unauthenticated"}', "application/problem+json")


def test_a_refused_token_is_read_once_more() -> None:
    tokens = iter(["old", "new", "newer"])
    with scripted(REFUSED, TOPIC) as fake:
        with Gateway(fake.address, token=lambda: next(tokens)) as gateway:
            assert gateway.topic("t") == {"topic": "t"}
        assert [each["authorization"] for each in fake.headers] == ["Bearer old", "Bearer new"]


async def test_so_does_the_asyncio_client(tmp_path: Path) -> None:
    tokens = iter(["old", "new"])
    with scripted(REFUSED, TOPIC) as fake:
        async with AsyncGateway(fake.address, token=lambda: next(tokens)) as gateway:
            assert await gateway.topic("t") == {"topic": "t"}
        assert [each["authorization"] for each in fake.headers] == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize("token", ["same", lambda: "same"])
def test_a_token_that_is_still_the_same_is_refused_once(token: str) -> None:
    with scripted(REFUSED) as fake, Gateway(fake.address, token=token) as gateway:
        with pytest.raises(GatewayProblem, match="unauthenticated"):
            gateway.topic("t")
        assert len(fake.requests) == 1


def test_a_function_that_returns_none_is_told_without_the_text() -> None:
    with Gateway("http://127.0.0.1:1", token=lambda: "a secret") as gateway:
        with pytest.raises(TokenUnusable, match="The token function: ") as raised:
            gateway.topic("t")
        assert "secret" not in str(raised.value)
