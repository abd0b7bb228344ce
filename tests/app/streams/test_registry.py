"""The registry: sessions that wait, that expire, that have ended; and what is published of them."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.gateways import eventually, running_gateway
from tests.support.rooms import Room, room
from tests.support.rules import rule
from tidegate.app.refusals import Refused
from tidegate.app.streams.session import State
from tidegate.app.topics.system_topics import SESSIONS
from tidegate.conflation.errors import LimitReached
from tidegate.conflation.outputs import CloseReason


def events(here: Room) -> list[tuple[str, str | None]]:
    """What was published of sessions, in that order."""
    journal = here.gateway.driver.engine.topic(SESSIONS).journal
    told = [json.loads(frame.payload) for frame in journal.after(0) if not frame.removed]
    return [(each["event"], each["reason"]) for each in told]


def records(here: Room) -> int:
    sow = here.gateway.driver.engine.topic(SESSIONS).sow
    assert sow is not None
    return len(sow.board)


@rule("session-7", "session-9")
async def test_a_session_waits_so_long_for_a_reader_and_no_longer() -> None:
    async with room(session_retention="50ms") as here:
        session = here.kept()
        reader, _ = here.read(session)
        await asyncio.sleep(0.1)
        assert here.gateway.sessions.get(session.id) is session, "it has its reader"
        reader.close()
        assert session.state is State.AWAY
        await eventually(lambda: session.has_ended, "nobody comes")
        with pytest.raises(Refused, match="session-unknown"):
            here.gateway.sessions.get(session.id)
        await eventually(lambda: records(here) == 0, "its record goes")
        assert events(here) == [
            ("opened", None), ("attached", None), ("lost", None), ("closed", None)
        ]  # fmt: skip


async def test_the_session_of_a_plain_stream_is_attached_from_its_start() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe():
            while not (told := await running.sow("tidegate.sessions")):
                pass
        assert [(it["event"], it["state"]) for it in told] == [("opened", "attached")]


async def test_why_a_session_ended_is_known_for_a_while() -> None:
    async with room(session_retention="50ms") as here:
        session = here.gateway.sessions.open()
        here.gateway.sessions.close(session)
        found = here.gateway.sessions.get(session.id)
        assert (found.state, found.closed) == (State.ENDED, CloseReason.CLOSED_BY_ADMIN)
        here.gateway.sessions.close(session)
        told = [("opened", None), ("closed", "CLOSED_BY_ADMIN")]
        await eventually(lambda: events(here) == told, "it is published")
        await eventually(lambda: records(here) == 0, "its record goes")
        assert events(here) == told


@rule("session-9")
async def test_who_is_sent_away_may_come_back_unless_the_reason_is_final() -> None:
    async with room() as here:
        for reason, state in (
            (CloseReason.WRITE_TIMEOUT, State.AWAY),
            (CloseReason.QUEUE_LIMIT, State.AWAY),
            (CloseReason.UNSUBSCRIBED, State.ENDED),
        ):
            session = here.kept()
            reader, _ = here.read(session)
            reader.consumer.give_up(reason)
            reader.close()
            assert (session.state, session.closed) == (state, reason)


async def test_readers_that_come_back_are_told_of_as_such() -> None:
    async with room() as here:
        session = here.kept()
        for _ in range(2):
            reader, _ = here.read(session)
            reader.close()
        await eventually(lambda: len(events(here)) == 5, "all is published")
        assert [name for name, _ in events(here)] == [
            "opened", "attached", "lost", "resumed", "lost"
        ]  # fmt: skip


async def test_queues_that_cross_a_threshold_are_told_of() -> None:
    async with room(queue_messages_max=10) as here:
        await here.topic(conflation="off")
        session = here.kept()
        here.ask(session, command="subscribe")
        reader, _ = here.read(session)
        here.take(reader)
        for _ in range(9):
            await here.say({"k": 1})
        here.take(reader)
        await eventually(lambda: len(events(here)) == 4, "all is published")
        assert [name for name, _ in events(here)] == [
            "opened", "attached", "queue_upper", "queue_lower"
        ]  # fmt: skip


async def test_the_sessions_that_are_read_and_waited_for_count_and_the_ended_do_not() -> None:
    async with room(sessions_max=2) as here:
        sessions = here.gateway.sessions
        one, other = here.kept(), here.kept()
        with pytest.raises(LimitReached):
            here.kept()
        sessions.close(one)
        here.kept()
        sessions.close(other)
        assert len(sessions.listed("", 10)) == 1
        for _ in range(3):
            sessions.close(here.kept())
        assert len(sessions._ended) == 2, "of the ended the oldest are forgotten"


async def test_what_was_opened_in_vain_is_not_known() -> None:
    async with room() as here:
        session = here.kept()
        reader, _ = here.read(session)
        here.gateway.sessions.discard(session)
        reader.close()
        with pytest.raises(Refused, match="session-unknown"):
            here.gateway.sessions.get(session.id)


async def test_pages_begin_behind_an_id() -> None:
    async with room() as here:
        ids = sorted(here.kept().id for _ in range(4))
        listed = here.gateway.sessions.listed
        assert [each.id for each in listed("", 3)] == ids[:3]
        assert [each.id for each in listed(ids[2], 3)] == ids[3:]
