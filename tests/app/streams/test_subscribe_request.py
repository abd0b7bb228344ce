"""Wishes: which format fits, what the topic's own options add, what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.servers import edge_settings
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.gateway import Gateway
from tidegate.app.refusals import Refused
from tidegate.app.streams.decisions import SubscriptionParameters, granted_to
from tidegate.app.streams.encoding import Format
from tidegate.app.streams.subscribe_request import RequestedSubscription, SubscribeRequest
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.subscription import Command
from tidegate.keys.errors import FilterInvalid
from tidegate.keys.text.bookmark import Bookmark

NOTHING: Mapping[str, str] = {}


async def wished(
    options: str = "",
    values: Mapping[str, str] = NOTHING,
    *,
    topic: str = '{"key":["/k"]}',
    by_pattern: bool = False,
) -> RequestedSubscription:
    gateway = Gateway.build(edge_settings())
    await gateway.open()
    await gateway.catalog.put("px", TopicDefinition.parse(topic.encode()))
    asked = SubscriptionParameters(options=options, **values)
    most = gateway.settings.options_characters_max
    request = SubscribeRequest.parse(asked, most, many=by_pattern)
    return granted_to(gateway.sessions.context, "px", request, by_pattern=by_pattern)


FORMATS = [
    ("", {}, Format.VALUE),
    ("conflation=1s", {"format": "batch"}, Format.BATCH),
    ("timestamp", {}, Format.ENVELOPE),
    ("send_keys", {}, Format.ENVELOPE),
    ("conflation=1s,receipt", {}, Format.ENVELOPE),
    ("receipt", {"format": "value"}, Format.VALUE),
    ("timestamp", {"format": "batch"}, Format.BATCH),
    ("progress", {}, Format.VALUE),
]


@pytest.mark.parametrize(("options", "values", "form"), FORMATS)
async def test_what_only_envelopes_show_asks_for_envelopes(
    options: str, values: dict[str, str], form: Format
) -> None:
    assert (await wished(options, values)).form is form


async def test_a_pattern_is_told_in_batches() -> None:
    assert (await wished(by_pattern=True)).form is Format.BATCH
    assert (await wished("timestamp", by_pattern=True)).form is Format.BATCH
    assert (await wished(values={"format": "value"}, by_pattern=True)).form is Format.VALUE


@pytest.mark.parametrize(
    ("options", "form", "counted"),
    [
        ("conflation=1s", "value", False),
        ("conflation=1s", "envelope", True),
        ("conflation=1s", "batch", True),
        ("conflation=1s,max_age=2s", "value", True),
    ],
)
async def test_messages_are_counted_where_the_first_is_told_or_watched(
    options: str, form: str, counted: bool
) -> None:
    assert (await wished(options, {"format": form})).subscription.lane_id.counted is counted


async def test_the_topics_own_options_are_defaults() -> None:
    topic = '{"key":["/k"],"options":"conflation=2s"}'
    assert (await wished(topic=topic)).subscription.lane_id.interval_ns == 2_000_000_000
    assert (await wished("conflation=none", topic=topic)).subscription.lane_id.interval_ns == 0


async def test_filter_order_and_command_count() -> None:
    values = {"filter": "/v > 1", "order_by": "/v DESC", "command": "sow"}
    subscription = (await wished(values=values)).subscription
    assert str(subscription.lane_id.feed.filter) == "/v > 1"
    assert subscription.order is not None
    assert subscription.command is Command.SOW


async def test_what_is_wrong_has_its_position() -> None:
    with pytest.raises(OptionsInvalid) as options:
        await wished("conflation=1s,zzq")
    assert options.value.position == 14
    with pytest.raises(FilterInvalid) as wanted:
        await wished(values={"filter": "/v >"})
    assert wanted.value.position == 4
    with pytest.raises(OptionsInvalid):
        await wished(values={"command": "zzq"})
    for values in ({"format": "zzq"}, {"filter": "/v = 1" * 1_000}):
        with pytest.raises(Refused):
            await wished(values=values)


async def test_a_topic_that_is_not_there() -> None:
    gateway = Gateway.build(edge_settings())
    with pytest.raises(Refused) as refused:
        granted_to(gateway.sessions.context, "px", SubscribeRequest(), Bookmark("e1", 1))
    assert refused.value.code == "topic-unknown"
