"""Session transfer: a kept session as bytes, to continue at another gateway under its id.

A session without a reader consists of its requests, its grants and a cursor. All are texts and
numbers; the gateway that receives them parses the options again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from tidegate.app.access.grants import GrantInvalid, Grants, Subject, parse_grants
from tidegate.app.names import TopicPattern
from tidegate.app.streams.auto import AutoInterval, at_interval
from tidegate.app.streams.cursor import Cursor, PackedCursor
from tidegate.app.streams.decisions import SessionContext, declined, end_reason, granted_again
from tidegate.app.streams.encoding import Format
from tidegate.app.streams.session import Session
from tidegate.app.streams.subscribe_request import SubscribeRequest
from tidegate.app.streams.subscriptions import (
    GrantedSubscription,
    GrantedTopics,
    SessionSubscription,
)
from tidegate.conflation.errors import EngineError
from tidegate.conflation.options.grant import granted
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import CloseReason, Unsubscribed
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.subscription import Command
from tidegate.keys.errors import KeysError, Refusal
from tidegate.keys.text.bookmark import Bookmark

FORM = 2
"""Format version; a gateway that does not know it refuses the session."""


class PackedRequest(msgspec.Struct, frozen=True, array_like=True):
    """A subscribe request as texts."""

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


class PackedSubscription(msgspec.Struct, frozen=True, array_like=True):
    """A subscription. `declined`: topics that its pattern matches but it lacks, with epochs.

    `interval_ns` and `decisions` are those of an interval with `auto`.
    """

    name: str
    target: str
    request: PackedRequest
    topics: list[PackedGrant]
    declined: dict[str, str]
    interval_ns: int | None
    decisions: list[dict[str, object]]


class PackedSession(msgspec.Struct, frozen=True, array_like=True):
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
    asked: list[PackedSubscription]
    cursor: PackedCursor
    endings: list[tuple[int, str, str, str]]
    replaced: list[int]
    evicted: list[tuple[str, PackedSubscription]]
    owner: str
    grants: list[dict[str, object]] | None


_READER = msgspec.msgpack.Decoder(PackedSession)


def serialize(session: Session) -> bytes:
    """Serialize a kept session that has no reader."""
    limits, cursor = session.limits, session.cursor
    assert cursor is not None, "it is kept"
    transfer = PackedSession(
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
        asked=[_packed_asked(session.context, asked) for asked in session.asked.values()],
        cursor=cursor.packed(),
        endings=[(at, end.name, end.topic, end.reason) for at, end in cursor.endings],
        replaced=list(cursor.replaced),
        evicted=[
            (topic, _packed_asked(session.context, asked))
            for (_, topic), asked in session.evicted.items()
        ],
        owner=session.owner,
        grants=None if session.subject is None else session.subject.grants.documents(),
    )  # fmt: skip
    return msgspec.msgpack.encode(transfer)


def deserialize(
    text: bytes,
    context: SessionContext,
    on_attached: Callable[[Session], None],
    on_left: Callable[[Session], None],
) -> Session:
    """Restore a session; subscriptions end in topics that do not fit them any more.

    Raises:
        ValueError: the bytes are no packed session, or of another version.
    """
    try:
        transfer = _READER.decode(text)
        grants = None if transfer.grants is None else Grants(parse_grants(transfer.grants))
        # Expires at once: a reader brings its own token.
        subject = None if grants is None else Subject(transfer.owner, 0, grants)
        cursor = Cursor.unpacked(transfer.id, transfer.cursor)
    except (msgspec.MsgspecError, EngineError, KeysError, LookupError, GrantInvalid) as error:
        raise ValueError("the bytes are not a session that a gateway packed") from error
    if transfer.form != FORM:
        raise ValueError("the session was packed by another version")
    session = Session(
        context, transfer.id, on_attached, on_left,
        limits=QueueLimits(*transfer.limits), conflated=transfer.conflated, lasts=transfer.lasts,
        subject=subject,
    )  # fmt: skip
    # Set after construction, as the constructor is for new sessions.
    session.cursor = cursor
    session.opened_ms, session.pattern = transfer.opened_ms, transfer.pattern
    session.closed, session.was_read = transfer.closed, transfer.was_read
    session.has_ended, session.named = transfer.has_ended, transfer.named
    cursor.endings = [(at, Unsubscribed(*packed)) for at, *packed in transfer.endings]
    cursor.replaced = tuple(transfer.replaced)
    for each in transfer.asked:
        _unpack_asked(session, each)
    for topic, each in transfer.evicted:
        _readmit(session, session.asked.get(each.name) or _asked(each, session), topic)
    return session


def _packed_asked(context: SessionContext, asked: SessionSubscription) -> PackedSubscription:
    request, auto = asked.request, asked.auto
    return PackedSubscription(
        asked.name,
        asked.text,
        PackedRequest(
            request.options.text(), request.earlier.text(), request.options.is_change,
            request.filter_text, request.order_text, request.command, request.form, request.many,
        ),
        [_packed_grant(topic, found) for topic, found in asked.topics.items()],
        declined(context, asked),
        None if auto is None else auto.state.interval_ns,
        [] if auto is None else list(auto.decisions),
    )  # fmt: skip


def _packed_grant(topic: str, found: GrantedSubscription) -> PackedGrant:
    subscription = found.subscription
    return PackedGrant(
        topic,
        found.epoch,
        None if found.start is None else str(found.start),
        # Without `pause`, as being paused is a field of its own.
        granted(replace(subscription, paused=False)),
        subscription.command,
        found.form,
        subscription.counted,
        subscription.paused,
    )


def _unpack_asked(session: Session, packed: PackedSubscription) -> None:
    asked = session.own()[packed.name] = _asked(packed, session)
    target = asked.target
    context = session.context
    for each in packed.topics:
        # One that was created again is another topic, which a pattern takes as new.
        is_deleted = context.catalog.has_ended(each.epoch)
        try:
            found = None if is_deleted else _granted(context, asked, each)
        except Refusal:  # the topic was changed or deleted during the transfer
            found = None
        if found is None:
            end = end_reason(context, each.topic)
            assert session.cursor is not None, "it was packed"
            session.cursor.end((packed.name, each.topic))
            session.note_end(Unsubscribed(packed.name, each.topic, end))
        else:
            asked.topics[each.topic] = found
    if isinstance(target, TopicPattern):
        _catch_up(session, asked, packed.declined)
        if asked.request.command != Command.SOW:
            session.follow(asked)
    elif not asked.topics:
        del session.own()[packed.name]


def _catch_up(
    session: Session, asked: SessionSubscription, declined_before: Mapping[str, str]
) -> None:
    """Add topics that were created while the session was in transfer, from their beginning.

    `declined_before`: topics that the subscription did not take before, by name and epoch.
    """
    for topic, epoch in declined(session.context, asked).items():
        if declined_before.get(topic) != epoch:
            session.add_topic(asked, topic)
            found = asked.topics.get(topic)
            if found is not None and found.start is not None:
                asked.topics[topic] = found._replace(start=Bookmark(epoch, 0))


def _readmit(session: Session, asked: SessionSubscription, topic: str) -> None:
    """Subscribe again in a topic that ended with BACK_PRESSURE at the other gateway, if it fits."""
    if topic in asked.topics:
        return  # the topic was created again since
    try:
        session.check_room(1)
        found = session.regrant(asked, topic)
    except Refusal:
        asked.topics.drop(topic)
        return
    subscriber = asked.name, topic
    session.own()[asked.name] = asked
    cursor = session.cursor
    assert cursor is not None, "it was packed"
    # Drop the end, which is void now, before the reader is sent it.
    ends = cursor.endings
    cursor.endings = [(at, end) for at, end in ends if (end.name, end.topic) != subscriber]
    if found.subscription.command.queries:
        cursor.drop_mark(subscriber)


def _asked(packed: PackedSubscription, session: Session) -> SessionSubscription:
    is_pattern = "*" in packed.target or ">" in packed.target
    target = TopicPattern.parse(packed.target) if is_pattern else packed.target
    request = _request(packed.request).by(session.subject)
    asked = SessionSubscription(packed.name, target, request, GrantedTopics(session.usage))
    if packed.interval_ns is not None:
        asked.auto = AutoInterval(packed.interval_ns)
        asked.auto.decisions.extend(packed.decisions)
    return asked


def _request(packed: PackedRequest) -> SubscribeRequest:
    return SubscribeRequest(
        Options.parse(packed.options, is_change=packed.is_change),
        packed.filter_text,
        packed.order_text,
        packed.command,
        packed.form,
        Options.parse(packed.earlier),
        packed.many,
    )


def _granted(
    context: SessionContext, asked: SessionSubscription, packed: PackedGrant
) -> GrantedSubscription:
    subscription = granted_again(
        context, packed.topic, packed.options, asked.request,
        command=packed.command, by_pattern=asked.by_pattern, counted=packed.counted,
    )  # fmt: skip
    subscription = replace(subscription, paused=packed.paused)
    if asked.auto is not None:
        subscription = at_interval(subscription, asked.auto.state.interval_ns)
    start = None if packed.start is None else Bookmark.parse(packed.start)
    return GrantedSubscription(subscription, packed.form, packed.epoch, start)
