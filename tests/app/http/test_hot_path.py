"""The hot path answers plain requests byte for byte as the application, and leaves it the rest."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from tests.support.gateways import Running, running_gateway
from tests.support.wire import connected
from tidegate.app.http.hot_path import BODY_BYTES_MAX, HotPath
from tidegate.app.streams.backpressure import SLICE_MESSAGES_MAX
from tidegate.conflation.errors import LimitReached

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHANGING = re.compile(rb'(?<!-)date: [^\r]*|"session":"[^"]*"|\b[0-9a-f]{12}(?=\b|_)|retry: [0-9]+')
HOST = b"Host: localhost\r\n"
NDJSON = b"Content-Type: application/x-ndjson\r\n"
JSON = b"Content-Type: application/json\r\n"
MESSAGE = b'{"k":1,"v":2}'


def post(
    body: bytes = MESSAGE,
    fields: bytes = HOST + NDJSON,
    target: bytes = b"/v1/topics/px/messages",
    version: bytes = b"1.1",
    length: bytes | None = None,
) -> bytes:
    length = b"Content-Length: %d\r\n" % len(body) if length is None else length
    return b"POST %b HTTP/%b\r\n%b%b\r\n%b" % (target, version, fields, length, body)


def get(query: bytes = b"", fields: bytes = HOST) -> bytes:
    return b"GET /v1/topics/px/subscribe%b HTTP/1.1\r\n%b\r\n" % (query, fields)


def poll(query: bytes = b"", fields: bytes = HOST) -> bytes:
    return b"GET /v1/topics/px/stream%b HTTP/1.1\r\n%b\r\n" % (query, fields)


AT_ONCE: dict[str, bytes] = {
    "ndjson": post(),
    "json": post(fields=HOST + JSON),
    "json with space": post(b' {"k": 1,\n "v": 2} ', HOST + JSON),
    "three lines": post(b"\n".join([MESSAGE] * 3)),
    "lines with ends": post(MESSAGE + b"\r\n" + MESSAGE + b"\n"),
    "a parameter": post(target=b"/v1/topics/px/messages?ack=processed"),
    "chunks": post(b"d\r\n" + MESSAGE + b"\r\n0\r\n\r\n", length=b"Transfer-Encoding: chunked\r\n"),
    "no key": post(target=b"/v1/topics/py/messages"),
    "a large body": post(b"\n".join([b'{"k":1,"v":"%b"}' % (b"x" * 30_000)] * 2)),
    "a stream": get(),
    "a stream with options": get(b"?options=conflation=1h&command=subscribe"),
    "a snapshot": get(b"?command=sow"),
    "polling": poll(b"?options=conflation=1h"),
    "polling for the end": poll(b"?offset=now"),
    "polling in another coding": poll(fields=HOST + b"Accept-Encoding: gzip\r\n"),
    "a compressed stream": get(b"?command=subscribe", HOST + b"Accept-Encoding: gzip\r\n"),
}
WHOLE_ROAD: dict[str, bytes] = {
    "of an allowed page": post(fields=HOST + NDJSON + b"Origin: http://page.example\r\n"),
    "of our own page": post(fields=HOST + NDJSON + b"Origin: http://localhost\r\n"),
    "a stream for a page": get(
        b"?options=conflation=2h", HOST + b"Origin: http://page.example\r\n"
    ),
    "polling an unknown topic": b"GET /v1/topics/none/stream HTTP/1.1\r\n%b\r\n" % HOST,
    "polling with a bad option": poll(b"?options=conflation=auto"),
    "polling from no position": poll(b"?offset=x"),
    "a bad line": post(MESSAGE + b"\n{"),
    "a bad text": post(b"{", HOST + JSON),
    "no key field": post(b'{"v":1}'),
    "nothing": post(b""),
    "empty lines": post(b"\n\n"),
    "bad UTF-8": post(b'{"k":"\xff"}'),
    "a larger body": post(MESSAGE + b"\n" * (BODY_BYTES_MAX - len(MESSAGE) + 1)),
    "many empty lines": post(MESSAGE + b"\n" * SLICE_MESSAGES_MAX),
    "too many messages": post(b"\n".join([MESSAGE] * 21)),
    "too many keys": post(b"\n".join(b'{"k":%d}' % at for at in range(9))),
    "too long a message": post(b'{"k":1,"v":"' + b"x" * (32 << 10) + b'"}'),
    "no type": post(fields=HOST),
    "another type": post(fields=HOST + b"Content-Type: text/plain\r\n"),
    "a charset": post(fields=HOST + b"Content-Type: application/json; charset=latin-1\r\n"),
    "a coding": post(fields=HOST + NDJSON + b"Content-Encoding: gzip\r\n"),
    "a patch": post(fields=HOST + b"Content-Type: application/merge-patch+json\r\n"),
    "an envelope": post(b'{"value":{"k":1}}', target=b"/v1/topics/px/messages?format=envelope"),
    "an unknown parameter": post(target=b"/v1/topics/px/messages?none=1"),
    "too much of an ack": post(target=b"/v1/topics/px/messages?ack=persisted"),
    "never conflated": post(fields=HOST + NDJSON + b"Tidegate-Conflate: never\r\n"),
    "a retry": post(fields=HOST + NDJSON + b"Idempotency-Key: r1\r\n"),
    "a producer": post(fields=HOST + NDJSON + b"Tidegate-Producer: p\r\nTidegate-Sequence: 1\r\n"),
    "a stage": post(fields=HOST + NDJSON + b"Tidegate-Producer: p\r\nTidegate-Stage: s\r\n"),
    "a foreign host": post(fields=b"Host: other.example\r\n" + NDJSON),
    "two hosts": post(fields=HOST + HOST + NDJSON),
    "a foreign page": post(fields=HOST + NDJSON + b"Origin: http://other.example\r\n"),
    "another site": post(fields=HOST + NDJSON + b"Sec-Fetch-Site: cross-site\r\n"),
    "an encoded name": post(target=b"/v1/topics/p%78/messages"),
    "an own topic": post(target=b"/v1/topics/tidegate.sessions/messages"),
    "an unknown topic": post(target=b"/v1/topics/none/messages"),
    "a derived topic": post(target=b"/v1/topics/derived/messages"),
    "a topic of texts": post(target=b"/v1/topics/texts/messages"),
    "a schema": post(target=b"/v1/topics/strict/messages"),
    "a schema that it breaks": post(b'{"k":"x"}', target=b"/v1/topics/strict/messages"),
    "a last request": post(fields=HOST + NDJSON + b"Connection: close\r\n"),
    "HTTP/1.0": post(version=b"1.0"),
    "to be asked": post(fields=HOST + NDJSON + b"Expect: 100-continue\r\n"),
    "a coding and a length": post(fields=HOST + NDJSON + b"Transfer-Encoding: chunked\r\n"),
    "a chunk that is none": post(b"z\r\n", length=b"Transfer-Encoding: chunked\r\n"),
    "a stream from an id": get(fields=HOST + b"Last-Event-ID: e1-7\r\n"),
    "a stream from a place": get(b"?last_event_id=e1-7"),
    "a stream from the beginning": get(b"?options=bookmark=epoch"),
    "a stream of a pattern": b"GET /v1/topics/p*/subscribe HTTP/1.1\r\n" + HOST + b"\r\n",
    "a stream with bad options": get(b"?options=none"),
    "a stream that is not taken": get(fields=HOST + b"Accept: text/html\r\n"),
    "a stream with a body": get(fields=HOST + b"Content-Length: 1\r\n") + b"x",
}


@asynccontextmanager
async def gateway(*, at_once: bool = True) -> AsyncIterator[Running]:
    async with running_gateway(
        allowed_origins=("http://page.example",),
        auto_create_topics=False,
        topic_keys_max=8,
        request_messages_max=20,
        message_bytes_max=32 << 10,
    ) as running:
        app: Any = running.server.config.app
        if not at_once:
            app.state.hot_path.kind_of = lambda exchange: None
        await running.topic()
        await running.topic("py", key=())
        for name, definition in (
            ("texts", {"type": "text"}),
            ("strict", {"key": ["/k"], "schema": {"properties": {"k": {"type": "integer"}}}}),
            ("derived", {"key": ["/k"], "source": {"topic": "px", "interval": "1h"}}),
        ):
            made = await running.http.put(f"/v1/topics/{name}", json=definition)
            assert made.status_code == 201, made.text
        yield running


async def exchanged(running: Running, *pieces: bytes) -> bytes:
    """All that is answered to the pieces of a request until the gateway is silent."""
    async with connected(running.address) as wire:
        answer = b""
        for piece in pieces:
            await wire.send(piece)
            await asyncio.sleep(0.01 if len(pieces) > 1 else 0)
        while True:
            try:
                more = await asyncio.wait_for(wire.reader.read(1 << 16), 0.1 if answer else 5)
            except TimeoutError:
                return CHANGING.sub(b"", answer)
            if not more:
                return CHANGING.sub(b"", answer) + b"(closed)"
            answer += more


@pytest.fixture(name="counted")
def counted_fixture(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each request that could be answered at once was."""
    counted: list[bool] = []
    answer = HotPath.answer

    def count(hot_path: HotPath, *more: Any) -> bool:
        counted.append(answer(hot_path, *more))
        return counted[-1]

    monkeypatch.setattr(HotPath, "answer", count)
    return counted


Pair = tuple[Running, Running]
"""Two gateways that had equal requests; the first one alone answers any of them at once."""


@asynccontextmanager
async def two_gateways() -> AsyncIterator[Pair]:
    async with gateway() as first, gateway(at_once=False) as second:
        yield first, second


@pytest_asyncio.fixture(name="pair", scope="module", loop_scope="module")
async def pair_fixture() -> AsyncIterator[Pair]:
    async with two_gateways() as pair:
        yield pair


async def both(
    pair: Pair, *requests: tuple[bytes, ...], times: int = 2
) -> tuple[list[bytes], list[bytes]]:
    """The answers to repeated requests, each of some pieces, with and without answers at once."""
    at_once, whole_road = [
        [await exchanged(running, *pieces) for pieces in requests * times] for running in pair
    ]
    return at_once, whole_road


@pytest.mark.parametrize("name", AT_ONCE)
async def test_a_plain_request_is_answered_at_once_as_by_the_application(
    pair: Pair, name: str, counted: list[bool]
) -> None:
    at_once, whole_road = await both(pair, (AT_ONCE[name],), times=3)
    assert at_once == whole_road
    assert at_once[0].startswith(b"HTTP/1.1 200 OK\r\n")
    assert all(counted)
    assert len(counted) >= 2


@pytest.mark.parametrize("name", WHOLE_ROAD)
async def test_an_odd_request_is_answered_by_the_application(
    pair: Pair, name: str, counted: list[bool]
) -> None:
    at_once, whole_road = await both(pair, (WHOLE_ROAD[name],))
    assert at_once == whole_road
    assert at_once[0]
    assert not any(counted)


@pytest.mark.parametrize("name", ["ndjson", "json", "chunks", "a large body", "a larger body"])
async def test_a_body_may_come_in_pieces(pair: Pair, name: str) -> None:
    request = {**AT_ONCE, **WHOLE_ROAD}[name]
    head, end, body = request.partition(b"\r\n\r\n")
    cuts = [len(head + end) + cut for cut in (0, 1, len(body) // 2, len(body) - 1)]
    at_once, whole_road = await both(
        pair, *[(request[:cut], request[cut:]) for cut in cuts], times=1
    )
    assert at_once == whole_road


async def test_a_connection_is_read_on_after_a_body_that_stopped_its_reading(
    pair: Pair,
) -> None:
    large = post(b"\n".join([b'{"k":1,"v":"%b"}' % (b"x" * 30_000)] * 3))
    at_once, whole_road = await both(pair, (large + post(),), (large, large + post()), times=1)
    assert at_once == whole_road
    assert [answer.count(b" 200 OK") for answer in at_once] == [2, 3]


async def test_a_request_does_not_wait_for_the_body_of_the_one_behind_it() -> None:
    unfinished = post(length=b"Content-Length: 300000\r\n") + b" " * 150_000
    async with gateway() as running:
        for behind in (post()[:-1], unfinished):
            answer = await exchanged(running, post() + behind)
            assert answer.count(b" 200 OK") == 1


@pytest.mark.parametrize("other", ["ndjson", "a bad line", "a retry", "a last request", "a stream"])
async def test_pipelined_requests_are_answered_in_their_order(pair: Pair, other: str) -> None:
    second = {**AT_ONCE, **WHOLE_ROAD}[other]
    at_once, whole_road = await both(
        pair,
        (post() + second,),
        (post() + second[:30], second[30:]),
        (post() * 3 + second,),
        times=1,
    )
    assert at_once == whole_road


async def test_what_is_published_at_once_is_what_the_whole_road_publishes() -> None:
    kept = []
    for at_once in (True, False):
        async with gateway(at_once=at_once) as running:
            for name in ("ndjson", "json with space", "three lines", "lines with ends") * 2:
                await exchanged(running, AT_ONCE[name])
            journal = await running.http.get("/v1/topics/px/messages")
            envelopes = [re.sub(r'"timestamp":[^,}]*|[0-9a-f]{12}-', "", it)
                         for it in journal.text.splitlines()]  # fmt: skip
            metrics = (await running.http.get("/metrics")).text
            counts = [
                line
                for line in metrics.splitlines()
                if re.match(r"\w*publish\w*_total|\w+_messages_total", line)
            ]
            kept.append((envelopes, counts, await running.sow()))
    assert kept[0] == kept[1]
    assert len(kept[0][0]) == 14


async def test_a_stream_that_began_at_once_is_written_to() -> None:
    async with gateway() as running:
        for _ in range(2):
            async with running.subscribe("conflation=none", command="subscribe") as stream:
                await exchanged(running, AT_ONCE["ndjson"])
                assert await stream.values(1) == [{"k": 1, "v": 2}]


async def test_a_change_of_the_topic_is_seen_by_the_next_request() -> None:
    async with gateway() as running:
        for _ in range(3):
            assert b" 200 OK" in await exchanged(running, post())
        await running.topic(schema={"required": ["must"]})
        assert b"schema-violation" in await exchanged(running, post())
        await running.http.delete("/v1/topics/derived")
        await running.http.delete("/v1/topics/px")
        assert b"topic-unknown" in await exchanged(running, post())
        assert b" 404 " in await exchanged(running, get())


@pytest.mark.parametrize(
    "definition",
    [{"type": "text"}, {"key": ["/k"], "source": {"topic": "py", "interval": "1h"}}],
    ids=str,
)
async def test_a_topic_that_is_made_anew_takes_what_its_new_definition_takes(
    definition: dict[str, Any],
) -> None:
    async with gateway() as running:
        for _ in range(2):
            assert b" 200 OK" in await exchanged(running, post())
        for name in ("derived", "px"):
            await running.http.delete(f"/v1/topics/{name}")
        made = await running.http.put("/v1/topics/px", json=definition)
        assert made.status_code == 201, made.text
        assert b" 200 OK" not in await exchanged(running, post())


async def test_limits_hold_for_plain_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway() as running:
        for request in (post(), get()) * 2:
            assert b" 200 OK" in await exchanged(running, request)

        def refuse() -> None:
            raise LimitReached("there is no memory")

        app: Any = running.server.config.app
        monkeypatch.setattr(app.state.gateway.quotas.memory, "check", refuse)
        assert b" 429 " in await exchanged(running, post())
        assert b"event: refused" in await exchanged(running, get())


async def test_what_is_published_at_once_counts_for_the_rates() -> None:
    async with running_gateway(publish_messages_max=3) as running:
        await running.topic()
        answers = [await exchanged(running, post()) for _ in range(8)]
        assert any(b" 429 " in answer for answer in answers)


async def test_a_writer_that_is_at_work_is_waited_for(counted: list[bool]) -> None:
    async with gateway() as running:
        for _ in range(2):
            await exchanged(running, post())
        app: Any = running.server.config.app
        async with app.state.gateway.catalog.get("px").writing:
            waiting = asyncio.create_task(exchanged(running, post()))
            await asyncio.sleep(0.05)
            assert counted == [True, True, False]
        assert b" 200 OK" in await waiting


async def test_a_stream_that_is_a_response_leaves_no_head_behind() -> None:
    # Something follows it, so that it cannot have the connection for itself.
    followed = (get() + post(),)
    async with two_gateways() as pair:
        at_once, whole_road = await both(pair, followed, (get(),), (get(),), followed, times=1)
    assert at_once == whole_road
    assert b"connection: close" in at_once[1]


async def test_a_stream_does_not_take_the_connection_from_the_request_after_it() -> None:
    records = get(b"?command=sow")
    async with two_gateways() as pair:
        at_once, whole_road = await both(pair, (records,), (records,), (records + post(),), times=1)
    assert at_once == whole_road
    assert at_once[-1].count(b" 200 OK") == 2


async def test_with_a_log_each_request_passes_the_layers(counted: list[bool]) -> None:
    async with running_gateway(log_requests=True) as running:
        await running.topic()
        for _ in range(3):
            assert b" 200 OK" in await exchanged(running, post())
    assert counted == []


async def test_a_gateway_that_says_goodbye_begins_no_stream_at_once() -> None:
    async with gateway() as running:
        for _ in range(2):
            assert b"event: hello" in await exchanged(running, get())
        app: Any = running.server.config.app
        app.state.gateway.stopping = True
        assert b"event: refused" in await exchanged(running, get())


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (post(b"", b"Host: evil.example\r\n" + NDJSON, length=b"Content-Length: 9\r\n"), b"421"),
        (post(b"", HOST, length=b"Content-Length: 9\r\n"), b"415"),
        (post(b"", length=b"Content-Length: 99999999\r\n"), b"413"),
    ],
)
async def test_no_body_is_awaited_for_a_request_that_its_header_refuses(
    pair: Pair, head: bytes, status: bytes
) -> None:
    for running in pair:
        assert (await exchanged(running, head)).startswith(b"HTTP/1.1 " + status)


async def test_a_reader_that_returns_goes_on_as_over_the_whole_road(counted: list[bool]) -> None:
    async with two_gateways() as pair:
        ids: list[list[str]] = []
        for running in pair:
            answers = [await running.publish({"k": number}) for number in range(3)]
            ids.append([answer["last"] for answer in answers])
        beyond = [[*each, each[-1].partition("-")[0] + "-9"] for each in ids]
        counted.clear()
        for seen in zip(*beyond, strict=True):
            for query in b"?options=conflation=1h", b"?command=sow":
                fields = [HOST + f"Last-Event-ID: {last}\r\n".encode() for last in seen]
                returns = [
                    await exchanged(running, get(query, of_its_own))
                    for running, of_its_own in zip(pair, fields, strict=True)
                ]
                assert returns[0] == returns[1], (query, seen)
        # A place that is not there yet may be another store's, and a sow has an end.
        assert counted == [True, False] * 3 + [False] * 2


async def test_an_announced_body_does_not_hold_a_stream_up(pair: Pair) -> None:
    asked = get(fields=HOST + b"Content-Length: 1\r\n")
    for running in pair:
        assert b"event: hello" in await exchanged(running, asked)


async def test_a_failure_costs_its_own_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway() as running:
        app: Any = running.server.config.app

        def fail(*_: object) -> None:
            raise OSError("the disk is gone")

        with monkeypatch.context() as broken:
            broken.setattr(app.state.gateway.writer, "write_at_once", fail)
            many = [exchanged(running, post()) for _ in range(20)]
            answers = await asyncio.gather(*many)
            assert all(answer.startswith(b"HTTP/1.1 500 ") for answer in answers)
            assert all(b'"code":"internal"' in answer for answer in answers)
        assert b" 200 OK" in await exchanged(running, post())
