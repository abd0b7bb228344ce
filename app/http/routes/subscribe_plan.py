"""The plan of a subscription: what equal requests share, as they were read and granted."""

from __future__ import annotations

from dataclasses import replace
from operator import is_not

from starlette.types import Scope

from tidegate.app.gateway import Gateway
from tidegate.app.http.parameters import query_of
from tidegate.app.http.requests import raw_path, topic_or_pattern
from tidegate.app.http.routes.models.sessions import Subscribing
from tidegate.app.names import TopicPattern
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.store import TopicRecord
from tidegate.app.streams.decisions import granted_to
from tidegate.app.streams.subscribe_request import SubscribeRequest
from tidegate.app.streams.subscriptions import PlainSubscription
from tidegate.conflation.definition import Definition
from tidegate.keys.text.bookmark import Bookmark


class SubscribePlan:
    """What equal requests to subscribe share: what was asked for, as parsed, and what is granted.

    Nothing in it is of one client: not its session, and not the id after which it continues.
    """

    __slots__ = ("_made_of", "_present", "_resumed", "_wanted", "asked", "target")

    def __init__(self, target: str | TopicPattern, asked: Subscribing) -> None:
        self.target = target
        self.asked = asked
        self._wanted: SubscribeRequest | None = None
        # Of what of the topic the grants were made; they are shared until any of it is replaced.
        self._made_of: tuple[TopicRecord, Definition, str] | None = None
        self._present: PlainSubscription | None = None
        self._resumed: PlainSubscription | None = None

    def request(self, settings: Settings) -> SubscribeRequest:
        """Return the request with its options parsed.

        Raises:
            Refusal: as `SubscribeRequest.parse`.
        """
        if self._wanted is None:
            many = isinstance(self.target, TopicPattern)
            most = settings.options_characters_max
            self._wanted = SubscribeRequest.parse(self.asked, most, many=many)
        return self._wanted

    @property
    def is_plain(self) -> bool:
        """True for one topic from its present on: no place has to be found or waited for."""
        is_placed = self.asked.last_event_id or self.asked.bookmarks is not None
        wanted = self._wanted
        return not is_placed and wanted is not None and wanted.options.bookmark is None

    def granted(
        self, gateway: Gateway, topic: str, wanted: SubscribeRequest, resume: Bookmark | None
    ) -> PlainSubscription:
        """Return what the request gets of its topic, as the topic is now, after a place.

        `wanted`: the plan's own, with the grants of who asks. What depends on those is not shared.

        Raises:
            Refusal: as `granted_to`.
        """
        context, found = gateway.sessions.context, gateway.driver.engine.topic(topic)
        if wanted.grants is not None:
            decision = granted_to(context, topic, wanted, resume)
            return PlainSubscription.of(found, wanted, decision)
        # Each change of a topic makes new objects, and so does a topic that is created again. Both
        # are compared: the engine may have a definition that the catalog has not got yet.
        made_of = gateway.catalog.get(topic).record, found.definition, found.epoch
        if self._made_of is None or any(map(is_not, self._made_of, made_of)):
            decision = granted_to(context, topic, wanted)
            self._present, self._resumed = PlainSubscription.of(found, wanted, decision), None
            self._made_of = made_of
        assert self._present is not None
        if resume is None:
            return self._present
        # Only this of a grant differs from client to client. After a restart most come back with
        # the same id, so the last one is kept.
        if self._resumed is None or self._resumed.decided.subscription.resume != resume:
            decision = self._present.decided
            subscription = replace(decision.subscription, resume=resume)
            decision = decision._replace(subscription=subscription)
            self._resumed = PlainSubscription.of(found, wanted, decision)
        return self._resumed


PLANS_MAX = 1_000
PLAN_BYTES_MAX = 2 << 10
"""Clients choose the texts: both the number and the size of what is kept are bounded."""


class SubscribePlans:
    """The plans that were used latest, by path and query as they were sent."""

    def __init__(self) -> None:
        self._plans: dict[tuple[bytes, bytes], SubscribePlan] = {}  # the latest used last

    def of(self, scope: Scope) -> SubscribePlan:
        """Return the plan of a request, which equal ones share.

        Raises:
            Refused: the path has no topic, or a parameter cannot be read.
        """
        text = raw_path(scope), scope["query_string"]
        plan = self._plans.pop(text, None)
        if plan is None:
            plan = SubscribePlan(topic_or_pattern(scope), query_of(Subscribing, scope))
        if len(text[0]) + len(text[1]) <= PLAN_BYTES_MAX:
            self._plans[text] = plan
            if len(self._plans) > PLANS_MAX:
                del self._plans[next(iter(self._plans))]
        return plan
