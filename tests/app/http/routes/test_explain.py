"""What `/v1/explain` says equals what subscribing then does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule
from tidegate.app.http.routes import explain
from tidegate.app.http.routes.explain import explained
from tidegate.app.http.routes.models.sessions import Explaining

BY_KEY = {"conflation_key": "[/k]", "pace": "batch"}


async def explanation(running: Running, topic: str = "px", **values: str) -> dict[str, Any]:
    return await explained(running.gateway, Explaining(topic=topic, **values))


async def test_a_subscription_is_explained_in_full() -> None:
    async with running_gateway() as running:
        await running.topic()
        shown = await explanation(
            running, options="conflation=1000ms,progress", filter="/a>1", order_by="/a  desc"
        )
        assert shown == {
            "topic": "px",
            "command": "sow_and_subscribe",
            "options": "conflation=1s,conflation_key=[/k],pace=batch,progress",
            "filter": "/a > 1",
            "order_by": "/a DESC",
            "defaults": {"command": "sow_and_subscribe", **BY_KEY},
            "warnings": (),
            "lane": "conflation=1s,conflation_key=[/k],pace=batch&filter=/a > 1",
            "subscribers": 0,
            "resume": "changes",
            "estimates": None,
            "reason": "the journal holds no messages",
        }


async def test_who_shares_the_lane_is_counted() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with (
            running.subscribe("conflation=1s"),
            running.subscribe("conflation=1s,batch_size=7", command="subscribe"),
            running.subscribe("conflation=1s", filter="/a = 1"),
        ):
            shown = await explanation(running, options="conflation=1000ms")
            subscriptions = [hello["subscriptions"][0] for hello in running.hellos]
        assert shown["subscribers"] == 2
        assert shown["lane"] == subscriptions[0]["lane"] == subscriptions[1]["lane"]
        assert shown["options"] == subscriptions[0]["options"]


@rule("option-9")
async def test_what_is_granted_is_granted_to_those_who_ask_for_it() -> None:
    """Explained, and on a stream: neither brings back what was left out of the topic's own."""
    async with running_gateway() as running:
        await running.topic(options="conflation=700ms,oof,pace=key")
        shown = await explanation(running, options="bookmark=now")
        granted = "conflation=700ms,conflation_key=[/k],pace=key,no_defaults"
        assert (shown["command"], shown["options"]) == ("subscribe", granted)
        assert "no_defaults" not in shown["defaults"]
        again = await explanation(running, options=granted, command="subscribe")
        assert (again["options"], again["lane"]) == (granted, shown["lane"])
        assert (again["defaults"], again["warnings"]) == ({}, ())
        async with running.subscribe(granted, command="subscribe"):
            assert running.hellos[-1]["subscriptions"][0]["options"] == granted


async def test_the_key_of_a_topic_without_records_is_no_option() -> None:
    async with running_gateway() as running:
        await running.topic(retain=False)
        every = await explanation(running)
        assert (every["options"], every["warnings"]) == ("conflation=none", ())
        timed = await explanation(running, options="conflation=1s")
        assert timed["options"] == "conflation=1s,conflation_key=[/k],pace=batch"


@pytest.mark.parametrize(
    ("topic", "options", "mode"),
    [
        ("px", "conflation=1s", "changes"),
        ("px", "conflation=auto", "changes"),
        ("px", "", "replay"),
        ("px", "conflation=1s,reduce=[/q:sum]", "replay"),
        ("px", "conflation=1s,conflation_key=[/x]", "replay"),
        ("px", "top_n=3", "snapshot"),
        ("plain", "", "replay"),
    ],
)
async def test_how_it_would_be_resumed(topic: str, options: str, mode: str) -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.topic("plain", key=())
        assert (await explanation(running, topic, options=options))["resume"] == mode


async def test_a_sow_is_no_lane() -> None:
    async with running_gateway() as running:
        await running.topic()
        shown = await explanation(running, options="conflation=1s", command="sow")
        assert (shown["lane"], shown["subscribers"], shown["resume"]) == (None, 0, None)
        assert shown["warnings"] == ("a sow is one snapshot, so nothing of it is conflated",)
        assert (shown["estimates"], shown["reason"]) == (None, "a sow is sent once")


async def test_estimates_are_of_what_was_published() -> None:
    """A burst is one row for each key and interval, however many messages it had."""
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": at % 2, "v": at} for at in range(50)])
        shown = await explanation(running, options="conflation=1h")
        assert shown["reason"] is None
        estimates = shown["estimates"]
        assert estimates["messages_per_s"] == pytest.approx(2 / 3_600, abs=0.001)
        assert (estimates["interval"], estimates["journalled"]) == ("1h", 50)


async def test_only_the_newest_messages_are_reckoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "JOURNALLED_MAX", 10)
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": at} for at in range(50)])
        shown = await explanation(running, options="conflation=1h")
        assert shown["estimates"]["journalled"] == 10


async def test_a_projection_is_reckoned_from_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message may cost as much as its whole group."""
    monkeypatch.setattr(explain, "GROUPED_MAX", 7)
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": at, "g": 1} for at in range(50)])
        groups = "conflation=1h,projection=[COUNT(/k) AS /n],grouping=[/g]"
        shown = await explanation(running, options=groups)
        assert shown["estimates"]["journalled"] == 7


async def test_messages_of_one_moment_have_no_rate() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1})
        shown = await explanation(running)
        assert (shown["estimates"], shown["reason"]) == (None, explain.NO_TIME_PASSED)


async def test_a_window_over_too_many_records_is_not_reckoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explain, "RECORDS_MAX", 1)
    async with running_gateway() as running:
        await running.topic()
        await running.publish({"k": 1}, {"k": 2})
        shown = await explanation(running, options="top_n=1,conflation=1s")
        assert (shown["estimates"], shown["reason"]) == (None, explain.TOO_MANY_RECORDS)
        assert (await explanation(running, options="conflation=1s"))["estimates"]
