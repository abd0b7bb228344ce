"""Overview, sessions, topics and publishing; who may do what."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.console.support import (
    SYMBOLS,
    Poller,
    Reader,
    ask,
    expect_off,
    frozen_reader,
    keep_pictures,
    look_over,
    publish,
    quote,
    rows,
    visit,
)
from tests.browser.test_page import Publisher
from tests.support.commands import serving
from tidegate.clients.gateway import Gateway

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

SLOW_LOOKS = """() => {
    const usual = window.fetch;
    window.under_way = 0;
    window.overlaps = 0;
    const held = new Promise((go) => (window.let_go = go));
    let begin;
    window.begun = new Promise((go) => (begin = go));
    window.fetch = async (address, asked) => {
        if (!String(address).endsWith("/v1/topics/orders")) return usual(address, asked);
        if (asked?.method === "DELETE") window.overlaps += window.under_way;
        if ((asked?.method ?? "GET") !== "GET") return usual(address, asked);
        window.under_way += 1;
        begin();
        await held;
        return usual(address, asked).finally(() => (window.under_way -= 1));
    };
}"""
"""Holds each look at a topic until it is let go, and counts those that a deletion overlaps."""


def test_sessions_show_what_each_is_sent_and_can_be_changed(page: Page, prices: Gateway) -> None:
    with Publisher(prices), Reader(prices, "conflation=auto,min=1s") as reader:
        visit(page, prices, "sessions")
        rows(page, "Sessions").filter(has_text=reader.session).click()
        subscription = rows(page, "Subscriptions").filter(has_text="s1")
        expect(subscription).to_contain_text("1.0 s")
        beside = page.get_by_role("region", name="Raw beside conflated")
        expect(beside).to_contain_text(re.compile(r"[89]\d\.\d % saved"))
        subscription.click()
        expect(page.locator(".story")).to_contain_text("automatic between 1s and 30s")
        page.get_by_role("button", name="Trace it live").click()
        expect(page.get_by_label("Trace")).to_contain_text("replaced")
        look_over(page)
        page.get_by_label("Interval of s1").select_option("5s")
        expect(subscription).to_contain_text("5.0 s")
        page.get_by_role("button", name="Never conflate its queue").click()
        expect(page.get_by_text("closes the session")).to_be_visible()
        page.get_by_role("button", name="Close the session").click()
        page.get_by_role("button", name="Close it").click()
        expect(rows(page, "Sessions").filter(has_text=reader.session)).to_have_count(0)


def test_no_look_at_a_topic_overlaps_its_deletion(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("orders", {"key": ["/id"]})
    visit(page, gateway, "topics?topic=orders")
    expect(page.get_by_role("region", name="orders")).to_contain_text("served")
    page.evaluate(SLOW_LOOKS)
    page.evaluate("window.begun")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete it").click()
    page.evaluate("window.let_go()")
    expect(page.get_by_text("orders is deleted")).to_be_visible()
    assert page.evaluate("window.overlaps") == 0


def test_a_topic_that_somebody_else_deletes_is_called_gone(
    chromium: Browser, gateway: Gateway
) -> None:
    page = chromium.new_page()  # the browser reports the answer of 404, as it should
    gateway.put_topic("orders", {"key": ["/id"]})
    visit(page, gateway, "topics?topic=orders")
    region = page.get_by_role("region", name="orders")
    expect(region).to_contain_text("served")
    gateway.delete_topic("orders")
    expect(region).to_contain_text("gone")
    expect(region).not_to_contain_text("served")
    page.close()


def test_messages_are_published_and_records_removed(page: Page, prices: Gateway) -> None:
    visit(page, prices, "publish?topic=prices")
    messages = page.get_by_label(re.compile("^Messages"))
    messages.fill('{"symbol": "NEW", "price": 1}\n{"symbol": "NEWER", "price": 2}')
    page.get_by_role("button", name="Publish", exact=True).click()
    done = page.get_by_role("log")
    expect(done).to_contain_text("2 messages published to prices")
    messages.fill('{"symbol": "NEW", "price": 1}\n{"price": 2}')
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(done).to_contain_text("refused: ")
    expect(done).to_contain_text("in line 2")
    page.get_by_role("button", name="Take a record as a model").click()
    expect(messages).to_have_value('{\n  "symbol": "NEW",\n  "price": 1\n}')
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(done).to_contain_text("1 message published to prices")
    look_over(page)
    page.get_by_label("Filter").fill("/symbol BEGINS WITH ('NEW')")
    page.get_by_role("button", name="Remove", exact=True).click()
    page.get_by_role("button", name="Remove them").click()
    expect(done).to_contain_text("2 records removed from prices")


def test_a_read_only_console_changes_nothing(page: Page, prices: Gateway) -> None:
    visit(page, prices, "topics?topic=prices")
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    page.get_by_label("read-only").check()
    expect(page.get_by_role("region", name="prices")).to_be_visible()
    expect_off(page, ("New topic", "Check without saving", "Save", "Delete"))
    expect(page.get_by_text("The console is read-only").first).to_be_visible()
    keep_pictures(page, "read-only")
    page.get_by_role("link", name="Publish").first.click()
    expect_off(page, ("Publish", "Take a record as a model", "Remove"))
    expect(page.get_by_text("The console is read-only").first).to_be_visible()
    page.reload()
    expect(page.get_by_label("read-only")).to_be_checked()
    with Reader(prices, "conflation=1s") as reader:
        visit(page, prices, f"sessions?session={reader.session}")
        expect_off(page, ("Never conflate its queue", "Close the session"))
        rows(page, "Subscriptions").first.click()
        expect(page.get_by_label("Interval of s1")).to_be_disabled()
    page.get_by_label("read-only").uncheck()
    page.get_by_role("link", name="Publish").first.click()
    expect(page.get_by_role("button", name="Publish", exact=True)).to_be_enabled()


def test_a_reader_that_takes_nothing_is_marked(page: Page, prices: Gateway) -> None:
    wish = {"topic": "prices", "options": "conflation=none", "command": "subscribe"}
    opened = ask(prices, "POST", "/v1/sessions", {"subscriptions": [wish]})
    with frozen_reader(prices, opened["events"]):
        for symbol in SYMBOLS:
            publish(prices, "prices", {**quote(symbol, 1), "pad": "x" * 100_000})
        visit(page, prices, "sessions")
        row = rows(page, "Sessions").filter(has_text=opened["session"])
        expect(row.locator(".bad")).to_have_text("slow")
        expect(page.locator(".caption")).to_contain_text("1 slow")


def test_polled_streams_show_how_they_are_read(page: Page, prices: Gateway) -> None:
    visit(page, prices, "sessions")
    expect(page.get_by_text("No reader is connected.")).to_be_visible()
    expect(page.get_by_role("region", name="Polled")).to_be_hidden()
    asked = "options=conflation%3D500ms&filter=%2Fprice%20%3E%201"
    with Publisher(prices), Poller(prices, asked):
        stream = rows(page, "Polled streams").filter(has_text="/price > 1")
        expect(stream).to_contain_text("conflation=500ms")
        expect(page.get_by_role("region", name="Polled")).to_contain_text("1 polled stream, 1 req")
        rate = stream.get_by_role("gridcell").nth(6)
        expect(rate).to_have_text(re.compile(r"^[12]\.\d"))
        look_over(page)


def test_a_gateway_that_has_gone_is_shown(chromium: Browser) -> None:
    page = chromium.new_page()
    with serving() as address, Gateway(address) as gateway:
        publish(gateway, "log", {"line": 1})
        page.goto(f"{address}/console#/overview")
        expect(page.locator("#state")).to_have_text("live")
        page.goto(f"{address}/console#/blotter?topic=log")
        expect(page.locator(".caption")).to_contain_text("granted")
    expect(page.locator("#state")).to_have_text("lost")
    expect(page.locator("#banner")).to_contain_text(re.compile(r"lost at \d"))
    page.close()
