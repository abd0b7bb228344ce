"""A real Chromium, a real gateway, and pages in which nothing may go wrong unseen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.chromium import SEES_MS_MAX, launched, watched_page
from tests.support.commands import serving
from tidegate.clients.gateway import Gateway


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for a module: while it runs, no test of its process can run an event loop."""
    expect.set_options(timeout=SEES_MS_MAX)
    with launched() as browser:
        yield browser


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with serving() as address, Gateway(address) as client:
        yield client


@pytest.fixture
def page(chromium: Browser, gateway: Gateway) -> Iterator[Page]:
    """A page that fails its test if the browser has anything to complain about."""
    with watched_page(chromium) as page:
        yield page


@pytest.fixture
def tabs(chromium: Browser) -> Iterator[BrowserContext]:
    """A window, whose pages are tabs of one browser profile."""
    context = chromium.new_context()
    context.set_default_timeout(SEES_MS_MAX)
    yield context
    context.close()
