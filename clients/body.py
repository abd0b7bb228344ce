"""An answer's body read by a thread, so that its reader can wait for a limited time, or be stopped.

A blocking read takes no new limit while it waits and cannot be woken; a queue can. The queue is
short, so a reader that does not keep up still slows the gateway down through TCP.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from typing import Final, Self

import httpx2

CHUNKS_WAITING_MAX = 8  # httpx2 gives what one read of the socket gave, at most 64 KiB
FULL_S = 0.5
"""How long the thread waits for room in a full queue before it checks whether it is to stop."""


class BodyTimeout(Exception):
    """No bytes arrived within the given time."""


class BodyReader:
    """The bytes of one streaming answer as they arrive.

    Use as a context manager; leaving it closes the connection.
    """

    def __init__(self, answer: httpx2.Response) -> None:
        self._answer = answer
        self._arrived: queue.Queue[bytes | Exception | None] = queue.Queue(CHUNKS_WAITING_MAX)
        self._closed: Final = threading.Event()
        self._thread = threading.Thread(target=self._pump, name="tidegate-body", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()
        while self._thread.is_alive():  # makes room for what the thread still puts
            with contextlib.suppress(queue.Empty):
                self._arrived.get(timeout=0.01)
        self._thread.join()

    def stop(self) -> None:
        """End the body now; a `read` that waits, in any thread, returns or raises."""
        self._closed.set()
        self._wake()

    def read(self, seconds_max: float | None) -> bytes | None:
        """Return the next bytes, or None at the end.

        Raises:
            BodyTimeout: no bytes arrived for `seconds_max`.
            httpx2.TransportError: the connection was lost.
        """
        try:
            arrived = self._arrived.get(timeout=seconds_max)
        except queue.Empty:
            raise BodyTimeout from None
        if isinstance(arrived, Exception):
            raise arrived
        return arrived

    def _pump(self) -> None:
        last: Exception | None = None
        chunks: Iterator[bytes] = self._answer.iter_raw()
        try:
            for chunk in chunks:
                self._put(chunk)
                # After the put: it may have waited until the reader left.
                if self._closed.is_set():
                    break
        except httpx2.HTTPError as error:
            last = error
        finally:
            with contextlib.suppress(httpx2.HTTPError):
                self._answer.close()
            # Always, or a reader that waits would wait for ever.
            self._put(last)

    def _put(self, arrived: bytes | Exception | None) -> None:
        """Wait for room in the queue; give up if the body was stopped, as nobody may read it."""
        while True:
            with contextlib.suppress(queue.Full):
                self._arrived.put(arrived, timeout=FULL_S)
                return
            if self._closed.is_set():
                return

    def _wake(self) -> None:
        """End a read that waits: closing the socket would not wake it, a shutdown does."""
        stream = self._answer.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(connection, socket.socket):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
