"""Clients of server-sent events that other people wrote follow a real gateway."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.chromium import launched
from tests.clients.support.wire import Wire, wire_to
from tests.clients.third_party.checks import REMOVALS, check_rows, define, number_of, publish
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
from tests.support.ports import lasting_port
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.nightly

HEARTBEAT = b": heartbeat\n"
HEARTBEATS = 3
SUBSCRIBE = "/v1/topics/px/subscribe?options=conflation=none&format=envelope"
REFUSED = "/v1/topics/px/subscribe?options=conflation=soon"
REFUSALS = {
    "httpx": "options-invalid",
    "aiohttp": "options-invalid",
    "npm-eventsource": "",
    "npm-event-source-polyfill": "",
    "npm-fetch-event-source": "options-invalid",
}
"""The code that a program reads in a refusal; an EventSource shows its status alone."""
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
    define(gateway)
    with wire_to(gateway.base_url) as wire:
        yield wire
    gateway.delete_topic("px")


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


@pytest.mark.parametrize(("library", "code"), REFUSALS.items())
def test_it_follows_a_topic_through_a_restart_and_sees_a_refusal(
    library: str, code: str, tmp_path: Path
) -> None:
    port = lasting_port()
    address = f"http://127.0.0.1:{port}"

    @contextlib.contextmanager
    def serving() -> Iterator[Gateway]:
        process = start("serve", "--port", str(port), TIDEGATE_DATA=str(tmp_path / "data"))
        try:
            with Gateway(address_of(process)) as gateway:
                yield gateway
        finally:
            process.terminate()
            process.communicate(timeout=HANGS_S)

    with contextlib.ExitStack() as stack:
        with serving() as gateway:
            define(gateway)
            client = stack.enter_context(reading(COMMANDS[library](address + REMOVALS, tmp_path)))
            check_rows(client, gateway)
        with serving() as gateway:
            publish(gateway, 2)
            # Perhaps after a goodbye, which takes leave of it.
            while (event := client.next()).name != "hello":
                assert event.name == "goodbye"
            resumed = client.next()
            assert (resumed.name, json.loads(resumed.data)["mode"]) == ("resumed", "replay")
            assert number_of(client.next()) == 2
            with reading(COMMANDS[library](address + REFUSED, tmp_path)) as refused:
                assert refused.next() == Read("refused", "400", code)


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
    # The polyfill of EventSource adds it to the address, where others have a header.
    ways = [f"{name}{last.last_id}".encode() for name in ("last-event-id: ", "lasteventid=")]
    assert any(way in wire.asked[asked:].lower() for way in ways)
    publish(gateway, 7)
    assert [number_of(client.next()) for _ in range(4)] == [4, 5, 6, 7]
