"""Pages of other origins in a real Chromium: what they may read, and that they change nothing.

`localhost` and `127.0.0.1` are two sites to a browser, and two ports of one host are two origins of
one site. SameSite looks at sites, CORS and the check of `Origin` at origins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import SEES_MS_MAX
from tests.support.commands import address_of, serving, start
from tests.support.deadlines import HANGS_S
from tests.support.rules import rule
from tests.support.tokens import claims, grant, public_jwk, signed, write_keys
from tidegate.clients.gateway import Gateway
from tidegate.clients.token import Token

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

TOKEN = signed(claims("root", grant("read,write,admin,observe >")))
SUBSCRIBE = "/v1/topics/prices/subscribe"
LISTEN = """([url, withCredentials]) => new Promise((resolve) => {
  const source = new EventSource(url, {withCredentials});
  const end = (found) => { source.close(); resolve(found); };
  source.onmessage = (message) => end(message.data);
  source.onerror = () => end("refused");
})"""
"""The first message of a stream, as a page has it."""
FETCH = """async ([url, options]) => {
  try {
    const answer = await fetch(url, options);
    const headers = Object.fromEntries(answer.headers.entries());
    const text = await answer.text();
    return {status: answer.status, type: answer.type, headers, text};
  } catch (error) {
    return {status: "withheld", text: String(error)};
  }
}"""


class Blank(BaseHTTPRequestHandler):
    """An empty page, whatever is asked for."""

    def do_GET(self) -> None:
        body = b"<!doctype html><title>another page</title><p>another page"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing: the pages are empty."""


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    """The ports of two servers of pages: of the first the gateway allows, of the second not."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Blank) for _ in range(2)]
    threads = [threading.Thread(target=server.serve_forever) for server in servers]
    for thread in threads:
        thread.start()
    first, second = (server.server_address[1] for server in servers)
    yield first, second
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Place:
    """A gateway at `localhost`, and the pages that look at it."""

    gateway: str
    allowed: str
    other_site: str
    stranger: str

    def state(self) -> tuple[Any, ...]:
        """What a page might have changed."""
        with Gateway(self.gateway, token=Token(TOKEN)) as gateway:
            topics = [each["topic"] for each in gateway.topics()]
            return topics, sorted(gateway.sow("prices"))


@pytest.fixture
def place(ports: tuple[int, int], tmp_path: Path) -> Iterator[Place]:
    first, second = ports
    pages = (f"http://localhost:{first}", f"http://127.0.0.1:{first}", f"http://localhost:{second}")
    process = start(
        "serve", "--port", "0", "--auth-keys", write_keys(tmp_path / "k", public_jwk("HS256")),
        TIDEGATE_ALLOWED_ORIGINS=",".join(pages[:2]),
    )  # fmt: skip
    try:
        address = address_of(process).replace("127.0.0.1", "localhost")
        with Gateway(address, token=Token(TOKEN)) as gateway:
            gateway.put_topic("prices", {"key": ["/k"]})
            gateway.publish("prices", [b'{"k":1}'])
        yield Place(address, *pages)
    finally:
        process.terminate()
        process.communicate(timeout=HANGS_S)


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context()
    context.set_default_timeout(SEES_MS_MAX)
    yield context.new_page()
    context.close()


def log_in(tab: Page, place: Place) -> str:
    """Keep the token in the browser's cookie, as the gateway's own page does; the proof."""
    tab.goto(place.gateway)
    options = {
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": f'{{"token":"{TOKEN}"}}',
    }
    answer = tab.evaluate(FETCH, ["/v1/login", options])
    assert answer["status"] == 200
    return str(tab.evaluate("(text) => JSON.parse(text).csrf", answer["text"]))


def asked(tab: Page, url: str, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = tab.evaluate(FETCH, [url, options])
    return found


def heard(tab: Page, url: str, *, credentials: bool = False) -> str:
    return str(tab.evaluate(LISTEN, [url, credentials]))


@rule("access-8", "connection-4")
def test_a_ticket_opens_a_stream_for_pages_of_allowed_origins(tab: Page, place: Place) -> None:
    for page in (place.allowed, place.other_site):
        tab.goto(page)
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        issued = asked(tab, f"{place.gateway}/v1/tickets", method="POST", headers=bearer)
        assert issued["status"] == 201
        ticket = tab.evaluate("(text) => JSON.parse(text).ticket", issued["text"])
        stream = f"{place.gateway}{SUBSCRIBE}?ticket={ticket}"
        assert heard(tab, stream) == '{"k":1}'
        assert heard(tab, f"{stream}x") == "refused"
        assert heard(tab, f"{place.gateway}{SUBSCRIBE}") == "refused"
    # The gateway answers whoever shows a ticket; a stranger's page may not read what it says.
    tab.goto(place.stranger)
    assert heard(tab, stream) == "refused"


@rule("connection-4")
def test_the_cookie_goes_to_pages_of_this_site_and_no_other(tab: Page, place: Place) -> None:
    proof = log_in(tab, place)
    stream = f"{place.gateway}{SUBSCRIBE}"
    tab.goto(place.allowed)
    assert heard(tab, stream, credentials=True) == '{"k":1}'
    assert heard(tab, stream) == "refused"
    shown = asked(tab, f"{place.gateway}/v1/login", credentials="include")
    assert (shown["status"], proof in shown["text"]) == (200, True)
    change = {"method": "PUT", "credentials": "include", "body": "{}"}
    json = {"Content-Type": "application/json"}
    made = f"{place.gateway}/v1/topics/made"
    assert asked(tab, made, headers=json, **change)["status"] == 403
    assert asked(tab, made, headers={**json, "Tidegate-CSRF": proof}, **change)["status"] == 201
    # Its origin is allowed as well, and SameSite=Strict keeps the cookie back.
    tab.goto(place.other_site)
    assert heard(tab, stream, credentials=True) == "refused"
    shown = asked(tab, f"{place.gateway}/v1/login", credentials="include")
    assert (shown["status"], "unauthenticated" in shown["text"]) == (401, True)


@rule("connection-4")
def test_a_page_of_another_origin_reads_no_answer(tab: Page, place: Place) -> None:
    log_in(tab, place)
    tab.goto(place.stranger)
    assert heard(tab, f"{place.gateway}{SUBSCRIBE}", credentials=True) == "refused"
    for path in ("/v1/topics", "/v1/login", "/v1/topics/prices/sow", "/healthz"):
        answer = asked(tab, place.gateway + path, credentials="include")
        assert answer["status"] == "withheld", path
        # Without CORS the page would get it unreadable into its process; CORP keeps it out.
        opaque = asked(tab, place.gateway + path, credentials="include", mode="no-cors")
        assert opaque["status"] == "withheld", path


@rule("connection-4")
def test_a_page_of_an_allowed_origin_reads_headers_and_is_asked_first(
    tab: Page, place: Place
) -> None:
    tab.goto(place.allowed)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    answer = asked(tab, f"{place.gateway}/v1/topics/prices", headers=bearer)
    assert answer["status"] == 200
    assert answer["headers"]["etag"].startswith('"')
    assert "content-security-policy" not in answer["headers"]
    records = asked(tab, f"{place.gateway}/v1/topics/prices/sow", headers=bearer)
    assert records["headers"]["tidegate-bookmark"]
    json = {**bearer, "Content-Type": "application/json"}
    opened = asked(tab, f"{place.gateway}/v1/sessions", method="POST", headers=json, body="{}")
    assert (opened["status"], opened["headers"]["location"][:13]) == (201, "/v1/sessions/")
    refused = asked(tab, f"{place.gateway}/v1/topics")
    assert (refused["status"], "unauthenticated" in refused["text"]) == (401, True)
    # The preflight refuses what is not on the list, whatever the route would say.
    other = {**bearer, "X-Other": "1"}
    assert asked(tab, f"{place.gateway}/v1/topics", headers=other)["status"] == "withheld"


POST_FORM = """([url, type, name, value]) => new Promise((resolve) => {
  const frame = document.createElement("iframe");
  frame.name = "target";
  document.body.append(frame);
  const form = document.createElement("form");
  Object.assign(form, {action: url, method: "POST", enctype: type, target: "target"});
  const input = document.createElement("input");
  Object.assign(input, {type: "hidden", name, value});
  form.append(input);
  document.body.append(form);
  frame.addEventListener("load", () => setTimeout(resolve, 300));
  form.submit();
  setTimeout(resolve, 3000);
})"""
IMAGE = """(url) => new Promise((resolve) => {
  const image = new Image();
  image.onload = image.onerror = () => resolve();
  image.src = url;
})"""


def by_form(type_: str) -> Callable[[Page, Place], None]:
    def attack(tab: Page, place: Place) -> None:
        url = f"{place.gateway}/v1/topics/prices/messages"
        tab.evaluate(POST_FORM, [url, type_, '{"k":2,"x":"', '"}'])

    return attack


def by_fetch(method: str, path: str, **more: Any) -> Callable[[Page, Place], None]:
    def attack(tab: Page, place: Place) -> None:
        options = {"method": method, "mode": "no-cors", "credentials": "include", **more}
        asked(tab, place.gateway + path, **options)

    return attack


def by_script(script: str, path: str) -> Callable[[Page, Place], None]:
    def attack(tab: Page, place: Place) -> None:
        tab.evaluate(script, place.gateway + path)

    return attack


MESSAGES = "/v1/topics/prices/messages"
ATTACKS: dict[str, Callable[[Page, Place], None]] = {
    "form": by_form("application/x-www-form-urlencoded"),
    "form-text": by_form("text/plain"),
    "form-parts": by_form("multipart/form-data"),
    "fetch-text": by_fetch("POST", MESSAGES, body='{"k":2}'),
    "fetch-no-body": by_fetch("POST", "/v1/sessions"),
    "fetch-cors": by_fetch(
        "POST", MESSAGES, mode="cors", headers={"Content-Type": "application/json"}, body='{"k":2}'
    ),
    "fetch-delete": by_fetch("DELETE", "/v1/topics/prices", mode="cors"),
    "fetch-logout": by_fetch("DELETE", "/v1/login", mode="cors"),
    "fetch-override": by_fetch("POST", "/v1/topics/prices?_method=DELETE"),
    "beacon": by_script("(url) => navigator.sendBeacon(url, '{\"k\":2}')", MESSAGES),
    "beacon-json": by_script(
        "(url) => navigator.sendBeacon(url, new Blob(['{\"k\":2}'], {type: 'application/json'}))",
        MESSAGES,
    ),
    "image": by_script(IMAGE, MESSAGES + "?method=POST&value=2"),
    "image-delete": by_script(IMAGE, "/v1/topics/prices/sow?key=[1]"),
}


@rule("connection-2", "access-7")
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_page_of_another_origin_changes_nothing(
    tab: Page, place: Place, attack: Callable[[Page, Place], None]
) -> None:
    """With the cookie: the stranger's page is of this site, so that the browser sends it along."""
    proof = log_in(tab, place)
    before = place.state()
    statuses: list[int] = []
    tab.on("response", lambda it: statuses.append(it.status) if place.gateway in it.url else None)
    tab.goto(place.stranger)
    attack(tab, place)
    tab.wait_for_timeout(200)
    assert place.state() == before
    assert all(status >= 400 for status in statuses), statuses
    tab.goto(place.gateway)
    # Neither is anybody logged out.
    assert proof in asked(tab, "/v1/login")["text"]


def test_a_name_that_was_made_to_point_here_is_not_answered(chromium: Browser) -> None:
    """DNS rebinding: to the browser the gateway is then of the same origin as the evil page."""
    # The evil page has no policy; the gateway's own answer, which stands for it, has one.
    context = chromium.new_context(bypass_csp=True)
    tab = context.new_page()
    with serving() as address:
        evil = address.replace("127.0.0.1", "evil.example")
        answer = tab.goto(evil)
        assert answer is not None
        assert answer.status == 421
        expect(tab.locator("body")).to_contain_text("host-not-allowed")
        json = {"Content-Type": "application/json"}
        for method, path, more in (
            ("GET", "/v1/topics", {}),
            ("PUT", "/v1/topics/evil", {"headers": json, "body": "{}"}),
            ("POST", "/v1/topics/evil/messages", {"headers": json, "body": "{}"}),
        ):
            found = asked(tab, path, method=method, **more)
            assert (found["status"], "host-not-allowed" in found["text"]) == (421, True)
        assert heard(tab, "/v1/topics/evil/subscribe") == "refused"
        with Gateway(address) as gateway:
            assert list(gateway.topics()) == []
    context.close()
