"""A reader of many subscriptions is attached in steps, whatever happens between them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.rooms import Room, room
from tests.support.rules import rule
from tidegate.app.names import TopicPattern
from tidegate.app.streams.attach import ATTACHED_AT_ONCE, Attachment, attach_existing
from tidegate.app.streams.session import Session
from tidegate.clients.sse import Parser
from tidegate.conflation.outputs import CloseReason

MANY = 4 * ATTACHED_AT_ONCE
LAST = f"s{MANY}"


async def asked(here: Room, options: str = "conflation=1h") -> Session:
    await here.topic()
    session = here.kept()
    for _ in range(MANY):
        here.ask(session, options=options)
    return session


def subscribers(here: Room, session: Session) -> int:
    return len(here.gateway.driver.engine.session(session.id).subscribers)


def named(attachment: Attachment) -> list[str]:
    [event] = Parser().feed(attachment.hello)
    document: dict[str, Any] = json.loads(event.text)
    return [each["sub"] for each in document["subscriptions"]]


async def begun(here: Room, session: Session) -> tuple[Attachment, asyncio.Task[None]]:
    """An attachment after some of its steps."""
    attachment = attach_existing(session, None, 1)
    task = asyncio.create_task(attachment.in_turns())
    while not subscribers(here, session):
        await asyncio.sleep(0)
    assert subscribers(here, session) < MANY
    return attachment, task


async def test_a_step_attaches_a_few_subscriptions() -> None:
    async with room() as here:
        session = await asked(here)
        attachment = attach_existing(session, None, 1)
        task, seen = asyncio.create_task(attachment.in_turns()), [subscribers(here, session)]
        while not task.done():
            await asyncio.sleep(0)
            seen.append(subscribers(here, session))
        steps = [after - before for before, after in zip([0, *seen], seen, strict=False)]
        assert max(steps) == ATTACHED_AT_ONCE
        assert seen[-1] == MANY
        assert named(attachment) == [f"s{number + 1}" for number in range(MANY)]
        assert session.finish_attaching is None


async def test_a_few_subscriptions_are_attached_at_once() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        for _ in range(ATTACHED_AT_ONCE):
            here.ask(session)
        assert len(named(attach_existing(session, None, 1))) == ATTACHED_AT_ONCE


async def test_a_message_between_two_steps_is_sent_once() -> None:
    async with room() as here:
        session = await asked(here, "conflation=none")
        attachment, task = await begun(here, session)
        await here.say({"k": 1})
        await task
        told = here.told(attachment.reader)
    rows = sorted(each for each in told if '{"k":1}' in each)
    assert rows == sorted(f's{number + 1}: {{"k":1}}' for number in range(MANY))


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_change_finds_all_subscriptions(is_over: bool) -> None:
    async with room() as here:
        session = await asked(here)
        attachment, task = await begun(here, session)
        if is_over:
            session.unsubscribe(LAST)
        else:
            session.change(LAST, session.asked[LAST].request, paused=True)
        assert subscribers(here, session) == MANY - is_over
        await task
        assert len(named(attachment)) == MANY
        told = here.told(attachment.reader)
    assert (f"unsubscribed {LAST} REQUESTED" in told) is is_over


@pytest.mark.parametrize("is_made_anew", [False, True])
async def test_a_topic_that_is_deleted_meanwhile_is_gone(is_made_anew: bool) -> None:
    async with room() as here:
        session = await asked(here)
        attachment, task = await begun(here, session)
        await here.gateway.catalog.delete("px")
        if is_made_anew:
            await here.topic()
        await task
        told = here.told(attachment.reader)
    ended = [each for each in told if each.startswith("unsubscribed")]
    assert sorted(ended) == sorted(f"unsubscribed s{number + 1} REMOVED" for number in range(MANY))


@rule("session-10")
async def test_another_reader_takes_over_between_two_steps() -> None:
    async with room() as here:
        session = await asked(here)
        earlier, task = await begun(here, session)
        later = attach_existing(session, None, 1)
        await asyncio.gather(task, later.in_turns())
        assert 0 < len(named(earlier)) < MANY
        assert here.told(earlier.reader) == ["goodbye REPLACED"]
        assert len(named(later)) == subscribers(here, session) == MANY
        assert session.reader is later.reader


async def test_a_session_that_is_closed_between_two_steps_says_goodbye() -> None:
    async with room() as here:
        session = await asked(here)
        attachment, task = await begun(here, session)
        here.gateway.sessions.close(session)
        await task
        assert attachment.hello
        assert here.told(attachment.reader) == ["goodbye CLOSED_BY_ADMIN"]


async def test_a_shutdown_between_two_steps_says_goodbye() -> None:
    async with room() as here:
        session = await asked(here)
        attachment, task = await begun(here, session)
        here.gateway.driver.close_all(CloseReason.SHUTDOWN)
        await task
        assert attachment.hello
        assert here.told(attachment.reader) == ["goodbye SHUTDOWN"]


async def test_a_reader_that_is_cancelled_between_two_steps_has_left() -> None:
    async with room() as here:
        session = await asked(here)
        _, task = await begun(here, session)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.reader is None
        assert session.finish_attaching is None
        assert not here.gateway.driver.engine.stats().sessions
        reader, hello = here.read(session)
        assert len(hello["subscriptions"]) == MANY
        assert session.reader is reader


async def test_a_reader_that_is_replaced_has_no_id_of_the_next() -> None:
    """It has nothing of what the next one has, and would continue after it."""
    async with room() as here:
        session = await asked(here)
        earlier = attach_existing(session, None, 1)
        later = attach_existing(session, None, 1)
        await asyncio.gather(earlier.in_turns(), later.in_turns())
        [early], [late] = Parser().feed(earlier.hello), Parser().feed(later.hello)
        assert not early.id
        assert late.id
        assert here.take(earlier.reader)[-1].id


async def test_a_session_with_a_pattern_is_attached_at_once() -> None:
    """A topic that is recreated between two steps would be subscribed to twice."""
    async with room() as here:
        for number in range(MANY):
            await here.topic(f"p.{number:02}")
        session = here.kept()
        here.ask(session, TopicPattern.parse("p.>"), "conflation=1h")
        attachment = attach_existing(session, None, 1)
        assert attachment.hello
        assert subscribers(here, session) == MANY
