"""A session without a socket: its subscriptions, with or without a reader, and topic changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rooms import room
from tests.support.rules import rule
from tidegate.app.names import TopicPattern
from tidegate.app.refusals import Refused
from tidegate.app.streams.decisions import SessionContext, decide_target, granted_to
from tidegate.app.streams.session import State
from tidegate.app.streams.subscribe_request import UNKNOWN
from tidegate.app.streams.subscriptions import left_out
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.outputs import CloseReason


@rule("session-1")
async def test_a_subscription_is_granted_at_once_and_begins_where_the_topic_is() -> None:
    async with room() as here:
        await here.topic()
        await here.say({"k": 1})
        session = here.kept()
        for options, command in (("conflation=1s", ""), ("", "subscribe"), ("bookmark=epoch", "")):
            here.ask(session, "px", options, **({"command": command} if command else {}))
        starts = [asked.topics["px"].start for asked in session.asked.values()]
        head = here.gateway.driver.engine.topic("px").bookmark(1)
        assert starts == [None, head, None], "with a snapshot, behind the head, with a replay"
        assert session.state is State.AWAY


async def test_what_does_not_fit_one_topic_of_a_pattern_is_refused_for_all() -> None:
    async with room() as here:
        await here.topic("px.a")
        await here.topic("px.b", key=())
        session = here.kept()
        with pytest.raises(OptionsInvalid):
            here.ask(session, TopicPattern.parse("px.*"), "conflation=1s")
        assert session.asked == {}
        assert not here.gateway.catalog._listeners
        assert here.ask(session, "px.a") == "s1", "no name was given away"


@rule("session-8")
async def test_names_are_never_used_twice() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        assert [here.ask(session), here.ask(session)] == ["s1", "s2"]
        session.unsubscribe("s2")
        assert here.ask(session) == "s3"
        with pytest.raises(Refused) as refused:
            session.unsubscribe("s2")
        assert refused.value.code == "subscription-unknown"


async def test_a_topic_made_later_joins_a_pattern_and_one_that_does_not_fit_is_told_of() -> None:
    async with room() as here:
        session = here.kept()
        here.ask(session, TopicPattern.parse("px.*"), "conflation=1s")
        reader, _ = here.read(session)
        await here.topic("px.a")
        await here.topic("px.b", key=())
        begun = ["subscribed s1", "group_begin s1", "group_end s1"]
        assert here.told(reader) == ["refused s1", *begun]
        assert list(session.asked["s1"].topics) == ["px.a"]


async def test_a_topic_with_another_key_is_another_topic() -> None:
    async with room() as here:
        await here.topic("px.a")
        session = here.kept()
        here.ask(session, TopicPattern.parse("px.*"), command="subscribe")
        reader, _ = here.read(session)
        here.take(reader)
        before = session.asked["s1"].topics["px.a"].epoch
        await here.topic("px.a", key=("/other",))
        assert here.told(reader) == ["unsubscribed s1 REMOVED", "subscribed s1"]
        assert session.asked["s1"].topics["px.a"].epoch != before
        assert ("s1", "px.a") in reader.styles
        await here.say({"other": 1}, topic="px.a")
        assert here.told(reader) == ['s1: {"other":1}']


async def test_nobody_listens_for_a_session_that_has_ended() -> None:
    async with room() as here:
        session = here.kept()
        here.ask(session, TopicPattern.parse("px.*"))
        assert here.gateway.catalog._listeners
        here.gateway.sessions.close(session)
        assert not here.gateway.catalog._listeners
        assert session.asked == {}


async def test_a_session_that_was_told_goodbye_takes_subscriptions_for_its_return() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        reader, _ = here.read(session)
        reader.consumer.give_up(CloseReason.QUEUE_LIMIT)
        here.ask(session)
        assert here.told(reader) == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]
        reader.close()
        _, hello = here.read(session)
        assert [each["sub"] for each in hello["subscriptions"]] == ["s1"]


async def test_each_topic_of_a_pattern_is_a_subscription() -> None:
    async with room(session_subscriptions_max=3) as here:
        session = here.kept()
        here.ask(session, TopicPattern.parse(">"))
        reader, _ = here.read(session)
        for number in range(4):
            await here.topic(f"px.{number}")
        assert here.told(reader)[0] == "refused s1"
        assert len(session.asked["s1"].topics) == 3


@rule("session-8")
async def test_a_pattern_begins_with_as_many_topics_as_there_is_room_for() -> None:
    async with room(session_subscriptions_max=4) as here:
        for number in range(6):
            await here.topic(f"px.{number}")
        session = here.kept()
        reader, _ = here.read(session)
        here.ask(session, "px.5")
        name = here.ask(session, TopicPattern.parse("px.*"))
        assert list(session.asked[name].topics) == ["px.0", "px.1", "px.2"]
        assert f"refused {name}" in here.told(reader)
        with pytest.raises(Refused, match="limit-reached"):
            here.ask(session, TopicPattern.parse("px.*"))


async def test_what_a_pattern_leaves_out_is_named_and_not_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To decide ten thousand of them held everybody up for half a second."""
    async with room(session_subscriptions_max=3) as here:
        for number in range(5):
            await here.topic(f"px.{number}")
        decided: list[str] = []

        def grant(context: SessionContext, topic: str, *of: Any, **named: Any) -> Any:
            decided.append(topic)
            return granted_to(context, topic, *of, **named)

        monkeypatch.setattr("tidegate.app.streams.decisions.granted_to", grant)
        pattern, wanted = TopicPattern.parse("px.*"), here.request()
        places = {"px.3": UNKNOWN, "px.1": UNKNOWN}
        decisions = decide_target(here.gateway.sessions.context, pattern, wanted, places)
        assert decided == [*decisions] == ["px.1", "px.3", "px.0"]
        _, warnings = here.kept().subscribe(pattern, wanted, decisions)
        assert warnings[-1].endswith("Left out: px.2, px.4.")
    names = [f"t{number}" for number in range(140)]
    assert left_out(256, names).detail.endswith(f", {names[99]} and 40 more.")


async def test_a_query_makes_room_once_its_reader_has_it_all() -> None:
    async with room(session_subscriptions_max=3) as here:
        await here.topic()
        session = here.kept()
        reader, _ = here.read(session)
        for _ in range(3):
            here.ask(session, command="sow")
        with pytest.raises(Refused, match="limit-reached"):
            here.ask(session)
        here.take(reader)
        reader.confirm()
        assert here.ask(session) == "s4"
        assert len(session.asked) == 1
