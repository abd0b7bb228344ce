"""Which failures a request is sent again over."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients.support.streams import plain, scripted, stream
from tidegate.clients.aio.gateway import AsyncGateway
from tidegate.clients.errors import AnswerInvalid, GatewayProblem, GatewayUnreachable
from tidegate.clients.gateway import Gateway
from tidegate.clients.retry import Retry, is_temporary
from tidegate.clients.token import Token
from tidegate.clients.transport import Transport, is_gateway_out

NDJSON = "application/x-ndjson"
QUICK = Retry(60.0, pause=lambda seconds: None, clock=lambda: 0.0)
TOPIC = plain(200, b'{"topic":"t"}', "application/json")
PUBLISHED = b'{"topic":"t","messages":1,"first":"e-1","last":"e-1"}'


def problem(status: int) -> GatewayProblem:
    return GatewayProblem(status, f"http-{status}", "")


def test_a_gateway_behind_a_proxy_that_is_out_may_come_back() -> None:
    out = [status for status in range(400, 600) if is_gateway_out(problem(status))]
    assert out == [502, 503, 504]


def test_a_gateway_that_was_never_reached_is_waited_for_by_who_has_time_alone() -> None:
    lost = GatewayUnreachable("lost")
    assert (is_gateway_out(lost), is_temporary(lost)) == (False, True)
    lost.was_reached = True
    assert is_gateway_out(lost)


def test_who_has_time_asks_again_over_any_trouble_and_no_refusal() -> None:
    refusals = [GatewayProblem(status, "forbidden", "") for status in range(400, 600)]
    found = [each.status for each in refusals if is_temporary(each)]
    assert found == [429, *range(500, 600)]
    # What a proxy says by itself is no refusal, but for requests that it finds too large.
    stays = [status for status in range(400, 600) if not is_temporary(problem(status))]
    assert stays == [413, 414, 431]
    assert is_temporary(AnswerInvalid("a page"))


def test_every_request_is_sent_again_where_that_is_asked_for() -> None:
    with scripted(plain(500), plain(429), TOPIC) as fake:
        with Gateway(fake.address, every=QUICK) as gateway:
            assert gateway.topic("t") == {"topic": "t"}
        assert len(fake.requests) == 3


def test_otherwise_only_what_is_published_is() -> None:
    with scripted(plain(503), TOPIC) as fake, Gateway(fake.address) as gateway:
        with pytest.raises(GatewayProblem):
            gateway.topic("t")
        assert len(fake.requests) == 1


def test_a_failed_publish_is_reported_once() -> None:
    reported: list[str] = []
    with (
        scripted(plain(503), plain(200, PUBLISHED, "application/json")) as fake,
        Gateway(fake.address) as gateway,
    ):
        gateway.publish("t", [b"1"], trouble=reported.append)
    assert len(reported) == 1
    assert reported[0].endswith("; trying again")


def test_a_file_holds_an_answer_and_nothing_of_before() -> None:
    with scripted(plain(200, b"1\n2\n", NDJSON)) as fake:
        transport, file = (
            Transport(fake.address, 10.0, Retry(0), None, Token()),
            io.BytesIO(b"of before"),
        )
        transport.fetch("/", {}, file)
        transport.close()
    assert file.getvalue() == b"1\n2\n"


HELLO = b'event: hello\ndata: {"session":"s","heartbeat_ms":20000}\n\n'
OUT = plain(503, b"{}", "application/problem+json")


def test_a_request_that_was_not_sent_goes_to_the_next_address_at_once() -> None:
    with scripted(TOPIC) as fake:
        addresses = ["http://127.0.0.1:1", fake.address]
        with Gateway(addresses) as gateway:
            assert gateway.topic("t") == {"topic": "t"}
            assert gateway.base_url == fake.address


def test_a_gateway_that_is_out_gives_way_to_the_next() -> None:
    with scripted(OUT) as first, scripted(TOPIC) as second:
        with Gateway([first.address, second.address]) as gateway:
            assert gateway.topic("t") == {"topic": "t"}
            assert gateway.base_url == second.address
        assert (len(first.requests), len(second.requests)) == (1, 1)


def test_what_changes_something_is_not_sent_to_the_next_gateway_at_once() -> None:
    with (
        scripted(OUT) as first,
        scripted(TOPIC) as second,
        Gateway([first.address, second.address]) as gateway,
    ):
        with pytest.raises(GatewayProblem):
            gateway.put_topic("t", {})
        assert not second.requests
        assert gateway.topic("t") == {"topic": "t"}


@contextlib.contextmanager
def cutting(sent: bytes = b"") -> Iterator[str]:
    """The address of a server that sends this to a request, and closes its connection."""

    def cut() -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                connection, _ = listener.accept()
                connection.recv(1 << 16)
                connection.sendall(sent)
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=cut, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


async def test_a_first_subscription_that_is_cut_off_goes_to_the_next_address() -> None:
    scripts = [stream(HELLO), stream(HELLO)]
    with cutting() as cut, scripted(*scripts) as fake:
        with Gateway([cut, fake.address]) as gateway:
            assert next(gateway.subscribe("t")).name == "hello"
        async with AsyncGateway([cut, fake.address]) as aio:
            assert (await anext(aiter(aio.subscribe("t")))).name == "hello"
        with Gateway([cut, cut]) as gateway, pytest.raises(GatewayUnreachable):
            next(gateway.subscribe("t"))


async def test_a_refusal_that_is_cut_off_gives_way_to_the_next_address() -> None:
    half = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 100\r\n\r\n{"
    with cutting(half) as cut, scripted(TOPIC, TOPIC) as second:
        with Gateway([cut, second.address]) as gateway:
            assert gateway.topic("t") == {"topic": "t"}
        async with AsyncGateway([cut, second.address]) as aio:
            assert await aio.topic("t") == {"topic": "t"}


def test_where_no_gateway_is_there_each_address_was_tried_once() -> None:
    with Gateway(["http://127.0.0.1:1", "http://127.0.0.1:2"]) as gateway:
        with pytest.raises(GatewayUnreachable, match=":2: "):
            gateway.topic("t")
        with pytest.raises(GatewayUnreachable):
            gateway.topic("t")


async def test_the_asyncio_client_goes_to_the_next_address_and_waits_like_the_other() -> None:
    with scripted(OUT, TOPIC) as fake:
        addresses = ["http://127.0.0.1:1", fake.address]
        async with AsyncGateway(addresses, every=Retry(60.0)) as gateway:
            assert await gateway.topic("t") == {"topic": "t"}
        async with AsyncGateway("http://127.0.0.1:1") as gateway:
            with pytest.raises(GatewayUnreachable):
                await gateway.topic("t")
        assert len(fake.requests) == 2


def test_no_address_is_no_gateway() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Gateway([])


def test_an_error_shows_no_password() -> None:
    with (
        Gateway("http://user:secret@127.0.0.1:1") as gateway,
        pytest.raises(GatewayUnreachable, match=r"at http://127\.0\.0\.1:1:") as caught,
    ):
        gateway.topic("px")
    assert "secret" not in str(caught.value)


def test_the_answer_of_another_server_shows_no_password() -> None:
    with (
        scripted(plain(200, b"<p>", "text/html")) as fake,
        Gateway(fake.address.replace("//", "//user:secret@")) as gateway,
    ):
        asks: list[Callable[[str], Any]] = [gateway.topic, gateway.delete_topic, gateway.records]
        for ask in asks:
            with pytest.raises(AnswerInvalid, match=f"^{fake.address}/v1/topics/px") as caught:
                list(ask("px") or ())
            assert "secret" not in str(caught.value)
