"""A page that may be refused something, and a gateway with forty prices."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import SEES_MS_MAX, failure_of
from tests.browser.console.support import SYMBOLS, publish, quote
from tidegate.clients.gateway import Gateway

REFUSED = re.compile(r"the server responded with a status of 4(00|01|12|22)")


@pytest.fixture
def page(chromium: Browser, gateway: Gateway) -> Iterator[Page]:
    """A page that fails its test if the browser has anything to complain about but refusals.

    A browser reports each answer of 400 by itself, and a form checked as one types gets some.
    """
    complaints: list[str] = []
    page = chromium.new_page(viewport={"width": 1280, "height": 860})
    page.set_default_timeout(SEES_MS_MAX)
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"{error} {error.stack}"))
    page.on("requestfailed", lambda request: complaints.append(failure_of(request)))
    yield page
    said = [each for each in complaints if each and not REFUSED.search(each)]
    page.close()
    assert said == []


@pytest.fixture
def prices(gateway: Gateway) -> Gateway:
    """A gateway with the topic `prices`, its key `/symbol`, and forty records."""
    gateway.put_topic("prices", {"key": ["/symbol"]})
    publish(gateway, "prices", *(quote(each, at + 0.5) for at, each in enumerate(SYMBOLS)))
    return gateway
