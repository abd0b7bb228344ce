"""The system's Chromium, as tests start it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, Request, sync_playwright

from tests.support.outside import require_chromium

SEES_MS_MAX = 60_000
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A name of somebody else's that points here, as after DNS rebinding.
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
]


@contextmanager
def launched() -> Iterator[Browser]:
    """Start a Chromium, which ends with the block."""
    path = require_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(path), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def watched_page(browser: Browser, allowed: re.Pattern[str] | None = None) -> Iterator[Page]:
    """Open a page, and fail if the browser has complained of anything but what is allowed."""
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 860})
    page.set_default_timeout(SEES_MS_MAX)
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"{error} {error.stack}"))
    page.on("requestfailed", lambda request: complaints.append(failure_of(request)))
    yield page
    page.close()
    assert [
        each for each in complaints if each and not (allowed is not None and allowed.search(each))
    ] == []


def failure_of(request: Request) -> str:
    """Why a request failed; empty for a stream that the page itself has closed."""
    return "" if request.failure == "net::ERR_ABORTED" else f"{request.failure}: {request.url}"
