"""Documents: the JSON that opens, changes and tunes sessions and subscriptions, read strictly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from app.problems import Problem, unknown_field
from app.query import checked_characters, checked_topic_name
from app.topic_pattern import TopicPattern
from app.units import parse_size
from app.wish import PARAMETERS, Wish
from conflation.errors import EngineError
from conflation.language.options import Options
from conflation.sessions.session import QueueLimits
from keys.errors import JsonInvalid, KeysError
from keys.jsontext import check_json, decoded

PERCENT_MAX = 100

_ASKED = ("topic", "options", "filter", "order_by", "command", "format")
_CHANGED = ("options", "conflation", "filter", "order_by", "paused")
_LIMITS = ("messages", "bytes", "upper", "lower")

# What null stands for in a change of a subscription.
_UNSAID = {"options": "replace", "filter": "", "order_by": "", "paused": False}


@dataclass(frozen=True, slots=True)
class Target:
    """What a subscription is to: a topic or a pattern, and the wish of it."""

    topic: str | TopicPattern
    wish: Wish
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class Opening:
    """A session as it is to be opened."""

    limits: QueueLimits
    conflated: bool
    subscriptions: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Tuning:
    """What of a session is to be otherwise."""

    limits: QueueLimits
    conflated: bool


@dataclass(frozen=True, slots=True)
class Change:
    """What of a subscription is to be otherwise; None leaves it as it is."""

    options: Options | None
    filter_text: str | None
    order_text: str | None
    paused: bool | None


def opening_of(body: bytes, most: QueueLimits, characters_max: int) -> Opening:
    """Of `POST /v1/sessions`; an empty body asks for nothing special.

    Raises:
        Problem: with the pointer to what is wrong.
    """
    document = _object(body or b"{}", ("limits", "conflated", "subscriptions"))
    wanted = document.get("subscriptions", [])
    if not isinstance(wanted, list):
        raise Problem("options-invalid", "subscriptions is a list.", pointer="/subscriptions")
    return Opening(
        _limits(document.get("limits"), most, most),
        _boolean(document, "conflated") is not False,
        tuple(
            _target(each, characters_max, f"/subscriptions/{at}") for at, each in enumerate(wanted)
        ),
    )


def tuning_of(body: bytes, now: Tuning, most: QueueLimits) -> Tuning:
    """Of `PATCH /v1/sessions/{id}`: what is not named stays, null is what the gateway has.

    Raises:
        Problem: with the pointer to what is wrong.
    """
    document = _restored(_change(body, ("limits", "conflated")), {"conflated": True})
    conflated = _boolean(document, "conflated")
    limits = _tuned(document["limits"], now.limits, most) if "limits" in document else now.limits
    return Tuning(limits, now.conflated if conflated is None else conflated)


def target_of(body: bytes, characters_max: int) -> Target:
    """Of `POST /v1/sessions/{id}/subscriptions`.

    Raises:
        Problem, EngineError: with the pointer to what is wrong.
    """
    return _target(_object(body, _ASKED), characters_max, "")


def change_of(body: bytes, characters_max: int) -> Change:
    """Of `PATCH /v1/sessions/{id}/subscriptions/{sub}`: `conflation` stands for that option alone.

    Null is what a subscription has that does not say it; of `conflation` it is refused, as the
    topic's options need not have been asked for.

    Raises:
        Problem, EngineError: with the pointer to what is wrong.
    """
    document = _restored(_change(body, _CHANGED), _UNSAID)
    texts = {name: _text(document, name, characters_max, "") for name in _CHANGED[:-1]}
    if texts["options"] is not None and texts["conflation"] is not None:
        detail = "conflation stands in options, or beside them, not in both."
        raise Problem("options-invalid", detail, pointer="/conflation")
    options_text = texts["options"]
    if texts["conflation"] is not None:
        options_text = f"conflation={_one(texts['conflation'])}"
    options = None if options_text is None else Options.parse(options_text, is_change=True)
    if options is not None and options.bookmark is not None:
        detail = "bookmark: only where a subscription begins."
        raise Problem("options-invalid", detail, position=options.position("bookmark"))
    paused = _boolean(document, "paused")
    if options is not None and (options.pause or options.resume):
        if paused is not None or (options.pause and options.resume):
            detail = "The subscription is to be paused, or to go on: say one of them once."
            raise Problem("options-invalid", detail, pointer="/paused")
        paused = options.pause
    return Change(options, texts["filter"], texts["order_by"], paused)


def _one(conflation: str) -> str:
    if "," in conflation:
        raise Problem("options-invalid", "conflation is one value.", pointer="/conflation")
    return conflation


def _target(document: object, characters_max: int, pointer: str) -> Target:
    fields = _fields(document, _ASKED, pointer)
    topic = fields.get("topic")
    if not isinstance(topic, str):
        raise Problem("topic-invalid", "topic is a text.", pointer=f"{pointer}/topic")
    texts = {name: _text(fields, name, characters_max, pointer) for name in _ASKED[1:]}
    values = {name: text for name, text in texts.items() if text is not None}
    with pointing(pointer):
        wish = Wish.parse(values, characters_max, many=True)
        is_pattern = "*" in topic or ">" in topic
        target = TopicPattern.parse(topic) if is_pattern else checked_topic_name(topic)
    return Target(target, wish, pointer)


@contextmanager
def pointing(pointer: str) -> Iterator[None]:
    """Whatever is refused in here is refused at this place of the body; "" is the whole of it.

    Raises:
        Problem: with the pointer.
    """
    try:
        yield
    except (EngineError, KeysError) as error:
        raise Problem(
            error.code, f"{error.detail}.", position=error.position, pointer=pointer or None
        ) from None
    except Problem as problem:
        problem.pointer = problem.pointer or pointer or None
        raise


def _limits(document: object, now: QueueLimits, most: QueueLimits) -> QueueLimits:
    """Limits that are no greater than the gateway's; what is not named stays as it is now."""
    if document is None:
        return now
    fields = _fields(document, _LIMITS, "/limits")
    upper = _number(fields, "upper", now.upper_percent, PERCENT_MAX)
    lower = _number(fields, "lower", now.lower_percent, PERCENT_MAX)
    if lower > upper:
        raise Problem("options-invalid", "lower is above upper.", pointer="/limits/lower")
    return QueueLimits(
        _number(fields, "messages", now.messages_max, most.messages_max),
        _number(
            _sized(fields), "bytes", now.bytes_max, most.bytes_max, ', or a size such as "1MiB"'
        ),
        upper,
        lower,
    )


def _tuned(document: object, now: QueueLimits, most: QueueLimits) -> QueueLimits:
    """Limits after a change of some; null is the gateway's own, of one or of all."""
    if document is None:
        return most
    values = (most.messages_max, most.bytes_max, most.upper_percent, most.lower_percent)
    fields = _fields(document, _LIMITS, "/limits")
    return _limits(_restored(fields, dict(zip(_LIMITS, values, strict=True))), now, most)


def _restored(fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields of a merge patch, with the default where null restores it."""
    return {name: defaults.get(name) if it is None else it for name, it in fields.items()}


def _sized(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Bytes may be written with a unit."""
    text = fields.get("bytes")
    if not isinstance(text, str):
        return fields
    try:
        return {**fields, "bytes": parse_size(text)}
    except ValueError as error:
        detail = f"bytes: {error}."
        raise Problem("options-invalid", detail, pointer="/limits/bytes") from None


def _number(
    fields: Mapping[str, Any], name: str, default: int, most: int, written: str = ""
) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        detail = f"{name} is a whole number from 1 to {most}{written}."
        raise Problem("options-invalid", detail, pointer=f"/limits/{name}")
    return value


def _boolean(fields: Mapping[str, Any], name: str) -> bool | None:
    value = fields.get(name)
    if name in fields and not isinstance(value, bool):
        raise Problem("options-invalid", f"{name} is true or false.", pointer=f"/{name}")
    return None if value is None else bool(value)


def _text(fields: Mapping[str, Any], name: str, characters_max: int, pointer: str) -> str | None:
    value = fields.get(name)
    if name not in fields:
        return None
    code = PARAMETERS.get(name, "options-invalid")
    if not isinstance(value, str):
        raise Problem(code, f"{name} is a text.", pointer=f"{pointer}/{name}")
    with pointing(f"{pointer}/{name}"):
        return checked_characters(value, characters_max, code, name)


def _change(body: bytes, known: Sequence[str]) -> Mapping[str, Any]:
    document = _object(body, known)
    if not document:
        raise Problem("options-invalid", f"There is nothing to change: {', '.join(known)}.")
    return document


def _object(body: bytes, known: Sequence[str]) -> Mapping[str, Any]:
    try:
        check_json(body)
        document = decoded(body)
    except JsonInvalid as error:
        raise Problem("options-invalid", f"{error.detail}.", position=error.position) from None
    return _fields(document, known, "")


def _fields(document: object, known: Sequence[str], pointer: str) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise Problem("options-invalid", "A JSON object is wanted.", pointer=pointer or None)
    if any(name not in known for name in document):
        raise unknown_field("options-invalid", document, known, pointer)
    return document
