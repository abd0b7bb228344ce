"""`/v1/topics/{topic}/subscribe`: a stream of server-sent events."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.app.access.grants import Subject, subject_in
from tidegate.app.definitions.topic import TopicNotUsable
from tidegate.app.gateway import Gateway, gateway_of
from tidegate.app.http.openapi import json_body, problems
from tidegate.app.http.parameters import STRICT, text
from tidegate.app.http.problems import Problem
from tidegate.app.http.requests import TopicPattern, require_accept, topic_or_pattern
from tidegate.app.http.wire import EVENT_STREAM
from tidegate.app.routes.models.events import STREAM
from tidegate.app.routes.models.sessions import Continued, Subscribing
from tidegate.app.sessions.attach import admit_reader, attach_new
from tidegate.app.sessions.cursor import parse_cursor
from tidegate.app.sessions.session import Session
from tidegate.app.sessions.stream import (
    EventStream,
    refusal_stream,
    session_stream,
    stopping_stream,
)
from tidegate.app.sessions.subscribe_request import (
    RequestedSubscription,
    SessionContext,
    SubscribeRequest,
    granted_to,
    place_of,
    places_of,
)
from tidegate.app.sessions.subscriptions import decide_target, end_reason
from tidegate.app.settings import Settings
from tidegate.app.stores.store import TopicRecord
from tidegate.conflation.definition import Definition
from tidegate.conflation.errors import EngineError, LimitReached
from tidegate.conflation.outputs import CloseReason, Unsubscribed
from tidegate.conflation.subscription import Command
from tidegate.keys.errors import KeysError
from tidegate.keys.text.bookmark import Bookmark

router = APIRouter(tags=["subscribing"], dependencies=STRICT)
_ENDING = b"/subscribe"
_PATTERN = "Name of a topic, or a pattern with `*` (one part) and `>` (the rest)"
PLANS_MAX = 1_000
PLAN_KEY_BYTES_MAX = 1 << 10

_REFUSALS = problems(
    "topic-unknown", "topic-invalid", "options-invalid", "filter-invalid", "bookmark-invalid",
    "bookmark-expired", "session-unknown",
)  # fmt: skip


class SubscribePlan:
    """What equal requests to subscribe share: what was asked for, as parsed, and what is granted.

    Nothing in it is of one client: not its session, and not the id after which it continues.
    """

    __slots__ = ("_definition", "_granted", "_record", "_wish", "asked", "path_params", "route",
                 "target")  # fmt: skip

    def __init__(self, target: str | TopicPattern, asked: Subscribing) -> None:
        self.target = target
        self.asked = asked
        # What routing found, for the log of requests.
        self.route: object = None
        self.path_params: Mapping[str, str] = {}
        self._wish: SubscribeRequest | None = None
        self._granted: RequestedSubscription | None = None
        self._record: TopicRecord | None = None
        self._definition: Definition | None = None

    def wish(self, settings: Settings) -> SubscribeRequest:
        """Return the request with its options parsed.

        Raises:
            Problem, EngineError: as `SubscribeRequest.parse`.
        """
        if self._wish is None:
            many = isinstance(self.target, TopicPattern)
            most = settings.options_characters_max
            self._wish = SubscribeRequest.parse(self.asked, most, many=many)
        return self._wish

    def granted(
        self,
        context: SessionContext,
        topic: str,
        wish: SubscribeRequest,
        resume: Bookmark | None,
    ) -> RequestedSubscription:
        """Return what the request gets of its topic, as the topic is defined now.

        `wish`: the plan's own, with the grants of who asks. What depends on those is not shared.

        Raises:
            Problem, EngineError, KeysError: as `granted_to`.
        """
        if wish.grants is not None:
            return granted_to(context, topic, wish, resume)
        record = context.catalog.get(topic).record
        definition = context.driver.engine.topic(topic).definition
        # Each change of a topic makes new objects, and so does a topic that is created again. Both
        # are compared: the engine may have a definition that the catalog has not got yet.
        if record is not self._record or definition is not self._definition:
            self._granted = granted_to(context, topic, wish)
            self._record, self._definition = record, definition
        assert self._granted is not None
        if resume is None:
            return self._granted
        # Only this of a grant differs from client to client.
        subscription = replace(self._granted.subscription, resume=resume)
        return self._granted._replace(subscription=subscription)


class Plans:
    """The plans of the latest requests that were let pass, by the text of the request.

    Bounded: clients choose the texts. A text that is too long to keep is read each time.
    """

    def __init__(self, most: int = PLANS_MAX) -> None:
        self._most = most
        self._plans: dict[bytes, SubscribePlan] = {}  # the latest used last

    def __len__(self) -> int:
        return len(self._plans)

    def find(self, scope: Scope) -> SubscribePlan | None:
        """Return the plan of an equal request, and note in the scope what routing found then."""
        key = _key(scope)
        plan = None if key is None else self._plans.pop(key, None)
        if key is None or plan is None:
            return None
        self._plans[key] = plan
        scope["route"], scope["path_params"] = plan.route, plan.path_params
        return plan

    def note(self, scope: Scope, plan: SubscribePlan) -> None:
        """Keep the plan of a request that was let pass."""
        key = _key(scope)
        if key is None:
            return
        plan.route, plan.path_params = scope["route"], scope["path_params"]
        self._plans.pop(key, None)
        self._plans[key] = plan
        if len(self._plans) > self._most:
            del self._plans[next(iter(self._plans))]


def _key(scope: Scope) -> bytes | None:
    """Return all that the reading of a GET depends on; None for any other request."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    path: bytes | None = scope.get("raw_path")  # as sent: decoding makes unequal paths equal
    if path is None or not path.endswith(_ENDING):
        return None
    parts = [path, scope["query_string"]]
    parts += [value for name, value in scope["headers"] if name == b"accept"]
    # No part can hold a line end: the server refuses a header that has one.
    key = b"\n".join(parts)
    return key if len(key) <= PLAN_KEY_BYTES_MAX else None


async def _wanted(
    request: Request, topic: Annotated[str, text(), Path(description=_PATTERN)]
) -> str | TopicPattern:
    """Return the topic or the pattern in the path, as the client wrote it."""
    return topic_or_pattern(request.scope)


Wanted = Annotated[str | TopicPattern, Depends(_wanted)]


@router.get(
    "/v1/topics/{topic}/subscribe",
    summary="Subscribe: a stream of server-sent events",
    response_class=Response,
    responses={**STREAM, **_REFUSALS},
)
async def subscribe(
    request: Request,
    wanted: Wanted,
    asked: Annotated[Subscribing, Query()],
    continued: Annotated[Continued, Header()],
) -> Response:
    """Stream one subscription; parameters in the query."""
    require_accept(request.scope, EVENT_STREAM)
    plan = SubscribePlan(wanted, asked)
    gateway, subject = gateway_of(request), subject_in(request.scope)
    answer = await stream(gateway, subject, plan, continued.last_event_id)
    # Only now: the route answers whatever is refused, so that all refusals come from one place.
    plans: Plans = request.app.state.plans
    plans.note(request.scope, plan)
    return answer


@router.post(
    "/v1/topics/{topic}/subscribe",
    summary="Subscribe, the parameters as a JSON object of texts",
    response_class=Response,
    responses={**STREAM, **_REFUSALS, **problems("unsupported-media-type")},
    openapi_extra=json_body(Subscribing),
)
async def subscribe_by_post(
    request: Request, wanted: Wanted, continued: Annotated[Continued, Header()]
) -> Response:
    """Stream one subscription; the parameters are a JSON object of texts."""
    require_accept(request.scope, EVENT_STREAM)
    plan = SubscribePlan(wanted, await Subscribing.posted(request))
    gateway, subject = gateway_of(request), subject_in(request.scope)
    return await stream(gateway, subject, plan, continued.last_event_id)


class SubscribeShortcut:
    """Answers a request to subscribe that equals an earlier one; the innermost middleware.

    Routing a request and reading its parameters cost the framework as much as all that the stream
    itself needs. What they found of an equal request is known, so only what differs is read: the
    id after which the client continues. All other requests go on to the route, and so does every
    request that the route has not let pass before: refusals come from one place.

    A check that depends on more than the request's address belongs into `stream`, which both share,
    or into a middleware around this one.
    """

    def __init__(self, app: ASGIApp, plans: Plans) -> None:
        self.app = app
        self.plans = plans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream one subscription, or let the application answer.

        Raises:
            Problem, EngineError, KeysError: as the route.
        """
        plan = self.plans.find(scope)
        if plan is None:
            await self.app(scope, receive, send)
            return
        gateway: Gateway = scope["app"].state.gateway
        answer = await stream(gateway, subject_in(scope), plan, _last_event_id(scope))
        await answer(scope, receive, send)


def _last_event_id(scope: Scope) -> str | None:
    # The header is rare, and reading the model without it would cost more than this look.
    if any(name == b"last-event-id" for name, _ in scope["headers"]):
        return Continued.read(scope).last_event_id
    return None


async def stream(
    gateway: Gateway, subject: Subject | None, plan: SubscribePlan, last_event_id: str | None
) -> Response:
    """Return the stream of a request; `last_event_id`: from the header.

    Raises:
        Problem, EngineError, KeysError: a refusal that a client should not repeat.
    """
    # A browser that reconnects repeats its address; only the header knows what came since.
    last_id = last_event_id or plan.asked.last_event_id or None
    try:
        if isinstance(plan.target, TopicPattern):
            return await _pattern_stream(gateway, subject, plan.target, plan, last_id)
        return await _topic_stream(gateway, subject, plan.target, plan, last_id)
    except LimitReached as error:
        return refusal_stream(Problem("limit-reached", f"{error.detail}."))
    except TopicNotUsable as problem:
        if last_id is None:
            raise
        return refusal_stream(problem)  # a reader that was served comes again, perhaps elsewhere


async def _topic_stream(
    gateway: Gateway, subject: Subject | None, name: str, plan: SubscribePlan, last_id: str | None
) -> Response:
    if plan.asked.bookmarks is not None:
        raise Problem("bookmark-invalid", "bookmarks are for patterns; a topic has last_event_id.")
    resume = None if last_id is None else place_of(last_id)
    # The topic may have just been made at another gateway, and not be known here yet.
    is_gone = await gateway.catalog.seek(name) is None
    if is_gone and resume is not None and gateway.catalog.has_ended(resume.epoch):
        return Response(status_code=204)  # as its stream has said
    # Refuses a topic that is not there, before the parameters are looked at.
    gateway.catalog.get(name)
    wish = plan.wish(gateway.settings).by(subject)
    await gateway.reach(name, resume, wish.options.bookmark)
    decision = plan.granted(gateway.sessions.context, name, wish, resume)
    if decision.subscription.command is Command.SOW and resume is not None:
        topic = gateway.driver.engine.topic(name)
        if resume.epoch == topic.epoch and resume.offset <= topic.head:
            return Response(status_code=204)  # a finished sow: the browser need not come back
    if gateway.stopping:
        return stopping_stream()
    session = gateway.sessions.open(subject=subject)
    return _begun(gateway, session, name, wish, {name: decision})


async def _pattern_stream(
    gateway: Gateway,
    subject: Subject | None,
    pattern: TopicPattern,
    plan: SubscribePlan,
    last_id: str | None,
) -> Response:
    """Stream all topics of a pattern; those that are made later join."""
    # The session is kept, as the ids of its events mean nothing without it.
    if last_id is not None:
        return await _pattern_again(gateway, subject, pattern, last_id)
    wish = plan.wish(gateway.settings).by(subject)
    is_sow = wish.command == Command.SOW
    places = await _places(gateway, pattern, wish, plan.asked)
    decisions = decide_target(gateway.sessions.context, pattern, wish, places)
    if gateway.stopping:
        return stopping_stream()
    session = gateway.sessions.open(kept=True, lasts=not is_sow, subject=subject)
    answer = _begun(gateway, session, pattern, wish, decisions)
    for name in sorted((places or {}).keys() - decisions.keys()):
        session.send_end(Unsubscribed("s1", name, end_reason(gateway.sessions.context, name)))
    if is_sow and not session.subscription("s1").topics:
        answer.reader.consumer.give_up(CloseReason.UNSUBSCRIBED)
    return answer


async def _places(
    gateway: Gateway, pattern: TopicPattern, wish: SubscribeRequest, asked: Subscribing
) -> dict[str, Bookmark] | None:
    """Return the places of a reader whose session is gone, once what it has is here, too.

    Raises:
        Problem: bookmark-invalid, options-invalid, bus-unavailable.
    """
    if not asked.bookmarks:
        return None
    if wish.command == Command.SOW:
        raise Problem("options-invalid", "bookmarks continue a subscription; a sow has an end.")
    places = {
        topic: place
        for topic, place in places_of(asked.bookmarks).items()
        if pattern.matches(topic)
    }
    for topic, place in places.items():
        with contextlib.suppress(TopicNotUsable):  # a `refused` event names it; the others go on
            if await gateway.catalog.seek(topic) is not None:
                await gateway.reach(topic, place)
    return places


async def _pattern_again(
    gateway: Gateway, subject: Subject | None, pattern: TopicPattern, last_id: str
) -> Response:
    session_id, number = parse_cursor(last_id) or ("", 0)
    if session_id:
        try:
            is_let_in = await gateway.bring(session_id, number, subject)
        except Problem as problem:  # it passes, and a browser would never retry
            return refusal_stream(problem)
        if not is_let_in:
            return Response(status_code=204)
    session = gateway.sessions.get(session_id)
    admit_reader(session, subject)
    cursor = session.cursor
    is_whole = session.closed is not CloseReason.UNSUBSCRIBED
    if (
        cursor is None
        or session.pattern != pattern.text
        or not (is_whole or number == cursor.number)
    ):
        raise Problem("session-unknown", "There is no such session, or not any more.")
    return session_stream(session, number, is_stopping=gateway.stopping)


def _begun(
    gateway: Gateway,
    session: Session,
    target: str | TopicPattern,
    wish: SubscribeRequest,
    decisions: Mapping[str, RequestedSubscription],
) -> EventStream:
    try:
        return EventStream(session, *attach_new(session, target, wish, decisions))
    except (Problem, EngineError, KeysError):
        gateway.sessions.discard(session)
        raise
