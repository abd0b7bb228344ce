"""How long heavy requests block the event loop, as seen by other clients.

A child process sends each kind of heavy request repeatedly, to a topic of 100,000 records.
Meanwhile this one requests /healthz every few milliseconds. With every fourth probe it publishes a
message to a second topic, which has one subscriber with an interval of 10 ms. The latency of a
message above that interval is its waiting time.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx2

from bench.engine import payloads
from bench.figure import Figure, percentile
from bench.servers.gateway import NDJSON, Gateway, gateway
from bench.servers.load import Load, load_on
from bench.servers.process import HANGS_S, LOAD_CORE, running

HEAVY = "heavy"
OTHER = "other"
RECORDS = 100_000
PROBED_S = 4.0
REST_S = 0.5
PROBE_EVERY_S = 0.002
PROBES_PER_MESSAGE = 4
INTERVAL_S = 0.01
TARGET_MS = 50.0
QUANTILE = 0.999
LOAD_NICENESS = 10  # the load must not delay the measuring process

Ask = Callable[[httpx2.Client], None]


def _post(client: httpx2.Client) -> None:
    body = b"\n".join(_records())
    client.post(f"/v1/topics/{HEAVY}/messages", content=body, headers=NDJSON).raise_for_status()


def _get(path: str, until: bytes = b"", **query: str) -> Ask:
    """Return a request whose response is read to its end, or until it contains `until`."""

    def ask(client: httpx2.Client) -> None:
        with client.stream("GET", f"/v1/topics/{HEAVY}/{path}", params=query or None) as answer:
            answer.raise_for_status()
            end = b""
            for piece in answer.iter_raw(1 << 16):
                end = end[-len(until) :] + piece  # the marker may lie across two pieces
                if until and until in end:
                    break

    return ask


_GROUPED = "projection=[/bid,SUM(/bidSize) AS /sum],grouping=[/bid]"
HEAVY_REQUESTS: dict[str, Ask] = {
    "100,000 messages in one request": _post,
    "the state of the world, ordered": _get("sow", order_by="/ask DESC,/tickerId"),
    "the state of the world, filtered": _get("sow", filter="/note LIKE 'real.*s$'"),
    "a snapshot of all records": _get("subscribe", b"event: group_end", options="conflation=1s"),
    "a snapshot with a filter": _get(
        "subscribe", b"event: group_end", options="conflation=1s", filter="/bid > 100"
    ),
    "a snapshot in order": _get(
        "subscribe", b"event: group_end", options="conflation=1s", order_by="/ask DESC"
    ),
    "a window": _get("subscribe", b"event: group_end", options="top_n=100", order_by="/ask DESC"),
    "a grouping": _get("subscribe", b"event: group_end", options=_GROUPED),
    "the journal": _get(f"messages?from=epoch&limit={RECORDS}"),
}


@dataclass(slots=True)
class Waits:
    """How long others waited, in seconds."""

    health: list[float] = field(default_factory=list)
    message: list[float] = field(default_factory=list)
    run_queue_s: float = 0.0
    """How long the gateway's process waited for a CPU in all."""


def figures() -> Iterator[Figure]:
    """Yield the longest waits for /healthz and for another topic's flush, by heavy request."""
    with gateway() as server:
        server.define(HEAVY)
        server.define(OTHER)
        server.publish(b"\n".join(_records()), HEAVY)
        request = server.request(f"conflation={INTERVAL_S * 1_000:.0f}ms", topic=OTHER)
        marker, ready = 'data: {"n":', "event: hel"  # of a message, and of the event hello
        with (
            load_on(server.port, 1, request, marker, ready, sampled_every=1) as load,
            socket.create_connection(("127.0.0.1", server.port), HANGS_S) as health,
        ):
            published_ns: list[int] = []
            for name in ("nothing else", *HEAVY_REQUESTS):
                waits = Waits()
                if name in HEAVY_REQUESTS:
                    command = [sys.executable, "-m", "bench.stalls", str(server.port), name]
                    with running(command, (LOAD_CORE,)) as heavy:
                        heavy.read()  # it has begun
                        _probe(server, load, health, published_ns, waits)
                else:
                    _probe(server, load, health, published_ns, waits)
                yield from _figures_of(name, waits)
                time.sleep(REST_S)


def _probe(
    server: Gateway, load: Load, health: socket.socket, published_ns: list[int], waits: Waits
) -> None:
    request = f"GET /healthz HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode()
    end, number, before_s = time.monotonic() + PROBED_S, 0, server.process.kept_waiting_s()
    while time.monotonic() < end:
        began = time.monotonic()
        health.sendall(request)
        health.recv(1 << 16)
        waits.health.append(time.monotonic() - began)
        if number % PROBES_PER_MESSAGE == 0:
            body = b'{"n":%d,"tickerId":"T"}' % len(published_ns)
            published_ns.append(time.monotonic_ns())
            server.publish(body, OTHER)
        number += 1
        time.sleep(PROBE_EVERY_S)
    waits.run_queue_s = server.process.kept_waiting_s() - before_s
    time.sleep(REST_S)
    for sample in load.samples():
        waited_s = (sample.at_ns - published_ns[sample.number]) / 1e9 - INTERVAL_S
        waits.message.append(max(0.0, waited_s))


def _figures_of(name: str, waits: Waits) -> Iterator[Figure]:
    for what, seconds in (("/healthz", waits.health), ("another flush", waits.message)):
        seconds.sort()
        note = (
            f"p99.9 {percentile(seconds, QUANTILE) * 1_000:.1f} ms, of {len(seconds):,}; "
            f"other work kept the server waiting {waits.run_queue_s * 1_000:.0f} ms in all"
        )
        most = None if name == "nothing else" else TARGET_MS
        yield Figure(f"{name}: {what}, longest", seconds[-1] * 1_000, "ms", most, note=note)


def _records() -> list[bytes]:
    """Return messages with a key each."""
    return [
        text.replace(b'"tickerId":"T', b'"tickerId":"%05d' % number, 1)
        for number, text in enumerate(payloads())
    ]


def _send_repeatedly(port: int, name: str) -> None:
    """Send one kind of request again and again, until this process is ended."""
    os.nice(LOAD_NICENESS)
    address = f"http://127.0.0.1:{port}"
    with httpx2.Client(base_url=address, timeout=HANGS_S, trust_env=False) as client:
        print("begun", flush=True)
        end = time.monotonic() + 10 * PROBED_S
        while time.monotonic() < end:
            HEAVY_REQUESTS[name](client)


if __name__ == "__main__":
    _send_repeatedly(int(sys.argv[1]), sys.argv[2])
