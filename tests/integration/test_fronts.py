"""Proxies before a real gateway: the examples of `deploy/` with HTTP/2, and proxies as they come.

Traefik is not covered; docs/operations.md says what a proxy must do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dev import ROOT
from tests.docs.site import block_run_by
from tests.support.certificates import Authority
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, eventually, running_gateway
from tests.support.outside import require, require_curl
from tests.support.ports import lasting_port

HOST = "gateway.example"
PAD = "x" * 2_000
HEARTBEATS_MAX = 100  # half a minute of them, which no machine is too busy for
KEYS = 50
PUBLISHED = 400  # requests of all keys: 40 MB
PATH = f"{os.environ['PATH']}:/usr/sbin"
"""Debian keeps nginx where only root looks for commands."""
NGINX = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/tidegate.conf;
}}
"""


class Front:
    """A gateway and the proxy before it, as `curl` sees them."""

    def __init__(self, gateway: Running, port: int, authority: Authority) -> None:
        self.gateway = gateway
        self.address = f"https://{HOST}:{port}"
        self._curl = [
            require_curl(), "--silent", "--show-error", "--no-buffer", "--http2",
            "--cacert", str(authority.cert), "--resolve", f"{HOST}:{port}:127.0.0.1",
        ]  # fmt: skip

    async def asked(self, path: str, *more: str) -> tuple[str, int, str]:
        """Version of HTTP, status and body of an answer."""
        command = [*self._curl, *more, "--write-out", "\n%{http_version} %{http_code}"]
        process = await asyncio.create_subprocess_exec(
            *command, self.address + path, stdin=DEVNULL, stdout=PIPE
        )
        async with asyncio.timeout(HANGS_S):
            out, _ = await process.communicate()
        body, _, figures = out.decode().rpartition("\n")
        version, status = figures.split()
        return version, int(status), body

    @contextlib.asynccontextmanager
    async def stream(self, path: str, *more: str) -> AsyncIterator[Lines]:
        process = await asyncio.create_subprocess_exec(
            *self._curl, *more, self.address + path, stdin=DEVNULL, stdout=PIPE, limit=1 << 20
        )
        try:
            yield Lines(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()


class Lines:
    """What a `curl` prints of a stream, line by line."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.read: list[str] = []
        self.read_bytes = 0
        self.last_id = ""

    async def count(self, start: str, *, until: str) -> int:
        """How many lines that start so come before the first with this in it."""
        counted = 0
        while until not in (line := await self.until("")):
            counted += line.startswith(start)
        return counted

    async def until(self, mark: str) -> str:
        """The first line with this in it."""
        assert self.process.stdout is not None
        async with asyncio.timeout(HANGS_S):
            while True:
                line = await self.process.stdout.readline()
                assert line, f"the stream has ended: {self.read[-5:]}"
                self.read_bytes += len(line)
                text = line.decode()
                self.read.append(text)
                if text.startswith("id:"):
                    self.last_id = text[3:].strip()
                if mark in text:
                    return text


def certificate(authority: Authority) -> tuple[Path, Path]:
    made = authority.server("front", HOST)
    return made.cert, made.key


@contextlib.contextmanager
def proxy_before(
    kind: str, gateway: str, folder: Path, authority: Authority, second: str = ""
) -> Iterator[int]:
    """The example of `deploy/`, with this test's addresses and files in place of its own.

    With the address of a `second` gateway, the lines for it are no comments.
    """
    require(shutil.which(kind, path=PATH) is not None, f"no {kind}")
    port, (cert, key) = lasting_port(), certificate(authority)
    place = urlsplit(gateway).netloc
    given = {
        "127.0.0.1:8080": place,
        "/etc/tidegate/gateway.pem": str(cert),
        "/etc/tidegate/gateway.key": str(key),
    }
    match kind:
        case "nginx":
            given["listen 443"] = f"listen 127.0.0.1:{port}"
            name = "nginx.conf"
            if second:
                given["# server 127.0.0.1:8081"] = f"server {urlsplit(second).netloc}"
        case "caddy":
            given["\n" + HOST + " {"] = f"\n{HOST}:{port} {{"
            name = "Caddyfile"
            if second:
                given["127.0.0.1:8080"] = f"{place} {urlsplit(second).netloc}"
                given |= {f"# {line}": line for line in CADDY_OF_TWO}
        case _:
            given["bind :443"] = f"bind 127.0.0.1:{port}"
            del given["/etc/tidegate/gateway.key"]
            cert.write_text(cert.read_text() + key.read_text())
            name = "haproxy.cfg"
            if second:
                given["# server second 127.0.0.1:8081"] = f"server second {urlsplit(second).netloc}"
    with running_proxy(COMMANDS[kind](folder, example(name, given)), port, folder):
        yield port


def example(name: str, given: dict[str, str]) -> str:
    """A file of `deploy/` with other words in it."""
    text = (ROOT / "deploy" / name).read_text()
    for own, ours in given.items():
        assert text.count(own) == 1, own
        text = text.replace(own, ours)
    return text


def nginx_command(folder: Path, text: str, user: str = "") -> list[str]:
    """nginx with this in its `conf.d`; `user` is the line that names who its workers are."""
    (folder / "tidegate.conf").write_text(text)
    (folder / "nginx.conf").write_text(user + NGINX.format(folder=folder))
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]


def caddy_command(folder: Path, text: str) -> list[str]:
    """Caddy with these sites."""
    options = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"
    (folder / "Caddyfile").write_text(options + text)
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


def haproxy_command(folder: Path, text: str) -> list[str]:
    """HAProxy with this configuration, in the foreground."""
    (folder / "haproxy.cfg").write_text(text)
    return ["haproxy", "-db", "-f", str(folder / "haproxy.cfg")]


CADDY_OF_TWO = ("lb_policy", "lb_try_duration", "fail_duration")
COMMANDS = {"nginx": nginx_command, "caddy": caddy_command, "haproxy": haproxy_command}


@contextlib.contextmanager
def running_proxy(command: list[str], port: int, folder: Path) -> Iterator[None]:
    """A proxy that listens on this port, ended with all that it started."""
    with (folder / "log").open("wb") as log:
        home = {
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder),
            "PATH": PATH,
        }
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=home,
            process_group=0,
        )
    try:
        await_port(process, port, folder / "log")
        yield
    finally:
        # Both would wait for connections that stay, and nginx's workers outlive a killed master.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=HANGS_S)


def await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + HANGS_S
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(log.read_text())


pytestmark = pytest.mark.system
AT_NIGHT = [pytest.param(kind, marks=pytest.mark.nightly) for kind in ("caddy", "haproxy")]


each_kind = pytest.mark.parametrize("kind", ["nginx", *AT_NIGHT])


@pytest.fixture(name="front", params=["nginx", *AT_NIGHT])
async def front_fixture(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Front]:
    authority = Authority(tmp_path)
    async with running_gateway(
        trusted_proxies=["127.0.0.1"],
        allowed_hosts=[HOST],
        heartbeat="300ms",
        log_requests=True,
        write_timeout="1m",
        queue_messages_max=KEYS * 4,
    ) as gateway:
        await gateway.topic(history={"messages": 1_000})
        kind: str = request.param
        with proxy_before(kind, gateway.address, tmp_path, authority) as port:
            yield Front(gateway, port, authority)


async def test_requests_and_streams_pass_at_once(front: Front) -> None:
    gateway = front.gateway
    version, status, _ = await front.asked("/readyz")
    assert (version, status) == ("2", 200)
    page = [
        "--request", "POST", "--header", f"Origin: {front.address}",
        "--header", "Content-Type: application/json", "--data", '{"k": 1, "v": 1}',
    ]  # fmt: skip
    assert (await front.asked("/v1/topics/px/messages", *page))[1] == 200
    foreign = [it.replace("https://", "http://") for it in page]
    assert (await front.asked("/v1/topics/px/messages", *foreign))[1] == 403

    path = "/v1/topics/px/subscribe?options=conflation=none"
    async with front.stream(path) as lines:
        await lines.until("event: hello")
        await lines.until('"v": 1')
        for number in range(2, 6):
            # A proxy with a buffer would hold it back until thousands of heartbeats have filled it.
            await gateway.publish({"k": 1, "v": number})
            assert await lines.count(":", until=f'"v": {number}') < HEARTBEATS_MAX
        for _ in range(3):  # without them the proxy would end a silent stream
            assert (await lines.until(":")).startswith((":", "id:"))
        last_id = lines.last_id
        assert last_id
    # The gateway notices that the client has left.
    await eventually(lambda: gateway.server.figures.connections <= 3, "the stream has ended")

    await gateway.publish({"k": 1, "v": 6})
    async with front.stream(path, "--header", f"Last-Event-ID: {last_id}") as lines:
        await lines.until("event: resumed")
        assert json.loads((await lines.until("data: ")).removeprefix("data: "))["mode"] == "replay"
        await lines.until('"v": 6')


def is_asked(gateway: Running, count: int) -> bool:
    return gateway.server.server_state.total_requests >= count


@each_kind
async def test_a_rolling_restart_behind_a_proxy_refuses_nobody(kind: str, tmp_path: Path) -> None:
    """One of two gateways is always out; the other one starts before this one stops.

    Caddy 2.6 takes a POST that its first gateway refuses to the second one without its body,
    answers 502 or breaks off, and trusts no gateway for a second: a publisher repeats it, as
    `deploy/Caddyfile` says.
    """
    authority, ports = Authority(tmp_path), [lasting_port(), lasting_port()]
    addresses = [f"http://127.0.0.1:{port}" for port in ports]
    page = ["--header", "Content-Type: application/json", "--data", '{"k": 1, "v": 1}']
    async with contextlib.AsyncExitStack() as stack:
        running = contextlib.AsyncExitStack()
        port = 0
        for number in range(4):
            before, running = running, contextlib.AsyncExitStack()
            stack.push_async_callback(running.aclose)
            gateway = await running.enter_async_context(
                running_gateway(
                    port=ports[number % 2], trusted_proxies=["127.0.0.1"], allowed_hosts=[HOST]
                )
            )
            await gateway.topic()
            if kind == "haproxy" and port:  # it uses a server again after two good checks
                count = gateway.server.server_state.total_requests
                await eventually(partial(is_asked, gateway, count + 2), "the new gateway is used")
            await before.aclose()
            if not port:
                port = stack.enter_context(
                    proxy_before(kind, addresses[0], tmp_path, authority, second=addresses[1])
                )
            front = Front(gateway, port, authority)
            for _ in range(3):  # a request of each kind meets the gateway that is out
                assert (await front.asked("/v1/topics/px"))[1] == 200
                for tried in range(9 if kind == "caddy" else 1):
                    await asyncio.sleep(0.5 * min(tried, 1))
                    asked = await front.asked("/v1/topics/px/messages", *page)
                    if asked[1] == 200:
                        break
                assert asked[1] == 200, asked


@pytest.mark.nightly
async def test_a_reader_that_freezes_is_noticed_and_gets_the_newest(front: Front) -> None:
    gateway = front.gateway
    path = "/v1/topics/px/subscribe?options=conflation=none&command=subscribe"
    async with front.stream(path) as frozen, front.stream(path) as healthy:
        for each in (frozen, healthy):
            await each.until("event: hello")
        frozen.process.send_signal(signal.SIGSTOP)
        for number in range(PUBLISHED):
            await gateway.publish(*[{"k": key, "v": number, "pad": PAD} for key in range(KEYS)])
            await healthy.until(f'"v": {number}')
        frozen.process.send_signal(signal.SIGCONT)
        await frozen.until(f'"v": {PUBLISHED - 1}')
        # What the proxy and the kernel swallowed comes; the rest was conflated in the gateway.
        assert frozen.read_bytes < healthy.read_bytes / 2


async def test_the_client_is_logged(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "tidegate.requests"):
        # What a client says of itself is not believed: the proxy has replaced it.
        await front.asked("/v1/topics", "--header", "X-Forwarded-For: 203.0.113.9")
    text = " ".join(str(it.__dict__) for it in caplog.records)
    assert "203.0.113.9" not in text
    assert re.search("'client': '127.0.0.1'", text)


async def test_the_check_of_the_page_passes(front: Front) -> None:
    """The command asks the host that its reader has; here it is this machine, at another port."""
    words = shlex.split(block_run_by(__file__).text)
    program, (place, path) = words.pop(0), words.pop().split("/v1/")
    assert (program, place) == ("curl", f"https://{HOST}")
    async with front.stream("/v1/" + path.replace("prices", "px"), *words) as lines:
        assert await lines.until("event: hello")


# --- Proxies as their packages come; nginx speaks HTTP/1.0 to the gateway, with buffers


NGINX_PLAIN = """
{upstream}
server {{
    listen 127.0.0.1:{port};
    location / {{
        proxy_pass http://{place};
        {more}
    }}
}}
"""
GZIP = "gzip on; gzip_proxied any; gzip_types *;"
KEEPALIVE = 'proxy_http_version 1.1; proxy_set_header Connection "";'
CADDY_PLAIN = """
http://127.0.0.1:{port} {{
    {more}
    reverse_proxy {place}
}}
"""
HAPROXY_PLAIN = """
defaults
    mode http
    timeout connect 5s
    timeout client 50s
    timeout server 50s
listen all
    bind 127.0.0.1:{port}
    {more}
    option httpchk GET /healthz
    server first {place} check
"""
PLAIN_FRONTS = {
    "nginx": ("nginx", ""),
    "nginx with gzip": ("nginx", GZIP),
    # Common beside it: the gateway is to compress nothing.
    "nginx, alone with gzip": ("nginx", f'{GZIP} proxy_set_header Accept-Encoding "";'),
    "nginx with keepalive": ("nginx", KEEPALIVE),
    "caddy": ("caddy", ""),
    "caddy with gzip": ("caddy", "encode gzip"),
    "haproxy": ("haproxy", ""),
    "haproxy with gzip": ("haproxy", "compression algo gzip"),
}


class PlainFront(Front):
    """The same without TLS; `curl` takes compressed answers and shows what is in them."""

    def __init__(self, gateway: Running, port: int) -> None:
        self.gateway = gateway
        self.address = f"http://127.0.0.1:{port}"
        self._curl = [require_curl(), "--silent", "--show-error", "--no-buffer", "--compressed"]


@pytest.fixture(name="plain_front", params=PLAIN_FRONTS)
async def plain_front_fixture(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[PlainFront]:
    kind, more = PLAIN_FRONTS[request.param]
    require(shutil.which(kind, path=PATH) is not None, f"no {kind}")
    port = lasting_port()
    async with running_gateway(heartbeat="300ms") as gateway:
        await gateway.topic()
        place, upstream = urlsplit(gateway.address).netloc, ""
        if more == KEEPALIVE:
            upstream = f"upstream tidegate {{ server {place}; keepalive 4; }}"
            place = "tidegate"
            more += f" proxy_set_header Host {urlsplit(gateway.address).netloc};"
        plain = {"nginx": NGINX_PLAIN, "caddy": CADDY_PLAIN, "haproxy": HAPROXY_PLAIN}[kind]
        text = plain.format(upstream=upstream, port=port, place=place, more=more)
        with running_proxy(COMMANDS[kind](tmp_path, text), port, tmp_path):
            yield PlainFront(gateway, port)


@pytest.mark.nightly
async def test_events_pass_a_proxy_as_it_comes(plain_front: PlainFront) -> None:
    """`X-Accel-Buffering: no`, which nginx obeys, does what the settings of the example do."""
    gateway, path = plain_front.gateway, "/v1/topics/px/subscribe?options=conflation=none"
    body = ["--header", "Content-Type: application/json", "--data", '{"k": 1, "v": 1}']
    assert (await plain_front.asked("/v1/topics/px/messages", *body))[1] == 200
    _, status, problem = await plain_front.asked("/v1/topics/px/subscribe?options=conflation=soon")
    assert (status, json.loads(problem)["code"]) == (400, "options-invalid")
    async with plain_front.stream(path) as lines:
        await lines.until('"v": 1')
        for number in range(2, 6):
            await gateway.publish({"k": 1, "v": number})
            assert await lines.count(":", until=f'"v": {number}') < HEARTBEATS_MAX
        last_id = lines.last_id
    await gateway.publish({"k": 1, "v": 6})
    async with plain_front.stream(path, "--header", f"Last-Event-ID: {last_id}") as lines:
        await lines.until("event: resumed")
        await lines.until('"v": 6')
    # The gateway notices that both clients have left.
    await eventually(lambda: gateway.server.figures.connections <= 3, "the streams have ended")
