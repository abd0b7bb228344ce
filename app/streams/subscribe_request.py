"""Requests to subscribe: as they are read, and what each gets of a topic by its definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

from pydantic import ConfigDict, Field

from tidegate.app.access.entitlement import entitlement_of, narrowed
from tidegate.app.access.grants import Grants, Subject
from tidegate.app.access.limits.quota import Quotas
from tidegate.app.names import checked_topic_name
from tidegate.app.parameters import Parameters, checked_characters, one_of, text
from tidegate.app.refusals import Refused
from tidegate.app.settings.settings import Settings
from tidegate.app.streams.driver import Driver
from tidegate.app.streams.encoding import Format
from tidegate.app.streams.notices import Outage
from tidegate.app.streams.topics import Topics
from tidegate.conflation.options.grant import Request, grant
from tidegate.conflation.options.table import Options
from tidegate.conflation.steps import Steps
from tidegate.conflation.subscription import Command, Shown, Subscription
from tidegate.keys.errors import BookmarkInvalid
from tidegate.keys.text.bookmark import Bookmark

UNKNOWN = Bookmark("unknown", 0)
"""No topic has this epoch: continued by a snapshot."""

PLACES_MAX = 10_000
PLACES_AT_ONCE = 50


def places_of(text: str) -> Steps[dict[str, Bookmark]]:
    """Parse the places of a pattern's reader, `px.eur=e1-7,px.usd=e2-9`: a bookmark of each topic.

    In steps: ten thousand take 30 ms.

    Raises:
        Refused: bookmark-invalid.
    """
    parts = text.split(",")
    if len(parts) > PLACES_MAX:
        raise _invalid(f"at most {PLACES_MAX} topics")
    places: dict[str, Bookmark] = {}
    for number, part in enumerate(parts, start=1):
        name, equals, mark = part.strip().partition("=")
        if not equals or name in places:
            raise _invalid("each topic once, as topic=bookmark")
        places[_checked(name)] = place_of(mark)
        if number % PLACES_AT_ONCE == 0:
            yield
    return places


def place_of(text: str) -> Bookmark:
    """Return a bookmark, or the place that no topic knows."""
    # An id of another kind, or of a version before, gets a snapshot rather than a refusal that a
    # browser would repeat for ever.
    try:
        return Bookmark.parse(text)
    except BookmarkInvalid:
        return UNKNOWN


def place_in(places: Mapping[str, Bookmark], topic: str, epoch: str) -> Bookmark:
    """Return where a reader goes on in a topic."""
    # A topic that it does not name has been made since.
    return places.get(topic, Bookmark(epoch, 0))


def _checked(name: str) -> str:
    try:
        return checked_topic_name(name)
    except Refused as refusal:
        raise _invalid("a topic's name before =") from refusal


def _invalid(expected: str) -> Refused:
    return Refused("bookmark-invalid", f"bookmarks: {expected}.")


@dataclass(frozen=True, slots=True)
class SessionContext:
    """The parts of a gateway that its sessions work with."""

    gateway_id: str
    settings: Settings
    driver: Driver
    catalog: Topics
    outage: Outage
    quotas: Quotas


class SubscriptionParameters(Parameters):
    """What of a topic, and how: texts of a query or of a JSON body, not yet parsed."""

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


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A request to subscribe as it was read, the same for every topic of a pattern.

    `earlier`: the options that it had before it was changed; they hold where the newer ones say
    nothing. `many`: it is one subscription among others, so rows must say whose they are. `grants`:
    of the subject that asks; None without authentication.
    """

    options: Options = field(default_factory=Options)
    filter_text: str = ""
    order_text: str = ""
    command: str | None = None
    form: Format | None = None
    earlier: Options = field(default_factory=Options)
    many: bool = False
    grants: Grants | None = None

    @classmethod
    def parse(
        cls,
        asked: SubscriptionParameters,
        characters_max: int,
        *,
        many: bool = False,
        grants: Grants | None = None,
    ) -> SubscribeRequest:
        """Parse the texts of a request, each of at most `characters_max` characters.

        Raises:
            Refused, EngineError: options-invalid, or filter-invalid for a filter that is too long.
        """
        texts = {name: getattr(asked, name) or "" for name in ("options", "filter", "order_by")}
        for name, given in texts.items():
            checked_characters(given, characters_max, asked.codes[name], name)
        return cls(
            Options.parse(texts["options"]),
            texts["filter"],
            texts["order_by"],
            asked.command,
            _format_named(asked.format),
            many=many,
            grants=grants,
        )

    def by(self, subject: Subject | None) -> SubscribeRequest:
        """Return the request as this subject makes it."""
        return self if subject is None else replace(self, grants=subject.grants)

    def changed(
        self,
        options: Options | None = None,
        filter_text: str | None = None,
        order_text: str | None = None,
    ) -> SubscribeRequest:
        """Return the request that a change makes of it; None changes nothing.

        Options are laid over the earlier ones, and stand in their place with `replace`.
        """
        request = self
        if options is not None:
            before = self.options.over(self.earlier)
            for name in ("pause", "resume", "replace"):  # acts, which do not stay
                before = before.without(name)
            request = replace(
                request, options=options, earlier=Options() if options.replace else before
            )
        if filter_text is not None:
            request = replace(request, filter_text=filter_text)
        if order_text is not None:
            request = replace(request, order_text=order_text)
        return request


class RequestedSubscription(NamedTuple):
    """What a request gets of one topic, how it is written, and what the asker should know."""

    subscription: Subscription
    form: Format
    warnings: tuple[str, ...]


def decided(
    context: SessionContext,
    name: str,
    asked: SubscriptionParameters,
    resume: Bookmark | None = None,
    *,
    by_pattern: bool = False,
    grants: Grants | None = None,
) -> RequestedSubscription:
    """Decide a request to subscribe to one topic.

    Subscribing and explaining both ask here, so that they cannot disagree.

    Raises:
        Refusal: forbidden, topic-unknown, options-invalid, filter-invalid.
    """
    if grants is not None:
        grants.required(name)
    context.catalog.get(name)
    characters_max = context.settings.options_characters_max
    request = SubscribeRequest.parse(asked, characters_max, many=by_pattern, grants=grants)
    return granted_to(context, name, request, resume, by_pattern=by_pattern)


def granted_to(
    context: SessionContext,
    name: str,
    request: SubscribeRequest,
    resume: Bookmark | None = None,
    *,
    by_pattern: bool = False,
) -> RequestedSubscription:
    """Decide what a request gets of one topic; it may be decided again, for other topics too.

    Raises:
        Refusal: forbidden, topic-unknown, options-invalid, filter-invalid.
    """
    if request.grants is not None:  # first: a topic that may not be read must not be known either
        request.grants.required(name)
    entry = context.catalog.get(name)
    definition = context.driver.engine.topic(name).definition
    grants = request.grants
    entitlement = None if grants is None else entitlement_of(grants, definition, name)
    # Of many a row must name its topic.
    form = request.form or (Format.BATCH if request.many else None)
    grant_request = Request(
        name,
        definition,
        request.options,
        defaults=Options.parse(entry.document.options),
        command=request.command,
        filter_text=request.filter_text,
        order_text=request.order_text,
        default_pace=context.settings.default_pace,
        resume=resume,
        # An envelope names the first message of a row, and max_age watches its time.
        counted=form not in {None, Format.VALUE},
        by_pattern=by_pattern,
        earlier=request.earlier,
    )
    granted = grant(grant_request)
    shown = granted.subscription.shown
    form = form or _format_fitting(shown)
    if not grant_request.counted and (form is not Format.VALUE or shown.max_age_ns is not None):
        granted = grant(replace(grant_request, counted=True))
    subscription = granted.subscription
    if entitlement is not None:
        subscription = narrowed(subscription, entitlement, definition)
    return RequestedSubscription(subscription, form, granted.warnings)


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
    """Grant again what was granted before, by its normalised options.

    No default can change it anymore.

    Raises:
        Refusal: the topic is not there, or not as it was.
    """
    if request.grants is not None:
        request.grants.required(name)
    entry = context.catalog.get(name)
    definition = context.driver.engine.topic(name).definition
    entitlement = entitlement_of(request.grants, definition, name)
    grant_request = Request(
        name,
        definition,
        # The topic may have been given other options since: what was granted stays.
        Options.parse(options_text).over(Options.of(no_defaults=True)),
        defaults=Options.parse(entry.document.options),
        command=command,
        filter_text=request.filter_text,
        order_text=request.order_text,
        counted=counted,
        by_pattern=by_pattern,
    )
    subscription = grant(grant_request).subscription
    return subscription if entitlement is None else narrowed(subscription, entitlement, definition)


def _format_named(text: str | None) -> Format | None:
    if text is None:
        return None
    return Format(one_of(text, tuple(Format), code="options-invalid", what="format"))


def _format_fitting(shown: Shown) -> Format:
    """Return the format of a request that names none: some options show only in envelopes."""
    in_envelope = shown.timestamp or shown.send_keys or shown.receipt
    return Format.ENVELOPE if in_envelope else Format.VALUE
