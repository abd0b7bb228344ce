"""The plan of a subscription: what equal requests share, as they were read and granted."""

from __future__ import annotations

from dataclasses import replace

from starlette.types import Scope

from tidegate.app.http.parameters import query_of
from tidegate.app.http.requests import raw_path, topic_or_pattern
from tidegate.app.http.routes.models.sessions import Subscribing
from tidegate.app.names import TopicPattern
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.store import TopicRecord
from tidegate.app.streams.decisions import SessionContext, granted_to
from tidegate.app.streams.subscribe_request import RequestedSubscription, SubscribeRequest
from tidegate.app.streams.subscriptions import PlainSubscription
from tidegate.conflation.definition import Definition
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.bookmark import Bookmark


class SubscribePlan:
    """What equal requests to subscribe share: what was asked for, as parsed, and what is granted.

    Nothing in it is of one client: not its session, and not the id after which it continues.
    """

    __slots__ = ("_definition", "_granted", "_plain", "_record", "_resumed", "_wanted", "asked",
                 "target")  # fmt: skip

    def __init__(self, target: str | TopicPattern, asked: Subscribing) -> None:
        self.target = target
        self.asked = asked
        self._wanted: SubscribeRequest | None = None
        self._granted: RequestedSubscription | None = None
        self._resumed: RequestedSubscription | None = None
        self._plain: PlainSubscription | None = None
        self._record: TopicRecord | None = None
        self._definition: Definition | None = None

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
        self,
        context: SessionContext,
        topic: str,
        wanted: SubscribeRequest,
        resume: Bookmark | None,
    ) -> RequestedSubscription:
        """Return what the request gets of its topic, as the topic is defined now.

        `wanted`: the plan's own, with the grants of who asks. What depends on those is not shared.

        Raises:
            Refusal: as `granted_to`.
        """
        if wanted.grants is not None:
            return granted_to(context, topic, wanted, resume)
        record = context.catalog.get(topic).record
        definition = context.driver.engine.topic(topic).definition
        # Each change of a topic makes new objects, and so does a topic that is created again. Both
        # are compared: the engine may have a definition that the catalog has not got yet.
        if record is not self._record or definition is not self._definition:
            self._granted, self._resumed = granted_to(context, topic, wanted), None
            self._record, self._definition = record, definition
        assert self._granted is not None
        if resume is None:
            return self._granted
        # Only this of a grant differs from client to client. After a restart most come back with
        # the same id, so the last one is kept.
        if self._resumed is None or self._resumed.subscription.resume != resume:
            subscription = replace(self._granted.subscription, resume=resume)
            self._resumed = self._granted._replace(subscription=subscription)
        return self._resumed

    def plain(
        self, topic: Topic, wanted: SubscribeRequest, decided: RequestedSubscription
    ) -> PlainSubscription:
        """Return the subscription that the stream shares with those of equal requests."""
        plain = self._plain
        if plain is None or plain.decided is not decided or plain.epoch != topic.epoch:
            plain = self._plain = PlainSubscription.of(topic, wanted, decided)
        return plain


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
