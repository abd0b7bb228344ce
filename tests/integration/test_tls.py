"""TLS served by the gateway itself: the same streams, limits and ends as without it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import signal
import socket
import ssl
import warnings
import zlib
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.support.buses import BusServer
from tests.support.certificates import Authority, Signed
from tests.support.children import ended, serving
from tests.support.deadlines import HANGS_S
from tests.support.gateways import client_of, eventually, gateway_over_tls
from tests.support.wire import connected, exchange, parse_answer, read_all, request
from tidegate.app.http.transport import tls as tls_module

PAD = "x" * 1_000
VERSIONS = 150


def variables(server: Signed) -> dict[str, str]:
    """The environment of a gateway process that speaks TLS."""
    return {"TIDEGATE_TLS_CERT": str(server.cert), "TIDEGATE_TLS_KEY": str(server.key)}


def handshake(address: str, context: ssl.SSLContext) -> tuple[str, str, int]:
    """Version, cipher and serial number of the certificate that a new connection gets."""
    url = urlsplit(address)
    with (
        socket.create_connection((url.hostname, url.port), timeout=HANGS_S) as plain,
        context.wrap_socket(plain, server_hostname=url.hostname) as made,
    ):
        version, cipher, certificate = made.version(), made.cipher(), made.getpeercert()
        assert version is not None
        assert cipher is not None
        assert certificate is not None
        return version, cipher[0], int(str(certificate["serialNumber"]), 16)


# --- Versions and certificates


@pytest.mark.system
async def test_a_probe_that_verifies_nothing_is_answered(
    authority: Authority, server: Signed
) -> None:
    """As the kubelet asks with `scheme: HTTPS`: by address, without a name, on new connections."""
    trusting_all = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting_all.check_hostname, trusting_all.verify_mode = False, ssl.CERT_NONE
    probe = request("/readyz", "User-Agent: kube-probe/1.30", "Accept: */*", host="10.244.0.7:8080")
    async with gateway_over_tls(authority, server) as gateway:
        for _ in range(2):
            async with connected(gateway.address, trusting_all) as wire:
                await wire.send(probe)
                answer = parse_answer(await wire.read_to_end())
            assert (answer.status, answer.headers["connection"]) == (200, "close")


@pytest.mark.system
async def test_it_speaks_the_newest_version_and_forward_secret_ciphers_only(
    authority: Authority, server: Signed
) -> None:
    async with gateway_over_tls(authority, server) as gateway:
        assert gateway.address.startswith("https://127.0.0.1:")
        newest = await asyncio.to_thread(handshake, gateway.address, authority.trusting())
        assert newest[0] == "TLSv1.3"
        older = authority.trusting()
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        version, cipher, _ = await asyncio.to_thread(handshake, gateway.address, older)
        assert version == "TLSv1.2"
        assert cipher.startswith("ECDHE-")
        weak = authority.trusting()
        weak.maximum_version = ssl.TLSVersion.TLSv1_2
        weak.set_ciphers("AES256-SHA256:AES128-GCM-SHA256:@SECLEVEL=0")
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(handshake, gateway.address, weak)
        oldest = authority.trusting()
        oldest.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of the versions that are tried here
            oldest.minimum_version = ssl.TLSVersion.TLSv1
            oldest.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(handshake, gateway.address, oldest)


async def test_a_request_for_http_gets_a_sentence(authority: Authority, server: Signed) -> None:
    async with gateway_over_tls(authority, server) as gateway:
        answer = await exchange(gateway.address, request("/healthz"))
        assert (answer.status, answer.code) == (400, "message-invalid")
        assert "https" in answer.problem["detail"]
        assert not gateway.server.figures.connections


async def test_whoever_does_not_finish_a_handshake_is_cut_and_counts_as_no_connection(
    authority: Authority, server: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "HANDSHAKES_MAX", 2)
    async with gateway_over_tls(authority, server, header_deadline="300ms") as gateway:
        async with connected(gateway.address) as silent:
            assert await silent.read_to_end() == b""  # after the deadline
        async with contextlib.AsyncExitStack() as stack:
            idle = [await stack.enter_async_context(connected(gateway.address)) for _ in range(3)]
            async with asyncio.timeout(0.25):  # long before the deadline: one too many
                assert await idle[0].reader.read() == b""
            assert not gateway.server.figures.connections
        garbage = await read_all(gateway.address, b"\x16\x03\x01\x00\x05hello")
        assert b"HTTP" not in garbage
        assert (await gateway.http.get("/healthz")).status_code == 200


@pytest.mark.system
async def test_a_handshake_does_not_hold_up_a_shutdown(
    authority: Authority, server: Signed
) -> None:
    given = {**variables(server), "TIDEGATE_HEADER_DEADLINE": "10m"}
    async with serving(**given) as (process, address), connected(address):
        process.send_signal(signal.SIGTERM)
        status, _ = await ended(process)
        assert status == 0


# --- Requests and streams


async def test_requests_large_and_small_arrive_whole(authority: Authority, server: Signed) -> None:
    async with gateway_over_tls(authority, server) as gateway:
        await gateway.topic()
        await gateway.publish(*[{"k": n, "pad": PAD} for n in range(3_000)])  # 3 MB each way
        assert [row["k"] for row in await gateway.sow()] == list(range(3_000))
        async with connected(gateway.address, gateway.tls) as wire:
            one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
            await wire.send(one * 3)  # in one record
            assert [(await wire.read_answer()).status for _ in range(3)] == [200] * 3


async def test_a_refused_request_gets_its_answer_while_it_is_still_sending(
    authority: Authority, server: Signed
) -> None:
    async with (
        gateway_over_tls(authority, server, uri_bytes_max="256B") as gateway,
        connected(gateway.address, gateway.tls) as wire,
    ):
        await wire.send(b"GET /" + b"x" * 4_000)
        status, headers = await wire.read_head()
        await wire.send(b"x" * 100_000)
        assert (status, headers["content-type"]) == (414, "application/problem+json")


@pytest.mark.system
async def test_an_answer_comes_after_the_client_has_ended_its_direction(
    authority: Authority, server: Signed
) -> None:
    async with gateway_over_tls(authority, server) as gateway:
        url = urlsplit(gateway.address)
        raw = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

        def asked() -> bytes:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            inside = authority.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
            with socket.create_connection((url.hostname, url.port), timeout=HANGS_S) as plain:
                while True:
                    try:
                        inside.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        plain.sendall(outgoing.read())
                        incoming.write(plain.recv(65536))
                inside.write(raw)
                with contextlib.suppress(ssl.SSLError):
                    inside.unwrap()  # its end, in the same write as the request
                plain.sendall(outgoing.read())
                pieces = []
                while True:
                    try:
                        piece = inside.read(65536)
                    except ssl.SSLWantReadError:
                        received = plain.recv(65536)
                        assert received, "the end was not said inside TLS"
                        incoming.write(received)
                        continue
                    except ssl.SSLZeroReturnError:
                        break
                    if not piece:
                        break
                    pieces.append(piece)
                return b"".join(pieces)

        assert b'"status"' in await asyncio.to_thread(asked)


@pytest.mark.parametrize("options", ["conflation=100ms", "conflation=none"])
async def test_a_cohort_gets_every_flush(
    authority: Authority, server: Signed, options: str
) -> None:
    async with gateway_over_tls(authority, server) as gateway, contextlib.AsyncExitStack() as stack:
        await gateway.topic()
        streams = [
            await stack.enter_async_context(gateway.subscribe(options, command="subscribe"))
            for _ in range(8)
        ]
        for round_ in range(5):
            await gateway.publish({"k": 1, "v": round_, "pad": PAD * 20})
            for stream in streams:
                [value] = await stream.values(1)
                assert value["v"] == round_
        figures = (await gateway.http.get("/metrics")).text
        assert "tidegate_" in figures


async def test_a_compressed_stream_decodes(authority: Authority, server: Signed) -> None:
    async with gateway_over_tls(authority, server) as gateway:
        await gateway.topic()
        headers = {"Accept-Encoding": "gzip"}
        path = "/v1/topics/px/subscribe?command=subscribe&options=conflation=50ms"
        async with gateway.http.stream("GET", path, headers=headers) as answer:
            assert answer.headers["content-encoding"] == "gzip"
            decoder, text = zlib.decompressobj(31), b""
            chunks = answer.aiter_raw()
            for number in range(3):
                await gateway.publish({"k": 1, "v": number})
                while f'"v":{number}'.encode() not in text.replace(b" ", b""):
                    text += decoder.decompress(await asyncio.wait_for(anext(chunks), HANGS_S))


async def test_heartbeats_come(authority: Authority, server: Signed) -> None:
    async with gateway_over_tls(authority, server, heartbeat="200ms") as gateway:
        await gateway.topic()
        async with gateway.subscribe() as one, gateway.subscribe() as other:
            for stream in (one, other):
                await stream.raw_until(b"\n:")


# --- Peers that do not read


async def test_a_frozen_reader_holds_little_and_gets_the_newest_when_it_reads_on(
    authority: Authority, server: Signed
) -> None:
    given = {"write_timeout": "1m", "queue_messages_max": 200}
    async with gateway_over_tls(authority, server, **given) as gateway:
        await gateway.topic()
        async with gateway.frozen("conflation=none", query="&command=subscribe") as frozen:
            for version in range(VERSIONS):
                await gateway.publish(*[{"k": k, "v": version, "pad": PAD} for k in range(20)])
            waiting = [
                each.transport.get_write_buffer_size()
                for each in gateway.server.server_state.connections
            ]
            # One write and what a buffer may hold, of 3 MB that were published.
            assert 0 < sum(waiting) < 200_000
            frozen.thaw()
            received = bytearray()
            async with asyncio.timeout(HANGS_S):
                while f'"v": {VERSIONS - 1}'.encode() not in received[-5_000:]:
                    received += await frozen.reader.read(65536)
            assert len(received) < VERSIONS * 20 * len(PAD) / 2, "most were conflated"


async def test_a_peer_that_takes_nothing_is_cut(authority: Authority, server: Signed) -> None:
    async with gateway_over_tls(authority, server, write_timeout="500ms") as gateway:
        await gateway.topic()
        async with gateway.frozen("conflation=none", query="&command=subscribe"):
            async with asyncio.timeout(HANGS_S):
                while not gateway.server.figures.given_up:
                    await gateway.publish(*[{"k": k, "pad": PAD} for k in range(100)])
                    await asyncio.sleep(0.05)
        await eventually(lambda: not gateway.server.figures.connections - 1, "its session ended")


# --- The end


@pytest.mark.system
async def test_a_shutdown_says_goodbye_and_ends_every_stream(
    authority: Authority, server: Signed
) -> None:
    async with (
        serving(**variables(server)) as (process, address),
        client_of(address, tls=authority.trusting()) as remote,
    ):
        await remote.topic()
        async with (
            remote.subscribe("conflation=50ms") as one,
            remote.subscribe("conflation=50ms") as other,
        ):
            process.send_signal(signal.SIGTERM)
            for stream in (one, other):
                events = await stream.rest()
                assert events[-1].name == "goodbye"
                assert json.loads(events[-1].text)["reason"] == "SHUTDOWN"
        status, logged = await ended(process)
        assert status == 0
        assert "Traceback" not in logged


# --- Reading the certificate again


@pytest.mark.system
async def test_a_new_certificate_is_for_new_connections(
    authority: Authority, server: Signed
) -> None:
    async with (
        serving(**variables(server)) as (process, address),
        client_of(address, tls=authority.trusting()) as remote,
    ):
        await remote.topic()
        trusting = authority.trusting()
        async with remote.subscribe("conflation=50ms", command="subscribe") as stream:
            assert handshake(address, trusting)[2] == server.number
            newer = authority.server("newer")
            shutil.copy(newer.cert, server.cert)
            shutil.copy(newer.key, server.key)
            process.send_signal(signal.SIGHUP)
            await _number_becomes(address, trusting, newer.number)
            server.cert.write_text("no certificate")
            process.send_signal(signal.SIGHUP)
            assert process.stderr is not None
            async with asyncio.timeout(HANGS_S):
                while b"the certificate stays as it is" not in await process.stderr.readline():
                    pass
            assert handshake(address, trusting)[2] == newer.number
            await remote.publish({"k": 1})
            assert await stream.values(1) == [{"k": 1}]


async def _number_becomes(address: str, trusting: ssl.SSLContext, number: int) -> None:
    async with asyncio.timeout(HANGS_S):
        while handshake(address, trusting)[2] != number:
            await asyncio.sleep(0.02)


@pytest.mark.nightly
@pytest.mark.redis
async def test_workers_read_the_certificate_again(
    authority: Authority, server: Signed, redis_bus: BusServer
) -> None:
    more = {"TIDEGATE_REDIS": redis_bus.url, "TIDEGATE_WORKERS": "2"}
    more["TIDEGATE_REDIS_PREFIX"] = "tls-workers"
    async with serving(**variables(server), **more) as (process, address):
        newer = authority.server("newer")
        shutil.copy(newer.cert, server.cert)
        shutil.copy(newer.key, server.key)
        process.send_signal(signal.SIGHUP)
        trusting = authority.trusting()
        await _number_becomes(address, trusting, newer.number)
        await asyncio.sleep(1)  # the other worker has had its signal by now, too
        assert {handshake(address, trusting)[2] for _ in range(20)} == {newer.number}


@pytest.fixture(name="quiet", autouse=True)
def quiet_fixture(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that clients do is an error of the gateway."""
    yield
    errors = [it for it in caplog.records if it.levelno >= logging.ERROR]
    assert errors == []
