"""A stream is watched: what it writes and what its peer reads changes its intervals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.support.clocks.manual import Clock
from tests.support.place import parsed
from tests.support.rules import rule
from tests.support.servers import edge_settings
from tidegate.app.gateway import Gateway
from tidegate.app.names import TopicPattern
from tidegate.app.streams.auto_watch import AutoWatch
from tidegate.app.streams.connection import Connection
from tidegate.app.streams.decisions import SubscriptionParameters, decide_target
from tidegate.app.streams.reader import Reader
from tidegate.app.streams.session import Session
from tidegate.app.streams.subscribe_request import SubscribeRequest
from tidegate.app.streams.subscriptions import SessionSubscription
from tidegate.app.topics.ingest import BodyForm
from tidegate.clients.sse import Event, Parser
from tidegate.conflation.outputs import Output
from tidegate.keys.text.duration import MILLISECOND

MS = MILLISECOND
PLENTY = 1 << 30
AUTO = "conflation=auto"


@dataclass
class Socket:
    """A connection whose peer acknowledges what a test says."""

    unsent_bytes: int = 0
    write_buffer_bytes: int = 0
    round_trip_ns: int = 0
    is_closing: bool = False
    is_given_up: bool = False

    def abort(self) -> None: ...

    def give_up(self) -> None: ...


class Unasked(Socket):
    """A connection that nobody has a reason to look at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)


@dataclass
class Desk:
    """A gateway whose time stands still, one reader, and what its stream would do."""

    gateway: Gateway
    clock: Clock
    session: Session
    reader: Reader
    auto: AutoWatch
    socket: Any = field(default_factory=Socket)
    parser: Parser = field(default_factory=Parser)
    version: int = 0

    def subscribe(
        self, options: str = AUTO, target: str | TopicPattern = "px", command: str = "subscribe"
    ) -> SessionSubscription:
        wanted = SubscribeRequest.parse(
            SubscriptionParameters(options=options, command=command), 999, many=True
        )
        decisions = decide_target(self.session.context, target, wanted)
        asked, _ = self.session.subscribe(target, wanted, decisions)
        self.written()
        return asked

    async def publish(self, *topics: str) -> None:
        """A new value of the one key."""
        self.version += 1
        for topic in topics or ("px",):
            entry = self.gateway.catalog.get(topic)
            body = json.dumps({"k": 1, "v": self.version, "pad": "x" * 500}).encode()
            checked = await self.gateway.ingest.check(entry, body, BodyForm(lined=True))
            await self.gateway.ingest.publish(entry, checked, None)

    def written(self, *, is_taken: bool = True) -> list[Event]:
        """Call the stream once: what it writes, and whether its peer reads that."""
        outputs: list[Output] = self.reader.consumer.take(PLENTY)
        self.auto.observe(self.socket, outputs)
        text = self.reader.consumer.notices() + self.reader.encoded(outputs, 1)
        if text:
            self.auto.wrote(len(text))
            self.socket.unsent_bytes += 0 if is_taken else len(text)
        return self.parser.feed(text)

    async def turn(self, ms: int, *topics: str, is_taken: bool = True) -> list[Event]:
        """Publish, let time pass, write what has been let go."""
        await self.publish(*topics)
        self.clock.forward(self.gateway.driver, ms * MS)
        return self.written(is_taken=is_taken)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    clock = Clock()
    gateway = Gateway.build(edge_settings(), clock=clock)
    await gateway.open()
    for topic in ("px", "px.eu", "px.us"):
        await gateway.catalog.put(topic, parsed(key=["/k"]), None)
    session = gateway.sessions.open(kept=True, lasts=True)
    reader = session.open_reader()
    yield Desk(gateway, clock, session, reader, AutoWatch(reader, lambda: session.asked))
    await gateway.aclose()


def interval_ms(desk: Desk, asked: SessionSubscription, topic: str = "px") -> int:
    """Of the lane that the engine has the subscriber in, or on its way to."""
    subscriber = desk.gateway.driver.engine.session(desk.session.id).subscribers.get(
        (asked.name, topic)
    )
    assert subscriber is not None
    granted = asked.topics[topic].subscription
    assert subscriber.member.subscription == granted or subscriber.change is not None
    assert desk.reader.styles[asked.name, topic].subscription == granted
    return granted.lane_id.interval_ns // MS


def subscribe(reader: Reader, asked: SessionSubscription) -> None:
    """Subscriber a subscription in px as it was granted."""
    found = asked.topics["px"]
    reader.subscribe(asked.name, found.subscription, found.form)


def conflation(events: list[Event]) -> list[dict[str, Any]]:
    return [json.loads(event.text) for event in events if event.name == "conflation"]


async def slowed(desk: Desk, *topics: str) -> list[dict[str, Any]]:
    """Three flushes of which the peer takes nothing."""
    events: list[Event] = []
    for _ in range(3):
        events += await desk.turn(50, *topics, is_taken=False)
    return conflation(events + desk.written())


@rule("auto-5", "auto-6")
async def test_what_is_not_taken_makes_the_interval_longer_and_that_is_told_first(
    desk: Desk,
) -> None:
    # rules auto-5 and auto-6
    asked = desk.subscribe()
    [told] = await slowed(desk)
    assert (told["sub"], told["topic"]) == ("s1", "px")
    assert (told["from"], told["to"], told["reason"]) == ("50ms", "100ms", "slow")
    assert told["inputs"]["flush_bytes"] > 500
    assert told["inputs"]["unsent_bytes"] == told["inputs"]["overdue_bytes"] > 1_000
    assert interval_ms(desk, asked) == 100
    desk.socket.unsent_bytes = 0
    assert await desk.turn(50) == []
    desk.clock.forward(desk.gateway.driver, 50 * MS)
    [event] = desk.written()
    assert [row["value"]["v"] for row in json.loads(event.text)["rows"]] == [desk.version]


@rule("auto-6")
async def test_what_was_held_at_a_step_is_not_lost(desk: Desk) -> None:
    # rule auto-6
    desk.subscribe()
    for _ in range(2):
        await desk.turn(50, is_taken=False)
    desk.clock.forward(desk.gateway.driver, 20 * MS)
    await desk.publish()  # held by the lane of 50 ms
    desk.clock.forward(desk.gateway.driver, 35 * MS)
    [told] = conflation(desk.written() + desk.written())
    assert told["to"] == "100ms"
    desk.clock.forward(desk.gateway.driver, 14 * MS)
    assert desk.written() == []
    desk.clock.forward(desk.gateway.driver, 1 * MS)
    [event] = desk.written()
    assert [row["value"]["v"] for row in json.loads(event.text)["rows"]] == [desk.version]


@rule("auto-6")
async def test_other_subscribers_of_the_lane_stay(desk: Desk) -> None:
    # rule auto-6
    auto, fixed = desk.subscribe(), desk.subscribe("conflation=50ms")
    assert auto.topics["px"].subscription.lane_id == fixed.topics["px"].subscription.lane_id
    await slowed(desk)
    assert (interval_ms(desk, auto), interval_ms(desk, fixed)) == (100, 50)
    third = desk.subscribe("conflation=100ms")
    assert third.topics["px"].subscription.lane_id == auto.topics["px"].subscription.lane_id


@rule("auto-2")
async def test_a_snapshot_is_not_at_the_interval_s_pace(desk: Desk) -> None:
    # rule auto-2
    await desk.publish()
    wanted = SubscribeRequest.parse(
        SubscriptionParameters(options=AUTO, command="sow_and_subscribe"), 999, many=True
    )
    decisions = decide_target(desk.session.context, "px", wanted)
    asked, _ = desk.session.subscribe("px", wanted, decisions)
    desk.written(is_taken=False)
    for _ in range(9):
        desk.clock.forward(desk.gateway.driver, 50 * MS)
        assert conflation(desk.written()) == []
    assert interval_ms(desk, asked) == 50


@rule("auto-2")
async def test_whoever_writes_beside_it_is_on_the_same_socket(desk: Desk) -> None:
    # rule auto-2
    desk.subscribe("conflation=none", target="px.eu")
    asked = desk.subscribe()
    desk.socket.unsent_bytes = 50_000
    for _ in range(3):
        desk.socket.unsent_bytes += 1
        await desk.turn(50)
    assert interval_ms(desk, asked) == 100


@rule("auto-1", "auto-2")
async def test_all_topics_of_a_pattern_move_together_and_later_ones_come_to_them(
    desk: Desk,
) -> None:
    # rules auto-1 and auto-2
    asked = desk.subscribe(target=TopicPattern.parse("px.*"))
    [told] = await slowed(desk, "px.eu")
    assert told["topic"] == "px.*"
    assert [interval_ms(desk, asked, topic) for topic in ("px.eu", "px.us")] == [100, 100]
    await desk.gateway.catalog.put("px.asia", parsed(key=["/k"]), None)
    assert interval_ms(desk, asked, "px.asia") == 100


@rule("auto-6")
async def test_a_change_of_options_goes_on_from_the_interval(desk: Desk) -> None:
    # rule auto-6
    session, asked = desk.session, desk.subscribe()
    await slowed(desk)

    def change(options: str) -> int:
        wanted = SubscribeRequest.parse(
            SubscriptionParameters(options=options, command="subscribe"), 999, many=True
        )
        session.change(asked.name, wanted, paused=None)
        desk.written()
        return interval_ms(desk, asked)

    assert change("conflation=auto,timestamp") == 100
    assert change("conflation=auto,min=200ms") == 200
    assert asked.auto is not None
    assert asked.auto.state.interval_ns == 200 * MS
    assert len(asked.auto.decisions) == 1
    assert change("conflation=1s") == 1_000
    assert change("conflation=auto") == 50
    assert not asked.auto.decisions


@rule("auto-6")
async def test_the_next_reader_begins_where_the_last_one_was(desk: Desk) -> None:
    # rule auto-6
    session, asked = desk.session, desk.subscribe()
    await slowed(desk)
    assert asked.auto is not None
    assert asked.auto.state.late_rounds > 0
    desk.reader.close()
    desk.reader = session.open_reader()
    desk.auto = AutoWatch(desk.reader, lambda: session.asked)
    desk.socket = Socket()
    subscribe(desk.reader, asked)
    desk.written()
    assert interval_ms(desk, asked) == 100
    assert asked.auto.state.late_rounds == 0
    assert [decision["to"] for decision in asked.auto.decisions] == ["100ms"]


async def test_what_has_ended_is_not_moved(desk: Desk) -> None:
    asked = desk.subscribe()
    for _ in range(2):
        await desk.turn(50, is_taken=False)
    desk.session.unsubscribe(asked.name)
    for _ in range(5):
        desk.clock.forward(desk.gateway.driver, 50 * MS)
        assert conflation(desk.written()) == []
        assert desk.auto.wait_s(7.5) == 7.5


async def test_a_reader_that_was_sent_away_moves_nothing_any_more(desk: Desk) -> None:
    session, asked, first = desk.session, desk.subscribe(), desk.auto
    for _ in range(2):
        await desk.turn(50, is_taken=False)
    session.replace_reader(1)
    subscribe(session.open_reader(), asked)
    for _ in range(5):
        desk.clock.forward(desk.gateway.driver, 50 * MS)
        first.observe(desk.socket, is_full=True)
        assert first.wait_s(7.5) == 7.5
    assert asked.topics["px"].subscription.lane_id.interval_ns == 50 * MS


@pytest.mark.parametrize("options", ["", "conflation=1s", "conflation=auto,min=1s,max=1s"])
async def test_whoever_cannot_move_is_not_watched(desk: Desk, options: str) -> None:
    desk.subscribe(options)
    await desk.publish()
    desk.clock.forward(desk.gateway.driver, 1_000 * MS)
    desk.auto.observe(cast("Connection", Unasked()), desk.reader.consumer.take(PLENTY))
    assert desk.auto.wait_s(7.5) == 7.5


async def test_it_says_when_it_wants_to_look(desk: Desk) -> None:
    desk.subscribe("conflation=auto,min=100ms")
    assert desk.auto.wait_s(7.5) == 7.5
    await desk.turn(100, is_taken=False)
    assert desk.auto.wait_s(7.5) == pytest.approx(0.11)
    assert desk.auto.wait_s(0.05) == 0.05
    desk.clock.forward(desk.gateway.driver, 200 * MS)
    assert desk.auto.wait_s(7.5) == 0


async def test_a_full_socket_is_looked_at_while_a_write_waits(desk: Desk) -> None:
    asked = desk.subscribe()
    await desk.turn(50, is_taken=False)
    for _ in range(2):
        desk.clock.forward(desk.gateway.driver, 55 * MS)
        desk.auto.observe(desk.socket, is_full=True)
    [told] = conflation(desk.written())
    assert (told["to"], told["reason"]) == ("100ms", "full")
    assert interval_ms(desk, asked) == 100


async def test_without_a_connection_nothing_is_seen(desk: Desk) -> None:
    asked = desk.subscribe()
    for _ in range(5):
        await desk.publish()
        desk.clock.forward(desk.gateway.driver, 50 * MS)
        desk.auto.observe(None, desk.reader.consumer.take(PLENTY))
    assert interval_ms(desk, asked) == 50
