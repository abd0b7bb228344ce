"""A session that travels: it is the same where it arrives, and its reader misses nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from app.auto import AutoInterval
from app.sessions.session import Session
from app.sessions.view import session_view
from app.topic_pattern import TopicPattern
from conflation.duration import MILLISECOND
from conflation.errors import LimitReached
from conflation.language.options import Options
from conflation.outputs import CloseReason
from conflation.sessions.session import QueueLimits
from tests.support.rooms import RETRY_MS, Room, room


def moved(here: Room, session: Session, there: Room | None = None) -> Session:
    """The session as it arrives, by default where it was."""
    luggage = here.gateway.sessions.pack(session, RETRY_MS)
    here.gateway.sessions.release(session)
    return (there or here).gateway.sessions.adopt(luggage)


def shown(session: Session) -> dict[str, Any]:
    return session_view(session)


WISHES = [
    ("conflation=1s,pace=key,oof", {"filter": "/k > 0", "order_by": "/k DESC"}),
    ("conflation=auto,min=100ms,progress", {"format": "envelope"}),
    ("top_n=3,oof", {"order_by": "/k"}),
    ("projection=[SUM(/v) AS /t,/k],grouping=[/k],conflation=1s", {}),
    ("bookmark=epoch,rate=2x,rate_max_gap=1s", {"command": "subscribe"}),
    ("select=[-/,+/k],conflation=2s,no_empties", {"command": "sow_and_delta_subscribe"}),
    ("", {"command": "sow"}),
    ("timestamp,receipt", {"command": "subscribe"}),
]


async def test_everything_that_was_asked_for_arrives() -> None:
    async with room() as here:
        await here.topic(options="conflation=5s")
        session = here.kept(limits=QueueLimits(7, 4_096, 80, 20), conflated=False)
        for options, values in WISHES:
            here.ask(session, "px", options, **values)
        session.change(
            "s1", here.wish().changed(Options.parse("pause", is_change=True)), paused=True
        )
        session.asked["s2"].auto = AutoInterval(500 * MILLISECOND)
        session.regrant(session.asked["s2"], "px")
        here.ask(session, TopicPattern.parse("*"), "conflation=1s")
        before = shown(session)
        subscriptions = [dict(asked.topics) for asked in session.asked.values()]
        wishes = [asked.wish for asked in session.asked.values()]
        there = moved(here, session)
        assert shown(there) == before
        assert [asked.topics for asked in there.asked.values()] == subscriptions
        assert wishes == [asked.wish for asked in there.asked.values()]
        assert here.ask(there) == "s10", "no name is given twice"


async def test_a_topic_s_new_defaults_change_nothing_of_what_was_granted() -> None:
    """Rule 473."""
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, "px", "conflation=1s")
        before = session.asked["s1"].topics["px"].subscription
        await here.topic(options="conflation=5s,oof,max_age=10s")
        there = moved(here, session)
        assert there.asked["s1"].topics["px"].subscription == before


async def test_a_reader_goes_on_behind_its_last_number() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, "px", command="subscribe")
        reader, _ = here.read(session)
        await here.say({"k": 1}, {"k": 2})
        here.take(reader)
        assert session.cursor is not None
        number = session.cursor.number
        await here.say({"k": 3})
        there = moved(here, session)
        assert here.told(reader) == ["goodbye REPLACED"]
        back, hello = here.read(there, number)
        assert hello["session"] == session.id
        assert here.told(back) == ["resumed s1 replay", 's1: {"k":3}']
        assert session.replaced == there.replaced


async def test_what_ended_untold_is_told_where_it_arrives() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session)
        here.ask(session)
        session.unsubscribe("s1")
        there = moved(here, session)
        reader, _ = here.read(there, 0)
        assert "unsubscribed s1 REQUESTED" in here.told(reader)


async def test_a_topic_that_is_not_there_has_been_removed() -> None:
    async with room() as here, room() as elsewhere:
        await here.topic()
        session = here.kept()
        here.ask(session)
        there = moved(here, session, elsewhere)
        assert session.id in elsewhere.gateway.sessions
        assert session.id not in here.gateway.sessions
        reader, _ = elsewhere.read(there, 0)
        assert elsewhere.told(reader) == ["unsubscribed s1 REMOVED"]


async def test_a_pattern_takes_what_was_made_on_the_way_and_not_what_it_had_let_go() -> None:
    async with room() as here:
        await here.topic("px.a")
        await here.topic("px.b")
        session = here.kept()
        here.ask(session, TopicPattern.parse("px.*"), command="subscribe")
        session.drop("s1", "px.b")
        luggage = here.gateway.sessions.pack(session, RETRY_MS)
        here.gateway.sessions.release(session)
        assert not here.gateway.catalog._listeners
        await here.topic("px.c")
        await here.say({"k": 1}, topic="px.c")
        there = here.gateway.sessions.adopt(luggage)
        assert set(there.asked["s1"].topics) == {"px.a", "px.c"}
        reader, _ = here.read(there, 0)
        assert 's1: {"k":1}' in here.told(reader)
        await here.topic("px.d")
        assert "px.d" in there.asked["s1"].topics


async def test_one_that_has_ended_tells_its_reason_there() -> None:
    async with room() as here:
        session = here.kept()
        here.gateway.sessions.close(session)
        there = moved(here, session)
        assert (there.has_ended, there.closed) == (True, CloseReason.CLOSED_BY_ADMIN)
        assert here.gateway.sessions.listed("", 10) == []


async def test_who_is_full_takes_none_in() -> None:
    async with room() as here, room(sessions_max=1) as full:
        session = here.kept()
        luggage = here.gateway.sessions.pack(session, RETRY_MS)
        full.kept()
        with pytest.raises(LimitReached):
            full.gateway.sessions.adopt(luggage)


@pytest.mark.parametrize("change", ["cut", "form", "start"])
async def test_what_cannot_be_read_is_refused(change: str) -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session)
        luggage = msgspec.msgpack.decode(here.gateway.sessions.pack(session, RETRY_MS))
        if change == "form":
            luggage[0] = 2
        elif change == "start":
            luggage[12][3] = [[5, None, False]]
        else:
            luggage.pop()
        here.gateway.sessions.release(session)
        with pytest.raises(ValueError, match="packed"):
            here.gateway.sessions.adopt(msgspec.msgpack.encode(luggage))
        assert not here.gateway.sessions.kept()
