"""A wish: what a request to subscribe asks of a topic, decided by the topic's own definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from app.gateway import Gateway
from app.query import checked_characters, one_of
from app.sse import Format
from app.topic_document import TopicDocument
from conflation.bookmark import Bookmark
from conflation.language.grant import Request, grant
from conflation.language.options import Options
from conflation.subscription import Shown, Subscription

PARAMETERS: Mapping[str, str] = {
    "options": "options-invalid",
    "filter": "filter-invalid",
    "order_by": "options-invalid",
    "command": "options-invalid",
    "format": "options-invalid",
    "last_event_id": "bookmark-invalid",
}


class Decided(NamedTuple):
    """What a request gets of one topic, how it is written, and what the asker should know."""

    subscription: Subscription
    form: Format
    warnings: tuple[str, ...]


def decided(
    gateway: Gateway,
    name: str,
    values: Mapping[str, str],
    resume: Bookmark | None = None,
    *,
    by_pattern: bool = False,
) -> Decided:
    """Decide a request by the values of its PARAMETERS.

    Subscribing and explaining both ask here, so that they cannot disagree.

    Raises:
        Problem, EngineError, KeysError: topic-unknown, options-invalid, filter-invalid.
    """
    entry = gateway.catalog.get(name)
    given = {parameter: _text(gateway, values, parameter) for parameter in _TEXTS}
    request = Request(
        name,
        gateway.driver.engine.topic(name).definition,
        Options.parse(given["options"]),
        defaults=Options.parse(_defaults(entry.document)),
        command=values.get("command"),
        filter_text=given["filter"],
        order_text=given["order_by"],
        default_pace=gateway.settings.default_pace,
        resume=resume,
        by_pattern=by_pattern,
    )
    granted = grant(request)
    shown = granted.subscription.shown
    form = _format(values.get("format"), shown, by_pattern=by_pattern)
    if form is not Format.VALUE or shown.max_age_ns is not None:
        granted = grant(replace(request, counted=True))  # whose first message is told, or watched
    return Decided(granted.subscription, form, granted.warnings)


def _defaults(document: TopicDocument) -> str:
    """The topic's own options; a key that keeps no records is still what an interval goes by."""
    if document.retains or not document.key_spec:
        return document.options
    if Options.parse(document.options).conflation_key is not None:
        return document.options
    return ",".join(filter(None, (document.options, f"conflation_key={document.key_spec}")))


_TEXTS = ("options", "filter", "order_by")


def _text(gateway: Gateway, values: Mapping[str, str], parameter: str) -> str:
    characters_max = gateway.settings.options_characters_max
    code = PARAMETERS[parameter]
    return checked_characters(values.get(parameter, ""), characters_max, code, parameter)


def _format(named: str | None, shown: Shown, *, by_pattern: bool) -> Format:
    """What only envelopes can show asks for envelopes; a pattern's rows must name their topic."""
    if named is not None:
        return Format(one_of(named, tuple(Format), code="options-invalid", what="format"))
    if by_pattern:
        return Format.BATCH
    in_envelope = shown.timestamp or shown.send_keys or shown.receipt
    return Format.ENVELOPE if in_envelope else Format.VALUE
