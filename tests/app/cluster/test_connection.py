"""Clients of the bus: no write twice, no read cut short, names that stay in one slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.crc import key_slot

from tidegate.app.cluster.connection import BusConnection, translate_errors, with_timeout
from tidegate.app.refusals import Refused


@pytest.fixture
async def connection(redis_url: str) -> AsyncIterator[BusConnection]:
    made = BusConnection(redis_url, "connection-test")
    yield made
    await made.aclose()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://localhost",
        "localhost:6379",
        "127.0.0.1:6379",
        "redis:/127.0.0.1",
        "redis://",
        "redis:///0",
        "redis://:6379",
        "redis://:hush@/0",
        "rediss://?ssl_cert_reqs=none",
        "unix://",
    ],
)
def test_an_address_that_is_none_is_refused_with_those_that_are(url: str) -> None:
    with pytest.raises(ValueError, match="redis://HOST") as refused:
        BusConnection(url)
    assert all(f"{each}://" in str(refused.value) for each in ("rediss", "unix", "redis+sentinel"))
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["redis://h", "REDIS://h:1/2", "rediss://u:p@[::1]:1", "unix:///run/redis?db=1"]
)
def test_an_address_of_a_server_is_taken(url: str) -> None:
    assert BusConnection(url).prefix == "tidegate"


def test_all_keys_of_a_topic_are_in_one_slot() -> None:
    connection = BusConnection("redis://localhost")
    names = {connection.topic_key("ticks", part) for part in ("stream", "head", "sow")}
    assert len(names) == 3
    assert len({key_slot(name.encode()) for name in names}) == 1
    assert connection.topic_key("a", "b:c") != connection.topic_key("a:b", "c")


@pytest.mark.redis
async def test_answers_are_bytes_in_lists(connection: BusConnection) -> None:
    stream = connection.shared_key("stream")
    await connection.writer.delete(stream)
    await connection.writer.xadd(stream, {"a": b"\xff"}, id="5-0")
    answer = await connection.reader.xread({stream: "0"})
    assert answer == [[stream.encode(), [(b"5-0", {b"a": b"\xff"})]]]


@pytest.mark.redis
async def test_a_pinned_view_keeps_its_one_connection(connection: BusConnection) -> None:
    async with connection.pinned() as view:
        others = [asyncio.create_task(connection.execute("CLIENT ID")) for _ in range(5)]
        found = {await view.execute("CLIENT ID") for _ in range(5)}
        assert len(found) == 1
        assert found.isdisjoint(await asyncio.gather(*others))
        assert await view.run_script("return ARGV[1]", [], ["a"]) == b"a"


@pytest.mark.redis
async def test_a_reader_waits_until_there_is_something(connection: BusConnection) -> None:
    stream = connection.shared_key("waited-for")
    await connection.writer.delete(stream)
    reading = asyncio.create_task(with_timeout(connection.reader.xread({stream: "0"}, block=0), 60))
    while not (await connection.writer.info("clients"))["blocked_clients"]:
        await asyncio.sleep(0)
    await connection.writer.xadd(stream, {"a": 1}, id="1-0")
    assert await reading == [[stream.encode(), [(b"1-0", {b"a": b"1"})]]]


async def test_a_write_whose_answer_was_lost_is_not_repeated() -> None:
    writes = 0

    async def lose(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal writes
        while received := await reader.read(65_536):
            if b"XADD" in received:
                writes += 1
                break
            writer.write(b"+OK\r\n" * received.count(b"*"))
        writer.close()

    server = await asyncio.start_server(lose, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = BusConnection(f"redis://127.0.0.1:{port}")
    with pytest.raises(Refused, match="bus-unavailable"), translate_errors():
        await connection.writer.xadd("stream", {"a": 1})
    assert writes == 1
    await connection.aclose()
    server.close()
    await server.wait_closed()


async def test_a_bus_that_is_not_there_is_out() -> None:
    connection = BusConnection("unix:///nowhere/redis.sock")
    with pytest.raises(Refused, match="bus-unavailable"), translate_errors():
        await connection.writer.ping()
    await connection.aclose()
