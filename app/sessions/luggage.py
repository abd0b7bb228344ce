"""Luggage: a session as it travels to another gateway, which goes on with it under its id.

A session without a reader is what was asked for, what was granted, and a cursor. All of it is
texts and numbers, and the same options are parsed again where it arrives.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from app.auto import AutoInterval, at_interval
from app.premises import Premises
from app.problems import Problem
from app.sessions.asked import Asked, Granted, declined
from app.sessions.cursor import Cursor, PackedCursor
from app.sessions.session import Keeper, Session
from app.sse import Format
from app.topic_pattern import TopicPattern
from app.wish import Wish, granted_again
from conflation.bookmark import Bookmark
from conflation.errors import EngineError
from conflation.language.normal import granted
from conflation.language.options import Options
from conflation.language.spelling import spelled
from conflation.outputs import CloseReason, Unsubscribed
from conflation.sessions.session import QueueLimits
from conflation.subscription import Command
from keys.errors import KeysError

FORM = 1
"""Of what is packed; a gateway of another version that packs otherwise is told by it."""


class PackedWish(msgspec.Struct, frozen=True, array_like=True):
    """A wish as texts."""

    options: str
    earlier: str
    is_change: bool
    filter_text: str
    order_text: str
    command: str | None
    form: Format | None
    many: bool


class PackedGrant(msgspec.Struct, frozen=True, array_like=True):
    """What a topic granted, as options that ask for exactly this."""

    topic: str
    epoch: str
    start: str | None
    options: str
    command: Command
    form: Format
    counted: bool
    paused: bool


class PackedAsked(msgspec.Struct, frozen=True, array_like=True):
    """A subscription. `declined`: topics, with their epochs, that its pattern takes and it has not.

    `interval_ns` and `decisions` are those of an interval that follows the connection.
    """

    name: str
    target: str
    wish: PackedWish
    topics: list[PackedGrant]
    declined: dict[str, str]
    interval_ns: int | None
    decisions: list[dict[str, object]]


class Luggage(msgspec.Struct, frozen=True, array_like=True):
    """A session; fields as those of `Session`."""

    form: int
    id: str
    opened_ms: int
    limits: tuple[int, int, int, int]
    conflated: bool
    lasts: bool
    pattern: str
    closed: CloseReason | None
    has_ended: bool
    was_read: bool
    named: int
    asked: list[PackedAsked]
    cursor: PackedCursor
    endings: list[tuple[int, str, str, str]]
    replaced: list[int]


_READER = msgspec.msgpack.Decoder(Luggage)


def packed(session: Session) -> bytes:
    """A session that is kept and that nobody reads, as it stands."""
    assert session.cursor is not None
    limits = session.limits
    luggage = Luggage(
        form=FORM,
        id=session.id,
        opened_ms=session.opened_ms,
        limits=(
            limits.messages_max, limits.bytes_max, limits.upper_percent, limits.lower_percent
        ),
        conflated=session.conflated,
        lasts=session.lasts,
        pattern=session.pattern,
        closed=session.closed,
        has_ended=session.has_ended,
        was_read=session.was_read,
        named=session.named,
        asked=[_packed_asked(session.gateway, asked) for asked in session.asked.values()],
        cursor=session.cursor.packed(),
        endings=[(at, told.name, told.topic, told.reason) for at, told in session.endings],
        replaced=list(session.replaced),
    )  # fmt: skip
    return msgspec.msgpack.encode(luggage)


def unpacked(text: bytes, gateway: Premises, keeper: Keeper) -> Session:
    """The session, at the gateway where it has arrived; topics that it cannot have any more end.

    Raises:
        ValueError: it is none of ours, or packed by another version.
    """
    try:
        luggage = _READER.decode(text)
        cursor = Cursor.unpacked(luggage.id, luggage.cursor)
    except (msgspec.MsgspecError, EngineError, LookupError) as error:
        raise ValueError("this is no session that was packed here") from error
    if luggage.form != FORM:
        raise ValueError("the session was packed by another version")
    session = Session(
        gateway, keeper, luggage.id,
        limits=QueueLimits(*luggage.limits), conflated=luggage.conflated, lasts=luggage.lasts,
    )  # fmt: skip
    session.cursor = cursor
    session.opened_ms, session.pattern = luggage.opened_ms, luggage.pattern
    session.closed, session.was_read = luggage.closed, luggage.was_read
    session.has_ended, session.named = luggage.has_ended, luggage.named
    session.endings = [(at, Unsubscribed(*told)) for at, *told in luggage.endings]
    session.replaced.extend(luggage.replaced)
    for each in luggage.asked:
        _unpack_asked(session, each)
    return session


def _packed_asked(gateway: Premises, asked: Asked) -> PackedAsked:
    wish, auto = asked.wish, asked.auto
    return PackedAsked(
        asked.name,
        asked.text,
        PackedWish(
            spelled(wish.options), spelled(wish.earlier), wish.options.is_change,
            wish.filter_text, wish.order_text, wish.command, wish.form, wish.many,
        ),
        [_packed_grant(topic, found) for topic, found in asked.topics.items()],
        declined(gateway, asked),
        None if auto is None else auto.state.interval_ns,
        [] if auto is None else list(auto.decisions),
    )  # fmt: skip


def _packed_grant(topic: str, found: Granted) -> PackedGrant:
    subscription = found.subscription
    return PackedGrant(
        topic,
        found.epoch,
        None if found.start is None else str(found.start),
        granted(replace(subscription, paused=False)),
        subscription.command,
        found.form,
        subscription.counted,
        subscription.paused,
    )


def _unpack_asked(session: Session, told: PackedAsked) -> None:
    is_pattern = "*" in told.target or ">" in told.target
    target = TopicPattern.parse(told.target) if is_pattern else told.target
    asked = session.asked[told.name] = Asked(told.name, target, _wish(told.wish))
    if told.interval_ns is not None:
        asked.auto = AutoInterval(told.interval_ns)
        asked.auto.decisions.extend(told.decisions)
    for each in told.topics:
        try:
            asked.topics[each.topic] = _granted(session.gateway, asked, each)
        except (Problem, EngineError, KeysError):
            session.note_end(Unsubscribed(told.name, each.topic, "REMOVED"))
    if isinstance(target, TopicPattern):
        session.catch_up(asked, told.declined)
        if asked.wish.command != Command.SOW:
            session.follow(asked, target)
    elif not asked.topics:
        del session.asked[told.name]


def _wish(told: PackedWish) -> Wish:
    return Wish(
        Options.parse(told.options, is_change=told.is_change),
        told.filter_text,
        told.order_text,
        told.command,
        told.form,
        Options.parse(told.earlier),
        told.many,
    )


def _granted(gateway: Premises, asked: Asked, told: PackedGrant) -> Granted:
    subscription = granted_again(
        gateway, told.topic, told.options, asked.wish,
        command=told.command, by_pattern=asked.by_pattern, counted=told.counted,
    )  # fmt: skip
    subscription = replace(subscription, paused=told.paused)
    if asked.auto is not None:
        subscription = at_interval(subscription, asked.auto.state.interval_ns)
    start = None if told.start is None else Bookmark.parse(told.start)
    return Granted(subscription, told.form, told.epoch, start)
