"""The load client counts events, and a measured process is counted whole and leaves nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from bench.servers.load import Load, load_on
from bench.servers.peers import EVENT_BYTES, message
from bench.servers.process import free_port, running, waited_for
from dev import ROOT

pytestmark = pytest.mark.nightly

REQUEST, MARKER, READY = "GET\r\n", 'data: {"n":', "hello"


@dataclass(slots=True)
class Events:
    """A server that says hello to each client, and writes what a test gives it."""

    listener: socket.socket
    clients: list[socket.socket] = field(default_factory=list)

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.listener.getsockname()[1])

    def accept(self, first: bytes = b"event: hello\n\n") -> None:
        """Accept clients until the listener is closed; close those that get no first bytes."""
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            assert client.recv(100) == REQUEST.encode()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if first:
                self.clients.append(client)
                client.sendall(first)
            else:
                client.close()

    def write(self, text: bytes, piece: int) -> None:
        """Write a text to each client in pieces that arrive one by one."""
        for at in range(0, len(text), piece):
            for client in self.clients:
                client.sendall(text[at : at + piece])
            time.sleep(0.002)


@pytest.fixture
def events() -> Iterator[Callable[..., Events]]:
    started: list[Events] = []

    def start(**arguments: bytes) -> Events:
        server = Events(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=server.accept, kwargs=arguments, daemon=True).start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        for client in server.clients:
            client.close()


def row(number: int) -> bytes:
    return b'data: {"n":%d,"text":"as long as a real one is"}\n\n' % number


def all_came(load: Load, size: int) -> bool:
    return load.counted().bytes >= size


@pytest.mark.parametrize("piece", [1, 7, 11, 64, 10_000])
def test_an_event_counts_once_however_reads_are_cut(
    events: Callable[..., Events], piece: int
) -> None:
    server, text = events(), b"".join(map(row, range(5)))
    with load_on(server.port, 3, REQUEST, MARKER, READY) as load:
        before = load.counted()
        server.write(text, piece)
        waited_for(lambda: all_came(load, before.bytes + 3 * len(text)), "all bytes")
        counted = load.counted()
    assert (counted.events, counted.bytes - before.bytes, counted.closed) == (15, 3 * len(text), 0)


@pytest.mark.parametrize("piece", [1, 12, 10_000])
def test_a_sample_has_its_client_its_number_and_its_time(
    events: Callable[..., Events], piece: int
) -> None:
    server = events()
    with load_on(server.port, 4, REQUEST, MARKER, READY, sampled_every=2) as load:
        began = time.monotonic_ns()
        server.write(row(12_345_678_901) + row(7), piece)
        load.arrived(8)
        samples = list(load.samples())
        assert list(load.samples()) == []
    found = sorted((sample.client, sample.number) for sample in samples)
    assert found == [(0, 7), (0, 12_345_678_901), (2, 7), (2, 12_345_678_901)]
    assert all(began < sample.at_ns < time.monotonic_ns() for sample in samples)


def test_frozen_clients_take_nothing_and_slow_ones_a_little(
    events: Callable[..., Events],
) -> None:
    server = events()
    with load_on(server.port, 4, REQUEST, MARKER, READY, slow_every=2) as load:
        load.slow_down(0)
        server.write(row(1), 10_000)
        load.arrived(2)
        time.sleep(0.2)
        assert load.counted().events == 2
        load.slow_down(10 * len(row(1)))
        load.arrived(4)


def test_clients_that_a_server_turns_away_are_an_error(events: Callable[..., Events]) -> None:
    server = events(first=b"")
    with (
        pytest.raises(RuntimeError, match="3 of 3 clients were turned away"),
        load_on(server.port, 3, REQUEST, MARKER, READY),
    ):
        pass


def test_clients_that_nobody_listens_to_are_an_error() -> None:
    with (
        pytest.raises(RuntimeError, match="2 of 2 clients were turned away"),
        load_on(free_port(), 2, REQUEST, MARKER, READY),
    ):
        pass


BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"


def test_cpu_time_is_that_of_all_processes() -> None:
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    with running([sys.executable, "-c", parent]) as process:
        assert process.read() == "done"
        assert process.cpu_s() > 0.3
        assert len(process.tree()) == 2
        assert process.resident_bytes() > psutil.Process(process.popen.pid).memory_info().rss
        process.tell("")


def test_a_program_is_ended_where_a_measurement_fails() -> None:
    with pytest.raises(ZeroDivisionError), running(["sleep", "600"]) as process:
        raise ZeroDivisionError
    assert process.popen.returncode == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_program_ends_with_the_bench(number: int, tmp_path: Path) -> None:
    script = (
        "from bench.servers.process import end_on_signals, running\n"
        "end_on_signals()\n"
        "with running(['sh', '-c', 'echo $$; exec sleep 600']) as process:\n"
        "    print(process.read(), flush=True)\n"
        "    __import__('time').sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as bench:  # fmt: skip
        assert bench.stdout is not None
        pid = int(bench.stdout.readline())
        assert psutil.pid_exists(pid)
        os.kill(bench.pid, number)
        # SIGTERM unwinds as Ctrl-C does: temporary folders go as well.
        assert bench.wait() == -(signal.SIGKILL if number == signal.SIGKILL else signal.SIGINT)
    waited_for(lambda: not psutil.pid_exists(pid), "the end of the program")


def test_a_message_makes_an_event_of_the_size_that_all_servers_send() -> None:
    assert {len(b"data: " + message(number) + b"\n\n") for number in (0, 9_999)} == {EVENT_BYTES}
