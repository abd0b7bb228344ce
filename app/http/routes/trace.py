"""`/v1/sessions/{session}/subscriptions/{sub}/trace`: the decisions about one subscription."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from tidegate.app.access.grants import OBSERVE
from tidegate.app.gateway import Gateway
from tidegate.app.http.openapi import name_of, problems
from tidegate.app.http.parameters import STRICT, SessionPath, SubscriptionPath
from tidegate.app.http.requests import require_accept
from tidegate.app.http.routes.models.events import TRACE
from tidegate.app.http.scope import gateway_of, grants_in, subject_in
from tidegate.app.parameters import Parameters, text
from tidegate.app.refusals import Refused
from tidegate.app.streams.encoding import json_value
from tidegate.app.streams.notices import Heartbeat
from tidegate.app.streams.sse import HEARTBEAT, event
from tidegate.app.timers import wait_until_set
from tidegate.conflation.definition import Kind
from tidegate.conflation.errors import SessionUnknown
from tidegate.conflation.frame import Frame, Tombstone, receipt_of
from tidegate.conflation.options.grant import granted, lane_text
from tidegate.conflation.outputs import Output, Rows
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.subscription import Subscription
from tidegate.conflation.tracing.decisions import Decision
from tidegate.conflation.tracing.recorder import (
    Advanced,
    Call,
    Changed,
    Conflated,
    Copied,
    Ended,
    Joined,
    Published,
    Redefined,
    Settled,
    Taken,
    begin_recording,
    end_recording,
)
from tidegate.conflation.tracing.replay import Trace
from tidegate.keys.text.duration import MILLISECOND, Instant

PIECE = 200
"""Decisions in one write."""
CHECK_EVERY_S = 1.0
"""How soon a trace ends whose reader may not read it any more."""

Ending = Callable[[], str | None]


class TraceText:
    """Writes one trace; times are milliseconds since `began`."""

    def __init__(self, kind: Kind, began: Instant) -> None:
        self._kind = kind
        self._began = began

    def events(self, trace: Trace, call: Call) -> Iterator[bytes]:
        """Yield a call, the decisions in it, and the end of the trace, if it ends; in pieces."""
        # With its first decisions in one write: a small call costs one.
        text = b"" if isinstance(call, Ended) else event("call", self.call(call))
        decisions = trace.decisions(call)
        while piece := list(islice(decisions, PIECE)):
            yield text + b"".join(event("decision", self.decision(each)) for each in piece)
            text = b""
        if trace.ended is not None:
            # The last event, so that a reader can tell the end of the trace from a lost connection.
            text += event("end", {"at_ms": self.at_ms(call.now), "reason": trace.ended})
        if text:
            yield text

    def call(self, call: Call) -> dict[str, Any]:
        """Return what was done."""
        return {"at_ms": self.at_ms(call.now), **self._call(call)}

    def decision(self, decision: Decision) -> dict[str, Any]:
        """Return the decision; fields without a value are left out."""
        fields: dict[str, Any] = {
            "at_ms": self.at_ms(decision.now),
            "decision": decision.what,
            "key": _key(decision.board_key),
            "offset": decision.offset,
            "earlier": decision.earlier,
            "messages": decision.messages,
            "rows": decision.rows,
            "due_ms": None if decision.due is None else self.at_ms(decision.due),
            "why": decision.why or None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def _call(self, call: Call) -> Mapping[str, Any]:
        match call:
            case Copied(_, subscriber):
                return {"call": "begun", **_subscriber(subscriber)}
            case Published(_, frames, _):
                return {"call": "published", "messages": [self._message(f) for f in frames]}
            case Advanced():
                return {"call": "advanced"}
            case Taken(_, bytes_max, outputs):
                return {"call": "taken", "bytes_max": bytes_max, "rows": _rows(outputs)}
            case Changed(_, subscription):
                return {"call": "changed", **_subscription(subscription)}
            case Redefined(_, definition):
                return {"call": "redefined", "policy": definition.policy}
            case Settled():
                return {"call": "settled"}
            case Joined():
                return {"call": "joined"}
            case Conflated(_, messages_max):
                return {"call": "conflated", "messages_max": messages_max}
        return {}

    def _message(self, frame: Frame) -> dict[str, Any]:
        shown: dict[str, Any] = {"offset": frame.offset, "key": _key(frame.key or None)}
        if isinstance(frame, Tombstone):
            return {**shown, "removed": frame.reason}
        shown["value"] = msgspec.Raw(json_value(frame, self._kind))
        return {**shown, "exempt": True} if frame.exempt else shown

    def at_ms(self, now: Instant) -> float:
        """Return a time of the engine in milliseconds since the trace began."""
        # A copied lane holds deadlines of before the trace; times below zero would only confuse.
        return max(0, now - self._began) / MILLISECOND


def _key(board_key: str | None) -> msgspec.Raw | None:
    return None if not board_key else msgspec.Raw(board_key.encode())


def _rows(outputs: Sequence[Output]) -> list[dict[str, Any]]:
    return [
        {"offset": row.offset, "messages": receipt_of(row).messages}
        for output in outputs
        if isinstance(output, Rows)
        for row in output.batch.frames
    ]


def _subscriber(subscriber: Subscriber) -> dict[str, Any]:
    definition = subscriber.topic.definition
    if subscriber.feed is not None:
        subscriber.feed.materialize_messages()  # deferred messages are held as well
    return {
        "session": subscriber.member.session,
        "sub": subscriber.member.name,
        "topic": subscriber.topic.name,
        "bookmark": str(subscriber.topic.bookmark(subscriber.topic.head)),
        "definition": {
            "key": [str(path) for path in definition.key_spec.paths],
            "type": definition.kind,
            "conflation": definition.policy,
        },
        **_subscription(subscriber.member.subscription),
        "held": 0 if subscriber.lane is None else len(subscriber.lane.held()),
        "waiting": subscriber.waiting(),
    }


def _subscription(subscription: Subscription) -> dict[str, Any]:
    return {
        "command": subscription.command,
        "options": granted(subscription),
        "lane": lane_text(subscription.lane_id),
        "paused": subscription.paused,
    }


class TraceStream(EventSourceResponse):
    """Decisions about a subscriber from now on, until it ends or the trace is not read any more.

    The decisions are worked out as they are read; a reader that is too slow gets `end` instead.

    Raises:
        LimitReached: as many traces as may be.
    """

    def __init__(
        self, gateway: Gateway, subscriber: Subscriber, ending: Ending | None = None
    ) -> None:
        began = gateway.driver.now()
        gateway.driver.isolate(subscriber.member.session)
        self._ending = ending
        # The recorder is called inside the engine's step and only wakes; the texts are made in this
        # task.
        self._woken = asyncio.Event()
        self._now = gateway.driver.now
        self._heartbeat_s = gateway.settings.heartbeat.seconds
        self._watchers = gateway.driver.engine.watchers
        self._recorder = begin_recording(self._watchers, subscriber, began, self._woken.set)
        self._trace = Trace()
        self._text = TraceText(subscriber.topic.definition.kind, began)
        super().__init__(self._events(), ping=0, sep="\n", headers={"Cache-Control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the trace; a peer that takes nothing is cut like any other."""
        # The engine notes each of its calls for a recorder, so one ends with its reader.
        try:
            await super().__call__(scope, receive, send)
        finally:
            end_recording(self._watchers, self._recorder)
            self._trace.close()

    async def _events(self) -> AsyncIterator[bytes]:
        # Decisions are found by making the calls again, here and not in the engine: its cost is the
        # reader's.
        trace, clock = self._trace, asyncio.get_running_loop().time
        pulse = Heartbeat(self._heartbeat_s, clock())
        while True:
            if self._ending is not None and (reason := self._ending()) is not None:
                yield event("end", {"at_ms": self._text.at_ms(self._now()), "reason": reason})
                return
            for call in self._recorder.take_calls():
                for piece in self._text.events(trace, call):
                    yield piece
                    await asyncio.sleep(0)  # other work runs between two pieces
                    pulse.wrote(clock())
                if trace.ended is not None:
                    return
            # A quiet subscription decides nothing for hours; without this a proxy would cut the
            # stream.
            if pulse.heartbeat_due(clock()):
                yield HEARTBEAT
                pulse.wrote(clock())
            wait_s = pulse.wait_s(clock(), progress=False)
            seconds_max = wait_s if self._ending is None else min(wait_s, CHECK_EVERY_S)
            await wait_until_set(self._woken, seconds_max)


AWAY = "AWAY"

router = APIRouter(tags=["operations"], dependencies=STRICT, generate_unique_id_function=name_of)


class Wanted(Parameters):
    """The topic to trace."""

    topic: Annotated[
        str | None,
        text("topic-invalid"),
        Field(description="The topic to trace, if the subscription is to a pattern"),
    ] = None


@router.get(
    "/v1/sessions/{session}/subscriptions/{sub}/trace",
    summary="Every decision about a subscription, as server-sent events",
    response_class=Response,
    responses={
        **TRACE,
        **problems("session-unknown", "subscription-unknown", "topic-unknown", "topic-invalid"),
    },
)
async def trace(
    request: Request,
    session: SessionPath,
    sub: SubscriptionPath,
    wanted: Annotated[Wanted, Query()],
) -> Response:
    """Stream `call`, `decision` and at last `end`, from now on until the subscription ends."""
    require_accept(request.scope, "text/event-stream")
    asked = gateway_of(request).live_session(session).subscription(sub)
    # A trace is of one board and lane, hence of one topic.
    topics = [topic for topic in asked.topics if wanted.topic in (None, topic)]
    if len(topics) != 1:
        raise Refused("topic-unknown", "Say with ?topic= which topic of the subscription is meant.")
    if (grants := grants_in(request.scope)) is not None:
        # A trace shows every message of the topic, those that the subscriber may not see, too.
        grants.require_whole(topics[0])
        grants.require(OBSERVE, topics[0])
    gateway = gateway_of(request)
    subscriber = _traced_subscriber(gateway, session, asked.name, topics[0])
    if subscriber is None:
        # No problem: the subscription is there, and the engine will know it when its reader is
        # back.
        return EventSourceResponse(_nothing(), ping=0, sep="\n")
    return TraceStream(gateway, subscriber, _ending_of(request))


def _ending_of(request: Request) -> Ending | None:
    """Return what says why the reader of the trace may read no more; None if it always may."""
    subject = subject_in(request.scope)
    return None if subject is None else partial(request.app.state.access.ending, subject)


def _traced_subscriber(gateway: Gateway, session: str, name: str, topic: str) -> Subscriber | None:
    """Return the subscriber; None while nobody reads the session, and once a sow has ended."""
    try:
        return gateway.driver.engine.session(session).subscribers.get((name, topic))
    except SessionUnknown:
        return None


async def _nothing() -> AsyncIterator[bytes]:
    """Yield the only event of a subscription without a subscriber: nothing is decided for it."""
    yield event("end", {"at_ms": 0, "reason": AWAY})
