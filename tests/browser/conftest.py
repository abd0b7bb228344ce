"""A real Chromium, a real gateway, and pages in which nothing may go wrong unseen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect

from tests.browser.chromium import launched
from tests.support.commands import serving
from tidegate.clients.gateway import Gateway

SEES_MS_MAX = 60_000


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
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
    complaints: list[str] = []
    page = chromium.new_page(viewport={"width": 1280, "height": 860})
    page.set_default_timeout(SEES_MS_MAX)
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(failure_of(request)))
    yield page
    said = [complaint for complaint in complaints if complaint]
    page.close()
    assert said == []


def failure_of(request: Request) -> str:
    """Why a request failed; empty for a stream that the page itself has closed."""
    return "" if request.failure == "net::ERR_ABORTED" else f"{request.failure}: {request.url}"


@pytest.fixture
def tabs(chromium: Browser) -> Iterator[BrowserContext]:
    """A window, whose pages are tabs of one browser profile."""
    context = chromium.new_context()
    context.set_default_timeout(SEES_MS_MAX)
    yield context
    context.close()
