"""Servers for the same work as a gateway's: events of the same messages to many subscribers.

Each publishes in its own way: Redis, NATS and nchan over a connection, as a gateway does; the C
writer and Centrifugo's library in their own process, which spares them the publishing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

from bench.servers.gateway import gateway
from bench.servers.nginx import nginx
from bench.servers.process import (
    BUILT,
    HANGS_S,
    NATIVE,
    Process,
    built,
    free_port,
    listens,
    running,
    waited_for,
)

EVENT_BYTES = 150  # of SSE, with the field name and the end
MARKER = '{"tickerId":"'
NCHAN = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
# Nobody else's versions: what a measurement is compared with stands in the report.
NATS = "github.com/nats-io/nats-server/v2@v2.15.2"
CENTRIFUGE = "github.com/centrifugal/centrifuge@v0.40.1"
GO_BUILD_S = 600.0
ONE_CORE = {"GOMAXPROCS": "1"}


@dataclass(slots=True)
class Server:
    """A server under load.

    Args:
        process: whose CPU counts, with its children's.
        port: on loopback.
        request: what each client sends once.
        marker: what each event has once.
        ready: what a client has received once it listens.
        flush: publishes so many messages, as one flush where the server has such a thing.
    """

    process: Process
    port: int
    request: str
    marker: str
    ready: str
    flush: Callable[[int], None]


Started = AbstractContextManager[Server]


def available() -> tuple[dict[str, Callable[[], Started]], list[str]]:
    """Return how to start each peer that this machine has, and a sentence for each other one."""
    kinds: dict[str, Callable[[], Started]] = {"C writer": c_writer}
    left_out: list[str] = []
    if shutil.which("redis-server"):
        kinds["Redis"] = redis_server
    else:
        left_out.append("Redis is left out: install redis-server.")
    if shutil.which("nginx") and NCHAN.exists():
        kinds["nchan"] = nchan
    else:
        left_out.append("nchan is left out: install nginx-light and libnginx-mod-nchan.")
    for name, build, start in (
        ("NATS", _built_nats, nats),
        ("centrifuge", _built_centrifuge, centrifuge),
    ):
        try:
            kinds[name] = partial(start, build())
        except (OSError, subprocess.SubprocessError) as error:
            reason = "go is not installed" if isinstance(error, OSError) else "it did not build"
            left_out.append(f"{name} is left out: {reason}.")
    return kinds, left_out


def message(number: int) -> bytes:
    """Return a message whose event has EVENT_BYTES; numbers below 10,000 have different keys."""
    head = f'{MARKER}T{number:04d}","exchange":"P","type":"quote","bid":101.25,"text":"'
    return (head + "x" * (EVENT_BYTES - len("data: \n\n") - len(head) - 2) + '"}').encode()


@contextlib.contextmanager
def tidegate(options: str) -> Iterator[Server]:
    """Start a gateway in memory; a flush is one request with as many keys as rows."""
    with gateway() as server:
        server.define()

        def flush(rows: int) -> None:
            server.publish(b"\n".join(map(message, range(rows))))

        request = server.request(options)
        yield Server(server.process, server.port, request, MARKER, "event: hello", flush)


@contextlib.contextmanager
def c_writer() -> Iterator[Server]:
    """Start the minimal writer."""
    with running([built("writer")]) as process:
        port = int(process.read())
        request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

        def flush(rows: int) -> None:
            process.tell(f"{rows} {EVENT_BYTES}")

        yield Server(process, port, request, "data: " + "x" * 10, "event: hello", flush)


@contextlib.contextmanager
def redis_server() -> Iterator[Server]:
    """Start Redis, whose rows are messages of one channel; a flush is one pipeline."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--save", "", "--port", str(port), "--dir", folder, "--maxclients", "20000"]
        with running(["redis-server", *options]) as process, _publisher(port) as publisher:

            def flush(rows: int) -> None:
                commands = [b"*3", b"$7", b"PUBLISH", b"$5", b"bench", b"$%d" % len(message(0))]
                head = b"\r\n".join(commands) + b"\r\n"
                lines = (head + message(row) + b"\r\n" for row in range(rows))
                publisher.ask(b"".join(lines), b":", rows)

            request = "*2\r\n$9\r\nSUBSCRIBE\r\n$5\r\nbench\r\n"
            yield Server(process, port, request, MARKER, "subscribe", flush)


@contextlib.contextmanager
def nats(program: Path) -> Iterator[Server]:
    """Start NATS on one thread of Go; a flush is one write of all messages."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "nats.conf")
        # No pings: a client that only counts answers none, and would be cut.
        config.write_text(f'listen: "127.0.0.1:{port}"\nping_interval: "1h"\n')
        environment = {**os.environ, **ONE_CORE}
        command = [str(program), "-c", str(config)]
        with (
            running(command, environment=environment) as process,
            _publisher(port) as publisher,
        ):
            connect = 'CONNECT {"verbose":false}\r\n'
            publisher.ask(connect.encode() + b"PING\r\n", b"PONG", 1)

            def flush(rows: int) -> None:
                head = b"PUB bench %d\r\n" % len(message(0))
                lines = (head + message(row) + b"\r\n" for row in range(rows))
                publisher.ask(b"".join(lines) + b"PING\r\n", b"PONG", 1)

            request = connect + "SUB bench 1\r\nPING\r\n"
            yield Server(process, port, request, MARKER, "PONG", flush)


@contextlib.contextmanager
def centrifuge(program: Path) -> Iterator[Server]:
    """Start Centrifugo's library on one thread of Go; it publishes in its own process."""
    with running([program], environment={**os.environ, **ONE_CORE}) as process:
        port = int(process.read())
        text = message(0).decode()

        def flush(rows: int) -> None:
            process.tell(f"{rows} {text}")

        path = "/?cf_connect=" + quote('{"id":1,"connect":{}}')
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        yield Server(process, port, request, MARKER, '"connect":', flush)


@contextlib.contextmanager
def nchan() -> Iterator[Server]:
    """Start nginx with nchan and one worker; a flush is one write of as many requests as rows."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        served = nginx(Path(name), NGINX.format(port=port), port, module=NCHAN)
        with served as process, _publisher(port) as publisher:

            def flush(rows: int) -> None:
                head = b"POST /pub HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                lines = (head % len(message(row)) + message(row) for row in range(rows))
                publisher.ask(b"".join(lines), b"HTTP/1.1 20", rows)

            request = "GET /sub HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
            yield Server(process, port, request, MARKER, "200 OK", flush)


NGINX = """\
nchan_max_reserved_memory 256M;
server {{
    listen 127.0.0.1:{port};
    location = /sub {{ nchan_subscriber eventsource; nchan_channel_id bench; }}
    location = /pub {{
        nchan_publisher; nchan_channel_id bench; nchan_message_buffer_length 1000;
    }}
}}
"""


@dataclass(slots=True)
class _Publisher:
    connection: socket.socket

    def ask(self, requests: bytes, answer: bytes, answers: int) -> None:
        """Send requests, and wait until their answers are there."""
        self.connection.sendall(requests)
        found = b""
        while found.count(answer) < answers:
            piece = self.connection.recv(1 << 16)
            if not piece:
                raise ConnectionError(f"the server closed after {found[-200:]!r}")
            found += piece


@contextlib.contextmanager
def _publisher(port: int) -> Iterator[_Publisher]:
    waited_for(partial(listens, port), "a peer")
    with socket.create_connection(("127.0.0.1", port), HANGS_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield _Publisher(connection)


def _built_nats() -> Path:
    program = BUILT / "nats-server"
    if not program.exists():
        _go(BUILT, "install", NATS, GOBIN=str(BUILT))
    return program


def _built_centrifuge() -> Path:
    folder, source = BUILT / "centrifuge", NATIVE / "centrifuge.go"
    program = folder / "server"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / "main.go")
        if not (folder / "go.mod").exists():
            _go(folder, "mod", "init", "bench")
        _go(folder, "get", CENTRIFUGE)
        _go(folder, "build", "-o", str(program), ".")
    return program


def _go(folder: Path, *words: str, **environment: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["go", *words], cwd=folder, env={**os.environ, **environment}, check=True,
        capture_output=True, timeout=GO_BUILD_S,
    )  # fmt: skip
