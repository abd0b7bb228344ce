"""After a refusal, a browser's EventSource reconnects by itself, or gets an error."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import SEES_MS_MAX
from tests.browser.test_origins import Blank
from tests.support.commands import address_of, start
from tests.support.deadlines import HANGS_S
from tests.support.tokens import public_jwk, write_keys

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

AT = "/v1/topics/px/subscribe"
# Only what the standard has: nothing here asks again, so whatever comes is the browser's doing.
OPEN = """(address) => {
  window.heard = [];
  window.source = new EventSource(address);
  for (const name of ["hello", "refused", "goodbye"]) {
    window.source.addEventListener(name, (event) => window.heard.push([name, event.data]));
  }
}"""
HEARD = """(name) => window.heard.some(([heard]) => heard === name)"""
CLOSED = "() => window.source.readyState === EventSource.CLOSED"


@contextlib.contextmanager
def gateway(port: int = 0, **settings: str) -> Iterator[str]:
    variables = {f"TIDEGATE_{name.upper()}": text for name, text in settings.items()}
    process = start("serve", "--port", str(port), **variables)
    try:
        yield address_of(process)
    finally:
        process.terminate()
        process.communicate(timeout=HANGS_S)


@pytest.fixture
def home() -> Iterator[str]:
    """The origin of a page elsewhere: a gateway's own may ask that gateway alone."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Blank) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context()
    context.set_default_timeout(SEES_MS_MAX)
    yield context.new_page()
    context.close()


def listening(tab: Page, page: str, address: str) -> None:
    """Open a stream from a page."""
    tab.goto(page)
    tab.evaluate(OPEN, address)


def until(tab: Page, condition: str, argument: object = None) -> None:
    """Wait for a condition; asked from here, as the page's policy lets nothing be evaluated."""
    deadline = time.monotonic() + SEES_MS_MAX / 1_000
    while not tab.evaluate(condition, argument):
        assert time.monotonic() < deadline, tab.evaluate("() => window.heard")
        tab.wait_for_timeout(100)


def first(tab: Page, name: str) -> Any:
    """The data of the first event of this name, which comes sooner or later."""
    until(tab, HEARD, name)
    heard = tab.evaluate("() => window.heard.map(([name, data]) => [name, JSON.parse(data)])")
    return next(document for heard_name, document in heard if heard_name == name)


def test_it_comes_back_when_there_is_room_for_a_session(tab: Page) -> None:
    with gateway(sessions_max="1") as at:
        httpx2.put(f"{at}/v1/topics/px", json={"key": ["/k"]}).raise_for_status()
        with httpx2.stream("GET", at + AT) as held:
            chunks = held.iter_bytes()  # held, as its end would close the connection
            assert b"hello" in next(chunks)
            listening(tab, f"{at}/docs", AT)
            assert first(tab, "refused")["code"] == "limit-reached"
            assert not tab.evaluate(HEARD, "hello")
        assert "session" in first(tab, "hello")


def test_it_comes_back_when_there_is_room_for_a_connection(tab: Page, home: str) -> None:
    # From a page elsewhere: without its CORS fields the answer below ASGI would end the source.
    with gateway(connections_max="8", allowed_origins=home) as at:
        httpx2.put(f"{at}/v1/topics/px", json={"key": ["/k"]}).raise_for_status()
        parts = urlsplit(at)
        with contextlib.ExitStack() as held:
            for _ in range(8):
                held.enter_context(socket.create_connection((parts.hostname, parts.port)))
            listening(tab, home, at + AT)
            assert first(tab, "refused")["code"] == "limit-reached"
        assert "session" in first(tab, "hello")


def test_it_comes_back_to_a_gateway_that_has_restarted(
    tab: Page, home: str, tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    with gateway(data=data, allowed_origins=home) as at:
        httpx2.put(f"{at}/v1/topics/px", json={"key": ["/k"]}).raise_for_status()
        listening(tab, home, at + AT)
        first(tab, "hello")
        tab.evaluate("() => { window.heard = []; }")
    assert first(tab, "goodbye")["reason"] == "SHUTDOWN"
    with gateway(urlsplit(at).port or 0, data=data, allowed_origins=home):
        first(tab, "hello")


def test_who_has_no_right_is_not_asked_to_come_back(tab: Page, tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    with gateway(auth_keys=keys) as at:
        listening(tab, f"{at}/docs", AT)
        until(tab, CLOSED)
        assert tab.evaluate("() => window.heard") == []
