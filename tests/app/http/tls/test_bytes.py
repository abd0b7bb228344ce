"""TLS after the handshake: bytes, back-pressure, and the ends of both directions."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from tests.app.http.tls.pairs import RECORD_BYTES, Inner, Pair


async def test_bytes_go_both_ways(pair: Pair) -> None:
    pair.send(b"x" * 100_000)
    assert pair.inner.received == b"x" * 100_000
    pair.tls.write(b"y" * 100_000)
    pair.tls.write(memoryview(b"z"))
    assert pair.read() == b"y" * 100_000 + b"z"


class ChangingKeys:
    """OpenSSL after a KeyUpdate that requests one in return; Python's client cannot send such."""

    def __init__(self, outgoing: ssl.MemoryBIO) -> None:
        self.outgoing = outgoing

    def read(self, _size_bytes: int) -> bytes:
        self.outgoing.write(b"our new keys")
        raise ssl.SSLWantReadError


async def test_an_answer_of_tls_itself_is_sent(pair: Pair) -> None:
    pair.tls._ssl = ChangingKeys(pair.tls._outgoing)  # type: ignore[assignment]  # its only method that is called
    pair.tls.data_received(b"")
    assert pair.plain.sent == b"our new keys"


async def test_after_our_end_an_answer_of_tls_itself_is_not_sent(pair: Pair) -> None:
    """The transport below would raise at a write after `write_eof`."""
    pair.tls.write_eof()
    pair.exchange()
    pair.tls._ssl = ChangingKeys(pair.tls._outgoing)  # type: ignore[assignment]  # its only method that is called
    pair.tls.data_received(b"")
    assert not pair.plain.sent


async def test_extra_info_of_the_connection(pair: Pair) -> None:
    assert pair.tls.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert pair.tls.get_extra_info("sslcontext") is not None
    assert pair.tls.get_extra_info("nothing", 7) == 7


async def test_invalid_records_after_the_handshake_abort_the_connection(pair: Pair) -> None:
    pair.tls.data_received(b"\x17\x03\x03\x00\x20" + b"?" * 32)
    assert pair.plain.calls == ["abort"]
    pair.tls.write(b"lost")
    pair.tls.close()


async def test_a_protocol_that_pauses_gets_nothing_until_it_resumes(pair: Pair) -> None:
    pair.tls.pause_reading()
    pair.tls.pause_reading()
    assert not pair.tls.is_reading()
    pair.send(b"abc")
    assert not pair.inner.received
    pair.tls.resume_reading()
    pair.tls.resume_reading()
    assert pair.tls.is_reading()
    assert not pair.inner.received, "it resumes in the next iteration of the loop"
    await asyncio.sleep(0)
    assert pair.inner.received == b"abc"
    assert pair.plain.calls == ["pause_reading", "resume_reading"]


async def test_a_protocol_that_pauses_within_a_record_gets_the_rest_later(pair: Pair) -> None:
    class Slow(Inner):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            assert self.transport is not None
            self.transport.pause_reading()

    slow = Slow()
    slow.transport = pair.tls
    pair.tls.set_protocol(slow)
    assert pair.tls.get_protocol() is slow
    for piece in (b"a" * RECORD_BYTES, b"b"):
        pair.client.write(piece)
    pair.exchange()
    assert slow.received == b"a" * RECORD_BYTES
    pair.tls.resume_reading()
    await asyncio.sleep(0)
    assert slow.received == b"a" * RECORD_BYTES + b"b"


async def test_a_full_buffer_below_pauses_the_protocol_inside(pair: Pair) -> None:
    pair.tls.set_write_buffer_limits(high=9, low=3)
    assert pair.plain.limits == (9, 3)
    assert pair.tls.get_write_buffer_size() == 77
    pair.tls.pause_writing()
    pair.tls.resume_writing()
    assert pair.inner.calls == ["made", "pause", "resume"]


# --- The end of one direction, and of both


async def test_a_client_that_has_ended_its_data_can_still_get_an_answer(pair: Pair) -> None:
    pair.inner.stays_open = True
    pair.send(b"question")
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.exchange()
    assert pair.inner.calls == ["made", "eof"]
    assert not pair.plain.calls
    assert pair.tls.eof_received(), "the end of the socket is not reported twice"
    pair.tls.write(b"answer")
    assert pair.read() == b"answer"
    pair.tls.close()
    assert pair.read() == b"<end>"
    assert pair.inner.calls == ["made", "eof"]


async def test_a_client_that_has_ended_its_data_is_closed_if_no_answer_follows(pair: Pair) -> None:
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.exchange()
    assert pair.inner.calls == ["made", "eof"]
    assert pair.plain.calls == ["close"]
    assert pair.read() == b"<end>"


@pytest.mark.parametrize("stays_open", [True, False])
async def test_the_end_of_a_socket_without_close_notify_is_passed_on(
    pair: Pair, *, stays_open: bool
) -> None:
    pair.inner.stays_open = stays_open
    assert pair.tls.eof_received() is stays_open
    assert pair.inner.calls == ["made", "eof"]


async def test_after_our_end_the_client_can_still_send(pair: Pair) -> None:
    pair.tls.write(b"all")
    pair.tls.write_eof()
    assert pair.tls.can_write_eof()
    assert pair.plain.calls == ["write_eof"]
    assert pair.read() == b"all<end>"
    pair.send(b"still talking")
    assert pair.inner.received == b"still talking"
    pair.tls.write(b"too late")
    pair.tls.write_eof()
    pair.tls.close()
    assert pair.plain.calls == ["write_eof", "close"]


async def test_a_close_sends_close_notify_once(pair: Pair) -> None:
    pair.tls.write(b"all")
    pair.tls.close()
    pair.tls.close()
    pair.tls.write(b"too late")
    assert pair.tls.is_closing()
    assert pair.read() == b"all<end>"


async def test_an_abort_sends_nothing(pair: Pair) -> None:
    pair.tls.abort()
    assert pair.plain.calls == ["abort"]
    assert not pair.plain.sent
    pair.tls.pause_reading()
    pair.tls.resume_reading()
    assert pair.plain.calls == ["abort"]


async def test_a_lost_connection_is_reported_to_the_protocol(pair: Pair) -> None:
    pair.tls.connection_lost(None)
    assert pair.inner.calls == ["made", "lost"]
