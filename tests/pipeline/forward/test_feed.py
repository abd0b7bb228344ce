"""What a topic sends arrives in batches of bounded size, and what ends the topic ends the feed."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.pipeline.forward.forwarding import definitions
from tests.support.commands import serving_here
from tests.support.deadlines import HANGS_S
from tests.support.rules import rule
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.errors import GatewayRefused
from tidegate.pipeline.forward.feed import Feed
from tidegate.pipeline.forward.target import FeedBatch

pytestmark = pytest.mark.system
FILE = """
[forward.a]
source = {topic = "t", options = "OPTIONS"}
sink = {kind = "redis", address = "redis://127.0.0.1", stream = "s"}
"""


def feed_of(
    folder: Path,
    gateway: Gateway,
    said: list[str],
    options: str = "",
    at: str = "",
    topic: str = "t",
) -> Feed:
    text = FILE.replace("OPTIONS", options).replace('"t"', f'"{topic}"')
    [definition] = definitions(folder, text, gateway.base_url)
    return Feed(gateway, definition, at, said.append)


def next_batch(feed: Feed) -> FeedBatch:
    """The next batch that has rows."""
    deadline = time.monotonic() + HANGS_S
    while True:
        assert time.monotonic() < deadline
        batch = feed.read(0.1)
        if batch is not None and batch.rows:
            return batch


@rule("forward-3")
def test_what_is_not_read_waits_at_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.pipeline.forward.feed.ROWS_MAX", 150)
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("t", {"key": ["/k"]})
        gateway.publish("t", [{"k": k} for k in range(2_000)])
        with closing(feed_of(tmp_path, gateway, [])) as feed:
            sizes = list[int]()
            while sum(sizes) < 2_001:
                time.sleep(0.02)  # more would arrive meanwhile if it were taken
                sizes.append(len(next_batch(feed).rows))
    assert sum(sizes) == 2_001
    # An event of the snapshot has 100 rows, and one may be taken above the bound.
    assert max(sizes) < 350


@rule("forward-5")
@pytest.mark.parametrize("key", [[], ["/k"]])
def test_the_position_is_that_of_the_last_row_within_a_backlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: list[str]
) -> None:
    monkeypatch.setattr("tidegate.pipeline.forward.feed.ROWS_MAX", 150)
    options = "conflation=50ms" if key else "conflation=none"
    found, after = list[int](), ""
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("t", {"key": key, "conflation": "conflate" if key else "off"})
        with closing(feed_of(tmp_path, gateway, [], options)) as feed:
            while not after:
                gateway.publish("t", {"k": -1})
                batch = feed.read(0.1)
                after = "" if batch is None else batch.after
        gateway.publish("t", [{"k": k} for k in range(1_000)])
        while not found or found[-1] < 999:  # each start reads one batch
            with closing(feed_of(tmp_path, gateway, [], options, after)) as feed:
                batch = next_batch(feed)
            values = [msgspec.json.decode(row.fields["value"])["k"] for row in batch.rows]
            found += [value for value in values if value >= 0]
            assert found == [*range(len(found))]
            after = batch.after


@pytest.mark.parametrize(
    ("topic", "options", "code"),
    [("none", "", "topic-unknown"), ("t", "conflation=x", "options-invalid")],
)
def test_a_refusal_is_raised_where_rows_are_read(
    tmp_path: Path, topic: str, options: str, code: str
) -> None:
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("t", {"key": ["/k"]})
        with (
            closing(feed_of(tmp_path, gateway, [], options, topic=topic)) as feed,
            pytest.raises(GatewayProblem, match=code),
        ):
            feed.read(HANGS_S)


def test_a_subscription_that_the_gateway_ends_is_an_error_after_its_rows(tmp_path: Path) -> None:
    def read_on(feed: Feed) -> None:
        while True:
            feed.read(HANGS_S)

    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("t", {"key": ["/k"]})
        gateway.publish("t", {"k": 1})
        with closing(feed_of(tmp_path, gateway, [])) as feed:
            assert [row.op for row in next_batch(feed).rows][:1] == ["reset"]
            gateway.delete_topic("t")
            with pytest.raises((GatewayRefused, GatewayProblem)):
                read_on(feed)


@rule("forward-2")
def test_a_position_that_is_not_known_any_more_is_said(tmp_path: Path) -> None:
    said = list[str]()
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("t", {"key": ["/k"]})
        gateway.publish("t", {"k": 1})
        with closing(feed_of(tmp_path, gateway, said, at="another-7")) as feed:
            rows = next_batch(feed).rows
            rows += next_batch(feed).rows if len(rows) == 1 else []
            assert [row.op for row in rows] == ["reset", "snapshot"]
    assert said == ["a: t cannot resume where it was: its records follow as a snapshot"]
