"""The layer of TLS until its handshake is done."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any

import pytest
from fastapi import FastAPI

from tests.app.http.tls.pairs import DEADLINE_S, RECORD_BYTES, Connect, Settled
from tidegate.app.http import server as server_module
from tidegate.app.http.transport import tls as tls_module
from tidegate.app.http.transport.tls import Handshakes
from tidegate.app.settings.settings import Settings
from tidegate.keys.text.duration import Duration


async def test_the_protocol_is_made_once_the_handshake_is_done(
    connect: Connect, served: set[Any]
) -> None:
    pair = connect()
    assert pair.tls in served, "a shutdown ends it"
    assert pair.tls.transport is pair.plain
    pair.complete_handshake()
    assert (pair.made, pair.inner.calls) == (1, ["made"])
    assert pair.tls not in served, "the protocol counts itself"
    assert pair.client.selected_alpn_protocol() is None
    await asyncio.sleep(2 * DEADLINE_S)
    assert not pair.plain.calls, "a deadline of the handshake is over with it"


async def test_a_handshake_has_a_time_however_the_bytes_trickle(connect: Connect) -> None:
    silent, slow = connect(), connect()
    with pytest.raises(ssl.SSLWantReadError):
        slow.client.do_handshake()
    raw = slow.out.read()
    loop = asyncio.get_running_loop()
    began, place = loop.time(), 0
    while not slow.plain.is_over and loop.time() < began + 1:
        slow.tls.data_received(raw[place : place + 1])
        place += 1
        await asyncio.sleep(DEADLINE_S / 10)
    assert (slow.plain.calls, silent.plain.calls) == (["abort"], ["abort"])
    assert place < len(raw)
    assert not slow.made


async def test_of_too_many_handshakes_the_oldest_ends(
    connect: Connect, handshakes: Handshakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "HANDSHAKES_MAX", 2)
    done, lost, first = connect(), connect(), None
    done.complete_handshake()
    lost.tls.connection_lost(None)
    first, second, third = connect(), connect(), connect()
    assert [it.plain.calls for it in (first, second, third)] == [["abort"], [], []]
    assert not done.plain.calls, "it is a connection by now"
    first.tls.connection_lost(None)
    assert not connect().plain.calls or second.plain.calls == ["abort"]
    failed = connect()
    failed.tls.data_received(b"\x16\x03\x01\x00\x05hello")
    assert failed.tls not in handshakes._running


async def test_a_handshake_that_fails_is_ended_with_an_alert_and_no_more(
    connect: Connect, served: set[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pair = connect()
    pair.tls.data_received(b"\x16\x03\x01\x00\x05hello")
    assert pair.plain.sent[0] == 0x15, "an alert"
    assert pair.plain.calls == ["close"]
    assert not served
    assert not caplog.records, "anybody can cause it"
    assert not pair.made


@pytest.mark.parametrize("size_bytes", [100_000, 5_000_000])
async def test_a_handshake_larger_than_any_ends(connect: Connect, size_bytes: int) -> None:
    """A ClientHello of the largest record, and a message that says it is longer still."""
    pair = connect()
    body = b"\x01" + min(size_bytes, (1 << 24) - 1).to_bytes(3, "big") + b"\x03\x03"
    for start in range(0, size_bytes, RECORD_BYTES):
        piece = (body if not start else b"").ljust(RECORD_BYTES, b"\0")
        pair.tls.data_received(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece)
        if pair.plain.is_over:
            break
    assert pair.plain.calls == ["close"]
    assert start < 400_000, "it is not kept whole"
    assert not pair.made


async def test_a_client_that_leaves_in_the_handshake_is_forgotten(
    connect: Connect, served: set[Any]
) -> None:
    pair = connect()
    assert not pair.tls.eof_received(), "the connection ends"
    pair.tls.pause_writing()
    pair.tls.resume_writing()
    pair.tls.connection_lost(None)
    assert not served
    await asyncio.sleep(2 * DEADLINE_S)
    assert not pair.plain.calls, "nothing is left to cut"


async def test_a_request_in_plain_text_gets_an_answer_and_the_end(
    connect: Connect, served: set[Any]
) -> None:
    pair = connect()
    pair.tls.data_received(b"GET / HTTP/1.1\r\n\r\n")
    assert pair.plain.sent.startswith(b"HTTP/1.1 400 ")
    assert pair.plain.calls == ["close"]
    assert not served


async def test_a_head_request_in_plain_text_gets_no_body(connect: Connect) -> None:
    pair = connect()
    pair.tls.data_received(b"HEAD / HTTP/1.1\r\n\r\n")
    assert pair.plain.sent.startswith(b"HTTP/1.1 400 ")
    assert pair.plain.sent.endswith(b"\r\n\r\n")


async def test_what_does_not_begin_like_tls_may_come_later(connect: Connect) -> None:
    """Only the first byte tells; the rest of a hello may begin with any."""
    pair = connect()
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.do_handshake()
    raw = pair.out.read()
    pair.tls.data_received(raw[:1])
    pair.tls.data_received(raw[1:])
    pair.complete_handshake()
    assert pair.made == 1


async def test_a_shutdown_in_the_handshake_cuts(connect: Connect) -> None:
    pair = connect()
    pair.tls.shutdown()
    assert pair.plain.calls == ["abort"]


async def test_a_handshake_has_the_time_of_a_header(
    settled: Settled, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def noted(_certificates: object, protocol: Any, deadline_s: float) -> Any:
        seen.append(deadline_s)
        return protocol

    monkeypatch.setattr(server_module, "tls_factory", noted)
    server_module.Server(FastAPI(), settled(header_deadline=Duration.parse("7s")))
    assert seen == [7.0]


def test_handshakes_have_descriptors_of_their_own(
    settled: Settled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a flood of them would leave none for connections that are admitted."""
    monkeypatch.setattr(server_module, "connections_that_fit", lambda most: min(most, 1_000))
    over_tls = server_module.Server(FastAPI(), settled()).figures.connections_max
    assert over_tls == 1_000 - tls_module.HANDSHAKES_MAX
    assert server_module.Server(FastAPI(), Settings()).figures.connections_max == 1_000
