"""A session that travels: it is the same where it arrives, and its reader misses nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.support.rooms import RETRY_MS, Room, room
from tests.support.rules import rule
from tidegate.app.names import TopicPattern
from tidegate.app.streams.auto import AutoInterval
from tidegate.app.streams.session import Session
from tidegate.app.streams.session_transfer import deserialize, serialize
from tidegate.app.streams.view import session_view
from tidegate.conflation.errors import LimitReached
from tidegate.conflation.options.grant import granted
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import CloseReason
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.keys.text.duration import MILLISECOND


def exported(here: Room, session: Session) -> bytes:
    """The session as it travels."""
    here.gateway.sessions.detach(session, RETRY_MS)
    return serialize(session)


def imported(there: Room, transfer: bytes) -> Session:
    return there.gateway.sessions.adopt(partial(deserialize, transfer))


def moved(here: Room, session: Session, there: Room | None = None) -> Session:
    """The session as it arrives, by default where it was."""
    transfer = exported(here, session)
    here.gateway.sessions.release(session)
    return imported(there or here, transfer)


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
            "s1", here.request().changed(Options.parse("pause", is_change=True)), paused=True
        )
        session.asked["s2"].auto = AutoInterval(500 * MILLISECOND)
        session.regrant(session.asked["s2"], "px")
        here.ask(session, TopicPattern.parse("*"), "conflation=1s")
        before = shown(session)
        subscriptions = [dict(asked.topics) for asked in session.asked.values()]
        wishes = [asked.request for asked in session.asked.values()]
        there = moved(here, session)
        assert shown(there) == before
        assert [asked.topics for asked in there.asked.values()] == subscriptions
        assert wishes == [asked.request for asked in there.asked.values()]
        assert here.ask(there) == "s10", "no name is given twice"


@rule("cluster-8")
async def test_a_topic_s_new_defaults_change_nothing_of_what_was_granted() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, "px", "conflation=1s")
        before = session.asked["s1"].topics["px"].subscription
        await here.topic(options="conflation=5s,oof,max_age=10s")
        there = moved(here, session)
        after = there.asked["s1"].topics["px"].subscription
        assert replace(after, defaults=before.defaults) == before
        assert granted(after) == f"{granted(before)},no_defaults"


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
        assert there.cursor is not None
        assert session.cursor.replaced == there.cursor.replaced


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
        transfer = exported(here, session)
        here.gateway.sessions.release(session)
        assert not here.gateway.catalog._listeners
        await here.topic("px.c")
        await here.say({"k": 1}, topic="px.c")
        there = imported(here, transfer)
        assert set(there.asked["s1"].topics) == {"px.a", "px.c"}
        reader, _ = here.read(there, 0)
        assert 's1: {"k":1}' in here.told(reader)
        await here.topic("px.d")
        assert "px.d" in there.asked["s1"].topics


async def test_a_pattern_takes_a_topic_that_was_deleted_and_made_again_on_the_way() -> None:
    async with room() as here:
        await here.topic("px.a")
        session = here.kept()
        here.ask(session, TopicPattern.parse("px.*"))
        here.read(session)
        transfer = exported(here, session)
        here.gateway.sessions.release(session)
        await here.gateway.catalog.delete("px.a")
        await here.topic("px.a")
        await here.say({"k": 1}, topic="px.a")
        there = imported(here, transfer)
        reader, _ = here.read(there, 0)
        told = here.told(reader)
        assert told[:2] == ["unsubscribed s1 REMOVED", "subscribed s1"]
        assert 's1: {"k":1}' in told


async def test_a_reader_that_is_sent_an_end_again_gets_all_of_the_topic_that_came_again() -> None:
    """A request that its client gave up is read late: it has seen less, and is sent the end."""
    async with room() as here:
        await here.topic("px.a")
        session = here.kept()
        here.ask(session, TopicPattern.parse("px.*"))
        reader, _ = here.read(session)
        here.take(reader)
        assert session.cursor is not None
        before = session.cursor.number
        await here.gateway.catalog.delete("px.a")
        await here.topic("px.a")
        await here.say({"k": 1}, topic="px.a")
        assert here.told(reader)[-1] == 's1: {"k":1}'
        seen = session.cursor.number
        late, _ = here.read(session, before)
        here.take(late)
        again, _ = here.read(session, seen)
        told = here.told(again)
        assert told[:2] == ["unsubscribed s1 REMOVED", "subscribed s1"]
        assert 's1: {"k":1}' in told


def names(hello: dict[str, Any]) -> list[tuple[str, str]]:
    return [(entry["sub"], entry["topic"]) for entry in hello["subscriptions"]]


async def evicted(here: Room, target: str | TopicPattern, command: str) -> tuple[Session, int]:
    """A session from which a flood on topic `news` has taken its subscription, and what it saw."""
    await here.topic()
    await here.topic("news.a", conflation="unsubscribe")
    session = here.kept()
    here.ask(session)
    here.ask(session, target, command=command, filter="/k > 0")
    reader, _ = here.read(session)
    here.take(reader)
    await here.say(*[{"k": k} for k in range(1, 5)], topic="news.a")
    assert here.told(reader) == ["unsubscribed s2 BACK_PRESSURE"]
    assert session.cursor is not None
    return session, session.cursor.number


@rule("queue-7")
@pytest.mark.parametrize("target", ["news.a", TopicPattern.parse("news.*")])
async def test_what_was_crowded_out_is_subscribed_again_at_another_gateway(
    target: str | TopicPattern,
) -> None:
    """Diffusion does not keep the unsubscription for a failover."""
    async with room(queue_messages_max=3) as here:
        session, number = await evicted(here, target, "sow_and_subscribe")
        there = moved(here, session)
        reader, hello = here.read(there, number)
        assert names(hello) == [("s1", "px"), ("s2", "news.a")]
        told = here.told(reader)
        assert "resumed s2 snapshot" in told
        assert 's2: {"k":1} {"k":2} {"k":3} {"k":4}' in told
        await here.say({"k": 0}, {"k": 9}, topic="news.a")
        assert here.told(reader) == ['s2: {"k":9}']


async def test_without_a_snapshot_it_goes_on_with_what_comes() -> None:
    async with room(queue_messages_max=3) as here:
        session, number = await evicted(here, "news.a", "subscribe")
        reader, hello = here.read(moved(here, session), number)
        assert names(hello) == [("s1", "px"), ("s2", "news.a")]
        await here.say({"k": 9}, topic="news.a")
        assert here.told(reader)[-2:] == ["resumed s2 replay", 's2: {"k":9}']


@pytest.mark.parametrize("command", ["subscribe", "sow_and_subscribe"])
async def test_who_had_not_seen_its_end_is_told_of_it_only_if_it_ends_again(command: str) -> None:
    async with room(queue_messages_max=3) as here:
        session, number = await evicted(here, "news.a", command)
        there = moved(here, session)
        reader, hello = here.read(there, number - 2)
        is_judged = command == "subscribe"  # it has a place to go on from; else a new snapshot
        assert (("s2", "news.a") in names(hello)) is not is_judged
        assert ("unsubscribed s2 BACK_PRESSURE" in here.told(reader)) is is_judged


async def test_at_the_same_gateway_it_stays_ended() -> None:
    async with room(queue_messages_max=3) as here:
        session, number = await evicted(here, "news.a", "sow_and_subscribe")
        _, hello = here.read(session, number)
        assert names(hello) == [("s1", "px")]


@pytest.mark.parametrize("what", ["subscribed", "unsubscribed", "removed"])
async def test_what_the_client_has_seen_to_itself_does_not_come_again(what: str) -> None:
    async with room(queue_messages_max=3) as here:
        pattern = TopicPattern.parse("news.*")
        target = pattern if what == "unsubscribed" else "news.a"
        session, number = await evicted(here, target, "sow_and_subscribe")
        if what == "subscribed":
            here.ask(session, "news.a")
        elif what == "unsubscribed":
            session.unsubscribe("s2")
        else:
            await here.gateway.catalog.delete("news.a")
        there = moved(here, session)
        _, hello = here.read(there, number)
        assert ("s2", "news.a") not in names(hello)
        assert there.asked.keys() == {"subscribed": {"s1", "s3"}}.get(what, {"s1"})


async def test_it_is_subscribed_again_however_often_the_session_moves() -> None:
    async with room(queue_messages_max=3) as here:
        session, number = await evicted(here, "news.a", "sow_and_subscribe")
        there = moved(here, moved(here, session))
        _, hello = here.read(there, number)
        assert ("s2", "news.a") in names(hello)


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
        transfer = exported(here, session)
        full.kept()
        with pytest.raises(LimitReached):
            imported(full, transfer)


@pytest.mark.parametrize("change", ["cut", "form", "start"])
async def test_what_cannot_be_read_is_refused(change: str) -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session)
        transfer = msgspec.msgpack.decode(exported(here, session))
        if change == "form":
            transfer[0] = 1
        elif change == "start":
            transfer[12][3] = [[5, None, False]]
        else:
            transfer.pop()
        here.gateway.sessions.release(session)
        with pytest.raises(ValueError, match="packed"):
            imported(here, msgspec.msgpack.encode(transfer))
        assert not here.gateway.sessions.movable()
