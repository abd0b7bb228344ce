"""The blotter: live records as a table, and what can be done with them."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.console.support import (
    keep_pictures,
    publish,
    quote,
    remove,
    rows,
    visit,
)
from tests.browser.test_page import Publisher
from tidegate.clients.gateway import Gateway

pytestmark = [pytest.mark.browser, pytest.mark.nightly]


def test_the_blotter_sorts_finds_groups_and_adds_up(page: Page, prices: Gateway) -> None:
    publish(prices, "prices", quote("S001", 500.0, "b"))
    visit(page, prices, "blotter?topic=prices")
    page.get_by_role("button", name="price", exact=True).click()
    expect(rows(page).first).to_contain_text("S000")
    page.get_by_role("button", name=re.compile("^price")).click()
    expect(rows(page).filter(has_text="S001")).to_have_attribute("aria-rowindex", "2")
    page.get_by_label("Find").fill("s01")
    expect(rows(page)).to_have_count(10)
    page.get_by_label("Find").fill("")
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("Total of price").select_option("max")
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.locator(".t-foot")).to_contain_text("500.0")
    page.get_by_label("Group by").select_option("/desk")
    rows(page).filter(has_text="▾ a (39)").click()
    expect(rows(page).filter(has_text="▾ b (1)")).to_contain_text("500.0")
    page.reload()
    expect(rows(page).first).to_contain_text("▾ a (39)")
    expect(page.locator(".t-foot")).to_contain_text("500.0")


def test_a_filter_is_the_gateways_and_its_faults_have_a_position(
    page: Page, prices: Gateway
) -> None:
    visit(page, prices, "blotter?topic=prices")
    filter_ = page.get_by_label("Filter")
    filter_.fill("/price > 30")
    filter_.press("Enter")
    expect(page.get_by_role("grid", name="Records")).to_have_attribute("aria-rowcount", "11")
    filter_.fill("/price >")
    filter_.press("Enter")
    expect(page.locator(".caption")).to_contain_text("at character 9")


def test_a_row_opens_with_its_history_and_its_trace(page: Page, prices: Gateway) -> None:
    for number in range(5):
        publish(prices, "prices", quote("S000", number))
    visit(page, prices, "blotter?topic=prices")
    grid = page.get_by_role("grid", name="Records")
    expect(grid).to_have_attribute("aria-rowcount", "41")
    grid.press("Home")
    grid.press("Enter")
    drawer = page.get_by_role("complementary", name=re.compile("Detail of"))
    name = drawer.get_by_role("heading").first.inner_text()
    expect(drawer.get_by_label("Message")).to_contain_text(f'"symbol": "{name}"')
    publish(prices, "prices", quote(name, 1_234.5))
    expect(rows(drawer, "History").first).to_contain_text("1,234.5")
    expect(drawer.get_by_label("Message")).to_contain_text("1234.5")
    drawer.get_by_role("button", name="Trace this key").click()
    expect(drawer.get_by_label("Trace")).to_contain_text("begun")
    publish(prices, "prices", quote(name, 7))
    expect(drawer.get_by_label("Trace")).to_contain_text("delivered")
    keep_pictures(page, "detail")
    drawer.press("Escape")
    expect(drawer).to_have_count(0)


def test_the_chosen_row_is_followed_wherever_it_moves(page: Page, prices: Gateway) -> None:
    visit(page, prices, "blotter?topic=prices")
    page.get_by_role("button", name="price", exact=True).click()
    grid = page.get_by_role("grid", name="Records")
    grid.press("Home")
    chosen = grid.locator("[aria-selected=true]")
    expect(chosen).to_contain_text("S000")
    publish(prices, "prices", quote("S000", 20.75))
    expect(rows(page).first).to_contain_text("S001")
    expect(chosen).to_contain_text("S000")
    expect(chosen).to_have_attribute("aria-rowindex", "22")
    assert grid.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    grid.press("Enter")
    drawer = page.get_by_role("complementary", name=re.compile("Detail of"))
    expect(drawer.get_by_role("heading").first).to_have_text("S000")
    drawer.press("Escape")
    remove(prices, "prices", "S000")
    expect(grid).to_have_attribute("aria-rowcount", "40")
    expect(chosen).to_have_attribute("aria-rowindex", "22")


def test_a_topic_without_key_shows_its_messages(page: Page, gateway: Gateway) -> None:
    publish(gateway, "log", {"line": "one"})
    visit(page, gateway, "blotter?topic=log")
    expect(page.locator(".caption")).to_contain_text("granted conflation=none")
    publish(gateway, "log", {"line": "<b>two</b>"}, {"line": "three"})
    expect(rows(page)).to_have_count(2)
    expect(rows(page).first).to_contain_text("<b>two</b>")


def test_a_pattern_shows_each_topic_with_its_keys(page: Page, prices: Gateway) -> None:
    prices.put_topic("orders", {"key": ["/id"]})
    publish(prices, "orders", {"id": 7, "price": 2.5})
    visit(page, prices, "blotter?topic=*")
    expect(page.get_by_role("grid", name="Records")).to_have_attribute("aria-rowcount", "42")
    page.get_by_label("Group by").select_option("topic")
    order = rows(page).filter(has_text="orders").nth(1)
    expect(order.get_by_role("gridcell").nth(1)).to_have_text("7")
    expect(rows(page).filter(has_text="▾ prices (40)")).to_be_visible()


def test_panels_are_kept_in_layouts_and_links(page: Page, prices: Gateway) -> None:
    visit(page, prices, "blotter?topic=prices")
    expect(page.get_by_role("grid", name="Records")).to_have_attribute("aria-rowcount", "41")
    page.get_by_role("button", name="Add a panel").click()
    expect(page.get_by_role("region", name="prices")).to_have_count(2)
    page.get_by_role("button", name="Save the layout").click()
    page.get_by_label("Name").fill("mine")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name="Close this panel").first.click()
    expect(page.get_by_role("region", name="prices")).to_have_count(1)
    page.get_by_label("Saved layouts").select_option("mine")
    expect(page.get_by_role("region", name="prices")).to_have_count(2)
    first = page.get_by_role("grid", name="Records").first
    expect(first).to_have_attribute("aria-rowcount", "41")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").first.click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0].startswith("symbol,price,desk")
    assert len(lines) == 41


FORMULAS = ("=1+1", "+A1", "-A1", "@SUM(1)", "\t=1+1", "\n=1+1", "\uff1d1+1")


def test_no_spreadsheet_runs_what_is_saved_or_copied(page: Page, prices: Gateway) -> None:
    publish(prices, "prices", *(quote("F", -1, text) for text in FORMULAS))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit(page, prices, "blotter?topic=prices")
    grid = page.get_by_role("grid", name="Records")
    for number, text in enumerate(FORMULAS):
        publish(prices, "prices", quote(f"F{number}", -1, text))
    expect(grid).to_have_attribute("aria-rowcount", str(42 + len(FORMULAS)))
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").first.click()
    with Path(download.value.path()).open(newline="") as file:
        saved = {row["symbol"]: row for row in csv.DictReader(file)}
    grid.focus()
    copied = {}
    for _ in range(len(saved)):
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Control+c")
        symbol, price, desk, *_ = page.evaluate("navigator.clipboard.readText()").split("\t")
        copied[symbol] = price, desk
    for number, text in enumerate(FORMULAS):
        row = saved[f"F{number}"]
        assert row["desk"] == f"'{text}"
        assert float(row["price"]) == -1, "a number stays one"
        assert copied[f"F{number}"][1] == "'" + " ".join(f"x{text}".split())[1:]


def test_a_hundred_thousand_rows_scroll(page: Page, prices: Gateway) -> None:
    """Rows out of sight have no elements, so a jump draws a screenful however many there are."""
    names = [f"K{number:06}" for number in range(100_000)]
    for at in range(0, len(names), 10_000):
        publish(prices, "prices", *(quote(name, at) for name in names[at : at + 10_000]))
    visit(page, prices, "blotter?topic=prices")
    grid = page.get_by_role("grid", name="Records")
    expect(grid).to_have_attribute("aria-rowcount", "100041")
    drawn = grid.evaluate(JUMP)
    assert drawn["rows"] < 80
    assert drawn["last"] == "100041"
    grid.press("End")
    expect(grid.locator('[aria-rowindex="100041"]')).to_have_attribute("aria-selected", "true")


JUMP = """
async grid => {
    for (let step = 1; step <= 20; step++) {
        grid.scrollTop = grid.scrollHeight * step / 20;
        await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    }
    const rows = [...grid.querySelectorAll(".t-body .t-row")];
    const places = rows.map(row => Number(row.getAttribute("aria-rowindex")));
    return {rows: rows.length, last: String(Math.max(...places))};
}
"""


def test_rows_change_while_many_are_out_of_sight(page: Page, prices: Gateway) -> None:
    with Publisher(prices):
        visit(page, prices, "blotter?topic=prices&interval=100ms")
        expect(page.locator(".caption")).to_contain_text(re.compile(r"[1-9]\d* rows/s"))
        page.get_by_label("Find").fill("IBM")
        cell = rows(page).filter(has_text="IBM").locator(".t-cell.number").first
        before = cell.inner_text()
        expect(cell).not_to_have_text(before)
