"""Requests to subscribe: their parsing, and what a topic's definition grants to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from tidegate.app.access.grants import Grants, Subject
from tidegate.app.names import checked_topic_name
from tidegate.app.refusals import Refused
from tidegate.app.streams.encoding import Format
from tidegate.app.texts import checked_characters, one_of
from tidegate.conflation.definition import Definition
from tidegate.conflation.options.grant import Request, grant
from tidegate.conflation.options.table import Options
from tidegate.conflation.steps import Steps
from tidegate.conflation.subscription import Shown, Subscription
from tidegate.keys.errors import BookmarkInvalid
from tidegate.keys.text.bookmark import Bookmark

UNKNOWN = Bookmark("unknown", 0)
"""A place whose epoch no topic has: a reader resumes from it with a snapshot."""

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
    """Parse a bookmark; return `UNKNOWN` for any other text."""
    # An id of another kind or version resumes with a snapshot: a browser would repeat a refused
    # request for ever.
    try:
        return Bookmark.parse(text)
    except BookmarkInvalid:
        return UNKNOWN


def place_in(places: Mapping[str, Bookmark], topic: str, epoch: str) -> Bookmark:
    """Return where a reader resumes in a topic."""
    # A topic that it does not name has been created since.
    return places.get(topic, Bookmark(epoch, 0))


def _checked(name: str) -> str:
    try:
        return checked_topic_name(name)
    except Refused as refusal:
        raise _invalid("a topic's name before =") from refusal


def _invalid(expected: str) -> Refused:
    return Refused("bookmark-invalid", f"bookmarks: {expected}.")


CODES = {"options": "options-invalid", "filter": "filter-invalid", "order_by": "options-invalid"}
"""The texts whose length is bounded, with the code of a refusal."""


class SubscribeTexts(Protocol):
    """The parameters of a request as texts; None for one that is not given."""

    @property
    def options(self) -> str | None:
        """Such as `conflation=1s,pace=batch`."""

    @property
    def filter(self) -> str | None:
        """Which messages."""

    @property
    def order_by(self) -> str | None:
        """The order of snapshot rows and windows."""

    @property
    def command(self) -> str | None:
        """One of `Command`."""

    @property
    def format(self) -> str | None:
        """One of `Format`."""


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A parsed request to subscribe, which is the same for every topic of a pattern.

    `earlier`: the options before a change; they apply where the newer ones say nothing. `many`: the
    session may have several subscriptions, so rows must name theirs. `grants`: those of the
    subject; None without authentication.
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
        asked: SubscribeTexts,
        characters_max: int,
        *,
        many: bool = False,
        grants: Grants | None = None,
    ) -> SubscribeRequest:
        """Parse the texts of a request, each of at most `characters_max` characters.

        Raises:
            Refused, EngineError: options-invalid, or filter-invalid for a filter that is too long.
        """
        texts: dict[str, str] = {name: getattr(asked, name) or "" for name in CODES}
        for name, given in texts.items():
            checked_characters(given, characters_max, CODES[name], name)
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
        """Return the request with the grants of a subject."""
        return self if subject is None else replace(self, grants=subject.grants)

    def changed(
        self,
        options: Options | None = None,
        filter_text: str | None = None,
        order_text: str | None = None,
    ) -> SubscribeRequest:
        """Return the changed request; None changes nothing.

        Options are merged over the earlier ones, or replace them with the option `replace`.
        """
        request = self
        if options is not None:
            before = self.options.over(self.earlier)
            for name in ("pause", "resume", "replace"):  # commands, which are not kept
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
    """What a request is granted of one topic, the format of its rows, and warnings."""

    subscription: Subscription
    form: Format
    warnings: tuple[str, ...]


def grant_request(
    name: str,
    definition: Definition,
    request: SubscribeRequest,
    *,
    defaults: Options,
    default_pace: str,
    resume: Bookmark | None = None,
    by_pattern: bool = False,
) -> RequestedSubscription:
    """Decide what a request gets of a topic, regardless of grants.

    Args:
        name: of the topic.
        definition: of the topic.
        request: the parsed request.
        defaults: the topic's own options.
        default_pace: the pace of an interval whose options set none.
        resume: the bookmark after which the reader continues.
        by_pattern: the topic is one of those that a pattern matches.

    Raises:
        Refusal: options-invalid, filter-invalid.
    """
    # With several subscriptions a row must name its topic.
    form = request.form or (Format.BATCH if request.many else None)
    wanted = Request(
        name,
        definition,
        request.options,
        defaults=defaults,
        command=request.command,
        filter_text=request.filter_text,
        order_text=request.order_text,
        default_pace=default_pace,
        resume=resume,
        # An envelope names the first message of a row, and max_age watches its time.
        counted=form not in {None, Format.VALUE},
        by_pattern=by_pattern,
        earlier=request.earlier,
    )
    granted = grant(wanted)
    shown = granted.subscription.shown
    form = form or _format_fitting(shown)
    if not wanted.counted and (form is not Format.VALUE or shown.max_age_ns is not None):
        granted = grant(replace(wanted, counted=True))
    return RequestedSubscription(granted.subscription, form, granted.warnings)


def _format_named(text: str | None) -> Format | None:
    if text is None:
        return None
    return Format(one_of(text, tuple(Format), code="options-invalid", what="format"))


def _format_fitting(shown: Shown) -> Format:
    """Return the format of a request that names none: some options show only in envelopes."""
    in_envelope = shown.timestamp or shown.send_keys or shown.receipt
    return Format.ENVELOPE if in_envelope else Format.VALUE
