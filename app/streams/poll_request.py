"""Requests to poll a topic: the options of subscriptions that apply without a connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tidegate.app.access.grants import Grants
from tidegate.app.refusals import Refused
from tidegate.app.streams.decisions import (
    SessionContext,
    SubscriptionParameters,
    granted_to,
)
from tidegate.app.streams.encoding import Format
from tidegate.app.streams.polled_pages import RowForm
from tidegate.app.streams.subscribe_request import SubscribeRequest
from tidegate.conflation.definition import Kind
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.table import Options
from tidegate.conflation.subscription import AUTO, Command, Subscription
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import SECOND

INTERVAL_NS: Final = SECOND
"""The interval of records if neither the request nor the topic has one."""

ALLOWED: Final = (
    "conflation",
    "conflation_key",
    "pace",
    "oof",
    "select",
    "projection",
    "grouping",
    "top_n",
    "skip_n",
    "no_defaults",
)

WHY_NOT: Final[Mapping[str, str]] = {
    "bookmark": "the parameter offset says where to begin",
    "bookmark_not_found": "the parameter offset says where to begin",
    "rate": "a reader asks as fast as it likes",
    "rate_max_gap": "a reader asks as fast as it likes",
    "batch_size": "pages are as long as the gateway makes them",
    "pause": "a reader that does not ask gets nothing",
    "progress": "each answer says how far it leads",
    "min": "auto measures a connection, and a polling reader has none",
    "max": "auto measures a connection, and a polling reader has none",
    "max_age": "an answer may be kept by a cache, and no age at a socket can be promised",
    "send_keys": "rows of format=state have their key",
    "no_sowkey": "rows of format=state have their key",
}
"""Options that a polled stream refuses, with the reason."""
OF_RECORDS: Final = ("conflation_key", "projection", "top_n")
"""Options that a stream without records refuses: it is the journal."""
ONE_KEY: Final = KeySpec.parse("[/tidegate]")
"""The conflation key on a topic without a key: its lane only decides when to flush."""
BY_MESSAGE: Final = "it examines every message, and a position only knows the newest of each key"


@dataclass(frozen=True, slots=True)
class PollRequest:
    """What a polling reader is granted of one topic: a subscription, and the form of its rows."""

    subscription: Subscription
    form: RowForm
    kind: Kind


class PollTexts(NamedTuple):
    """The parameters that select rows, as texts; empty if they are not given."""

    options: str = ""
    filter: str = ""
    order_by: str = ""
    form: str = ""


def granted_poll(
    context: SessionContext, name: str, asked: PollTexts, grants: Grants | None
) -> PollRequest:
    """Decide what a polling reader gets of a topic that it may read, as of a subscription.

    Raises:
        Refusal: forbidden, topic-unknown, options-invalid, filter-invalid.
    """
    entry = context.catalog.get(name)
    definition = context.driver.engine.topic(name).definition
    characters_max = context.settings.options_characters_max
    parameters = SubscriptionParameters(
        options=asked.options, filter=asked.filter, order_by=asked.order_by
    )
    request = SubscribeRequest.parse(parameters, characters_max, grants=grants)
    # A topic without a key has one record at most, and of a series every message counts: both are
    # read from the journal.
    has_records = bool(definition.key_spec) and entry.document.kind is not Kind.SERIES
    own = Options() if request.options.no_defaults else Options.parse(entry.document.options)
    options = _completed(request.options, own, has_records=has_records)
    if options.conflation and definition.has_fields and not definition.conflation_key:
        options = options.over(Options.of(conflation_key=ONE_KEY))
    is_shaped = options.projection is not None or options.top_n is not None
    request = replace(
        request,
        options=options,
        form=Format.VALUE,
        command=None if is_shaped else Command.SUBSCRIBE,
    )
    subscription = granted_to(context, name, request).subscription
    _check(subscription, options, has_records=has_records)
    if asked.form == RowForm.STATE and not has_records:
        raise Refused("options-invalid", "format=state needs a topic with a key, and no series.")
    form = RowForm(asked.form) if asked.form else (RowForm.STATE if has_records else RowForm.VALUE)
    return PollRequest(subscription, form, entry.document.kind)


def _completed(asked: Options, own: Options, *, has_records: bool) -> Options:
    """Return a request's options with those of the topic that are allowed, and an interval.

    Raises:
        OptionsInvalid: an option that is not allowed.
    """
    for name in asked.said:
        if name not in ALLOWED:
            reason = WHY_NOT.get(name, BY_MESSAGE)
            raise OptionsInvalid(f"{name}: a stream does not take it: {reason}", _at(asked, name))
    if asked.conflation == AUTO:
        detail = "conflation: auto measures a connection, and a polling reader has none"
        raise OptionsInvalid(detail, _at(asked, "conflation"))
    if asked.pace == "key":
        raise OptionsInvalid(f"pace: a stream does not take it: {BY_MESSAGE}", _at(asked, "pace"))
    fitting = {name: value for name, value in own.said.items() if name in ALLOWED}
    if not has_records:
        for name in OF_RECORDS:
            if name in asked.said:
                detail = f"{name}: of this topic a stream is the journal, in which all messages are"
                raise OptionsInvalid(detail, _at(asked, name))
        others = ("projection", "top_n", "skip_n", "oof")
        fitting = {name: value for name, value in fitting.items() if name not in others}
    if fitting.get("conflation") == AUTO or fitting.get("conflation") == 0:
        del fitting["conflation"]
    interval_ns = INTERVAL_NS if has_records else None
    wanted = Options.of(conflation=interval_ns, pace="batch", oof=has_records, no_defaults=True)
    options = asked.over(Options(fitting)).over(wanted)
    if has_records and options.conflation == 0:
        detail = "conflation: a stream of records lets changes go at an interval"
        raise OptionsInvalid(detail, _at(asked, "conflation"))
    said = {**options.said, "pace": "batch"}
    if not has_records:
        said.pop("oof", None)  # it changes nothing: the journal has no removals
    return replace(options, said=said)


def _check(subscription: Subscription, options: Options, *, has_records: bool) -> None:
    """Refuse options that need more than a board.

    Raises:
        OptionsInvalid: with the reason.
    """
    lane_id = subscription.lane_id
    if has_records and not lane_id.asks_board:
        raise OptionsInvalid("the topic combines messages (merge), and a position knows none of it")
    if has_records and not lane_id.oof:
        detail = "conflation_key: a stream has the removals of records, so their key is its key"
        raise OptionsInvalid(detail, _at(options, "conflation_key"))


def _at(options: Options, name: str) -> int | None:
    return options.positions.get(name)
