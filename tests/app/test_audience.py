"""An audience without a socket: what it is told of topics that come and go."""

from __future__ import annotations

import json

from app.audience import Audience
from app.gateway import SUBSCRIPTIONS_MAX, Gateway
from app.topic_document import TopicDocument
from app.topic_pattern import TopicPattern
from app.wish import decided
from clients.sse import Parser
from conflation.outputs import CloseReason
from tests.support.servers import edge_settings

PLENTY = 1 << 20


async def gateway_with(*topics: str) -> Gateway:
    gateway = Gateway.build(edge_settings())
    await gateway.open()
    for topic in topics:
        await make(gateway, topic)
    return gateway


async def make(gateway: Gateway, topic: str, key: str = "/k") -> None:
    await gateway.catalog.put(topic, TopicDocument.parse(json.dumps({"key": [key]}).encode()))


async def test_hello_tells_the_seats_there_are() -> None:
    gateway = await gateway_with("px")
    audience = Audience(gateway)
    subscription, form, _ = decided(gateway, "px", {"options": "conflation=1s"})
    style = audience.join(subscription, form)
    [hello] = Parser().feed(audience.hello(id_text="e-1"))
    told = json.loads(hello.text)
    assert (hello.name, hello.id) == ("hello", "e-1")
    assert told["session"] == audience.consumer.session
    assert told["epoch"] == style.cut.epoch
    assert told["subscriptions"] == [style.entry("s1")]
    await gateway.aclose()


async def test_a_topic_with_another_key_is_another_topic() -> None:
    gateway = await gateway_with("px.a")
    audience = Audience(gateway, lasts=True)
    audience.follow(TopicPattern.parse("px.*"), {})
    await make(gateway, "px.b")
    before = audience.styles["s1", "px.b"]
    await make(gateway, "px.b", key="/other")
    assert audience.styles["s1", "px.b"].cut.epoch != before.cut.epoch
    assert ("s1", "px.a") not in audience.styles, "it was there before"
    await gateway.aclose()


async def test_nobody_joins_a_session_that_has_ended() -> None:
    gateway = await gateway_with()
    audience = Audience(gateway, lasts=True)
    audience.follow(TopicPattern.parse("px.*"), {})
    audience.consumer.give_up(CloseReason.SHUTDOWN)
    await make(gateway, "px.a")
    audience.consumer.close()
    await make(gateway, "px.b")
    assert audience.styles == {}
    assert audience.consumer.notices() == b""
    assert not gateway.catalog._listeners, "nobody listens any more"
    await gateway.aclose()


async def test_a_session_has_so_many_subscriptions_and_no_more() -> None:
    gateway = await gateway_with()
    audience = Audience(gateway, lasts=True)
    audience.follow(TopicPattern.parse(">"), {})
    for number in range(SUBSCRIPTIONS_MAX + 1):
        await make(gateway, f"px.{number}")
    [error] = Parser().feed(audience.consumer.notices())
    assert (error.name, json.loads(error.text)["code"]) == ("error", "limit-reached")
    assert len(audience.styles) == SUBSCRIPTIONS_MAX
    await gateway.aclose()
