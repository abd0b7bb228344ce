"""Compression: bytes and CPU of a flush to 500 clients with gzip, compared with the same without.

A compressed event cannot be counted by what it holds. Each flush ends with a mark of deflate's, so
those are counted, and one client of another kind decodes its stream and counts the rows.
"""

from __future__ import annotations

import http.client
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from bench.engine import payloads
from bench.figure import Figure, median
from bench.servers.gateway import KEY, Gateway, gateway
from bench.servers.load import Load, load_on
from bench.servers.process import HANGS_S

CLIENTS = 500
ROWS = (10, 100, 1_000)
OPTIONS = "conflation=10ms"
ROUNDS = 3
FLUSHES = 10
SETTLE_S = 0.5
SYNC_FLUSH = b"\x00\x00\xff\xff"  # ends each deflated block that a reader can decode at once
GZIP = "Accept-Encoding: gzip"
ROW_MARKER = f'data: {{"{KEY[1:]}"'


@dataclass(slots=True)
class Readers:
    """A gateway and its clients, which all take the same encoding."""

    server: Gateway
    load: Load

    def flush(self, rows: int, marks: int) -> None:
        """Publish a flush, and wait for so many marks at each client."""
        marked = self.load.counted().events
        self.server.publish(b"\n".join(_TEXTS[:rows]))
        self.load.arrived(marked + marks * CLIENTS)

    def marks_of(self, rows: int) -> int:
        """Return how many marks a flush of so many rows has at each client."""
        before = self.load.counted().events
        self.server.publish(b"\n".join(_TEXTS[:rows]))
        time.sleep(SETTLE_S)
        marks, rest = divmod(self.load.counted().events - before, CLIENTS)
        if rest or not marks:
            raise RuntimeError(f"{marks} marks at each client, and {rest} more")
        return marks

    def measure(self, rows: int, marks: int) -> tuple[float, float]:
        """Return the CPU microseconds and the bytes of an event."""
        events = FLUSHES * rows * CLIENTS
        cpu_s, size = self.server.process.cpu_s(), self.load.counted().bytes
        for _ in range(FLUSHES):
            self.flush(rows, marks)
        used_us = (self.server.process.cpu_s() - cpu_s) * 1e6
        return used_us / events, (self.load.counted().bytes - size) / events


_TEXTS = payloads()[: ROWS[-1]]


def figures() -> Iterator[Figure]:
    """Yield bytes and CPU of an event with and without gzip, and the ratios."""
    with ExitStack() as held:
        plain = _readers(held, "Accept-Encoding: identity", ROW_MARKER, "event: hello")
        packed = _readers(held, GZIP, SYNC_FLUSH, b"\r\n\r\n")
        for rows in ROWS:
            _check(packed.server, rows)
            marks = {id(readers): readers.marks_of(rows) for readers in (plain, packed)}
            found: dict[int, list[tuple[float, float]]] = {id(plain): [], id(packed): []}
            for _ in range(ROUNDS):
                for readers in (plain, packed):
                    one = readers.measure(rows, marks[id(readers)])
                    found[id(readers)].append(one)
            cpu_us = [median([one[0] for one in found[id(r)]]) for r in (plain, packed)]
            size = [median([one[1] for one in found[id(r)]]) for r in (plain, packed)]
            where = f"{rows:,} rows"
            yield Figure(f"{where}: plain", cpu_us[0], "us CPU/event", note=f"{size[0]:.0f} B")
            yield Figure(f"{where}: gzip", cpu_us[1], "us CPU/event", note=f"{size[1]:.0f} B")
            ratio = cpu_us[1] / cpu_us[0]
            yield Figure(f"{where}: CPU, gzip by plain", ratio, "x", scale="ratio")
            yield Figure(f"{where}: bytes, gzip by plain", size[1] / size[0], "x", scale="ratio")


def _readers(held: ExitStack, header: str, marker: str | bytes, ready: str | bytes) -> Readers:
    server = held.enter_context(gateway())
    server.define()
    request = server.request(OPTIONS, header)
    return Readers(
        server, held.enter_context(load_on(server.port, CLIENTS, request, marker, ready))
    )


def _check(server: Gateway, rows: int) -> None:
    """Decode one stream, and count the rows of a flush.

    Raises:
        RuntimeError: they are not all there.
    """
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANGS_S)
    path = server.request(OPTIONS).split(" ")[1]
    connection.request("GET", path, headers=dict([GZIP.split(": ")]))
    answer = connection.getresponse()
    decoding = zlib.decompressobj(zlib.MAX_WBITS | 16)
    text = b""
    while b"event: hello" not in text:
        text += decoding.decompress(answer.read1())
    server.publish(b"\n".join(_TEXTS[:rows]))
    end = time.monotonic() + HANGS_S
    while text.count(ROW_MARKER.encode()) < rows:
        if time.monotonic() > end:
            raise RuntimeError(f"{text.count(ROW_MARKER.encode())} of {rows} rows were decoded")
        text += decoding.decompress(answer.read1())
    connection.close()
