"""The page of the tutorial on a price wall in Chromium."""

from __future__ import annotations

import re
import runpy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from dev import ROOT
from tests.support.commands import serving
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.nightly

EXAMPLES = ROOT / "examples"
ANY_NUMBER = re.compile(r"\d+\.\d\d")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


@contextmanager
def folder_served(folder: Path) -> Iterator[str]:
    """The address of a server of the page's own, as the tutorial has it."""
    handler = partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.browser
def test_the_price_wall_follows_the_feed(
    chromium: Browser, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "tidegate.toml"
    with folder_served(EXAMPLES / "price-wall") as origin:
        config.write_text(f'allowed_origins = ["{origin}"]\n')
        with serving("--config", str(config)) as address, Gateway(address) as gateway:
            monkeypatch.setenv("TIDEGATE_GATEWAY", address)
            runpy.run_path(str(EXAMPLES / "feed.py"))["main"](1.0)
            page = chromium.new_page()
            complaints: list[str] = []
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(f"{origin}/?gateway={address}")
            tiles = page.locator("#wall article")
            expect(tiles).to_have_count(40)
            expect(page.locator("#state")).to_have_text("live")
            expect(tiles.first.locator("b")).to_have_text(ANY_NUMBER)
            gateway.publish("prices", [b'{"symbol": "AJ", "price": 1234.5, "size": 1}'])
            place = tiles.filter(has_text="AJ")
            expect(place.locator("b")).to_have_text("1234.50")
            expect(place).to_have_class("up")
            page.select_option("#interval", "100ms")
            gateway.publish("prices", [b'{"symbol": "AJ", "price": 1234.25, "size": 1}'])
            expect(place).to_have_class("down")
            gateway.delete_records("prices", record_key="AJ")
            expect(tiles).to_have_count(39)
            page.close()
            assert complaints == []
