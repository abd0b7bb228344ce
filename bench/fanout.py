"""Fan-out: what one event costs at one of many subscribers, beside the least that a server can do.

The load client and the minimal writer are C, compiled here, and sit on the other core. Every server
gets the same work in the same run: so many clients, so many rows a flush, 150 bytes a row. Ratios
hold from machine to machine, microseconds do not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx2
import psutil

TIDEGATE = Path(sys.executable).with_name("tidegate")
NATIVE = Path(__file__).with_name("native")
CLIENTS = (500,)
ROWS = (1, 10)
ROW_BYTES = 150
FLUSHES = 40
ROUNDS = 5
FLUSH_S = 0.02
ASK_AGAIN_S = 0.002
HANGS_S = 60.0
SERVER_CORE, LOAD_CORE = 0, 1

Figure = tuple[str, float, str]


def figures() -> Iterator[Figure]:
    """Yield name, value and unit: the medians of several rounds, the servers in turn."""
    for clients in CLIENTS:
        for rows in ROWS:
            yield from compared(clients, rows)


def compared(clients: int, rows: int) -> Iterator[Figure]:
    """Yield each server's CPU time of an event, and its ratio to the C writer's."""
    kinds: dict[str, Callable[[], contextlib.AbstractContextManager[Server]]] = {
        "C writer": c_writer,
        "Redis pub/sub": redis_server,
        "Tidegate": tidegate,
    }
    if shutil.which("redis-server") is None:
        del kinds["Redis pub/sub"]
    measured: dict[str, list[float]] = {name: [] for name in kinds}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(start()) for name, start in kinds.items()}
        for server in servers.values():
            server.load = stack.enter_context(load_on(server, clients))
        # In turn, so that other load of the machine affects each server alike.
        for _ in range(ROUNDS):
            for name, server in servers.items():
                measured[name].append(cpu_us_an_event(server, clients, rows))
    least = statistics.median(measured["C writer"])
    for name, found in measured.items():
        middle = statistics.median(found)
        what = f"{name}: {clients} clients, {rows} rows a flush"
        yield (
            what,
            middle,
            f"us CPU/event, {middle / least:.1f} x C ({min(found):.2f} to {max(found):.2f})",
        )


def cpu_us_an_event(server: Server, clients: int, rows: int) -> float:
    """Return the server's CPU microseconds for each event that arrived, over several flushes."""
    assert server.load is not None
    server.flush(rows)  # whatever is made at the first time is made
    time.sleep(5 * FLUSH_S)
    events = server.load.counted()[0]
    began_us = server.cpu_us()
    for _ in range(FLUSHES):
        server.flush(rows)
        events += clients * rows
        arrived(server.load, events)
    return (server.cpu_us() - began_us) / (FLUSHES * clients * rows)


def arrived(load: Load, events: int) -> None:
    """Wait until so many events have come.

    Raises:
        TimeoutError: they never do.
    """
    end = time.monotonic() + HANGS_S
    while (counted := load.counted())[0] < events:
        if time.monotonic() > end:
            raise TimeoutError(f"{counted[0]} of {events} events have come, {counted[2]} closed")
        time.sleep(ASK_AGAIN_S)


@dataclass(slots=True)
class Load:
    """The load client: a process that holds all connections."""

    process: subprocess.Popen[str]

    def counted(self) -> tuple[int, int, int]:
        """Return the events, bytes and closed connections so far."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        events, size, closed = self.process.stdout.readline().split()
        return int(events), int(size), int(closed)


@dataclass(slots=True)
class Server:
    """A server under load.

    Args:
        process: whose CPU counts.
        port: on loopback.
        request: what each client sends once.
        marker: what each event has once.
        ready: what a client has received once it listens.
        flush: sends so many rows to every client, as one flush.
    """

    process: psutil.Process
    port: int
    request: str
    marker: str
    ready: str
    flush: Callable[[int], None]
    load: Load | None = field(default=None)

    def cpu_us(self) -> float:
        """Return its CPU time so far, with that of its threads, in microseconds."""
        times = self.process.cpu_times()
        return float(times.user + times.system) * 1e6


@contextlib.contextmanager
def load_on(server: Server, clients: int) -> Iterator[Load]:
    """Connect so many clients to a server, and wait until each of them listens."""
    command = [
        "127.0.0.1",
        str(server.port),
        str(clients),
        server.request,
        server.marker,
        server.ready,
    ]
    with running([str(built("load")), *command], LOAD_CORE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Load(process)


@contextlib.contextmanager
def c_writer() -> Iterator[Server]:
    """Start the minimal writer."""
    with running([str(built("writer"))], SERVER_CORE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        orders: IO[str] = process.stdin

        def flush(rows: int) -> None:
            orders.write(f"{rows} {ROW_BYTES}\n")
            orders.flush()

        port = int(process.stdout.readline())
        request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        yield Server(psutil.Process(process.pid), port, request, "data: x", "hello", flush)


@contextlib.contextmanager
def redis_server() -> Iterator[Server]:
    """Start Redis, whose rows are messages of one channel; a flush is one pipeline."""
    import redis  # the server's extra has it; the other servers need none

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "socket")
        port = free_port()
        options = ["--save", "", "--port", str(port), "--dir", folder, "--unixsocket", str(path)]
        with running(["redis-server", *options], SERVER_CORE) as process:
            waited_for(path.exists)
            client = redis.Redis(unix_socket_path=str(path))
            value = b"x" * ROW_BYTES

            def flush(rows: int) -> None:
                with client.pipeline(transaction=False) as pipe:
                    for _ in range(rows):
                        pipe.publish("bench", value)
                    pipe.execute()

            request = "*2\r\n$9\r\nSUBSCRIBE\r\n$5\r\nbench\r\n"
            yield Server(psutil.Process(process.pid), port, request, "\r\nxxx", "subscribe", flush)
            client.close()


@contextlib.contextmanager
def tidegate(options: str = "conflation=10ms") -> Iterator[Server]:
    """Start a gateway in memory with one topic; a flush is one request of as many keys as rows."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEGATE_")}
    arguments = ["serve", "--data", ":memory:", "--port", "0"]
    with running([str(TIDEGATE), *arguments], SERVER_CORE, environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        with httpx2.Client(base_url=address, timeout=HANGS_S, trust_env=False) as client:
            client.put("/v1/topics/bench", json={"key": ["/k"]}).raise_for_status()
            number = 0

            def flush(rows: int) -> None:
                nonlocal number
                number += 1
                lines = [row(key, number) for key in range(rows)]
                answer = client.post(
                    "/v1/topics/bench/messages",
                    content=b"\n".join(lines),
                    headers={"Content-Type": "application/x-ndjson"},
                )
                answer.raise_for_status()

            port = httpx2.URL(address).port or 80
            path = f"/v1/topics/bench/subscribe?options={options}&command=subscribe"
            request = f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"
            yield Server(psutil.Process(process.pid), port, request, 'data: {"k"', "hello", flush)


def row(key: int, number: int) -> bytes:
    """Return a message whose event, with field name and end, has ROW_BYTES."""
    head = f'{{"k":"{key}","n":{number},"text":"'
    return (head + "x" * (ROW_BYTES - len("data: \n\n") - len(head) - 2) + '"}').encode()


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def waited_for(condition: Callable[[], bool]) -> None:
    """Return once a condition holds.

    Raises:
        TimeoutError: it never does.
    """
    end = time.monotonic() + HANGS_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("a server of the benchmark did not start")
        time.sleep(ASK_AGAIN_S)


def built(name: str) -> Path:
    """Compile a program of `native/` where it is older than its source; return its path."""
    source = NATIVE / f"{name}.c"
    program = Path(tempfile.gettempdir(), f"tidegate-bench-{os.getuid()}", name)
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(exist_ok=True)
        subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
    return program


@contextlib.contextmanager
def running(
    command: list[str], core: int, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a program on one core, and end it."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=environment,
    )  # fmt: skip
    try:
        with contextlib.suppress(OSError, AttributeError, ValueError):  # one core only, or no Linux
            psutil.Process(process.pid).cpu_affinity([core])
        yield process
    finally:
        process.terminate()
        process.wait(HANGS_S)
