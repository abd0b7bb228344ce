"""Requested subscriptions: where they begin, what a change keeps, when positions are useless."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.rooms import Room, room
from tests.support.rules import rule
from tidegate.app.names import TopicPattern
from tidegate.app.streams import decisions
from tidegate.app.streams.decisions import decided_in_turns, granted_to
from tidegate.app.streams.subscribe_request import RequestedSubscription
from tidegate.app.streams.subscriptions import SessionSubscription, changed, changes_rows, granted
from tidegate.conflation.errors import BookmarkExpired

CHANGES = [
    ("conflation=1s", {}, "conflation=2s", {}, False),
    ("conflation=1s", {}, "conflation=none", {}, False),
    ("conflation=1s", {}, "conflation=1s,oof", {}, False),
    ("conflation=1s", {}, "conflation=1s", {"filter": "/v = 1"}, True),
    ("conflation=1s", {"command": "subscribe"}, "conflation=1s",
     {"command": "subscribe", "filter": "/v = 1"}, False),
    ("", {}, "select=[-/,+/k]", {}, True),
    ("", {}, "top_n=3", {}, True),
]  # fmt: skip


def decided(here: Room, options: str, **values: str) -> RequestedSubscription:
    return granted_to(here.gateway.sessions.context, "px", here.request(options, **values))


@rule("session-6")
@pytest.mark.parametrize(("options", "values", "later", "later_values", "wanted"), CHANGES)
async def test_other_rows_or_fields_make_an_earlier_place_useless(
    options: str, values: dict[str, str], later: str, later_values: dict[str, str], wanted: bool
) -> None:
    async with room() as here:
        await here.topic()
        before = decided(here, options, **values).subscription
        after = decided(here, later, **later_values).subscription
        assert changes_rows(before, after) is wanted


async def test_a_replay_that_cannot_begin_is_refused_at_once() -> None:
    async with room() as here:
        await here.topic()
        topic = here.gateway.driver.engine.topic("px")
        fails = decided(here, "bookmark=other-1,bookmark_not_found=fail")
        with pytest.raises(BookmarkExpired):
            granted(topic, fails)
        assert granted(topic, decided(here, "bookmark=epoch")).start is None


async def test_a_query_is_over_with_its_mark() -> None:
    async with room() as here:
        await here.topic()
        topic = here.gateway.driver.engine.topic("px")
        query = granted(topic, decided(here, "", command="sow"))
        assert not query.is_over(None)
        assert query.is_over(topic.bookmark(0))
        assert not granted(topic, decided(here, "")).is_over(topic.bookmark(0))


async def test_a_change_without_a_word_about_it_leaves_a_pause() -> None:
    async with room() as here:
        await here.topic()
        before = granted(here.gateway.driver.engine.topic("px"), decided(here, ""))
        other = decided(here, "conflation=1s")
        paused = changed(before, other, paused=True)
        assert paused.subscription.paused
        assert changed(paused, other, paused=None).subscription.paused
        assert not changed(paused, other, paused=False).subscription.paused


def test_a_subscription_that_ends_listens_no_more() -> None:
    ended = list[str]()
    asked = SessionSubscription("s1", TopicPattern.parse("px.*"), None)  # type: ignore[arg-type]  # not looked at
    asked.unlisten = lambda: ended.append("ended")
    assert (asked.by_pattern, asked.text) == (True, "px.*")
    asked.end()
    asked.end()
    assert ended == ["ended"]


@pytest.mark.parametrize("change", ["none", "made", "gone"])
async def test_a_pattern_is_decided_in_turns_by_topics_as_they_are_at_the_end(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "DECIDED_AT_ONCE", 2)
    async with room() as here:
        names = [f"px.{letter}" for letter in "abcdef"]
        for name in names:
            await here.topic(name)
        context, pattern = here.gateway.sessions.context, TopicPattern.parse("px.*")
        deciding = asyncio.create_task(decided_in_turns(context, pattern, here.request()))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not deciding.done()
        if change == "made":
            await here.topic("px.g")
            names.append("px.g")
        elif change == "gone":
            await here.gateway.catalog.delete("px.f")
            names.remove("px.f")
        assert list(await deciding) == names
