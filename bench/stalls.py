"""The longest that the loop was held: what others wait for while a heavy request runs.

A program sends one kind of heavy request after the other, to a topic of 100,000 records. Meanwhile
/healthz is asked every few milliseconds, and another topic gets a message every few more, for one
subscriber at 10 ms. What a message takes beyond that interval is what it had to wait.
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
KIND_S = 4.0
REST_S = 0.5
HEALTH_EVERY_S = 0.002
MESSAGE_EVERY = 4  # of the times that /healthz is asked
INTERVAL_S = 0.01
WANTED_MS = 50.0
SHARE = 0.999
BEHIND = 10  # nice: who asks for heavy things does not keep the clock of who measures

Ask = Callable[[httpx2.Client], None]


def _post(client: httpx2.Client) -> None:
    body = b"\n".join(_records())
    client.post(f"/v1/topics/{HEAVY}/messages", content=body, headers=NDJSON).raise_for_status()


def _get(path: str, until: bytes = b"", **query: str) -> Ask:
    """Return a request that is read to its end, or until it has brought some bytes."""

    def ask(client: httpx2.Client) -> None:
        with client.stream("GET", f"/v1/topics/{HEAVY}/{path}", params=query or None) as answer:
            answer.raise_for_status()
            for piece in answer.iter_raw(1 << 16):
                if until and until in piece:
                    break

    return ask


_GROUPED = "projection=[/bid,SUM(/bidSize) AS /sum],grouping=[/bid]"
KINDS: dict[str, Ask] = {
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
    kept_waiting_s: float = 0.0


def figures() -> Iterator[Figure]:
    """Yield the longest waits for /healthz and for another topic's flush, by heavy request."""
    with gateway() as server:
        server.define(HEAVY)
        server.define(OTHER)
        server.publish(b"\n".join(_records()), HEAVY)
        # The interval of the other topic's subscriber ends with each of its messages.
        request = server.request(f"conflation={INTERVAL_S * 1_000:.0f}ms", topic=OTHER)
        marker, ready = 'data: {"n":', "event: hel"
        with (
            load_on(server.port, 1, request, marker, ready, sampled_every=1) as load,
            socket.create_connection(("127.0.0.1", server.port), HANGS_S) as health,
        ):
            published_ns: list[int] = []
            for name in ("nothing else", *KINDS):
                waits = Waits()
                if name in KINDS:
                    command = [sys.executable, "-m", "bench.stalls", str(server.port), name]
                    with running(command, (LOAD_CORE,)) as heavy:
                        heavy.read()  # it has begun
                        _watch(server, load, health, published_ns, waits)
                else:
                    _watch(server, load, health, published_ns, waits)
                yield from _figures_of(name, waits)
                time.sleep(REST_S)


def _watch(
    server: Gateway, load: Load, health: socket.socket, published_ns: list[int], waits: Waits
) -> None:
    request = f"GET /healthz HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode()
    end, number, before_s = time.monotonic() + KIND_S, 0, server.process.kept_waiting_s()
    while time.monotonic() < end:
        began = time.monotonic()
        health.sendall(request)
        health.recv(1 << 16)
        waits.health.append(time.monotonic() - began)
        if number % MESSAGE_EVERY == 0:
            body = b'{"n":%d,"tickerId":"T"}' % len(published_ns)
            published_ns.append(time.monotonic_ns())
            server.publish(body, OTHER)
        number += 1
        time.sleep(HEALTH_EVERY_S)
    waits.kept_waiting_s = server.process.kept_waiting_s() - before_s
    time.sleep(REST_S)
    for sample in load.samples():
        waited_s = (sample.at_ns - published_ns[sample.number]) / 1e9 - INTERVAL_S
        waits.message.append(max(0.0, waited_s))


def _figures_of(name: str, waits: Waits) -> Iterator[Figure]:
    for what, seconds in (("/healthz", waits.health), ("another flush", waits.message)):
        seconds.sort()
        note = (
            f"p99.9 {percentile(seconds, SHARE) * 1_000:.1f} ms, of {len(seconds):,}; "
            f"other work kept the server waiting {waits.kept_waiting_s * 1_000:.0f} ms in all"
        )
        most = None if name == "nothing else" else WANTED_MS
        yield Figure(f"{name}: {what}, longest", seconds[-1] * 1_000, "ms", most, note=note)


def _records() -> list[bytes]:
    """Return messages with a key each."""
    return [
        text.replace(b'"tickerId":"T', b'"tickerId":"%05d' % number, 1)
        for number, text in enumerate(payloads())
    ]


def _ask(port: int, name: str) -> None:
    """Send one kind of request again and again, until this process is ended."""
    os.nice(BEHIND)
    address = f"http://127.0.0.1:{port}"
    with httpx2.Client(base_url=address, timeout=HANGS_S, trust_env=False) as client:
        print("begun", flush=True)
        end = time.monotonic() + 10 * KIND_S
        while time.monotonic() < end:
            KINDS[name](client)


if __name__ == "__main__":
    _ask(int(sys.argv[1]), sys.argv[2])
