"""What is published is sent again until it is answered, and is there once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from tests.clients.support.streams import plain, scripted
from tests.support.gateways import Running, running_gateway
from tests.support.network.fault_proxy import fault_proxy
from tidegate.clients.answers import Published
from tidegate.clients.errors import GatewayProblem, GatewayUnreachable
from tidegate.clients.gateway import Gateway
from tidegate.clients.requests import Post, new_key


def test_a_request_names_what_it_is_given() -> None:
    post = Post.of([b"1", b"2"], producer="p", sequence=0)
    assert (post.body, dict(post.headers)) == (
        b"1\n2",
        {
            "Content-Type": "application/x-ndjson",
            "Tidegate-Producer": "p",
            "Tidegate-Sequence": "0",
        },
    )


def test_keys_differ_and_fit_a_header() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(len(one) <= 255 and one.isascii() and " " not in one for one in keys)


def place(running: Running) -> tuple[str, int]:
    parts = urlsplit(running.address)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


async def journal(running: Running, topic: str) -> list[object]:
    answer = await running.http.get(f"/v1/topics/{topic}/messages")
    return [json.loads(line)["value"] for line in answer.text.splitlines()]


@pytest.mark.system
@pytest.mark.parametrize("numbered", [False, True], ids=["key", "number"])
async def test_what_was_published_before_the_line_broke_is_there_once(numbered: bool) -> None:
    async with running_gateway() as running, fault_proxy(*place(running)) as proxy:
        await running.topic("log", key=(), type="series")

        def publish() -> Published:
            with Gateway(f"http://127.0.0.1:{proxy.port}") as gateway:
                if numbered:
                    return gateway.publish("log", [b"1", b"2"], "p", 1)
                return gateway.publish("log", [b"1", b"2"])

        proxy.drop_reply()
        published = await asyncio.to_thread(publish)
        assert proxy.lost_replies == 1
        assert published.duplicate
        assert await journal(running, "log") == [1, 2]
        assert published.messages == (0 if numbered else 2)
        assert (published.last is None) is numbered


@pytest.mark.system
async def test_stages_and_commits_survive_lost_answers() -> None:
    async with running_gateway() as running, fault_proxy(*place(running)) as proxy:
        await running.topic("log", key=(), type="series")

        def each_answer_lost(ask: Callable[[], object]) -> object:
            proxy.drop_reply()
            return ask()

        def publish() -> list[object]:
            with Gateway(f"http://127.0.0.1:{proxy.port}") as gateway:
                return [
                    each_answer_lost(lambda: gateway.stage("log", [b"1", b"2"], "b", "p")),
                    each_answer_lost(lambda: gateway.stage("log", [b"0"], "a")),
                    each_answer_lost(lambda: gateway.commit("log", "p", 1, 1, ["a", "b"])),
                    gateway.commit("log", "p", 1, 1, ["a", "b"]),
                ]

        answers = await asyncio.to_thread(publish)
        nothing = Published("log", 0, None, None, duplicate=True, sequence=1)
        assert answers == [2, 1, nothing, nothing]
        assert proxy.lost_replies == 3
        assert await journal(running, "log") == [0, 1, 2]


def test_a_request_is_sent_again_under_the_same_key() -> None:
    answer = b'{"topic":"t","messages":1,"first":"e-1","last":"e-1","duplicate":true}'
    with scripted(plain(503), plain(200, answer, "application/json")) as fake:
        with Gateway(fake.address) as gateway:
            assert gateway.publish("t", [b"1"]).last == "e-1"
            gateway.publish("t", [b"1"], idempotency_key="mine")
            gateway.publish("t", [b"1"], "p", 1)
        keys = [headers.get("idempotency-key") for headers in fake.headers]
        assert keys[0] == keys[1] is not None
        assert keys[2:] == ["mine", None]


def test_without_patience_a_request_is_sent_once_and_has_no_key() -> None:
    with scripted(plain(503)) as fake, Gateway(fake.address, patience_s=0.0) as gateway:
        with pytest.raises(GatewayProblem):
            gateway.publish("t", [b"1"])
        assert "idempotency-key" not in fake.headers[0]
        assert len(fake.requests) == 1


def test_an_unreachable_gateway_fails_at_once() -> None:
    with (
        Gateway("http://127.0.0.1:1", patience_s=3600.0) as gateway,
        pytest.raises(GatewayUnreachable),
    ):
        gateway.publish("t", [b"1"])
