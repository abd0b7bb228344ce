"""The notebook's widget in a real Chromium, fed by a live dict of a real gateway."""

from __future__ import annotations

import json
import queue
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.deadlines import HANGS_S
from tidegate.clients.gateway import Gateway
from tidegate.clients.live.live import Live
from tidegate.clients.live.notebook import LiveView

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

TRAITS = ("topic", "order_by", "columns", "chart", "rows_max", "status")
BIG = 9007199254740993
# What anywidget does: the text is a module, whose `render` gets a model and an element.
MOUNT = """async ([text, traits]) => {
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const { default: widget } = await import(url);
  const listeners = new Map();
  window.sent = [];
  window.hear = (name, given) => (listeners.get(name) ?? []).forEach((each) => each(given));
  window.traits = traits;
  window.stop = widget.render({
    el: document.body.appendChild(document.createElement("main")),
    model: {
      get: (name) => window.traits[name],
      on: (name, listener) => listeners.set(name, [...(listeners.get(name) ?? []), listener]),
      off: (name) => listeners.delete(name),
      send: (message) => window.sent.push(message),
    },
  });
}"""


class Shown:
    """A widget and the page that shows it, with the notebook between them played by the test."""

    def __init__(self, page: Page, view: LiveView, monkeypatch: pytest.MonkeyPatch) -> None:
        self.page = page
        self.view = view
        self.sent: queue.Queue[dict[str, Any]] = queue.Queue()
        monkeypatch.setattr(view, "send", self.sent.put)
        page.evaluate(MOUNT, [view._esm, {name: getattr(view, name) for name in TRAITS}])
        assert page.evaluate("window.sent") == [{"type": "begin"}]
        view._begin(view, {"type": "begin"}, [])

    def carry(self) -> list[Any]:
        """Hand one message to the page; the events that it has."""
        message = self.sent.get(timeout=HANGS_S)
        self.page.evaluate("(message) => window.hear('msg:custom', message)", message)
        events = json.loads(message["text"])
        assert isinstance(events, list)
        return events

    def cells(self) -> list[list[str]]:
        rows = self.page.locator("main tr")
        return [row.locator("th,td").all_text_contents() for row in rows.all()]


@pytest.fixture
def blank(chromium: Browser) -> Any:
    page = chromium.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    page.close()
    assert complaints == []


def prices(gateway: Gateway) -> Live:
    gateway.put_topic("px", {"key": ["/id"]})
    lines = [b'{"id":"b","n":2,"p":1.5}', b'{"id":"a","n":%d,"p":1}' % BIG]
    gateway.publish("px", lines)
    return gateway.live("px", options="conflation=20ms", order_by="/id", deltas=True)


def test_a_table_and_a_chart_follow_a_topic(
    blank: Page, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prices(gateway) as live:
        shown = Shown(blank, LiveView(live, columns=["n", "p"], chart="p"), monkeypatch)
        assert [name for name, _ in shown.carry()] == ["group_begin", "message", "group_end"]
        expect(blank.locator("main tr")).to_have_count(3)
        assert shown.cells() == [["key", "n", "p"], ["a", str(BIG), "1"], ["b", "2", "1.5"]]
        gateway.publish("px", [b'{"id":"b","n":3,"p":4.5}', b'{"id":"c","n":"<b>x</b>"}'])
        shown.carry()
        expect(blank.locator("main tr")).to_have_count(4)
        assert shown.cells()[2:] == [["b", "3", "4.5"], ["c", "<b>x</b>", ""]]
        assert blank.locator("polyline").count() == 3
        assert blank.locator("svg text").all_text_contents() == ["4.5", "1"]
        gateway.delete_topic("px")
        shown.carry()
        expect(blank.locator("main tr")).to_have_count(1)


def test_a_page_that_is_opened_again_is_sent_all(
    blank: Page, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prices(gateway) as live:
        view = LiveView(live, rows_max=1)
        shown = Shown(blank, view, monkeypatch)
        shown.carry()
        view._begin(view, {"type": "begin"}, [])
        assert [name for name, _ in shown.carry()] == ["group_begin", "message", "group_end"]
        gateway.publish("px", [b'{"id":"a","n":5}'])
        shown.carry()
        expect(blank.locator("main")).to_contain_text("and 1 more")
        assert shown.sent.empty(), "the first reader has ended"


def test_values_that_are_old_do_not_look_live(
    blank: Page, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prices(gateway) as live:
        shown = Shown(blank, LiveView(live), monkeypatch)
        shown.carry()
        opacity = "getComputedStyle(document.querySelector('main table')).opacity"
        assert blank.evaluate(opacity) == "1"
        blank.evaluate("window.traits.status = 'the stream was lost'; window.hear('change:status')")
        assert blank.evaluate(opacity) == "0.5"
        assert "the stream was lost" in blank.locator("main div").inner_text()
    ends = shown.view
    ends.observe(lambda change: shown.sent.put(change), "status")
    assert ends.status == "ended: CLOSED" or shown.sent.get(timeout=HANGS_S)["new"].startswith(
        "end"
    )
