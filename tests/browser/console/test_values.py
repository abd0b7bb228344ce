"""Charts of values, pipelines, and what other intervals would cost."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.console.support import (
    look_over,
    publish,
    quote,
    rows,
    visit,
)
from tests.browser.test_page import Publisher
from tidegate.clients.gateway import Gateway
from tidegate.clients.requests import JSON
from tidegate.keys.text.duration import parse_interval
from tidegate.pipeline.intervals import Interval, Pace
from tidegate.pipeline.operations.status import State, StreamStatus
from tidegate.pipeline.operations.watch import TOPIC, message_of
from tidegate.pipeline.planner.choices import Choice, Plan
from tidegate.pipeline.planner.tally import Seen, Sent

pytestmark = [pytest.mark.browser, pytest.mark.nightly]


def test_charts_show_a_keys_past_its_spread_and_all_keys(page: Page, prices: Gateway) -> None:
    for number in range(20):
        publish(prices, "prices", {**quote("S002", 100 + number), "bid": 99 + number / 2})
    visit(page, prices, "charts?topic=prices&key=S002&field=price&minus=bid")
    expect(page.get_by_role("status").last).to_contain_text("21 messages of S002")
    for name in ("price and bid of S002", "Spread"):
        chart = page.get_by_role("img", name=name)
        expect(chart.locator("canvas")).to_be_visible()
        assert chart.locator("canvas").evaluate(INKED) > 100
    publish(prices, "prices", quote("S001", 3))
    tile = page.get_by_role("button", name=re.compile("^S001"))
    expect(tile).to_contain_text("+100.00 %")
    expect(page.locator(".heat button")).to_have_count(40)
    look_over(page)


INKED = """
canvas => {
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return data.filter((value, at) => at % 4 === 3 && value > 0).length;
}
"""


def test_pipelines_report_and_other_intervals_are_computed(page: Page, prices: Gateway) -> None:
    producer, number, message = message_of(StreamStatus("ticks-1s", State.RUNNING, at_s=1.0))
    with Gateway(prices.base_url) as publisher:
        publisher.publish_body(TOPIC, message, producer, number, JSON)
    with Publisher(prices):
        visit(page, prices, "pipelines")
        expect(rows(page, "Pipelines").first).to_contain_text("running")
        # Estimates need messages of more than one moment.
        page.wait_for_timeout(500)
        page.get_by_role("button", name="Compute").click()
        intervals = rows(page, "Intervals")
        expect(intervals).to_have_count(10)
        expect(intervals.last).to_contain_text("1 min")
        expect(page.get_by_role("img", name="Messages a second").locator("canvas")).to_be_visible()
        look_over(page)


CHOICES = [
    ("100ms", "batch", 0.55), ("1s", "batch", 0.93), ("5s", "batch", 0.98),
    ("100ms", "key", 0.41), ("1s", "key", 0.88), ("5s", "key", 0.97),
]  # fmt: skip


def test_a_saved_plan_is_shown_and_another_file_is_refused(
    page: Page, prices: Gateway, tmp_path: Path
) -> None:
    seen = Seen(messages=10_000, bytes=1_000_000, keys=40, memory_bytes=4_000, hot=[])
    choices = [
        Choice(
            "/symbol",
            text,
            Interval(parse_interval(text), Pace(pace)),
            Sent(
                round(10_000 * (1 - saving)),
                round(1_000_000 * (1 - saving)),
                {40: 10_000},
            ),
            seen,
        )
        for text, pace, saving in CHOICES
    ]
    saved = tmp_path / "plan.json"
    saved.write_text(json.dumps(Plan(choices).document()))
    wrong = tmp_path / "prices.json"
    wrong.write_text('{"choices": []}')
    visit(page, prices, "pipelines")
    region = page.get_by_role("region", name="A saved plan")
    region.get_by_label("Plan, as JSON").set_input_files(wrong)
    expect(region.get_by_role("status")).to_contain_text("prices.json: this is no plan")
    region.get_by_label("Plan, as JSON").set_input_files(saved)
    expect(region.get_by_role("status")).to_contain_text("10,000 messages of 40 keys")
    expect(rows(region, "Choices")).to_have_count(6)
    advised = rows(region, "Choices").filter(has_text="recommended")
    expect(advised).to_have_count(2)
    expect(advised.first).to_contain_text("93.0 %")
    canvas = region.get_by_role("img", name="Messages saved").locator("canvas")
    expect(canvas).to_be_visible()
    assert canvas.evaluate(INKED) > 100
    look_over(page)
