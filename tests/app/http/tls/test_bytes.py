"""The layer of TLS after the handshake: bytes, back-pressure, and the ends of both directions."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from tests.app.http.tls.pairs import RECORD_BYTES, Inner, Pair


async def test_bytes_go_both_ways(made: Pair) -> None:
    made.say(b"x" * 100_000)
    assert made.inner.received == b"x" * 100_000
    made.layer.write(b"y" * 100_000)
    made.layer.write(memoryview(b"z"))
    assert made.read() == b"y" * 100_000 + b"z"


class ChangingKeys:
    """OpenSSL after a KeyUpdate that asks for another, which Python's client cannot send."""

    def __init__(self, outgoing: ssl.MemoryBIO) -> None:
        self.outgoing = outgoing

    def read(self, _size_bytes: int) -> bytes:
        self.outgoing.write(b"our new keys")
        raise ssl.SSLWantReadError


async def test_what_tls_itself_answers_is_sent(made: Pair) -> None:
    made.layer._ssl = ChangingKeys(made.layer._outgoing)  # type: ignore[assignment]  # its one verb
    made.layer.data_received(b"")
    assert made.plain.sent == b"our new keys"


async def test_after_our_end_tls_itself_answers_no_more(made: Pair) -> None:
    """The transport below raises at a write then."""
    made.layer.write_eof()
    made.carry()
    made.layer._ssl = ChangingKeys(made.layer._outgoing)  # type: ignore[assignment]  # its one verb
    made.layer.data_received(b"")
    assert not made.plain.sent


async def test_what_is_known_of_the_connection(made: Pair) -> None:
    assert made.layer.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert made.layer.get_extra_info("sslcontext") is not None
    assert made.layer.get_extra_info("nothing", 7) == 7


async def test_what_is_no_tls_after_the_handshake_cuts(made: Pair) -> None:
    made.layer.data_received(b"\x17\x03\x03\x00\x20" + b"?" * 32)
    assert made.plain.calls == ["abort"]
    made.layer.write(b"lost")
    made.layer.close()


async def test_a_protocol_that_pauses_gets_nothing_until_it_resumes(made: Pair) -> None:
    made.layer.pause_reading()
    made.layer.pause_reading()
    assert not made.layer.is_reading()
    made.say(b"abc")
    assert not made.inner.received
    made.layer.resume_reading()
    made.layer.resume_reading()
    assert made.layer.is_reading()
    assert not made.inner.received, "in the loop's next turn"
    await asyncio.sleep(0)
    assert made.inner.received == b"abc"
    assert made.plain.calls == ["pause_reading", "resume_reading"]


async def test_a_protocol_that_pauses_within_a_record_gets_the_rest_later(made: Pair) -> None:
    class Slow(Inner):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            assert self.transport is not None
            self.transport.pause_reading()

    slow = Slow()
    slow.transport = made.layer
    made.layer.set_protocol(slow)
    assert made.layer.get_protocol() is slow
    for piece in (b"a" * RECORD_BYTES, b"b"):
        made.client.write(piece)
    made.carry()
    assert slow.received == b"a" * RECORD_BYTES
    made.layer.resume_reading()
    await asyncio.sleep(0)
    assert slow.received == b"a" * RECORD_BYTES + b"b"


async def test_a_full_buffer_below_pauses_the_protocol_inside(made: Pair) -> None:
    made.layer.set_write_buffer_limits(high=9, low=3)
    assert made.plain.limits == (9, 3)
    assert made.layer.get_write_buffer_size() == 77
    made.layer.pause_writing()
    made.layer.resume_writing()
    assert made.inner.calls == ["made", "pause", "resume"]


# --- The end of one direction, and of both


async def test_a_client_that_says_its_end_may_get_an_answer_still(made: Pair) -> None:
    made.inner.stays_open = True
    made.say(b"question")
    with pytest.raises(ssl.SSLWantReadError):
        made.client.unwrap()
    made.carry()
    assert made.inner.calls == ["made", "eof"]
    assert not made.plain.calls
    assert made.layer.eof_received(), "the end of the socket is no other one"
    made.layer.write(b"answer")
    assert made.read() == b"answer"
    made.layer.close()
    assert made.read() == b"<end>"
    assert made.inner.calls == ["made", "eof"]


async def test_a_client_that_says_its_end_is_closed_where_nothing_is_to_come(made: Pair) -> None:
    with pytest.raises(ssl.SSLWantReadError):
        made.client.unwrap()
    made.carry()
    assert made.inner.calls == ["made", "eof"]
    assert made.plain.calls == ["close"]
    assert made.read() == b"<end>"


@pytest.mark.parametrize("stays_open", [True, False])
async def test_a_socket_that_ends_without_a_word_is_passed_on(
    made: Pair, *, stays_open: bool
) -> None:
    made.inner.stays_open = stays_open
    assert made.layer.eof_received() is stays_open
    assert made.inner.calls == ["made", "eof"]


async def test_our_end_of_one_direction_is_said_inside_and_the_other_goes_on(made: Pair) -> None:
    made.layer.write(b"all")
    made.layer.write_eof()
    assert made.layer.can_write_eof()
    assert made.plain.calls == ["write_eof"]
    assert made.read() == b"all<end>"
    made.say(b"still talking")
    assert made.inner.received == b"still talking"
    made.layer.write(b"too late")
    made.layer.write_eof()
    made.layer.close()
    assert made.plain.calls == ["write_eof", "close"]


async def test_a_close_says_the_end_once(made: Pair) -> None:
    made.layer.write(b"all")
    made.layer.close()
    made.layer.close()
    made.layer.write(b"too late")
    assert made.layer.is_closing()
    assert made.read() == b"all<end>"


async def test_a_cut_says_nothing(made: Pair) -> None:
    made.layer.abort()
    assert made.plain.calls == ["abort"]
    assert not made.plain.sent
    made.layer.pause_reading()
    made.layer.resume_reading()
    assert made.plain.calls == ["abort"]


async def test_a_loss_ends_the_protocol(made: Pair) -> None:
    made.layer.connection_lost(None)
    assert made.inner.calls == ["made", "lost"]
