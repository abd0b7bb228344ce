"""Decisions: what a request to subscribe is granted of the gateway's topics, by its subject."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from pydantic import ConfigDict, Field

from tidegate.app.access.entitlement import entitlement_of, narrowed
from tidegate.app.access.grants import Grants
from tidegate.app.access.limits.quota import Quotas
from tidegate.app.definitions.topic import TopicDefinition, Unusable
from tidegate.app.names import OWN_PREFIX, TopicPattern
from tidegate.app.parameters import Parameters, text
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.store import TopicRecord
from tidegate.app.streams.connection import StreamTimes
from tidegate.app.streams.driver import Driver
from tidegate.app.streams.encoding import Format
from tidegate.app.streams.outage import Outage
from tidegate.app.streams.scheduler import in_turns
from tidegate.app.streams.subscribe_request import (
    RequestedSubscription,
    SubscribeRequest,
    grant_request,
    place_in,
)
from tidegate.app.streams.subscriptions import SessionSubscription
from tidegate.conflation.definition import Definition
from tidegate.conflation.options.grant import Request, grant
from tidegate.conflation.options.table import Options
from tidegate.conflation.steps import Steps, finished, in_pieces
from tidegate.conflation.subscription import Command, Subscription
from tidegate.keys.errors import Refusal
from tidegate.keys.text.bookmark import Bookmark

DECIDED_AT_ONCE = 20  # topics of a pattern: with a long filter each costs half a millisecond


class ServedTopic(Protocol):
    """A topic that can be subscribed to."""

    record: TopicRecord

    @property
    def document(self) -> TopicDefinition:
        """Its definition."""


class Topics(Protocol):
    """The catalog of topics; a protocol, as the catalog imports this package.

    `revision` grows with each change. `on_redefined` is called before a new definition applies.
    """

    revision: int
    on_redefined: Callable[[str, Definition], None]

    def get(self, name: str) -> ServedTopic:
        """Return the topic of this name.

        Raises:
            Refused: topic-unknown; not-ready, if it cannot be used here.
        """

    def served(self, name: str) -> ServedTopic | None:
        """Return the usable topic of this name; None for one that is unusable or does not exist."""

    def unusable(self, name: str) -> Unusable | None:
        """Return the unusable topic of this name, if there is one."""

    def listed(self, prefix: str, after: str, limit: int) -> Iterator[ServedTopic]:
        """Return up to `limit` usable topics by name, after the name `after`."""

    def has_ended(self, epoch: str) -> bool:
        """Return True if the topic of this epoch was deleted, as far as deletions are kept."""

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of each topic that is created from now on."""

    def unlisten(self, listener: Callable[[str], None]) -> None:
        """Stop calling the listener."""


@dataclass(frozen=True, slots=True)
class SessionContext:
    """The parts of a gateway that its sessions work with."""

    gateway_id: str
    settings: Settings
    driver: Driver
    catalog: Topics
    outage: Outage
    quotas: Quotas
    times: StreamTimes = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        times = StreamTimes(
            settings.heartbeat.seconds,
            settings.write_timeout.seconds,
            settings.shutdown_grace.seconds,
        )
        # Made once, as each stream has it.
        object.__setattr__(self, "times", times)


class SubscriptionParameters(Parameters):
    """The parameters of a subscription: texts of a query or of a JSON body, not parsed yet."""

    model_config = ConfigDict(extra="forbid")

    options: Annotated[
        str | None, text(), Field(description="conflation=1s,conflation_key=[/a],pace=batch")
    ] = None
    filter: Annotated[
        str | None,
        text("filter-invalid"),
        Field(description="Which messages: AMPS's filter language"),
    ] = None
    order_by: Annotated[
        str | None, text(), Field(description="Order of snapshot rows and windows: /a DESC,/b")
    ] = None
    command: Annotated[
        str | None,
        text(enum=[str(command) for command in Command]),
        Field(description="sow_and_subscribe on a topic with a key"),
    ] = None
    format: Annotated[
        str | None,
        text(enum=[str(form) for form in Format]),
        Field(description="value, but envelope where options need it"),
    ] = None


def granted_to(
    context: SessionContext,
    name: str,
    request: SubscribeRequest,
    resume: Bookmark | None = None,
    *,
    by_pattern: bool = False,
) -> RequestedSubscription:
    """Decide what a request gets of one topic; a request may be decided for several topics.

    Raises:
        Refusal: forbidden, topic-unknown, options-invalid, filter-invalid.
    """
    if request.grants is not None:  # first: a topic that may not be read must not be known either
        request.grants.required(name)
    entry = context.catalog.get(name)
    definition = context.driver.engine.topic(name).definition
    entitlement = entitlement_of(request.grants, definition, name)
    granted = grant_request(
        name,
        definition,
        request,
        defaults=Options.parse(entry.document.options),
        default_pace=context.settings.default_pace,
        resume=resume,
        by_pattern=by_pattern,
    )
    if entitlement is None:
        return granted
    return granted._replace(subscription=narrowed(granted.subscription, entitlement, definition))


def granted_again(
    context: SessionContext,
    name: str,
    options_text: str,
    request: SubscribeRequest,
    *,
    command: Command,
    counted: bool,
    by_pattern: bool,
) -> Subscription:
    """Grant again what was granted before, by its normalized options.

    No default can change it anymore.

    Raises:
        Refusal: the topic is not there, or not as it was.
    """
    if request.grants is not None:
        request.grants.required(name)
    entry = context.catalog.get(name)
    definition = context.driver.engine.topic(name).definition
    entitlement = entitlement_of(request.grants, definition, name)
    wanted = Request(
        name,
        definition,
        # Without the topic's defaults, which may have changed since.
        Options.parse(options_text).over(Options.of(no_defaults=True)),
        defaults=Options.parse(entry.document.options),
        command=command,
        filter_text=request.filter_text,
        order_text=request.order_text,
        counted=counted,
        by_pattern=by_pattern,
    )
    subscription = grant(wanted).subscription
    return subscription if entitlement is None else narrowed(subscription, entitlement, definition)


async def decided_in_turns(
    context: SessionContext,
    target: str | TopicPattern,
    request: SubscribeRequest,
    places: Mapping[str, Bookmark] | None = None,
) -> dict[str, RequestedSubscription]:
    """Decide as `decide_target`, in steps between which the event loop does other work.

    Raises:
        Refusal: the request does not fit one of the topics.
    """
    before = context.catalog.revision
    with contextlib.suppress(Refusal):
        decisions = await in_turns(_deciding(context, target, request, places))
        if context.catalog.revision == before:
            return decisions
    # The topics have changed between the steps: decide at once, or it might never end.
    return decide_target(context, target, request, places)


def decide_target(
    context: SessionContext,
    target: str | TopicPattern,
    request: SubscribeRequest,
    places: Mapping[str, Bookmark] | None = None,
) -> dict[str, RequestedSubscription]:
    """Decide a request for each topic of the target; `places`: the reader's bookmarks.

    If a pattern matches more topics than a session may have, those with a bookmark and then the
    first ones are decided.

    Raises:
        Refusal: the request does not fit one of the topics.
    """
    return finished(_deciding(context, target, request, places))


def _deciding(
    context: SessionContext,
    target: str | TopicPattern,
    request: SubscribeRequest,
    places: Mapping[str, Bookmark] | None,
) -> Steps[dict[str, RequestedSubscription]]:
    by_pattern = isinstance(target, TopicPattern)
    topics = _topics_of(context, target, request.grants)
    if by_pattern:
        yield  # matching all names was one step
        known = places or {}
        most = context.settings.session_subscriptions_max
        # Limit them before deciding, which would take a second for ten thousand.
        topics = sorted(topics, key=lambda topic: topic not in known)[:most]

    def decide(piece: Sequence[str]) -> Iterable[tuple[str, RequestedSubscription]]:
        for topic in piece:
            resume = None
            if places is not None:
                resume = place_in(places, topic, context.driver.engine.topic(topic).epoch)
            yield topic, granted_to(context, topic, request, resume, by_pattern=by_pattern)

    return dict((yield from in_pieces(topics, DECIDED_AT_ONCE, decide)))


def declined(context: SessionContext, asked: SessionSubscription) -> dict[str, str]:
    """Return the topics that a pattern matches but the subscription lacks, with their epochs."""
    if isinstance(asked.target, str):
        return {}
    names = _topics_of(context, asked.target, asked.request.grants)
    return {
        name: context.catalog.get(name).record.epoch for name in names if name not in asked.topics
    }


def end_reason(context: SessionContext, topic: str, grants: Grants | None = None) -> str:
    """Return why a subscription ended in a topic: REMOVED, or UNUSABLE here.

    REMOVED of a topic that may not be read with the grants, whether or not it is there.
    """
    is_known = grants is None or grants.may_read(topic)
    is_unusable = is_known and context.catalog.unusable(topic) is not None
    return "UNUSABLE" if is_unusable else "REMOVED"


def _topics_of(
    context: SessionContext, target: str | TopicPattern, grants: Grants | None
) -> list[str]:
    if isinstance(target, str):
        return [target]
    # The gateway's own topics are listed only for a prefix that names them.
    prefix = OWN_PREFIX if target.text.startswith(OWN_PREFIX) else ""
    entries = context.catalog.listed(prefix, "", context.settings.topics_max)
    names = (entry.record.name for entry in entries)
    found = [name for name in names if target.matches(name)]
    return found if grants is None else [name for name in found if grants.may_read(name)]
