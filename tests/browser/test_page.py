"""The first page in a real Chromium, on a real gateway."""

from __future__ import annotations

import itertools
import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Self

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import SEES_MS_MAX, watched_page
from tests.support.commands import serving
from tidegate.app.stores.folder import DATABASE
from tidegate.clients.gateway import Gateway
from tidegate.clients.requests import JSON
from tidegate.pipeline.operations.status import State, StreamStatus
from tidegate.pipeline.operations.watch import TOPIC, message_of

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

SYMBOLS = ("AIG", "BAC", "IBM", "SPY")


class Publisher:
    """Prices that change a hundred times a second, until stopped."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self.gateway.put_topic("prices", {"key": ["/symbol"]})
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            prices = [
                {"symbol": symbol, "price": number / 100, "note": f"<b>{number}</b>"}
                for symbol in SYMBOLS
            ]
            self.gateway.publish("prices", [json.dumps(price).encode() for price in prices])
            if self._stopping.wait(0.04):
                return


def price_of(page: Page, symbol: str) -> str:
    row = page.locator("#body tr").filter(has=page.get_by_role("rowheader", name=symbol))
    return row.locator("td").first.inner_text()


def test_pipelines_are_offered_once_one_has_published_its_status(
    page: Page, gateway: Gateway
) -> None:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    page.goto(gateway.base_url)
    expect(page.locator("#topic option")).to_have_text(["prices"])
    stands = message_of(StreamStatus("ticks-1s", State.RUNNING, at_s=1.0))
    with Gateway(gateway.base_url) as publisher:
        producer, number, message = stands
        publisher.publish_body(TOPIC, message, producer, number, JSON)
    expect(page.locator("#topic option")).to_have_text(["prices", TOPIC])
    page.locator("#topic").select_option(TOPIC)
    expect(page.get_by_role("rowheader")).to_have_text(["ticks-1s"])


def test_what_is_published_is_text_and_never_markup(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    for text in ("<b>one</b>", "<b>two</b>"):
        message = {"symbol": "<i>IBM</i>", "<u>note</u>": text}
        gateway.publish("prices", [json.dumps(message).encode()])
        if text == "<b>one</b>":
            page.goto(gateway.base_url)
        expect(page.locator("#body td")).to_have_text(text)
        expect(page.locator("#table").locator("b, i, u")).to_have_count(0)


def test_a_time_reads_as_one_and_never_flashes(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    gateway.publish("prices", [b'{"symbol": "IBM", "ts": 34200000, "price": 1.5}'])
    page.goto(gateway.base_url)
    cells = page.locator("#body td")
    expect(cells).to_have_text(["09:30:00.000", "1.5"])
    page.evaluate(
        """() => {
            window.flashed = new Set();
            const animate = Element.prototype.animate;
            Element.prototype.animate = function (...given) {
                window.flashed.add(this.cellIndex);
                return animate.apply(this, given);
            };
        }"""
    )
    gateway.publish("prices", [b'{"symbol": "IBM", "ts": 34200250, "price": 1.75}'])
    expect(cells).to_have_text(["09:30:00.250", "1.75"])
    assert page.evaluate("[...window.flashed]") == [2]


def test_only_rows_in_view_flash(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    gateway.publish("prices", [_price(number, 1.5) for number in range(300)])
    page.goto(gateway.base_url)
    expect(page.locator("#body tr")).to_have_count(300)
    page.evaluate(
        """() => {
            window.flashed = new Set();
            const animate = Element.prototype.animate;
            Element.prototype.animate = function (...given) {
                window.flashed.add(this.parentElement.firstChild.textContent);
                return animate.apply(this, given);
            };
        }"""
    )
    gateway.publish("prices", [_price(number, 1.75) for number in range(300)])
    expect(page.locator("#body td").last).to_have_text("1.75")
    flashed = page.evaluate("[...window.flashed]")
    assert "S000" in flashed
    assert "S299" not in flashed


def _price(number: int, price: float) -> bytes:
    return json.dumps({"symbol": f"S{number:03}", "price": price}).encode()


def test_the_console_is_a_click_away(page: Page, gateway: Gateway) -> None:
    page.goto(gateway.base_url)
    page.get_by_role("link", name="Console").click()
    expect(page.get_by_role("navigation", name="Screens")).to_contain_text("Blotter")


def test_another_interval_is_another_subscription(page: Page, gateway: Gateway) -> None:
    with Publisher(gateway):
        page.goto(gateway.base_url)
        expect(page.locator("#granted")).to_contain_text("conflation=500ms")
        page.get_by_label("At most one update per key every").select_option("2s")
        expect(page.locator("#granted")).to_contain_text("conflation=2s")
        page.get_by_label("At most one update per key every").select_option("none")
        expect(page.locator("#granted")).to_contain_text("conflation=none")
        expect(page.locator("#saved")).to_contain_text("%")
        page.reload()
        expect(page.locator("#granted")).to_contain_text("conflation=none")


def test_a_topic_without_key_shows_its_newest_messages(page: Page, gateway: Gateway) -> None:
    gateway.publish("log", [b'{"line":"one"}'])
    page.goto(gateway.base_url)
    expect(page.locator("#state")).to_have_text("live")
    expect(page.get_by_label("At most one update per key every")).to_be_disabled()
    gateway.publish("log", [b'{"line":"two"}', b"3"])
    expect(page.locator("#body")).to_contain_text("two")
    expect(page.locator("#body tr")).to_have_count(2)


def test_keys_can_be_searched(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    gateway.publish("prices", [b'{"symbol":"%s"}' % symbol.encode() for symbol in SYMBOLS])
    page.goto(gateway.base_url)
    expect(page.locator("#body tr")).to_have_count(4)
    page.get_by_label("Find").fill("b")
    expect(page.locator("#body tr:visible")).to_have_count(2)


def test_an_empty_gateway_says_how_to_begin_and_then_shows_what_comes(
    page: Page, gateway: Gateway
) -> None:
    page.goto(gateway.base_url)
    expect(page.locator("#hint")).to_contain_text("No topics yet")
    gateway.put_topic("prices", {"key": ["/symbol"]})
    gateway.publish("prices", [b'{"symbol":"IBM"}'])
    expect(page.get_by_role("rowheader", name="IBM")).to_be_visible()
    expect(page.locator("#hint")).to_be_hidden()


def test_a_topic_that_the_gateway_cannot_use_is_not_offered(
    chromium: Browser, tmp_path: Path
) -> None:
    with serving("--data", str(tmp_path)) as address, Gateway(address) as gateway:
        for topic in ("first", "prices"):
            gateway.put_topic(topic, {"key": ["/symbol"]})
        gateway.publish("prices", [b'{"symbol":"IBM"}'])
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
        database.execute("UPDATE topics SET document = ? WHERE name = 'first'", (b"no JSON",))
    with serving("--data", str(tmp_path)) as address, watched_page(chromium) as page:
        page.goto(address)
        expect(page.get_by_role("rowheader")).to_have_text(["IBM"])
        expect(page.locator("#topic option")).to_have_text(["prices"])


def test_the_http_api_is_documented_and_can_be_tried(page: Page, gateway: Gateway) -> None:
    """Under the page's own policy: the browser complains of nothing that it was not let do."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{gateway.base_url}/docs")
    expect(page.locator("#operations-topics-put_topic")).to_contain_text("Create a topic")
    health = page.locator("#operations-operations-healthz")
    health.locator(".opblock-summary-control").click()
    health.locator(".try-out__btn").click()
    health.locator(".execute").click()
    expect(health.locator(".live-responses-table").first).to_contain_text('"alive"')
    assert all(url.startswith((gateway.base_url, "data:")) for url in asked)


def test_a_stopped_gateway_is_shown(chromium: Browser) -> None:
    page = chromium.new_page()
    with serving() as address, Gateway(address) as gateway:
        gateway.publish("log", [b"1"])
        page.goto(address)
        expect(page.locator("#state")).to_have_text("live", timeout=SEES_MS_MAX)
    expect(page.locator("#state")).to_have_attribute("data-state", "lost", timeout=SEES_MS_MAX)
    page.close()


COLLECT = """
([url, count]) => new Promise((resolve, reject) => {
    const found = [], source = new EventSource(url);
    source.onerror = () => reject(new Error(`the stream broke after ${found.length}`));
    source.onmessage = message => {
        found.push(JSON.parse(message.data).n);
        if (found.length === count) { source.close(); resolve(found); }
        else if (found.length > 1) publish(found.length + 1);
    };
    const publish = n => fetch("/v1/topics/px/messages", {
        method: "POST",
        headers: {"Content-Type": "application/json"},
        body: JSON.stringify({k: 1, n, pad: "x".repeat(1000 * n)}),
    });
})
"""


def test_a_browser_decodes_zstd_frame_after_frame(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("px", {"key": ["/k"]})
    rows = [{"k": number, "n": number, "pad": "x" * 1_000} for number in (1, 2)]
    gateway.publish("px", [json.dumps(row).encode() for row in rows])
    codings: dict[str, str | None] = {}
    page.on("response", lambda it: codings.update({it.url: it.headers.get("content-encoding")}))
    page.goto(gateway.base_url)
    url = f"{gateway.base_url}/v1/topics/px/subscribe?options=conflation%3D20ms"
    # Each later row is published once the one before has come, so that it is a frame by itself.
    assert page.evaluate(COLLECT, [url, 12]) == [1, 2, *range(3, 13)]
    assert codings[url] == "zstd"
