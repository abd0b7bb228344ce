"""What can be trusted on a trading floor: true ages, whole numbers, and no claim after a loss."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.chromium import SEES_MS_MAX
from tests.browser.console.support import (
    Reader,
    faults,
    look_over,
    publish,
    quote,
    rows,
    visit,
)
from tests.browser.test_page import Publisher
from tests.support.commands import address_of, serving, start
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port
from tests.support.tokens import public_jwk, token_of, write_keys
from tidegate.clients.gateway import Gateway

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

CLAIMS = ("No reader is connected", "Every reader keeps up", "No topics yet", "None has reported")
TEXTS = """() => [...document.querySelectorAll('body *')]
    .filter((each) => each.checkVisibility() && !each.children.length)
    .map((each) => each.textContent.trim())"""
LAST_SECONDS = """() => [...Array(12).keys()]
    .map((late) => new Date(Date.now() - 1000 * late).toLocaleTimeString("en-GB"))"""
CUT = """() => [...document.querySelectorAll('.t-body .number')]
    .filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent)"""
SIGN = "(cell) => getComputedStyle(cell, '::before').content"
WRITES = """async () => {
    let writes = 0;
    const watch = new MutationObserver((changes) => (writes += changes.length));
    const kinds = {subtree: true, characterData: true, childList: true};
    watch.observe(document.querySelector('.t-body'), kinds);
    await new Promise((done) => setTimeout(done, 3_100));
    watch.disconnect();
    return writes;
}"""


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Page]:
    """A page whose gateway may go away, of which a browser complains."""
    page = chromium.new_page()
    page.set_default_timeout(SEES_MS_MAX)
    yield page
    page.close()


def age_of(row: Locator) -> int:
    """The age in a row, in seconds."""
    found = re.search(r"(?:(\d+) min )?(\d+) s$", row.inner_text())
    assert found is not None, row.inner_text()
    return 60 * int(found[1] or 0) + int(found[2])


def test_after_a_loss_ages_grow_and_nothing_is_claimed(tab: Page) -> None:
    command = ["serve", "--port", str(lasting_port())]
    process = start(*command)
    try:
        with Gateway(address_of(process)) as gateway:
            gateway.put_topic("prices", {"key": ["/symbol"]})
            publish(gateway, "prices", quote("IBM", 1.5))
            visit(tab, gateway, "blotter?topic=prices")
            expect(tab.locator("#state")).to_have_text("live")
            # Once a second, and no value of the row has changed.
            before = age_of(rows(tab).first)
            tab.wait_for_timeout(2_100)
            assert age_of(rows(tab).first) > before
            process.kill()
            process.communicate(timeout=HANGS_S)
        banner = tab.locator("#banner-text")
        expect(banner).to_contain_text(re.compile(r"lost at \d\d:\d\d:\d\d"))
        said = banner.inner_text()
        assert any(f"lost at {time}." in said for time in tab.evaluate(LAST_SECONDS)), said
        before = age_of(rows(tab).first)
        tab.wait_for_timeout(6_000)
        assert age_of(rows(tab).first) >= before + 5
        expect(banner).to_have_text(said)  # the time of the loss, and not of the last attempt
        for screen in ("blotter?topic=prices", "overview", "sessions", "topics", "pipelines"):
            tab.evaluate("(screen) => (location.hash = `#/${screen}`)", screen)
            tab.wait_for_timeout(1_500)
            assert not {*CLAIMS, "live", "ready"} & set(tab.evaluate(TEXTS)), screen
            expect(tab.locator("#state")).to_have_text("lost")
            assert faults(tab) == [], screen  # among them the contrast of old values
        process = start(*command)
        address_of(process)
        expect(tab.locator("#state")).to_have_text("live")
        expect(banner).to_be_hidden()
    finally:
        process.kill()
        process.communicate(timeout=HANGS_S)


def test_a_gateway_that_hangs_is_lost_without_a_broken_connection(tab: Page) -> None:
    process = start("serve", "--port", "0")
    try:
        with Gateway(address_of(process)) as gateway:
            visit(tab, gateway, "sessions")
            expect(tab.get_by_text("0 sessions")).to_be_visible()
            process.send_signal(signal.SIGSTOP)
            expect(tab.locator("#banner-text")).to_contain_text("no answer in 5 s")
            expect(tab.locator(".as-of").first).to_contain_text(re.compile(r"as of .* old"))
            expect(tab.get_by_role("grid", name="Sessions")).not_to_contain_text("No reader")
            process.send_signal(signal.SIGCONT)
            expect(tab.locator("#state")).to_have_text("live")
            expect(tab.locator(".as-of").first).to_be_hidden()
            tab.goto("about:blank")
    finally:
        process.kill()
        process.communicate(timeout=HANGS_S)


def test_ages_of_thousands_of_rows_are_written_where_they_are_seen(
    page: Page, gateway: Gateway
) -> None:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    publish(gateway, "prices", *(quote(f"K{number:05}", number) for number in range(5_000)))
    visit(page, gateway, "blotter?topic=prices")
    expect(page.get_by_role("grid", name="Records")).to_have_attribute("aria-rowcount", "5001")
    page.wait_for_timeout(1_000)
    drawn = rows(page).count()
    assert drawn < 60
    assert 2 * drawn <= page.evaluate(WRITES) <= 4 * drawn


def test_numbers_and_keys_are_shown_whole(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("books", {"key": ["/book"]})
    names = [f"desk-europe-frankfurt-rates-options-{number:06}" for number in range(20)]
    value = {"notional": 25_151_860.25, "tiny": 1e-7, "fx": 1.08765, "note": "x" * 200}
    publish(gateway, "books", *({"book": name, **value} for name in names))
    visit(page, gateway, "blotter?topic=books")
    first = rows(page).first
    for text in ("25,151,860.25", "0.0000001", "1.08765"):
        expect(first).to_contain_text(text)
    for width in (1_600, 1_024, 400):
        page.set_viewport_size({"width": width, "height": 820})
        page.wait_for_timeout(300)
        assert page.evaluate(CUT) == []
        keys = rows(page).locator(".pinned").all_inner_texts()
        assert len(keys) == len(set(keys)) > 5, "long keys differ at their ends"
    publish(gateway, "books", {"book": names[0], **value, "notional": 1_225_151_860.25})
    expect(first).to_contain_text("1,225,151,860.25")
    assert page.evaluate(CUT) == []


def test_a_change_has_a_sign_and_an_amount_is_quiet(page: Page, prices: Gateway) -> None:
    publish(prices, "prices", {**quote("S001", 10), "size": 100})
    visit(page, prices, "blotter?topic=prices")
    page.get_by_label("Find").fill("S001")
    row = rows(page)
    expect(row).to_contain_text("100")
    publish(prices, "prices", {**quote("S001", 11), "size": 200})
    expect(row.locator(".up-1, .up-2")).to_have_count(1)
    assert row.locator(".up-1, .up-2").evaluate(SIGN) == '"▲"'
    publish(prices, "prices", {**quote("S001", 9), "size": 100})
    expect(row.locator(".down-1, .down-2")).to_have_count(1)
    assert row.locator(".down-1, .down-2").evaluate(SIGN) == '"▼"'


def test_the_keyboard_finds_rows_and_changes_screens(page: Page, prices: Gateway) -> None:
    visit(page, prices, "blotter?topic=prices")
    expect(rows(page).first).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Find")).to_be_focused()
    page.keyboard.type("S01")
    expect(rows(page)).to_have_count(10)
    page.keyboard.press("ArrowDown")
    expect(rows(page).first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(rows(page).nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("6")
    expect(page.get_by_role("link", name="Topics")).to_have_attribute("aria-current", "page")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Help")
    expect(dialog.get_by_role("link", name="HTTP API")).to_have_attribute("href", "/docs")
    assert faults(page) == []
    dialog.get_by_label("keys without Ctrl or Alt").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    expect(page.get_by_role("link", name="Topics")).to_have_attribute("aria-current", "page")


def test_topics_are_a_tree_with_rate_keys_and_age(page: Page, gateway: Gateway) -> None:
    for name in ("fx.eur.spot", "fx.eur.fwd", "fx.usd", "orders"):
        gateway.put_topic(name, {"key": ["/symbol"]})
        publish(gateway, name, quote("A", 1), quote("B", 2))
    visit(page, gateway, "topics")
    lines = rows(page, "Topics")
    expect(lines).to_have_count(6)
    expect(lines.first).to_have_text(re.compile(r"^▾ fx\. \(3\)[\d.]+6\d+ s$"))
    lines.first.click()
    expect(lines).to_have_count(2)
    page.get_by_label("Find").fill("spot")
    expect(lines).to_have_count(1)
    expect(lines.first).to_contain_text("fx.eur.spot")
    table, main = page.get_by_role("grid", name="Topics"), page.locator("main")
    assert width_of(table) > 0.95 * width_of(main) - 40
    lines.first.click()
    expect(page.get_by_role("region", name="fx.eur.spot")).to_contain_text("served")
    page.get_by_role("button", name="Back to the list").click()
    expect(page.get_by_role("region", name="fx.eur.spot")).to_have_count(0)
    look_over(page)


def width_of(place: Locator) -> float:
    box = place.bounding_box()
    assert box is not None
    return box["width"]


def test_a_session_has_an_address_a_client_and_a_rate(page: Page, prices: Gateway) -> None:
    with Reader(prices, "conflation=none") as reader:
        visit(page, prices, "sessions")
        row = rows(page, "Sessions").filter(has_text=reader.session)
        expect(row).to_contain_text("python-httpx2/")
        expect(row).to_contain_text("127.0.0.1")
        with Publisher(prices):
            expect(row).to_have_text(re.compile(r"attached[1-9]"))
        look_over(page)


def test_charts_say_why_there_is_none_and_how_far_they_reach(page: Page, gateway: Gateway) -> None:
    visit(page, gateway, "charts")
    expect(page.get_by_text("There is no topic yet")).to_be_visible()
    gateway.put_topic("prices", {"key": ["/symbol"]})
    visit(page, gateway, "charts?topic=prices")
    page.reload()
    expect(page.get_by_text("prices has no records yet")).to_be_visible()
    publish(gateway, "prices", {"symbol": "IBM", "note": "no number"})
    expect(page.get_by_text("have no numbers")).to_be_visible()
    publish(gateway, "prices", quote("IBM", 1), quote("IBM", 2))
    page.reload()
    status = page.locator("main [role=status]")
    expect(status).to_contain_text("3 messages of IBM from")
    expect(status).to_contain_text("the journal begins at")
    look_over(page)


def test_signed_out_the_pages_say_what_to_do_and_a_reader_lands_on_rows(
    tab: Page, tmp_path: Path
) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    root = token_of("root", "read,write,admin,observe >")["Authorization"].removeprefix("Bearer ")
    reader = token_of("ann", "read prices.>")["Authorization"].removeprefix("Bearer ")
    with serving("--auth-keys", keys) as address:
        with Gateway(address, token=root) as gateway:
            gateway.put_topic("prices.eu", {"key": ["/symbol"]})
            publish(gateway, "prices.eu", quote("SAP", 1.5))
        tab.goto(address)
        expect(tab.locator("#state")).to_have_text("signed out")
        expect(tab.locator("#hint")).to_contain_text("asks for a token")
        assert faults(tab) == []
        tab.get_by_role("link", name="Sign in at the console").click()
        tab.get_by_label("Token").fill(reader)
        tab.get_by_role("button", name="Sign in").click()
        expect(tab.get_by_role("link", name="Blotter")).to_have_attribute("aria-current", "page")
        expect(rows(tab).first).to_contain_text("SAP")
        tab.goto("about:blank")


def test_the_reference_follows_the_theme(page: Page, gateway: Gateway) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(f"{gateway.base_url}/docs")
    path = page.locator("#operations-topics-put_topic .opblock-summary-path")
    color = path.evaluate("(each) => getComputedStyle(each).color")
    assert min(map(int, re.findall(r"\d+", color)[:3])) > 150, "light letters"
