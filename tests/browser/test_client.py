"""The JavaScript client in a real Chromium, as the first page and as `/client.js`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.deadlines import HANGS_S
from tidegate.clients.gateway import Gateway

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

BIG = 9007199254740993
CONNECT = """async ([topic, wish]) => {
  const { connect } = await import("/client.js");
  window.gateway = connect("", { tabs: false });
  window.rows = window.gateway.subscribe(topic, wish);
  await window.rows.ready;
}"""
READS_ON_MS = 500  # longer than a goodbye takes to a page beside its gateway
HIDE = """(state) => {
  Object.defineProperty(document, "visibilityState", { get: () => state, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def ask(gateway: Gateway, path: str, method: str = "GET") -> Any:
    with urlopen(Request(gateway.base_url + path, method=method), timeout=HANGS_S) as answer:
        return json.loads(answer.read() or b"null")


def sessions(gateway: Gateway) -> list[dict[str, Any]]:
    """The sessions that have a reader."""
    listed = ask(gateway, "/v1/sessions")["sessions"]
    return [session for session in listed if session["state"] == "attached"]


def intervals(gateway: Gateway) -> list[int]:
    """The intervals of all subscriptions, in ms."""
    found = [
        ask(gateway, f"/v1/sessions/{session['session']}/subscriptions")["subscriptions"]
        for session in sessions(gateway)
    ]
    return [each["interval_ms"] for subscriptions in found for each in subscriptions]


def await_that(page: Page, is_so: Any) -> None:
    """Waits for what the page cannot see; the browser's events go on meanwhile."""
    for _ in range(600):
        if is_so():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it never came")


def remove(gateway: Gateway, topic: str, key: str) -> None:
    query = urlencode({"key": json.dumps([key])})
    ask(gateway, f"/v1/topics/{topic}/sow?{query}", "DELETE")


def prices(gateway: Gateway, *symbols: str) -> None:
    gateway.publish("prices", [json.dumps({"symbol": each, "n": 1}).encode() for each in symbols])


def test_deleted_and_expired_records_leave_the_screen(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("prices", {"key": ["/symbol"], "expiration": "4s"})
    prices(gateway, "AIG", "IBM", "OLD")
    page.goto(gateway.base_url)
    expect(page.get_by_role("rowheader")).to_have_text(["AIG", "IBM", "OLD"])
    remove(gateway, "prices", "IBM")
    expect(page.get_by_role("rowheader")).to_have_text(["AIG", "OLD"])
    expect(page.locator("#caption")).to_contain_text("2 keys")
    expect(page.get_by_role("rowheader")).to_have_count(0)


def test_every_key_can_be_found(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    prices(gateway, *(f"K{number:04}" for number in range(1, 1201)))
    page.goto(gateway.base_url)
    expect(page.locator("#caption")).to_contain_text("1,200 keys, the first 500 shown")
    page.get_by_label("Find").fill("k1199")
    expect(page.get_by_role("rowheader")).to_have_text(["K1199"])
    prices(gateway, "XK1199")
    expect(page.get_by_role("rowheader")).to_have_text(["K1199", "XK1199"])
    page.get_by_label("Find").fill("nothing")
    expect(page.get_by_role("rowheader")).to_have_count(0)
    expect(page.locator("#caption")).to_contain_text("0 with “nothing”")
    page.get_by_label("Find").fill("")
    expect(page.locator("#body tr")).to_have_count(500)


def test_integers_are_shown_as_they_are(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("orders", {"key": ["/id"]})
    orders = [{"id": BIG, "next": BIG + 2}, {"id": BIG - 1, "next": None}]
    gateway.publish("orders", [json.dumps(order).encode() for order in orders])
    page.goto(gateway.base_url)
    expect(page.get_by_role("rowheader")).to_have_text(["9007199254740992", "9007199254740993"])
    expect(page.locator("#body td").last).to_have_text("9,007,199,254,740,995")


def test_definitions_that_have_not_changed_are_not_sent_again(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    statuses: list[int] = []
    page.on(
        "response",
        lambda answer: statuses.append(answer.status) if "?limit=1000" in answer.url else None,
    )
    page.goto(gateway.base_url)
    expect(page.locator("#state")).to_have_text("live")
    await_that(page, lambda: len(statuses) >= 3)
    assert statuses[:3] == [200, 304, 304]
    gateway.put_topic("another", {"key": ["/symbol"]})
    expect(page.locator("#topic option")).to_have_text(["another", "prices"])


def test_a_record_is_exact_in_the_client_of_a_page(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("orders", {"key": ["/id"]})
    gateway.publish("orders", [json.dumps({"id": BIG, "n": 1}).encode()])
    page.goto(gateway.base_url)
    page.evaluate(CONNECT, ["orders", {"interval": "20ms"}])
    page.wait_for_function(
        "() => window.rows.get(9007199254740993n)?.value.id === 9007199254740993n"
    )
    page.evaluate("window.gateway.publish('orders', { id: 9007199254740995n, n: 2 })")
    page.wait_for_function("() => window.rows.rows.size === 2")
    rows = [json.loads(row)["id"] for row in gateway.sow("orders")]
    assert rows == [BIG, BIG + 2]


def test_a_reload_begins_again_and_leaves_no_session(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    prices(gateway, "AIG")
    page.goto(gateway.base_url)
    for _ in range(3):
        expect(page.get_by_role("rowheader")).to_have_text(["AIG"])
        page.reload()
    expect(page.get_by_role("rowheader")).to_have_text(["AIG"])
    await_that(page, lambda: len(ask(gateway, "/v1/sessions")["sessions"]) == 1)


def test_a_hidden_page_is_sent_less(page: Page, gateway: Gateway) -> None:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    page.goto(gateway.base_url)
    expect(page.locator("#state")).to_have_text("live")
    await_that(page, lambda: intervals(gateway) == [500])
    page.evaluate(HIDE, "hidden")
    await_that(page, lambda: intervals(gateway) == [5000])
    page.evaluate(HIDE, "visible")
    await_that(page, lambda: intervals(gateway) == [500])


def test_two_tabs_have_one_stream(tabs: BrowserContext, gateway: Gateway) -> None:
    """Each is shown what it asked for; the others go on when the first, which leads, is closed."""
    for topic in ("prices", "orders"):
        gateway.put_topic(topic, {"key": ["/symbol"]})
        gateway.publish(topic, [json.dumps({"symbol": topic, "id": BIG}).encode()])
    first, second, third = (tabs.new_page() for _ in range(3))
    with explained(gateway, tabs):
        check_two_tabs(gateway, first, second, third)


@contextlib.contextmanager
def explained(gateway: Gateway, tabs: BrowserContext) -> Iterator[None]:
    """Add to a failure who holds and awaits which lock, and what the gateway serves."""
    try:
        yield
    except AssertionError as error:
        for page in tabs.pages:
            error.add_note(f"{page.url}: {page.locator('#state').text_content()}")
        if tabs.pages:
            held = tabs.pages[0].evaluate(
                "async () => JSON.stringify(await navigator.locks.query())"
            )
            error.add_note(f"locks: {held}")
        for session in ask(gateway, "/v1/sessions")["sessions"]:
            error.add_note(json.dumps(ask(gateway, f"/v1/sessions/{session['session']}")))
        raise


def check_two_tabs(gateway: Gateway, first: Page, second: Page, third: Page) -> None:
    for page, topic in ((first, "prices"), (second, "prices"), (third, "orders")):
        page.goto(f"{gateway.base_url}/#topic={topic}")
        expect(page.get_by_role("rowheader")).to_have_text([topic])
        expect(page.locator("#state")).to_have_text("live")
        expect(page.locator("#granted")).to_contain_text("conflation=500ms")
    assert len(sessions(gateway)) == 1
    assert intervals(gateway) == [500, 500]
    prices(gateway, "AIG")
    for page in (first, second):
        expect(page.get_by_role("rowheader")).to_have_text(["AIG", "prices"])
    for page in (first, second):
        page.evaluate(HIDE, "hidden")
    assert intervals(gateway) == [500, 500]
    third.evaluate(HIDE, "hidden")
    await_that(third, lambda: intervals(gateway) == [5000, 5000])
    third.evaluate(HIDE, "visible")
    await_that(third, lambda: intervals(gateway) == [500, 500])
    first.close()
    prices(gateway, "SPY")
    remove(gateway, "prices", "AIG")
    expect(second.get_by_role("rowheader")).to_have_text(["prices", "SPY"])
    expect(third.get_by_role("rowheader")).to_have_text(["orders"])
    await_that(second, lambda: len(sessions(gateway)) == 1)
    third.close()
    await_that(second, lambda: len(intervals(gateway)) == 1)


def test_tabs_go_on_while_the_leading_one_closes_slowly(
    tabs: BrowserContext, gateway: Gateway
) -> None:
    """A busy page reads on after `pagehide`: the end of its session is no end for other tabs."""
    gateway.put_topic("prices", {"key": ["/symbol"]})
    prices(gateway, "AIG")
    first, second = tabs.new_page(), tabs.new_page()
    for page in (first, second):
        page.goto(gateway.base_url)
        expect(page.get_by_role("rowheader")).to_have_text(["AIG"])
    first.evaluate("dispatchEvent(new PageTransitionEvent('pagehide'))")
    await_that(first, lambda: ask(gateway, "/v1/sessions")["sessions"] == [])
    first.wait_for_timeout(READS_ON_MS)
    first.close()
    prices(gateway, "SPY")
    expect(second.get_by_role("rowheader")).to_have_text(["AIG", "SPY"])
    expect(second.locator("#state")).to_have_text("live")


def test_tabs_change_their_interval_each_for_itself(tabs: BrowserContext, gateway: Gateway) -> None:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    prices(gateway, "AIG")
    first, second = tabs.new_page(), tabs.new_page()
    for page in (first, second):
        page.goto(gateway.base_url)
        expect(page.get_by_role("rowheader")).to_have_text(["AIG"])
    second.get_by_label("At most one update per key every").select_option("2s")
    expect(second.locator("#granted")).to_contain_text("conflation=2s")
    await_that(second, lambda: sorted(intervals(gateway)) == [500, 2000])
    refused = """async () => {
      const { connect } = await import("/client.js");
      const gateway = connect();
      const rows = gateway.subscribe("prices", { interval: "100ms" });
      await rows.ready;
      const code = await rows.change({ filter: "/n >" }).catch((error) => error.code);
      await gateway.publish("prices", { symbol: "SPY", n: 1 });
      for (let turn = 0; turn < 1000 && !rows.get("SPY"); turn += 1) {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      const follows = rows.get("SPY") !== undefined;
      await rows.change({ filter: "/n = 1" });
      const missing = await gateway.subscribe("nowhere").ready.catch((error) => error.code);
      const changing = rows.change({ filter: "/n = 2" });
      await gateway.close();
      await changing;  // it has ended with its subscription
      return [code, follows, missing, rows.end];
    }"""
    assert first.evaluate(refused) == ["filter-invalid", True, "topic-unknown", "CLOSED"]
    await_that(second, lambda: sorted(intervals(gateway)) == [500, 2000])


FOLLOW = """async ([count, wish]) => {
  const { connect } = await import("/client.js");
  const gateway = connect("");
  const read = [];
  for await (const row of gateway.follow("trades", { place: "reader", ...wish })) {
    read.push(row.value);
    if (read.length === count) break;
  }
  await gateway.close();
  return read;
}"""


def test_a_page_goes_on_where_it_was_after_a_reload(
    page: Page, tabs: BrowserContext, gateway: Gateway
) -> None:
    gateway.put_topic("trades", {"key": ["/id"], "conflation": "off"})
    gateway.publish("trades", [b'{"id":%d}' % number for number in range(6)])
    page.goto(f"{gateway.base_url}/console")
    assert [row["id"] for row in page.evaluate(FOLLOW, [4, {}])] == [0, 1, 2, 3]
    gateway.delete_records("trades", record_key=1)
    gateway.publish("trades", [b'{"id":6}'])
    page.reload()
    # The page left in the iteration of number 3, which is sent again; a removal is no message.
    assert [row["id"] for row in page.evaluate(FOLLOW, [4, {}])] == [3, 4, 5, 6]
    other = tabs.new_page()
    other.goto(f"{gateway.base_url}/console")
    assert [row["id"] for row in other.evaluate(FOLLOW, [1, {}])] == [0], "a tab has its own place"


TWICE = """async () => {
  const { connect } = await import("/client.js");
  const gateway = connect("", { tabs: "alone" });
  const first = gateway.subscribe("prices", { interval: "100ms" });
  await new Promise((come) => first.addEventListener("change", come));
  const second = gateway.subscribe("prices", { interval: "100ms" });
  const change = await new Promise((come, fail) => {
    second.addEventListener("change", come);
    setTimeout(() => fail(new Error("it never came")), 60_000);
  });
  await second.close();
  const left = first.end;
  await gateway.close();
  return [change.added.length, left, first.end];
}"""


def test_an_equal_subscription_is_heard_from_its_beginning(page: Page, gateway: Gateway) -> None:
    """Its records are held already, and come after the caller listens."""
    gateway.put_topic("prices", {"key": ["/symbol"]})
    prices(gateway, "AIG", "IBM")
    page.goto(f"{gateway.base_url}/console#/publish")
    assert page.evaluate(TWICE) == [2, "", "CLOSED"]
