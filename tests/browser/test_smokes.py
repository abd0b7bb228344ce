"""What a person sees first in a real Chromium: the first page and the console, on a real gateway.

The other tests of this folder, which are nightly, cover each screen and each promise to pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.chromium import watched_page
from tests.browser.console.conftest import REFUSED
from tests.browser.console.support import (
    SYMBOLS,
    Reader,
    expect_off,
    faults,
    publish,
    quote,
    remove,
    rows,
    visit,
)
from tests.browser.test_client import prices as prices_of
from tests.browser.test_client import remove as remove_by_key
from tests.browser.test_page import SYMBOLS as PRICED
from tests.browser.test_page import Publisher, price_of
from tests.support.commands import address_of, serving, start
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port
from tests.support.tokens import public_jwk, token_of, write_keys
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.browser


@pytest.fixture
def console(chromium: Browser, gateway: Gateway) -> Iterator[Page]:
    """A page of which the gateway may refuse requests, as a form that is checked as one types."""
    with watched_page(chromium, allowed=REFUSED) as page:
        yield page


@pytest.fixture
def prices(gateway: Gateway) -> Gateway:
    """A gateway with the topic `prices`, its key `/symbol`, and forty records."""
    gateway.put_topic("prices", {"key": ["/symbol"]})
    publish(gateway, "prices", *(quote(each, at + 0.5) for at, each in enumerate(SYMBOLS)))
    return gateway


def test_the_first_page_shows_rows_and_their_changes(page: Page, gateway: Gateway) -> None:
    with Publisher(gateway):
        page.goto(gateway.base_url)
        expect(page.locator("#state")).to_have_text("live")
        expect(page.get_by_role("rowheader")).to_have_text(PRICED)
        before = price_of(page, "IBM")
        cell = page.locator("#body tr").nth(PRICED.index("IBM")).locator("td").first
        expect(cell).not_to_have_text(before)
        expect(page.locator("#raw")).to_have_text(re.compile("[1-9]"))
        expect(page.locator("#saved")).to_contain_text("%")
        page.wait_for_function("() => parseFloat(document.getElementById('saved').textContent) > 0")
        expect(page.locator("#table").locator("b")).to_have_count(0)  # `note` is text, no markup
        expect(page.locator("#granted")).to_contain_text("conflation=500ms")


@pytest.mark.nightly
def test_the_overview_shows_rates_and_what_is_saved(console: Page, prices: Gateway) -> None:
    with Publisher(prices), Reader(prices, "conflation=1s"):
        visit(console, prices, "overview")
        for title in ("Messages in", "Rows out", "Bytes saved"):
            figure = console.get_by_role("region", name=title).locator(".big")
            expect(figure).to_have_text(re.compile(r"^[1-9]"))
        expect(console.get_by_role("region", name="Conflated").locator(".big")).to_have_text(
            re.compile(r"^[1-9]\d?\.\d %$")
        )
        expect(rows(console, "Topics by rate").first).to_contain_text("prices")
        expect(console.get_by_role("region", name="Gateways")).to_contain_text("ready")


@pytest.mark.nightly
def test_a_topic_is_made_checked_changed_and_deleted(console: Page, gateway: Gateway) -> None:
    visit(console, gateway, "topics")
    console.get_by_role("button", name="New topic").click()
    console.get_by_label("Name").fill("orders")
    editor = console.get_by_label("Definition, as JSON")
    editor.fill('{"key": ["/id"], "options": "conflaton=1s"}')
    console.get_by_role("button", name="Check without saving").click()
    verdict = console.locator("main [role=status]")
    expect(verdict).to_contain_text("at /options")
    editor.fill('{"key": ["/id"], "options": "conflation=1s"}')
    console.get_by_role("button", name="Check without saving").click()
    expect(verdict).to_contain_text("Nothing was changed")
    assert gateway.find_topic("orders") is None
    console.get_by_role("button", name="Make the topic").click()
    expect(console.get_by_role("region", name="orders")).to_contain_text("served")
    last = {"id": 8, "price": 1.25, "ts": 34_200_000}
    publish(gateway, "orders", {"id": 7, "price": 1.5}, last)
    console.reload()
    expect(rows(console, "Last values").first).to_contain_text("1.50")
    expect(rows(console, "Last values").last).to_contain_text("09:30:00.000")
    expect(editor).to_have_value(re.compile("conflation=1s"))
    gateway.administration.patch_topic("orders", {"description": "by somebody else"})
    editor.fill('{"key": ["/id"], "options": "conflation=2s"}')
    console.get_by_role("button", name="Save", exact=True).click()
    expect(verdict).to_contain_text("Somebody changed the topic")
    console.get_by_role("button", name="Load it again").click()
    expect(editor).to_have_value(re.compile("by somebody else"))
    editor.fill('{"key": ["/id"], "options": "conflation=2s"}')
    console.get_by_role("button", name="Save", exact=True).click()
    expect(verdict).to_have_text("Saved.")
    assert gateway.topic("orders")["options"] == "conflation=2s"
    console.get_by_role("button", name="Delete").click()
    console.get_by_role("button", name="Delete it").click()
    expect(console.get_by_text("orders is deleted")).to_be_visible()
    assert gateway.find_topic("orders") is None


def test_the_blotter_shows_live_records_and_removals(console: Page, prices: Gateway) -> None:
    visit(console, prices, "blotter?topic=prices")
    expect(console.get_by_role("grid", name="Records")).to_have_attribute("aria-rowcount", "41")
    row = rows(console).filter(has_text="S003")
    expect(row).to_contain_text("3.5")
    publish(prices, "prices", quote("S003", 99.25))
    expect(row).to_contain_text("99.25")
    expect(row.locator(".up-1, .up-2")).to_have_count(1)
    remove(prices, "prices", "S003")
    expect(row).to_have_count(0)
    expect(console.get_by_role("grid", name="Records")).to_have_attribute("aria-rowcount", "40")


@pytest.mark.nightly
def test_the_client_of_a_page_goes_on_after_a_restart_of_its_gateway(
    tabs: BrowserContext, tmp_path: Path
) -> None:
    command = ["serve", "--port", str(lasting_port()), "--data", str(tmp_path)]
    process = start(*command)
    try:
        with Gateway(address_of(process)) as gateway:
            gateway.put_topic("prices", {"key": ["/symbol"]})
            prices_of(gateway, "AIG", "IBM")
            page = tabs.new_page()
            page.goto(gateway.base_url)
            expect(page.get_by_role("rowheader")).to_have_text(["AIG", "IBM"])
            process.kill()
            process.communicate(timeout=HANGS_S)
            expect(page.locator("#state")).to_contain_text("connection lost at")
            expect(page.locator("#scroll")).to_have_attribute("data-state", "lost")
            process = start(*command)
            address_of(process)
            remove_by_key(gateway, "prices", "AIG")
            prices_of(gateway, "SPY")
            expect(page.locator("#state")).to_have_text("live")
            expect(page.get_by_role("rowheader")).to_have_text(["IBM", "SPY"])
    finally:
        process.kill()
        process.communicate(timeout=HANGS_S)


def test_a_token_signs_in_and_its_grants_decide(console: Page, tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    root = token_of("root", "read,write,admin,observe >")
    reader = token_of("ann", "read prices.>")["Authorization"].removeprefix("Bearer ")
    with serving("--auth-keys", keys) as address:
        put = Request(f"{address}/v1/topics/prices.eu", b'{"key": ["/symbol"]}', root)
        put.method = "PUT"
        put.add_header("Content-Type", "application/json")
        with urlopen(put, timeout=HANGS_S) as answer:
            assert answer.status == HTTPStatus.CREATED
        console.goto(f"{address}/console#/topics?topic=prices.eu")
        console.get_by_label("Token").fill("nobody")
        console.get_by_role("button", name="Sign in").click()
        expect(console.get_by_role("alert").first).to_contain_text("The token is not taken")
        expect(console.locator("#state")).to_have_text("signed out")
        expect(console.get_by_role("navigation")).to_be_hidden()
        documentation = console.get_by_role("link", name="Documentation")
        expect(documentation).to_have_attribute("href", re.compile("^https://"))
        assert faults(console) == []
        console.get_by_label("Token").fill(reader)
        console.get_by_role("button", name="Sign in").click()
        expect(console.get_by_role("region", name="prices.eu")).to_contain_text("served")
        expect(documentation).to_have_count(0)
        console.get_by_role("button", name="Help").click()
        expect(documentation).to_have_attribute("target", "_blank")
        console.keyboard.press("Escape")
        expect_off(console, ("New topic", "Check without saving", "Save", "Delete"))
        expect(console.get_by_text("no grant with the verb admin").first).to_be_visible()
        console.get_by_role("link", name="Publish").first.click()
        expect_off(console, ("Publish", "Take a record as a model", "Remove"))
        expect(console.get_by_text("no grant with the verb write").first).to_be_visible()
        console.get_by_role("link", name="Overview").click()
        expect(console.get_by_text("needs the verb observe")).to_be_visible()
        console.get_by_role("button", name="Sign out").click()
        expect(console.get_by_label("Token")).to_be_visible()
        # All streams end before the gateway does, so that no broken one is complained of.
        console.goto("about:blank")
