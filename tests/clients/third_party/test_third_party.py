"""Clients of server-sent events that other people wrote follow a real gateway."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.chromium import launched
from tests.clients.support.wire import Wire, wire_to
from tests.clients.third_party.libraries import (
    COMMANDS,
    STAND_INS,
    LibraryUnavailable,
    Read,
    Reading,
    reading,
)
from tests.support.commands import address_of, start
from tests.support.deadlines import HANGS_S
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.nightly

HEARTBEAT = b": heartbeat\n"
HEARTBEATS = 3
SUBSCRIBE = "/v1/topics/px/subscribe?options=conflation=none&format=envelope"
FOLLOW = """(address) => {
  window.events = [];
  const source = new EventSource(address);
  for (const name of ["hello", "resumed", "group_begin", "group_end", "message"]) {
    source.addEventListener(name, ({ lastEventId, data }) => {
      window.events.push([name, lastEventId, data]);
    });
  }
}"""


class Tab:
    """The events that a page's own EventSource has had."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._taken = 0

    def next(self) -> Read:
        """Return the next event."""
        # Not `wait_for_function`, which evaluates text: the page's policy forbids that.
        while self.is_quiet:
            self._page.wait_for_timeout(20)
        self._taken += 1
        return Read(*self._page.evaluate(f"window.events[{self._taken - 1}]"))

    @property
    def is_quiet(self) -> bool:
        """True while it has had nothing more."""
        return bool(self._page.evaluate(f"window.events.length === {self._taken}"))


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """A gateway whose heartbeats come often."""
    process = start("serve", "--port", "0", TIDEGATE_HEARTBEAT="200ms")
    try:
        with Gateway(address_of(process)) as gateway:
            yield gateway
    finally:
        process.terminate()
        process.communicate(timeout=HANGS_S)


@pytest.fixture
def wire(gateway: Gateway) -> Iterator[Wire]:
    """A line to that gateway, whose topic has one record."""
    gateway.put_topic("px", {"key": ["/id"]})
    publish(gateway, 0)
    with wire_to(gateway.base_url) as wire:
        yield wire
    gateway.delete_topic("px")


def publish(gateway: Gateway, *numbers: int) -> None:
    gateway.publish("px", [json.dumps({"id": "a", "n": number}).encode() for number in numbers])


def number_of(read: Read) -> int:
    """Return the number that a message holds."""
    assert read.name == "message"
    number: int = json.loads(read.data)["value"]["n"]
    return number


def await_that(is_so: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + HANGS_S
    while not is_so():
        assert time.monotonic() < ends_at
        time.sleep(0.02)


@pytest.mark.parametrize("library", list(COMMANDS))
def test_it_reads_and_resumes(
    library: str,
    gateway: Gateway,
    wire: Wire,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    address = wire.address + SUBSCRIBE
    try:
        command = COMMANDS[library](address, tmp_path)
    except LibraryUnavailable as error:
        record_property("stands in", f"{STAND_INS[library]} for {library}: {error}")
        command = COMMANDS[STAND_INS[library]](address, tmp_path)
    with reading(command) as client:
        check(client, gateway, wire)


@pytest.mark.browser
def test_the_event_source_of_a_browser_reads_and_resumes(gateway: Gateway, wire: Wire) -> None:
    with launched() as browser:
        page = browser.new_page()
        # The start page's policy lets a page open streams; those of plain files do not.
        page.goto(wire.address + "/console")
        page.evaluate(FOLLOW, SUBSCRIBE)
        check(Tab(page), gateway, wire)


def check(client: Reading | Tab, gateway: Gateway, wire: Wire) -> None:
    """Hello, the record, messages in order, heartbeats unseen, and no loss over a cut."""
    hello = client.next()
    assert hello.name == "hello"
    assert json.loads(hello.data)["heartbeat_ms"] == 200
    assert client.next().name == "group_begin"
    assert number_of(client.next()) == 0
    assert client.next().name == "group_end"
    publish(gateway, 1)
    publish(gateway, 2)
    assert [number_of(client.next()) for _ in range(2)] == [1, 2]
    heard = wire.answered.count(HEARTBEAT)
    await_that(lambda: wire.answered.count(HEARTBEAT) >= heard + HEARTBEATS)
    assert client.is_quiet, client.next()
    publish(gateway, 3)
    last = client.next()
    assert number_of(last) == 3
    assert last.last_id.endswith("-4")

    wire.cut()
    publish(gateway, 4, 5)
    publish(gateway, 6)
    asked = len(wire.asked)
    wire.join()
    assert client.next().name == "hello"
    resumed = client.next()
    assert (resumed.name, json.loads(resumed.data)["mode"]) == ("resumed", "replay")
    assert f"last-event-id: {last.last_id}".encode() in wire.asked[asked:].lower()
    publish(gateway, 7)
    assert [number_of(client.next()) for _ in range(4)] == [4, 5, 6, 7]
