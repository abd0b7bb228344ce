"""A login at a certified OpenID provider in a real Chromium: link, form, page, and out again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.chromium import SEES_MS_MAX
from tests.support.commands import address_of, start
from tests.support.deadlines import HANGS_S
from tests.support.external.openid_provider import PASSWORD, Issuer, running_provider
from tests.support.rules import rule

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

POLICY = """
claim = "groups"
[[grants.traders]]
topics = ">"
can = ["read", "write", "admin", "observe"]
"""
PUT = """([path, body, proof]) => fetch(path, {
  method: "PUT",
  headers: {"Content-Type": "application/json", ...proof},
  body: JSON.stringify(body),
}).then((answer) => answer.status)"""


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with running_provider(tmp_path_factory.mktemp("provider")) as running:
        yield running


@pytest.fixture
def address(issuer: Issuer, tmp_path: Path) -> Iterator[str]:
    """A gateway on a site of its own: the provider is at 127.0.0.1, the gateway at localhost."""
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    settings = issuer.settings(auth_policy=str(policy), auto_create_topics="true")
    variables = {f"TIDEGATE_{name.upper()}": value for name, value in settings.items()}
    process = start("serve", "--port", "0", **variables)
    try:
        at = address_of(process).replace("127.0.0.1", "localhost")
        issuer.redirect_to(at)
        yield at
    finally:
        process.terminate()
        process.communicate(timeout=HANGS_S)


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Page]:
    """A tab of a browser that nobody has logged in with."""
    context: BrowserContext = chromium.new_context()
    context.set_default_timeout(SEES_MS_MAX)
    yield context.new_page()
    context.close()


def fill_in(tab: Page, name: str = "ann") -> None:
    """Log in at the provider's page."""
    expect(tab.get_by_role("heading")).to_have_text("Log in at the provider")
    tab.get_by_label("Name").fill(name)
    tab.get_by_label("Password").fill(PASSWORD)
    tab.get_by_role("button").click()


@rule("access-12")
def test_a_person_logs_in_sees_the_stream_and_logs_out(tab: Page, address: str) -> None:
    tab.goto(f"{address}/#topic=prices")
    expect(tab.locator("#state")).to_have_text("signed out")
    tab.get_by_role("link", name="Log in").click()
    fill_in(tab)
    tab.wait_for_url(f"{address}/#topic=prices")
    expect(tab.get_by_role("button", name="Log out")).to_be_visible()
    shown = tab.evaluate("() => fetch('/v1/login').then((answer) => answer.json())")
    proof = {"Tidegate-CSRF": shown["csrf"]}
    assert tab.evaluate(PUT, ["/v1/topics/prices", {"key": ["/symbol"]}, {}]) == 403
    assert tab.evaluate(PUT, ["/v1/topics/prices", {"key": ["/symbol"]}, proof]) == 201
    # By the client of pages, which finds the proof by itself.
    tab.evaluate("""async () => {
      const { connect } = await import("/client.js");
      await connect("", { tabs: false }).publish("prices", { symbol: "IBM", price: 1 });
    }""")
    expect(tab.get_by_role("rowheader")).to_have_text(["IBM"])
    expect(tab.locator("#state")).to_have_text("live")
    names = {each["name"]: each for each in tab.context.cookies()}
    kept = names["__Host-tidegate"]
    assert (kept.get("httpOnly"), kept.get("secure"), kept.get("sameSite")) == (
        True,
        True,
        "Strict",
    )
    assert "__Host-tidegate-login" not in names
    assert "tidegate" not in tab.evaluate("document.cookie")
    tab.get_by_role("button", name="Log out").click()
    expect(tab.get_by_role("link", name="Log in")).to_be_visible()
    assert "__Host-tidegate" not in {each["name"] for each in tab.context.cookies()}
    expect(tab.get_by_role("rowheader")).to_have_count(0)


@rule("access-12")
def test_the_console_leads_to_the_provider_and_back_to_its_screen(tab: Page, address: str) -> None:
    tab.goto(f"{address}/console#/topics")
    tab.get_by_role("link", name="Log in at the identity provider").click()
    fill_in(tab)
    tab.wait_for_url(f"{address}/console#/topics")
    expect(tab.get_by_role("button", name="New topic")).to_be_enabled()
    tab.get_by_role("button", name="Sign out").click()
    expect(tab.get_by_role("link", name="Log in at the identity provider")).to_be_visible()
    assert "__Host-tidegate" not in {each["name"] for each in tab.context.cookies()}


@rule("access-12")
def test_a_login_leads_to_what_needs_its_cookie_at_once(tab: Page, address: str) -> None:
    # A redirect from the provider's site would come without the Strict cookie.
    tab.goto(f"{address}/v1/login/start?return=/metrics")
    fill_in(tab)
    tab.wait_for_url(f"{address}/metrics")
    expect(tab.locator("body")).to_contain_text("tidegate_")


@rule("access-12")
def test_the_answer_of_another_browser_is_no_login(
    tab: Page, chromium: Browser, address: str
) -> None:
    tab.goto(f"{address}/v1/login/start")
    # Without its cookie this is a browser that never began, and the code in its address is unused.
    tab.context.clear_cookies(name="__Host-tidegate-login")
    fill_in(tab)
    expect(tab.locator("p").first).to_contain_text("has begun no login")
    victim = chromium.new_context()
    page = victim.new_page()
    page.goto(f"{address}/v1/login/start")
    page.goto(tab.url)
    expect(page.locator("p").first).to_contain_text("begun elsewhere")
    assert victim.cookies(address) == []
    victim.close()


def test_a_group_without_grants_sees_nothing(tab: Page, address: str) -> None:
    tab.goto(f"{address}/v1/login/start")
    fill_in(tab, "eve")
    tab.wait_for_url(f"{address}/")
    listed = tab.evaluate("() => fetch('/v1/topics').then((answer) => answer.json())")
    assert listed["topics"] == []
