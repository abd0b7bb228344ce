"""Pictures of every screen that shows values, of a market that runs: for people to look at.

They are in `artifacts/console`. Those on the first page of the site are copies of them, made by
`python -m tests.browser.console.test_pictures` after a run.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from dev import ROOT
from tests.browser.chromium import SEES_MS_MAX
from tests.browser.console.support import (
    PICTURES,
    Reader,
    ask,
    frozen_reader,
    keep_pictures,
    rows,
    visit,
)
from tidegate.app.cli.demo.feeds import MARKET_TOPIC, machine_feed, market_feed
from tidegate.app.cli.demo.show import TOPICS
from tidegate.clients.gateway import Gateway
from tidegate.clients.requests import JSON
from tidegate.keys.text.duration import parse_interval
from tidegate.pipeline.intervals import Interval, Pace
from tidegate.pipeline.operations import status
from tidegate.pipeline.operations.status import State, StreamStatus, Totals
from tidegate.pipeline.operations.watch import TOPIC, message_of
from tidegate.pipeline.planner.choices import Choice, Plan
from tidegate.pipeline.planner.tally import Seen, Sent

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

RUNS_S = 45  # so long the market runs before the pictures, that its charts have something to show
READERS = ("conflation=100ms", "conflation=500ms", "conflation=1s", "conflation=auto,min=250ms")
CURVES = "curves"
HIDDEN = [{"path": path, "isHidden": True} for path in ("/ts", "age")]
PRICES = [
    {"path": "/tickerId", "isPinned": True, "width": 90}, {"path": "/bid", "width": 90},
    {"path": "/ask", "width": 90}, {"path": "/price", "width": 90},
]  # fmt: skip
PANELS = [
    {"topic": MARKET_TOPIC, "interval": "500ms", "trend": "/price",
     "columns": [*PRICES, {"path": "/size", "width": 80}, {"path": "/type", "isHidden": True},
                 *HIDDEN]},
    {"topic": MARKET_TOPIC, "interval": "2s", "group": "/type",
     "columns": [*PRICES, {"path": "/type", "width": 80}, {"path": "/size", "total": "sum"},
                 *HIDDEN],
     "sorts": [{"id": "/price", "isDescending": True}]},
]  # fmt: skip
SCREENS = {
    "overview": "overview",
    "blotter": f"blotter?panels={quote(json.dumps(PANELS))}",
    "charts": f"charts?topic={MARKET_TOPIC}&key=IBM&field=price&minus=bid&span=300000",
    "playground": f"playground?topic={MARKET_TOPIC}&options=conflation%3D1s",
    "topics": f"topics?topic={MARKET_TOPIC}",
    "publish": f"publish?topic={MARKET_TOPIC}",
    "pipelines": f"pipelines?topic={MARKET_TOPIC}",
}
PIPELINES = [
    ("market-1s", State.RUNNING, 1_284_000, 151_200, 614.0, 118, 0.41),
    ("orders-500ms", State.RUNNING, 402_310, 96_044, 220.5, 12, 0.22),
    ("sensors-5s", State.WAITING, 96_500, 8_120, 0.0, 4_310, 1.9),
]
SAVED = {  # of the messages, by interval and pace: as of a market in which some keys are busy
    Pace.BATCH: {"100ms": 0.21, "250ms": 0.42, "500ms": 0.61, "1s": 0.77, "2s": 0.87, "5s": 0.945},
    Pace.KEY: {"100ms": 0.17, "250ms": 0.36, "500ms": 0.55, "1s": 0.72, "2s": 0.84, "5s": 0.93},
}
ON_THE_SITE = ("overview", "blotter")
SITE_PICTURES = ROOT / "docs" / "pictures"


@contextlib.contextmanager
def market(gateway: Gateway) -> Iterator[str]:
    """A market with readers, one of them stuck; the session of the reader that is shown."""
    for topic, definition in TOPICS.items():
        gateway.put_topic(topic, definition)
    feeds = [market_feed(), machine_feed()]
    for feed in feeds:
        feed.start(gateway.base_url)
    with contextlib.ExitStack() as stack:
        for feed in feeds:
            stack.callback(feed.join, 10.0)
            stack.callback(feed.stop)
        readers = [stack.enter_context(Reader(gateway, it, MARKET_TOPIC)) for it in READERS]
        yield readers[-1].session


@contextlib.contextmanager
def stuck_reader(gateway: Gateway) -> Iterator[None]:
    """A reader that takes nothing of a topic whose messages are large."""
    gateway.put_topic(CURVES, {"key": ["/id"]})
    wish = {"topic": CURVES, "options": "conflation=none"}
    opened = ask(gateway, "POST", "/v1/sessions", {"subscriptions": [wish]})
    with frozen_reader(gateway, opened["events"]):
        for number in range(60):
            curve = json.dumps({"id": number % 10, "points": "x" * 100_000})
            gateway.publish(CURVES, [curve.encode()])
        yield


def report(gateway: Gateway) -> None:
    """Publish the status of pipelines, as they do."""
    for name, state, messages, published, rate, lag, took_s in PIPELINES:
        pace = status.Pace(batch=messages // 700, rows_per_s=rate, batch_s=took_s, lag=lag)
        now = StreamStatus(
            name, state, pace, Totals(messages // 700, messages, published),
            held=40, at_s=time.time(), error="the gateway is out" if not rate else "",
        )  # fmt: skip
        producer, number, message = message_of(now)
        gateway.publish_body(TOPIC, message, producer, number, JSON)


def plan() -> dict[str, object]:
    """A plan of a day of that market."""
    seen = Seen(messages=2_160_000, bytes=216_000_000, keys=40, memory_bytes=4_000, hot=[])
    return Plan([
        Choice("/tickerId", text, Interval(parse_interval(text), pace), Sent(
            round(seen.messages * (1 - saved)), round(seen.bytes * (1 - saved)),
            {parse_interval(text) // 2_000_000: seen.messages}), seen)
        for pace, each in SAVED.items() for text, saved in each.items()
    ]).document()  # fmt: skip


def test_each_screen_of_a_market_is_kept(
    chromium: Browser, gateway: Gateway, tmp_path: Path
) -> None:
    saved = tmp_path / "plan.json"
    saved.write_text(json.dumps(plan()))
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(market(gateway))
        tabs = stack.enter_context(contextlib.closing(chromium.new_context()))
        tabs.set_default_timeout(SEES_MS_MAX)
        complaints: list[str] = []
        pages: dict[str, Page] = {}
        shown = {"overview": SCREENS["overview"], "sessions": f"sessions?session={session}"}
        for name, place in (shown | SCREENS).items():
            page = pages[name] = tabs.new_page()
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            visit(page, gateway, place)
        pages["playground"].get_by_role("button", name="Subscribe live").click()
        rows(pages["sessions"], "Subscriptions").first.click()
        pages["sessions"].get_by_role("button", name="Trace it live").click()
        pages["publish"].get_by_role("button", name="Take a record as a model").click()
        pages["overview"].wait_for_timeout(1_000 * RUNS_S)
        stack.enter_context(stuck_reader(gateway))
        plans = pages["pipelines"].get_by_role("region", name="A saved plan")
        plans.get_by_label("Plan, as JSON").set_input_files(saved)
        pages["pipelines"].get_by_role("button", name="Compute").click()
        expect(rows(pages["pipelines"], "Intervals")).to_have_count(10)
        expect(rows(pages["overview"], "Topics by rate").first).to_contain_text(MARKET_TOPIC)
        for name, page in pages.items():
            page.bring_to_front()
            report(gateway)
            if name == "overview":
                slow = page.get_by_role("region", name="Slow sessions")
                expect(slow).to_contain_text("unsent")
                expect(page.get_by_role("region", name="Pipelines")).to_contain_text("market-1s")
            if name == "pipelines":
                expect(rows(page, "Pipelines")).to_have_count(len(PIPELINES))
            keep_pictures(page, name, is_tall=name in {"sessions", "pipelines", "playground"})
        assert complaints == []


def copy_for_the_site() -> None:
    """Put the pictures of the first page into docs/pictures, with as many colours as they need."""
    for name in ON_THE_SITE:
        for theme in ("light", "dark"):
            with Image.open(PICTURES / f"{name}-1600-{theme}.png") as picture:
                few = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
                few.save(SITE_PICTURES / f"console-{name}-{theme}.png", optimize=True)


if __name__ == "__main__":
    copy_for_the_site()
