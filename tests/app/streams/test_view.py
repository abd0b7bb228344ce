"""How sessions are shown: attached, without a reader, ended."""

from __future__ import annotations

from tests.support.rooms import room
from tidegate.app.names import TopicPattern
from tidegate.app.streams.view import answer, session_view, subscription_view
from tidegate.conflation.outputs import CloseReason


async def test_away_there_are_no_figures_and_attached_there_are() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, options="conflation=1h", command="subscribe", filter="/k > 0")
        await here.say({"k": 1})
        [sub] = session_view(session)["subscriptions"]
        assert (sub["matched"], sub["filter"], sub["interval_ms"]) == (0, "/k > 0", 3_600_000)
        reader, _ = here.read(session)
        here.take(reader)
        await here.say({"k": 1}, {"k": 1}, {"k": 2}, {"k": -1})
        shown = session_view(session)
        [sub] = shown["subscriptions"]
        assert (sub["matched"], sub["conflated"], sub["waiting"]) == (3, 1, 2)
        assert sub["filtered"] == 1
        assert session_view(session, whole=False)["subscriptions"] == 1
        reader.consumer.give_up(CloseReason.WRITE_TIMEOUT)
        shown = session_view(session)
        assert (shown["state"], shown["reason"]) == ("attached", "WRITE_TIMEOUT")
        reader.close()
        here.gateway.sessions.close(session)
        shown = session_view(session)
        assert (shown["state"], shown["reason"]) == ("ended", "CLOSED_BY_ADMIN")


async def test_a_query_that_has_told_all_is_not_shown_any_more() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, command="sow")
        reader, _ = here.read(session)
        assert len(session_view(session)["subscriptions"]) == 1
        here.take(reader)
        assert session_view(session)["subscriptions"] == []


async def test_a_pattern_is_shown_with_its_topics_and_their_sums() -> None:
    async with room() as here:
        for topic in ("px.a", "px.b"):
            await here.topic(topic)
        session = here.kept()
        here.ask(session, TopicPattern.parse("px.*"), command="subscribe")
        reader, _ = here.read(session)
        here.take(reader)
        await here.say({"k": 1}, topic="px.a")
        await here.say({"k": 1}, {"k": 2}, topic="px.b")
        shown = subscription_view(session, session.asked["s1"])
        assert (shown["topic"], shown["options"], shown["matched"]) == ("px.*", None, 3)
        assert [(each["topic"], each["matched"]) for each in shown["topics"]] == [
            ("px.a", 1), ("px.b", 2)
        ]  # fmt: skip


async def test_a_pattern_without_topics_is_shown_too() -> None:
    async with room() as here:
        session = here.kept()
        here.ask(session, TopicPattern.parse("px.*"))
        told = answer(session.asked["s1"], ["mind"])
        assert told == {
            "sub": "s1", "topic": "px.*", "options": None, "lane": None, "topics": [],
            "warnings": ["mind"],
        }  # fmt: skip
        here.read(session)
        [sub] = session_view(session)["subscriptions"]
        assert (sub["topic"], sub["command"], sub["matched"]) == ("px.*", None, 0)
