"""Many subscribers that get nothing: opening them, holding them, and taking them back.

The storm: a gateway with a stored topic of 1,000 keys has 10,000 subscribers, ends and starts
again. All come back at once with the `Last-Event-ID` of what they had, to the one core it has.
"""

from __future__ import annotations

import http.client
import tempfile
import time
from collections.abc import Iterator

from bench.figure import Figure
from bench.servers.gateway import Gateway, gateway
from bench.servers.load import load_on
from bench.servers.process import HANGS_S, files_allow

CLIENTS = 10_000
WARMING_CLIENTS = 100
KEYS = 1_000
SETTLE_S = 2.0
IDLE_S = 20.0  # longer than the gateway's heartbeat of 15 s, which each client gets once
OPTIONS = "conflation=1s"
MARKER = 'data: {"tickerId"'
READY = "event: hello"
STORM_OPENING = 2_000  # clients on their way at once: as many as the gateway's backlog


def figures() -> Iterator[Figure]:
    """Yield the cost of an opening and of an idle subscriber, and the time of a storm."""
    if not files_allow(CLIENTS):
        return
    yield from _idle()
    yield from _storm()


def _idle() -> Iterator[Figure]:
    with gateway() as server:
        server.define()
        request = server.request(OPTIONS)
        # Code and pools that the first clients make are the gateway's, not a client's.
        with load_on(server.port, WARMING_CLIENTS, request, MARKER, READY):
            pass
        time.sleep(SETTLE_S)
        resident, cpu_s = server.process.resident_bytes(), server.process.cpu_s()
        with load_on(server.port, CLIENTS, request, MARKER, READY):
            opening_us = (server.process.cpu_s() - cpu_s) / CLIENTS * 1e6
            yield Figure("opening a subscription", opening_us, "us CPU", 400, scale="cpu")
            time.sleep(SETTLE_S)
            each = (server.process.resident_bytes() - resident) / CLIENTS / 1024
            note = "without what the kernel keeps for a socket"
            yield Figure("an idle subscriber", each, "KiB resident", 4, note=note, scale="ratio")
            began, cpu_s = time.monotonic(), server.process.cpu_s()
            time.sleep(IDLE_S)
            share = (server.process.cpu_s() - cpu_s) / (time.monotonic() - began) * 100
            yield Figure(f"{CLIENTS:,} idle subscribers", share, "% of a core", 1, scale="cpu")


def _storm() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        with gateway(data=folder) as server:
            server.define()
            _publish(server, 0)
            port, last = server.port, _last_event_id(server)
            _publish(server, 1)  # what they miss
            with load_on(port, CLIENTS, server.request(OPTIONS), MARKER, READY):
                pass
        began = time.monotonic()
        with gateway(data=folder, port=port) as server:
            start_s = time.monotonic() - began
            yield Figure("start after the restart", start_s, "s")
            request = server.request(OPTIONS, f"Last-Event-ID: {last}")
            cpu_s, waited_s = server.process.cpu_s(), server.process.kept_waiting_s()
            # The rows that they missed follow `hello`; the last key ends them.
            load = load_on(port, CLIENTS, request, MARKER, READY, opening=STORM_OPENING)
            with load as clients:
                back_s = clients.opening_s
                clients.arrived(CLIENTS)
                each_us = (server.process.cpu_s() - cpu_s) / CLIENTS * 1e6
                busy = (server.process.cpu_s() - cpu_s) / back_s * 100
                waited_s = server.process.kept_waiting_s() - waited_s
                note = (
                    f"{STORM_OPENING:,} on their way at once; other work kept the server waiting "
                    f"{waited_s:.1f} s"
                )
                name = f"{CLIENTS:,} clients back after a restart"
                yield Figure(name, back_s, "s", 10, note=note, scale="cpu")
                yield Figure("a client back, with the row that it missed", each_us, "us CPU")
                yield Figure("the core of the storm", busy, "% busy")


def _publish(server: Gateway, number: int) -> None:
    keys = range(KEYS) if number == 0 else range(1)
    server.publish(b"\n".join(b'{"tickerId":"T%04d","n":%d}' % (key, number) for key in keys))


def _last_event_id(server: Gateway) -> str:
    """Return the id of a subscriber's first event, before anything was missed."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANGS_S)
    path = server.request(OPTIONS).split(" ")[1]
    connection.request("GET", path)
    answer = connection.getresponse()
    while not (line := answer.readline().decode()).startswith("id:"):
        pass
    connection.close()
    return line.partition(":")[2].strip()
