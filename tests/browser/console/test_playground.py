"""The playground: a subscription explained, live, and as a program."""

from __future__ import annotations

import re
import subprocess
import sys
from urllib.parse import quote as quote_text

import pytest
from playwright.sync_api import Page, expect

from tests.browser.console.support import (
    look_over,
    visit,
)
from tests.browser.test_page import Publisher
from tests.support.commands import environment
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_curl
from tidegate.clients.gateway import Gateway

pytestmark = [pytest.mark.browser, pytest.mark.nightly]


def test_the_playground_explains_as_one_types(page: Page, prices: Gateway) -> None:
    visit(page, prices, "playground?topic=prices")
    verdict = page.locator("main [role=status]")
    expect(verdict).to_contain_text("conflation=500ms,conflation_key=[/symbol],pace=batch")
    page.get_by_label("Options", exact=True).fill("conflation=1s,conflaton_key=[/a]")
    expect(verdict).to_contain_text("the nearest known one is conflation_key")
    expect(page.locator("mark")).to_have_text("conflaton_key=[/a]")
    page.get_by_label("Examples").select_option("conflation=1s,oof,receipt")
    expect(verdict).to_contain_text("conflation=1s")
    page.get_by_label("Filter").fill("/desk = 'a'")
    program = page.get_by_role("tabpanel", name="Program")
    expect(program).to_contain_text(r"--data-urlencode 'filter=/desk = '\''a'\'''")
    page.get_by_role("tab", name="JavaScript").click()
    expect(program).to_contain_text('options: "conflation=1s,oof,receipt"')
    page.get_by_role("tab", name="Python").click()
    expect(program).to_contain_text("filter=\"/desk = 'a'\"")


def test_the_playground_shows_raw_beside_conflated(page: Page, prices: Gateway) -> None:
    with Publisher(prices):
        visit(page, prices, "playground?topic=prices&options=conflation%3D1s")
        page.get_by_role("button", name="Subscribe live").click()
        saved = page.get_by_role("region", name="Bytes saved").locator(".big")
        # Some twenty-five messages of a key in each second become one.
        expect(saved).to_have_text(re.compile(r"^(8\d|9\d)\.\d %$"))
        expect(page.get_by_role("grid", name="Live rows")).to_have_attribute("aria-rowcount", "45")
        look_over(page)
        page.get_by_role("button", name="Stop").click()


def test_a_program_of_the_playground_runs(page: Page, prices: Gateway) -> None:
    """As it is copied: the shell's and Python's own quoting is right."""
    visit(page, prices, "playground?topic=prices&filter=" + quote_text("/symbol = 'S001'"))
    page.get_by_label("Command").select_option("sow")
    page.get_by_label("Options", exact=True).fill("")
    program = page.get_by_role("tabpanel", name="Program")
    expect(program).not_to_contain_text("options=")
    expect(program).to_contain_text("command=sow")
    require_curl()
    ended = subprocess.run(
        ["/bin/sh", "-c", program.inner_text()], capture_output=True, text=True, timeout=HANGS_S
    )
    assert '"symbol": "S001"' in ended.stdout
    page.get_by_role("tab", name="Python").click()
    expect(program).to_contain_text('command="sow"')
    script = [sys.executable, "-c", program.inner_text()]
    ended = subprocess.run(
        script, capture_output=True, text=True, timeout=HANGS_S, env=environment()
    )
    assert '"symbol": "S001"' in ended.stdout, ended.stderr
