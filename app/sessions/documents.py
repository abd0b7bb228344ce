"""Documents: the JSON that opens, changes and tunes sessions and subscriptions, read strictly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from tidegate.app.delivery.encoding import Format
from tidegate.app.http.bodies import Document, Strict, invalid, read
from tidegate.app.http.names import TopicPattern
from tidegate.app.http.problems import Problem
from tidegate.app.http.requests import checked_topic_name
from tidegate.app.sessions.subscribe_request import SubscribeRequest, SubscriptionParameters
from tidegate.conflation.errors import EngineError
from tidegate.conflation.options.parse import Options
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.subscription import Command
from tidegate.keys.errors import KeysError
from tidegate.keys.text.size import parse_size

PERCENT_MAX = 100

CODES = {"topic": "topic-invalid", "filter": "filter-invalid"}

# What null stands for in a change of a subscription.
_UNSAID: Mapping[str, Any] = {"options": "replace", "filter": "", "order_by": "", "paused": False}

_COMMANDS: dict[str, Any] = {"enum": [str(command) for command in Command]}
_FORMATS: dict[str, Any] = {"enum": [str(form) for form in Format]}
_SIZE = 'A number, or a size: "1MiB"'
_OPTIONS = "As in `conflation=1s,pace=batch`"
_FILTER = "Which messages: AMPS's filter language"
_ORDER = "Order of snapshot rows and windows: /a DESC,/b"


class LimitsDocument(Strict):
    """Of a session's queue, at most the gateway's own; `upper` and `lower` are percent."""

    messages: Annotated[int, Field(ge=1, default_factory=int)]
    bytes: Annotated[int | str, Field(default_factory=int, description=_SIZE)]
    upper: Annotated[int, Field(ge=1, le=PERCENT_MAX, default_factory=int)]
    lower: Annotated[int, Field(ge=1, le=PERCENT_MAX, default_factory=int)]

    @field_validator("*", mode="before")
    @classmethod
    def _check_number(cls, value: Any, info: ValidationInfo) -> int:
        """A number within the bounds that the gateway has."""
        return _number(value, info)


class LimitsPatch(Strict):
    """What of the limits is to be otherwise; null is what the gateway has."""

    messages: Annotated[int | None, Field(ge=1)] = None
    bytes: Annotated[int | str | None, Field(description=_SIZE)] = None
    upper: Annotated[int | None, Field(ge=1, le=PERCENT_MAX)] = None
    lower: Annotated[int | None, Field(ge=1, le=PERCENT_MAX)] = None

    @field_validator("*", mode="before")
    @classmethod
    def _check_number(cls, value: Any, info: ValidationInfo) -> int | None:
        """A number within the bounds that the gateway has, or null."""
        return None if value is None else _number(value, info)


class SubscriptionRequest(Strict):
    """What to subscribe to, and how."""

    codes = CODES

    topic: Annotated[str, Field(description="A topic's name, or a pattern: px.*.eu, px.>")]
    options: Annotated[str, Field(description=_OPTIONS)] = ""
    filter: Annotated[str, Field(description=_FILTER)] = ""
    order_by: Annotated[str, Field(description=_ORDER)] = ""
    command: Annotated[str, Field(default_factory=str, json_schema_extra=_COMMANDS)]
    format: Annotated[str, Field(default_factory=str, json_schema_extra=_FORMATS)]

    @field_validator("options", "filter", "order_by", "command", "format", mode="after")
    @classmethod
    def _check_length(cls, text: str, info: ValidationInfo) -> str:
        """No text is longer than the gateway's setting has it."""
        return _short(text, info)


class SessionOpening(Strict):
    """A session as it is to be opened; all of it may be left out."""

    codes = CODES

    limits: LimitsDocument | None = None
    conflated: Annotated[bool, Field(description="Whether topics' policies hold for it")] = True
    subscriptions: Annotated[list[SubscriptionRequest], Field(default_factory=list)]


class SessionTuning(Strict):
    """A JSON Merge Patch: what is not named stays, null is what the gateway has."""

    limits: LimitsPatch | None = None
    conflated: bool | None = None


class SubscriptionChange(Strict):
    """A JSON Merge Patch: null is what a subscription has that does not say it."""

    codes = CODES

    options: Annotated[str | None, Field(description="Laid over those before")] = None
    conflation: Annotated[str, Field(default_factory=str, description="That option alone")]
    filter: Annotated[str | None, Field(description=_FILTER)] = None
    order_by: Annotated[str | None, Field(description=_ORDER)] = None
    paused: bool | None = None

    @field_validator("options", "conflation", "filter", "order_by", mode="after")
    @classmethod
    def _check_length(cls, text: str | None, info: ValidationInfo) -> str | None:
        """No text is longer than the gateway's setting has it."""
        return None if text is None else _short(text, info)


@dataclass(frozen=True, slots=True)
class Target:
    """What a subscription is to: a topic or a pattern, and the wish of it."""

    topic: str | TopicPattern
    wish: SubscribeRequest
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class SessionDocument:
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


def opening_of(body: bytes, most: QueueLimits, characters_max: int) -> SessionDocument:
    """Of `POST /v1/sessions`; an empty body asks for nothing special.

    Raises:
        Problem: with the pointer to what is wrong.
    """
    asked = read(SessionOpening, body or b"{}", most=most, characters_max=characters_max)
    targets = [
        _target(each, characters_max, f"/subscriptions/{at}")
        for at, each in enumerate(asked.subscriptions)
    ]
    limits = most if asked.limits is None else _limits(_said(asked.limits), most)
    return SessionDocument(limits, asked.conflated, tuple(targets))


def tuning_of(body: bytes, now: Tuning, most: QueueLimits) -> Tuning:
    """Of `PATCH /v1/sessions/{id}`: what is not named stays, null is what the gateway has.

    Raises:
        Problem: with the pointer to what is wrong.
    """
    asked = _changed(read(SessionTuning, body, most=most))
    conflated = now.conflated
    if "conflated" in asked.model_fields_set:
        conflated = asked.conflated is not False
    limits = now.limits
    if "limits" in asked.model_fields_set:
        limits = most if asked.limits is None else _limits(_said(asked.limits), limits, most)
    return Tuning(limits, conflated)


def target_of(body: bytes, characters_max: int) -> Target:
    """Of `POST /v1/sessions/{id}/subscriptions`.

    Raises:
        Problem, EngineError: with the pointer to what is wrong.
    """
    return _target(
        read(SubscriptionRequest, body, characters_max=characters_max), characters_max, ""
    )


def change_of(body: bytes, characters_max: int) -> Change:
    """Of `PATCH /v1/sessions/{id}/subscriptions/{sub}`: `conflation` stands for that option alone.

    Null is what a subscription has that does not say it; of `conflation` it is refused, as the
    topic's options need not have been asked for.

    Raises:
        Problem, EngineError: with the pointer to what is wrong.
    """
    asked = _changed(read(SubscriptionChange, body, characters_max=characters_max))
    said = {name: _UNSAID[name] if it is None else it for name, it in _said(asked).items()}
    if "options" in said and "conflation" in said:
        detail = "conflation stands in options, or beside them, not in both."
        raise Problem("options-invalid", detail, pointer="/conflation")
    options_text = said.get("options")
    if "conflation" in said:
        options_text = f"conflation={_one(said['conflation'])}"
    options = None if options_text is None else Options.parse(options_text, is_change=True)
    if options is not None and options.bookmark is not None:
        detail = "bookmark: only where a subscription begins."
        raise Problem("options-invalid", detail, position=options.position("bookmark"))
    paused = said.get("paused")
    if options is not None and (options.pause or options.resume):
        if paused is not None or (options.pause and options.resume):
            detail = "The subscription is to be paused, or to go on: say one of them once."
            raise Problem("options-invalid", detail, pointer="/paused")
        paused = options.pause
    return Change(options, said.get("filter"), said.get("order_by"), paused)


def _one(conflation: str) -> str:
    if "," in conflation:
        raise Problem("options-invalid", "conflation is one value.", pointer="/conflation")
    return conflation


def _target(asked: SubscriptionRequest, characters_max: int, pointer: str) -> Target:
    topic, texts = asked.topic, asked.model_dump(exclude_unset=True, exclude={"topic"})
    with pointing(pointer):
        wish = SubscribeRequest.parse(SubscriptionParameters(**texts), characters_max, many=True)
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


def _said(document: Strict) -> dict[str, Any]:
    """The fields that the client named."""
    return {name: getattr(document, name) for name in document.model_fields_set}


def _changed(document: Document) -> Document:
    if not document.model_fields_set:
        known = ", ".join(type(document).model_fields)
        raise Problem("options-invalid", f"There is nothing to change: {known}.")
    return document


def _bounds(limits: QueueLimits) -> dict[str, int]:
    return {
        "messages": limits.messages_max,
        "bytes": limits.bytes_max,
        "upper": limits.upper_percent,
        "lower": limits.lower_percent,
    }


def _limits(
    said: Mapping[str, int | None], now: QueueLimits, most: QueueLimits | None = None
) -> QueueLimits:
    """What is not named stays as it is now; null is the gateway's own."""
    own = _bounds(most or now)
    named = {name: own[name] if value is None else value for name, value in said.items()}
    values = _bounds(now) | named
    if values["lower"] > values["upper"]:
        raise Problem("options-invalid", "lower is above upper.", pointer="/limits/lower")
    return QueueLimits(values["messages"], values["bytes"], values["upper"], values["lower"])


def _number(value: object, info: ValidationInfo) -> int:
    """One of the limits; bytes may be written with a unit."""
    name, most = info.field_name or "", _context(info)["most"]
    written = ', or a size such as "1MiB"' if name == "bytes" else ""
    if name == "bytes" and isinstance(value, str):
        try:
            value = parse_size(value)
        except ValueError as error:
            raise invalid("options-invalid", f"bytes: {error}.") from None
    greatest = _bounds(most)[name] if name in ("messages", "bytes") else PERCENT_MAX
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= greatest:
        detail = f"{name} is a whole number from 1 to {greatest}{written}."
        raise invalid("options-invalid", detail)
    return value


def _context(info: ValidationInfo) -> Mapping[str, Any]:
    """What the gateway's settings allow."""
    context: Mapping[str, Any] | None = info.context
    assert context is not None, "read() gives it"
    return context


def _short(text: str, info: ValidationInfo) -> str:
    name, characters_max = info.field_name or "", _context(info)["characters_max"]
    if len(text) > characters_max:
        detail = f"{name} has at most {characters_max} characters."
        raise invalid(CODES.get(name, "options-invalid"), detail)
    return text
