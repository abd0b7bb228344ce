"""Polling readers behind a cache: what reaches the gateway, what it costs, and how old rows are.

A publisher changes 500 keys 20,000 times a second. Readers follow the topic at an interval of a
second by long-polling, through the nginx of `deploy/nginx-cache.conf`, from another process.
Then they lose their gateway for a minute. Without the cache, the cost of an answer is compared with
nginx's for a file of the same size.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bench.figure import Figure, percentile
from bench.servers.gateway import TOPIC, Gateway, gateway
from bench.servers.nginx import nginx
from bench.servers.process import HANGS_S, LOAD_CORE, Process, files_allow, free_port, running

ROOT: Final = Path(__file__).parents[1]
KEYS: Final = 500
MESSAGES_S: Final = 20_000
LINES: Final = 200
INTERVAL_S: Final = 1.0
SETTLE_S: Final = 5.0
MEASURED_S: Final = 20.0
FEW, MANY = 100, 5_000
AWAY_S: Final = 60.0
CONVERGED_S: Final = 10.0
END_BYTES: Final = 200
"""Of a body, in which the last row has its time."""
PATH: Final = f"/v1/topics/{TOPIC}/stream?options=conflation%3D1s"


class Seen(NamedTuple):
    """What readers have seen: answers with rows, and the age of the newest row, sorted, in s."""

    answers: int
    ages_s: list[float]


def figures() -> Iterator[Figure]:
    """Yield requests, costs and ages with few and with many readers, and without the cache."""
    if not files_allow(2 * MANY):
        return
    costs: dict[int, float] = {}
    for readers in (FEW, MANY):
        with gateway() as server, cached(server) as port:
            server.define()
            with publishing(server):
                seen, requests, cpu = measured(server, port, readers)
        costs[readers] = cpu
        name = f"{readers:,} readers"
        yield Figure(f"{name}: requests at the gateway", requests, "/interval", at_most=3)
        yield Figure(f"{name}: gateway", cpu * 100, "% of a core", scale="cpu")
        age_s = percentile(seen.ages_s, 0.99)
        yield Figure(f"{name}: age of rows, p99", age_s, "s", at_most=2 * INTERVAL_S)
        yield Figure(f"{name}: answers", seen.answers / MEASURED_S, "/s")
    ratio = costs[MANY] / costs[FEW]
    yield Figure("gateway with many readers, by that with few", ratio, "x", at_most=1.1)
    yield Figure(
        f"{MANY:,} readers after {AWAY_S:.0f} s without a gateway: all have the newest row",
        away_s(MANY),
        "s",
        at_most=CONVERGED_S,
    )
    yield from uncached()


def away_s(readers: int) -> float:
    """Kill a gateway, and start it again on its data after a while.

    Return how long all readers take then to have a row that is published at once.

    Raises:
        TimeoutError: some still have not.
    """
    port = free_port()
    with tempfile.TemporaryDirectory() as data, contextlib.ExitStack() as stack:
        with gateway(data=data, port=port) as server:
            server.define()
            publish_rows(server, time.time())
            front = stack.enter_context(cached(server))
            command = [sys.executable, "-m", "bench.polling", "follow", str(front), str(readers)]
            load = stack.enter_context(running(command, (LOAD_CORE,)))
            load.read()
            wait_for_all(load, publish_rows(server, time.time()))
            server.process.popen.kill()
        time.sleep(AWAY_S)
        with gateway(data=data, port=port) as server:
            began_s = time.monotonic()
            wait_for_all(load, publish_rows(server, time.time()))
            return time.monotonic() - began_s


def publish_rows(server: Gateway, now_s: float) -> float:
    """Publish a message for each key; return the time that they have."""
    server.publish(b"\n".join(line(number, now_s) for number in range(KEYS)))
    return now_s


def wait_for_all(load: Process, time_s: float) -> None:
    """Wait until every reader has a row of this time.

    Raises:
        TimeoutError: some still have not.
    """
    until_s = time.monotonic() + HANGS_S
    while True:
        load.tell(f"behind {time_s:.3f}")
        behind = int(load.read())
        if behind == 0:
            return
        if time.monotonic() > until_s:
            raise TimeoutError(f"{behind:,} readers have no row of {time_s:.3f}")
        time.sleep(0.1)


def uncached() -> Iterator[Figure]:
    """Yield the cost of an answer to a reader in step, by nginx's for a file of that size."""
    with gateway() as server:
        server.define()
        publish_rows(server, time.time())
        body = server.client.get(PATH).content
        ours = answer_us(server.process, server.port, PATH)
    with tempfile.TemporaryDirectory() as folder, served_file(Path(folder), body) as (port, nginx):
        theirs = answer_us(nginx, port, "/file")
    yield Figure("an answer of the gateway", ours, "us CPU", note=f"{len(body):,} bytes")
    yield Figure("the same as a file of nginx", theirs, "us CPU")
    yield Figure("the gateway's, by nginx's", ours / theirs, "x", at_most=3)


def measured(server: Gateway, port: int, readers: int) -> tuple[Seen, float, float]:
    """Return what readers see, requests at the gateway in an interval, and its share of a core."""
    command = [sys.executable, "-m", "bench.polling", "follow", str(port), str(readers)]
    with running(command, (LOAD_CORE,)) as load:
        load.read()
        time.sleep(SETTLE_S)
        load.tell("begin")
        requests, cpu_s = requested(server), server.process.cpu_s()
        began_s = time.monotonic()
        time.sleep(MEASURED_S)
        seconds = time.monotonic() - began_s
        used_s = server.process.cpu_s() - cpu_s
        asked = requested(server) - requests
        load.tell("end")
        answers, *ages = load.read().split()
    seen = Seen(int(answers), sorted(map(float, ages)))
    return seen, asked / (seconds / INTERVAL_S), used_s / seconds


def requested(server: Gateway) -> float:
    """Return how many polling requests the gateway has had."""
    text = server.client.get("/metrics").text
    found = re.search(r"^tidegate_polled_requests_total (\S+)$", text, re.MULTILINE)
    assert found is not None, "the gateway counts them"
    return float(found[1])


def line(number: int, now_s: float) -> bytes:
    """Return a message of about 100 bytes with the time at which it was made."""
    return b'{"tickerId":"T%03d","bid":%d.25,"ask":%d.5,"size":%d,"venue":"XNAS","t":%.3f}' % (
        number % KEYS,
        number % 97,
        number % 97,
        number,
        now_s,
    )


@contextlib.contextmanager
def publishing(server: Gateway) -> Iterator[None]:
    """Publish from another process while the block runs."""
    command = [sys.executable, "-m", "bench.polling", "publish", str(server.port)]
    with running(command, (LOAD_CORE,)) as process:
        process.read()
        yield


@contextlib.contextmanager
def cached(server: Gateway) -> Iterator[int]:
    """Start nginx with its cache before a gateway; yield its port."""
    port = free_port()
    text = (ROOT / "deploy" / "nginx-cache.conf").read_text()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = text.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
        text = text.replace("listen 8081", f"listen 127.0.0.1:{port} backlog=4096")
        text = text.replace("/var/cache/nginx/tidegate", str(folder / "cache"))
        with nginx(folder, text, port):
            yield port


@contextlib.contextmanager
def served_file(folder: Path, body: bytes) -> Iterator[tuple[int, Process]]:
    """Start nginx with one file; yield its port and its process."""
    port = free_port()
    (folder / "file").write_bytes(body)
    text = f"server {{ listen 127.0.0.1:{port}; root {folder}; }}\n"
    with nginx(folder, text, port) as process:
        yield port, process


def answer_us(process: Process, port: int, path: str, answers: int = 5_000) -> float:
    """Return the CPU time of one answer, asked for over one connection, one after the other."""
    asyncio.run(_ask(port, path, 500))
    before_s = process.cpu_s()
    asyncio.run(_ask(port, path, answers))
    return (process.cpu_s() - before_s) / answers * 1e6


async def _ask(port: int, path: str, answers: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".encode()
    for _ in range(answers):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(int(_LENGTH.findall(head)[0]))
    writer.close()


# --- The load, in processes of its own

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)")
_NEXT = re.compile(rb"(?i)\r\nstream-next-offset: (\S+)")
_CURSOR = re.compile(rb"(?i)\r\nstream-cursor: (\S+)")
_TIME = re.compile(rb'"t":(\d+\.\d+)')


class Counted:
    """What the readers of this process have seen since a moment."""

    def __init__(self) -> None:
        self.is_counting = False
        self.answers = 0
        self.ages_s: list[float] = []

    def note(self, end: bytes) -> None:
        """Count an answer with rows by its end; the newest row is the last."""
        if self.is_counting:
            self.answers += 1
            found = _TIME.findall(end)
            if found and self.answers % 10 == 0:
                self.ages_s.append(time.time() - float(found[-1]))


class Reader(asyncio.BufferedProtocol):
    """One reader: it asks, takes the answer, and asks for what follows.

    Bodies go to one memory that all readers share, and only their ends are looked at: thousands of
    readers must not be so slow themselves that rows grow old with them.
    """

    _memory = memoryview(bytearray(256 << 10))

    def __init__(self, counted: Counted) -> None:
        self._counted = counted
        self._offset, self._more = b"-1", b""
        self._header, self._end = b"", b""
        self._left_bytes: int | None = None  # of the body, once the header has said it
        self.is_lost = asyncio.Event()
        self.newest = b""
        """The end of the last answer with rows."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask, on a new connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.is_lost.clear()
        self._ask()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._memory

    def buffer_updated(self, nbytes: int) -> None:
        """Take some bytes, of the header or of the body."""
        part = self._memory[:nbytes]
        if self._left_bytes is None:
            self._header += part
            end = self._header.find(b"\r\n\r\n") + 4
            if end < 4:
                return
            part = memoryview(self._header)[end:]
            self._header = self._header[:end]
            length = _LENGTH.search(self._header)
            self._left_bytes = int(length[1]) if length else 0
        self._left_bytes -= len(part)
        self._end = (self._end + part[-END_BYTES:])[-END_BYTES:]
        if self._left_bytes == 0:
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the reader come again."""
        self.is_lost.set()

    def _ask(self) -> None:
        self._header, self._end = b"", b""
        self._left_bytes = None
        self._transport.write(
            b"GET %b&offset=%b%b HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
            % (PATH.encode(), self._offset, self._more)
        )

    def _go_on(self) -> None:
        following, cursor = _NEXT.search(self._header), _CURSOR.search(self._header)
        if following is None:  # a page of the cache's own
            asyncio.get_running_loop().call_later(0.5, self._ask)
            return
        self._offset, self._more = following[1], b"&live=long-poll"
        if cursor is not None:
            self._more += b"&cursor=" + cursor[1]
        if len(self._end) > len(b"[]"):
            self.newest = self._end
            self._counted.note(self._end)
        self._ask()


async def _follow(port: int, reader: Reader) -> None:
    loop = asyncio.get_running_loop()
    while True:
        with contextlib.suppress(OSError):
            await loop.create_connection(lambda: reader, "127.0.0.1", port)
            await reader.is_lost.wait()
        await asyncio.sleep(0.5)


async def follow(port: int, count: int) -> None:
    """Let so many readers follow, and do what each line of the standard input says.

    `begin` and `end` count what they see, and `behind T` how many have no row of this time yet.
    """
    counted = Counted()
    readers = [Reader(counted) for _ in range(count)]
    tasks = []
    for number, reader in enumerate(readers):
        tasks.append(asyncio.create_task(_follow(port, reader)))
        if number % 50 == 0:
            await asyncio.sleep(0.02)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        match line.split():
            case ["begin"]:
                counted.is_counting = True
            case ["end"]:
                counted.is_counting = False
                ages = (f"{age_s:.3f}" for age_s in counted.ages_s[:20_000])
                print(counted.answers, *ages, flush=True)
            case ["behind", time_s]:
                row = f'"t":{time_s}'.encode()
                print(sum(row not in reader.newest for reader in readers), flush=True)


async def publish(port: int) -> None:
    """Publish without an end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    began_s, number = loop.time(), 0
    while True:
        now_s = time.time()
        body = b"\n".join(line(at, now_s) for at in range(number, number + LINES))
        number += LINES
        writer.write(
            b"POST /v1/topics/%b/messages HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%b"
            % (TOPIC.encode(), len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        found = _LENGTH.search(head)
        answer = await reader.readexactly(int(found[1])) if found else b""
        assert json.loads(answer)["messages"] == LINES
        await asyncio.sleep(max(0.0, began_s + number / MESSAGES_S - loop.time()))


if __name__ == "__main__":
    what, port, *more = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(publish(int(port)) if what == "publish" else follow(int(port), int(more[0])))
