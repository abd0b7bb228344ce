"""What the tests of the console share: requests, readers, pictures, and what axe finds."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Self
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

import dev
from tests.support.deadlines import HANGS_S
from tidegate.clients.gateway import Gateway

PICTURES = dev.ROOT / "artifacts" / "console"
WIDTHS = (400, 1_024, 1_600)
USUAL, HIGH = 820, 1_340
TO_THE_TOP = "document.querySelectorAll('*').forEach((each) => each.scrollTo(0, 0))"
SYMBOLS = [f"S{number:03}" for number in range(40)]


def publish(gateway: Gateway, topic: str, *values: object) -> None:
    gateway.publish(topic, [json.dumps(value).encode() for value in values])


def remove(gateway: Gateway, topic: str, key: str) -> None:
    removal = json.dumps({"key": [key], "reason": "deleted"}).encode()
    address = f"{gateway.base_url}/v1/topics/{topic}/messages?format=envelope"
    request = Request(address, removal, {"Content-Type": "application/json"})
    with urlopen(request, timeout=HANGS_S) as answer:
        assert answer.status == HTTPStatus.OK


def quote(symbol: str, price: float, desk: str = "a") -> dict[str, object]:
    return {"symbol": symbol, "price": price, "desk": desk}


def visit(page: Page, gateway: Gateway, place: str) -> None:
    page.goto(f"{gateway.base_url}/console#/{place}")
    expect(page.locator("main")).not_to_be_empty()


def rows(page: Page | Locator, name: str = "Records") -> Locator:
    return page.get_by_role("grid", name=name, exact=True).locator(".t-body .t-row")


def keep_pictures(page: Page, name: str, *, is_tall: bool = False) -> None:
    """Pictures of the screen in each width and theme, for people to look at; and what axe finds.

    `is_tall`: in a window high enough for a screen that would have to be scrolled.
    """
    PICTURES.mkdir(parents=True, exist_ok=True)
    look_over(page, name, HIGH if is_tall else USUAL)


def look_over(page: Page, name: str = "", height: int = USUAL) -> None:
    """See that the screen fits each width, and that axe finds nothing in either theme."""
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": height})
            if name:
                page.evaluate(TO_THE_TOP)
                page.screenshot(path=PICTURES / f"{name}-{width}-{theme}.png")
            is_wider = page.evaluate("document.documentElement.scrollWidth > innerWidth")
            assert not is_wider, f"{name} scrolls sideways at {width}"
            found = faults(page)
            assert not found, f"{name} at {width} in {theme}: {found}"


def faults(page: Page) -> list[str]:
    """The faults of accessibility that axe finds, each with an element that has it."""
    # Into the page past its policy, as a debugger does: the policy is not weakened for the test.
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:160]} {each['nodes'][0]['failureSummary'][:300]}"
        for each in found
    ]


def ask(gateway: Gateway, method: str, path: str, document: object) -> dict[str, str]:
    body = json.dumps(document).encode()
    request = Request(f"{gateway.base_url}{path}", body, {"Content-Type": "application/json"})
    request.method = method
    with urlopen(request, timeout=HANGS_S) as answer:
        return dict(json.load(answer))


@contextmanager
def frozen_reader(gateway: Gateway, path: str) -> Iterator[None]:
    """A reader of a stream that takes nothing, and has little room for what is not taken."""
    parts = urlsplit(gateway.base_url)
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        reader.connect((parts.hostname, parts.port))
        reader.sendall(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        yield


def expect_off(page: Page, names: tuple[str, ...]) -> None:
    """Each of these buttons is there, and cannot be used."""
    for name in names:
        expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()


class Reader:
    """A subscriber beside the page, which reads all that it gets."""

    def __init__(self, gateway: Gateway, options: str, topic: str = "prices") -> None:
        self._client = Gateway(gateway.base_url)
        self._events = self._client.subscribe(topic, options=options)
        self.session = str(next(self._events).fields["session"])
        self._thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        for _ in self._events:
            pass

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._events.close()
        self._thread.join()
        self._client.close()


class Poller:
    """A reader without a connection: it polls a topic, and waits in each request."""

    def __init__(self, gateway: Gateway, query: str, topic: str = "prices") -> None:
        self._address = f"{gateway.base_url}/v1/topics/{topic}/stream?{query}&live=long-poll"
        self._leaves = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        offset = "-1"
        while not self._leaves.is_set():
            with urlopen(f"{self._address}&offset={offset}", timeout=HANGS_S) as answer:
                offset = answer.headers["Stream-Next-Offset"]
                answer.read()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._leaves.set()
        self._thread.join()
