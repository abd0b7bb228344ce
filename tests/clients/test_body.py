"""A body's reader waits as long as it wants to, and can be woken from elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import httpx2
import pytest

from tests.clients.support.streams import Scripted, broken_stream, scripted, stream
from tests.support.deadlines import HANGS_S
from tidegate.clients.body import CHUNKS_WAITING_MAX, BodyReader, BodyTimeout


@contextlib.contextmanager
def body_of(gateway: Scripted) -> Iterator[BodyReader]:
    with httpx2.Client(timeout=None) as http:
        answer = http.send(http.build_request("GET", gateway.address), stream=True)
        with BodyReader(answer) as body:
            yield body


def read_all(body: BodyReader) -> bytes:
    pieces = []
    while (piece := body.read(20)) is not None:
        pieces.append(piece)
    return b"".join(pieces)


def test_all_bytes_come_and_then_the_end() -> None:
    pieces = [b"%d," % number for number in range(5 * CHUNKS_WAITING_MAX)]
    with scripted(stream(*pieces)) as gateway, body_of(gateway) as body:
        assert read_all(body) == b"".join(pieces)


def test_silence_is_raised_and_reading_can_go_on() -> None:
    go_on = threading.Event()
    with scripted(stream(b"a", then_hang=go_on)) as gateway, body_of(gateway) as body:
        assert body.read(20) == b"a"
        with pytest.raises(BodyTimeout):
            body.read(0.05)
        go_on.set()
        assert body.read(20) is None


def test_a_cut_connection_is_an_error() -> None:
    with scripted(broken_stream(b"a")) as gateway, body_of(gateway) as body:
        assert body.read(20) == b"a"
        with pytest.raises(httpx2.TransportError):
            body.read(20)


def test_a_waiting_read_ends_when_stopped_by_another_thread() -> None:
    hang = threading.Event()
    with scripted(stream(b"a", then_hang=hang)) as gateway, body_of(gateway) as body:
        assert body.read(20) == b"a"
        stopper = threading.Timer(0.05, body.stop)
        stopper.start()
        with pytest.raises(httpx2.TransportError):  # and not BodyTimeout
            body.read(10)
        stopper.join()
        hang.set()


def test_leaving_early_ends_the_thread_though_much_is_still_coming() -> None:
    pieces = [b"x" * 65536] * 200
    with scripted(stream(*pieces)) as gateway:
        with body_of(gateway) as body:
            assert body.read(20)
        names = [thread.name for thread in threading.enumerate()]
        assert "tidegate-body" not in names


def test_stopping_ends_the_thread_though_nobody_reads_what_waits() -> None:
    with scripted(stream(*[b"x" * 65536] * 200)) as gateway, body_of(gateway) as body:
        until_s = time.monotonic() + HANGS_S
        while not body._arrived.full():
            assert time.monotonic() < until_s
            time.sleep(0.01)
        body.stop()
        body._thread.join(HANGS_S)
        assert not body._thread.is_alive()
