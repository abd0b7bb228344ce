"""A page that may be refused something, and a gateway with forty prices."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import watched_page
from tests.browser.console.support import SYMBOLS, publish, quote
from tidegate.clients.gateway import Gateway

REFUSED = re.compile(r"the server responded with a status of 4(00|01|12|22)")


@pytest.fixture
def page(chromium: Browser, gateway: Gateway) -> Iterator[Page]:
    """A page that fails its test if the browser has anything to complain about but refusals.

    A browser reports each answer of 400 by itself, and a form checked as one types gets some.
    """
    with watched_page(chromium, allowed=REFUSED) as page:
        yield page


@pytest.fixture
def prices(gateway: Gateway) -> Gateway:
    """A gateway with the topic `prices`, its key `/symbol`, and forty records."""
    gateway.put_topic("prices", {"key": ["/symbol"]})
    publish(gateway, "prices", *(quote(each, at + 0.5) for at, each in enumerate(SYMBOLS)))
    return gateway
