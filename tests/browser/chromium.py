"""The system's Chromium, as tests start it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.support.outside import require_chromium

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
