"""A reader: ids, ends, what its peer has acknowledged; and a flush is encoded once for all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.rooms import PLENTY, Room, number_in, room
from tests.support.rules import rule
from tidegate.app.streams.connection import Connection
from tidegate.app.streams.encoding import EnvelopeWriter
from tidegate.app.streams.fanout import SMALL_BUFFERS_BYTES
from tidegate.app.streams.notices import WriteContext, late_events
from tidegate.app.streams.reader import Reader
from tidegate.app.streams.session import Session
from tidegate.conflation.frame import Frame
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import CloseReason, Rows, Unsubscribed
from tidegate.keys.text.duration import SECOND


def peer(*, unsent_bytes: int = 0, is_closing: bool = False) -> Connection:
    """A connection whose peer has acknowledged all but so much."""
    return cast("Connection", SimpleNamespace(unsent_bytes=unsent_bytes, is_closing=is_closing))


async def test_ids_are_the_sessions_own_and_count() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, command="subscribe")
        here.ask(session, options="conflation=1h")
        reader, hello = here.read(session)
        ids = [hello["id"], *(event.id for event in here.take(reader))]
        await here.say({"k": 1})
        ids += [event.id for event in here.take(reader)]
        numbers = [int(each.partition("~")[0].rpartition("-")[2]) for each in ids]
        assert all(each.startswith(session.id + "-") for each in ids)
        assert numbers == sorted(numbers)
        assert len(set(numbers)) == 4, "hello, resumed, group_end, a row; group_begin has none"


async def test_a_flush_is_encoded_once_however_many_sessions_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forty sessions of three subscriptions: three encodings, the bodies one object each."""
    encoded = list[int]()
    batch = EnvelopeWriter.batch

    def counted(writer: EnvelopeWriter, frames: tuple[Frame, ...], *, has_more: bool) -> bytes:
        encoded.append(len(frames))
        return batch(writer, frames, has_more=has_more)

    monkeypatch.setattr(EnvelopeWriter, "batch", counted)
    async with room() as here:
        for topic in ("a", "b", "c"):
            await here.topic(topic)
        readers = [_follower(here) for _ in range(40)]
        for reader in readers:
            here.take(reader)
        for topic in ("a", "b", "c"):
            await here.say({"k": 1}, {"k": 2}, topic=topic)
        here.gateway.driver.engine.advance(here.gateway.driver.now())
        bodies = set[int]()
        texts = set[bytes]()
        for reader in readers:
            outputs = reader.consumer.take(1 << 20)
            text = reader.encoded(outputs, 1)
            rows = [output for output in outputs if isinstance(output, Rows)]
            bodies |= {id(body) for each in rows for body in each.batch.encoded.values()}
            texts.add(text.replace(reader.consumer.session.encode(), b""))
        assert encoded == [2, 2, 2]
        assert (len(bodies), len(texts)) == (3, 1)


def attached(here: Room, session: Session) -> Reader:
    """A reader that has taken what it begins with."""
    reader, _ = here.read(session)
    here.take(reader)
    return reader


def _follower(here: Room) -> Reader:
    session = here.kept()
    for topic in ("a", "b", "c"):
        here.ask(session, topic, command="subscribe")
    return here.read(session)[0]


async def test_what_its_peer_has_not_acknowledged_is_noted_and_not_confirmed() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, command="subscribe")
        reader = attached(here, session)
        cursor = session.cursor
        assert cursor is not None
        begun_at = cursor.confirmed
        reader.connection = peer(unsent_bytes=SMALL_BUFFERS_BYTES + 5)
        reader.note_unsent()
        reader.confirm()
        engine = here.gateway.driver.engine
        assert engine.session(session.id).unsent_bytes == 5
        assert cursor.confirmed == begun_at
        reader.connection = peer()
        reader.note_unsent()
        reader.confirm()
        assert engine.session(session.id).unsent_bytes == 0
        assert cursor.confirmed == cursor.number > begun_at


async def test_a_connection_that_is_gone_has_acknowledged_nothing() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, command="subscribe")
        reader = attached(here, session)
        reader.connection = peer(is_closing=True)
        reader.confirm()
        assert session.cursor is not None
        assert session.cursor.confirmed < session.cursor.number


@rule("session-5")
async def test_ends_that_were_not_taken_are_told_to_the_next_reader() -> None:
    async with room() as here:
        await here.topic("px")
        await here.topic("fx")
        session = here.kept()
        for topic in ("px", "fx"):
            here.ask(session, topic, command="subscribe")
        reader = attached(here, session)
        session.unsubscribe("s1")
        await here.gateway.catalog.delete("fx")
        reader.close()
        reader, hello = here.read(session)
        assert hello["subscriptions"] == []
        assert here.told(reader) == ["unsubscribed s1 REQUESTED", "unsubscribed s2 REMOVED"]


@rule("session-10")
async def test_a_reader_that_was_sent_away_has_no_say_any_more() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, command="subscribe")
        old, _ = here.read(session)
        new, _ = here.read(session)
        assert here.told(old) == ["goodbye REPLACED"]
        old.consumer.give_up(CloseReason.WRITE_TIMEOUT)
        old.note_unsent()
        old.close()
        assert session.reader is new
        assert session.closed is None
        await here.say({"k": 1})
        assert here.told(new)[-1] == 's1: {"k":1}'


@rule("session-10")
async def test_a_reader_that_took_over_has_no_id_that_is_sent_away() -> None:
    """Its place moved nothing, so its first id could have been that of the other's goodbye."""
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, command="subscribe")
        assert session.cursor is not None
        _, hello = here.read(session)
        for _ in range(3):
            old = session.reader
            _, hello = here.read(session, number_in(hello))
            assert old is not None
            assert here.told(old) == ["goodbye REPLACED"]
            assert number_in(hello) not in session.cursor.replaced
        assert len(session.cursor.replaced) == 3


@rule("queue-10")
async def test_what_was_queued_goes_before_the_end_is_told() -> None:
    """The stream may still look at the rows once the end is encoded."""
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, command="subscribe", options="conflation=none")
        reader = attached(here, session)
        await here.say({"k": 1})
        session.unsubscribe("s1")
        outputs = reader.consumer.take(PLENTY)
        reader.encoded(outputs, 1)
        assert [type(output).__name__ for output in outputs] == ["Rows", "Unsubscribed"]
        assert late_events(outputs, reader.styles, WriteContext(0, False, False, {})) == []
        reader.encoded([], 1)
        assert reader.styles == {}


async def test_what_is_still_to_be_written_is_not_confirmed() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, command="subscribe")
        reader = attached(here, session)
        session.unsubscribe("s1")
        here.take(reader)
        session.send_end(Unsubscribed("s2", "px", "REQUESTED"))
        reader.confirm()
        assert session.cursor is not None
        assert session.cursor.confirmed == session.cursor.number - 1


@rule("session-6")
async def test_while_a_subscriber_turns_to_other_fields_no_place_is_noted() -> None:
    """Rows of the old lane still come; their place is none for the new fields."""
    now = [0]
    async with room(clock=lambda: now[0]) as here:
        await here.topic()
        session = here.kept()
        here.ask(session, options="conflation=1s")
        reader = attached(here, session)
        await here.say({"k": 1, "v": 1})
        now[0] += 2 * SECOND
        here.gateway.driver.engine.advance(now[0])
        await here.say({"k": 2, "v": 2})
        change = Options.parse("select=[-/,+/k]", is_change=True)
        session.change("s1", session.asked["s1"].request.changed(change), paused=None)
        assert here.told(reader) == ['s1: {"k":1,"v":1}']
        assert session.cursor is not None
        assert session.cursor.marks(session.cursor.number) == {("s1", "px"): None}
        now[0] += 2 * SECOND
        assert here.told(reader)[-1] == 's1: {"k":1} {"k":2}'
        assert session.cursor.marks(session.cursor.number) != {("s1", "px"): None}
